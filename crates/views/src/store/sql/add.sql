-- Remembers a view with the settings of this session that the values of expressions may depend on.
INSERT INTO egret.view (schema, name, query, definition, owner, mode, schedule, indexes, settings)
VALUES ($1, $2, $3, $4, coalesce($5, current_user), $6, $7, $8,
        (SELECT coalesce(pg_catalog.string_agg(
                    pg_catalog.format('SET LOCAL %I = %L', setting.name, pg_catalog.current_setting(setting.name)), '; ' ORDER BY setting.name), '')
         FROM pg_catalog.unnest(ARRAY[
             'TimeZone', 'DateStyle', 'IntervalStyle', 'extra_float_digits', 'bytea_output', 'lc_monetary', 'lc_numeric',
             'lc_time', 'default_text_search_config', 'xmlbinary', 'xmloption']) AS setting (name)))
ON CONFLICT (schema, name) DO NOTHING
RETURNING id
