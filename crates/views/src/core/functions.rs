//! Functions that a view may call: their results must depend only on their arguments and on
//! settings, which are stored with the view.

/// Stable functions of PostgreSQL's own that depend on nothing but their arguments and settings
/// such as the time zone. The others read the clock, the session or the catalogue.
const SETTINGS_DEPENDENT_FUNCTIONS: &[&str] = &[
    "anytextcat",
    "array_to_json",
    "array_to_string",
    "concat",
    "concat_ws",
    "date",
    "date_part",
    "date_trunc",
    "extract",
    "format",
    "generate_series",
    "interval_pl_timestamptz",
    "json_agg",
    "json_build_array",
    "json_build_object",
    "json_object_agg",
    "json_populate_record",
    "json_populate_recordset",
    "json_to_record",
    "json_to_recordset",
    "jsonb_agg",
    "jsonb_build_array",
    "jsonb_build_object",
    "jsonb_object_agg",
    "jsonb_populate_record",
    "jsonb_populate_recordset",
    "jsonb_to_record",
    "jsonb_to_recordset",
    "make_timestamptz",
    "phraseto_tsquery",
    "plainto_tsquery",
    "quote_literal",
    "quote_nullable",
    "row_to_json",
    "textanycat",
    "time",
    "timestamp",
    "timestamptz",
    "timetz",
    "timezone",
    "to_char",
    "to_date",
    "to_json",
    "to_jsonb",
    "to_number",
    "to_timestamp",
    "to_tsquery",
    "to_tsvector",
    "websearch_to_tsquery",
];

/// Functions that return the start time of the transaction. The analysis checks where a query
/// calls them.
const CLOCK_FUNCTIONS: [&str; 2] = ["now", "transaction_timestamp"];

/// Whether a function of `pg_catalog` returns the start time of the transaction.
pub(crate) fn is_clock_function(name: &str) -> bool {
    CLOCK_FUNCTIONS.contains(&name)
}

/// Name prefixes of the functions behind operators on dates and times, which depend on the time
/// zone setting only.
const SETTINGS_DEPENDENT_PREFIXES: &[&str] = &["timestamptz_", "timestamp_", "date_", "timetz_"];

/// Why a function cannot be called by a view, if it cannot. `volatility` is that of `pg_proc`.
pub(crate) fn refusal_advice(schema: &str, name: &str, volatility: &str) -> Option<&'static str> {
    match volatility {
        "i" => None,
        "s" if schema == "pg_catalog" => {
            let depends_on_settings_only = is_clock_function(name)
                || SETTINGS_DEPENDENT_FUNCTIONS.contains(&name)
                || SETTINGS_DEPENDENT_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
            (!depends_on_settings_only)
                .then_some("its result may change while no row changes: leave it out")
        }
        "s" => Some(
            "it is declared STABLE, so it may read other tables: declare it IMMUTABLE if it does \
             not",
        ),
        _ => Some("it is VOLATILE, so its result may differ each time: leave it out"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_depend_on_more_than_arguments_and_settings_are_refused() {
        assert_eq!(refusal_advice("public", "mine", "i"), None);
        assert_eq!(refusal_advice("pg_catalog", "to_char", "s"), None);
        assert_eq!(refusal_advice("pg_catalog", "now", "s"), None);
        assert_eq!(refusal_advice("pg_catalog", "timestamptz_pl_interval", "s"), None);
        for (schema, name, volatility) in [
            ("pg_catalog", "statement_timestamp", "s"),
            ("public", "now", "s"),
            ("pg_catalog", "clock_timestamp", "v"),
            ("pg_catalog", "random", "v"),
            ("pg_catalog", "age", "s"),
            ("pg_catalog", "current_setting", "s"),
            ("public", "to_char", "s"),
            ("public", "mine", "v"),
        ] {
            assert!(refusal_advice(schema, name, volatility).is_some(), "{schema}.{name}");
        }
    }
}
