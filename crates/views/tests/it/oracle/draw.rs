//! Random tables, queries and changes.

mod broad;

use egret_base::{Entropy, SeededEntropy};

/// Draws from a seed.
pub struct Draw {
    entropy: SeededEntropy,
    tables: Vec<Table>,
    views: Vec<String>,
    /// WITH of the query that is drawn.
    ctes: Vec<String>,
    next_name: usize,
    /// Whether queries may compare with the clock.
    pub has_clock: bool,
}

#[derive(Clone)]
struct Table {
    name: String,
    has_key: bool,
    is_partitioned: bool,
}

/// The columns of every table beside its key. Subqueries have the first five.
const COLUMNS: [(&str, &str); 13] = [
    ("a", "integer"),
    ("b", "bigint"),
    ("c", "text"),
    ("d", "numeric(10,2)"),
    ("e", "boolean"),
    ("f", "double precision"),
    ("g", "numeric"),
    ("h", "jsonb"),
    ("i", "text[]"),
    ("j", "json"),
    ("m", "mood"),
    ("p", "positive"),
    ("t", "timestamptz"),
];

/// What some values are drawn from.
const VALUES: [(&str, &[&str]); 8] = [
    ("double precision", &["0.5", "1.25", "-3", "0", "'-0'", "'NaN'", "1e10"]),
    ("numeric", &["1", "1.0", "1.00", "2.5", "'NaN'", "-0.125"]),
    ("jsonb", &["'{}'", "'1.0'", "'1'", "'[1, \"a\"]'", "'null'"]),
    ("text[]", &["'{}'", "'{a,NULL}'", "'{b}'"]),
    ("json", &["'{}'", "'{ }'", "'1'"]),
    ("mood", &["'sad'", "'glad'"]),
    ("positive", &["1", "2", "3"]),
    (
        "timestamptz",
        &[
            "'2013-01-01'",
            "'2013-01-01 00:00+02'",
            "'infinity'",
            "clock_timestamp()",
            "clock_timestamp() + interval '20 ms'",
            "clock_timestamp() + interval '60 ms'",
            "clock_timestamp() - interval '1 hour' + interval '30 ms'",
        ],
    ),
];

impl Draw {
    pub fn new(seed: u64) -> Self {
        Self {
            entropy: SeededEntropy::new(seed),
            tables: Vec::new(),
            views: Vec::new(),
            ctes: Vec::new(),
            next_name: 0,
            has_clock: false,
        }
    }

    pub(super) fn random_below(&mut self, limit: usize) -> usize {
        let mut bytes = [0; 8];
        self.entropy.fill(&mut bytes);
        (u64::from_le_bytes(bytes) % limit as u64) as usize
    }

    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.random_below(100) < percent
    }

    pub(super) fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.random_below(choices.len())]
    }

    fn literal(&mut self, kind: &str) -> String {
        if self.chance(20) {
            return "NULL".to_owned();
        }
        match kind {
            "integer" => (self.random_below(6) as i64 - 2).to_string(),
            "bigint" => (self.random_below(40) as i64 * 1_000_000_007).to_string(),
            "text" => format!("'{}'", self.pick(&["x", "y", "z", "", "x y"])),
            "numeric(10,2)" => format!("{}.{:02}", self.random_below(5), self.random_below(4) * 25),
            "boolean" => self.pick(&["true", "false"]).to_owned(),
            _ => {
                let found = VALUES.iter().find(|(name, _)| *name == kind);
                self.pick(found.expect("every type has values").1).to_owned()
            }
        }
    }

    fn row(&mut self) -> String {
        let values: Vec<String> = COLUMNS.iter().map(|(_, kind)| self.literal(kind)).collect();
        format!("({})", values.join(", "))
    }

    /// Two or three tables with some rows.
    pub fn tables(&mut self) -> String {
        let mut script = String::from(
            "CREATE TYPE mood AS ENUM ('sad', 'glad');\nCREATE DOMAIN positive AS integer CHECK (VALUE > 0);\n",
        );
        for index in 0..2 + self.random_below(2) {
            let is_partitioned = self.chance(20);
            let table = Table {
                name: format!("t{index}"),
                has_key: !is_partitioned && self.chance(70),
                is_partitioned,
            };
            let columns: Vec<String> =
                COLUMNS.iter().map(|(name, kind)| format!("{name} {kind}")).collect();
            let key =
                if table.has_key { "id serial PRIMARY KEY, " } else { "id integer DEFAULT 7, " };
            let (name, columns) = (&table.name, columns.join(", "));
            script.push_str(&if !is_partitioned {
                format!("CREATE TABLE {name} ({key}{columns});\n")
            } else {
                format!(
                    "CREATE TABLE {name} ({key}{columns}) PARTITION BY LIST (c);\n\
                     CREATE TABLE {name}_x PARTITION OF {name} FOR VALUES IN ('x', NULL);\n\
                     CREATE TABLE {name}_y PARTITION OF {name} DEFAULT;\n"
                )
            });
            self.tables.push(table.clone());
            if self.chance(90) {
                script.push_str(&self.insert(&table.name));
            }
        }
        for at in 0..self.random_below(2) {
            let inner = self.inner(1);
            let inner = self.with_ctes(inner);
            script.push_str(&format!("CREATE VIEW w{at} AS {inner};\n"));
            self.views.push(format!("w{at}"));
        }
        script
    }

    fn insert(&mut self, table: &str) -> String {
        let rows: Vec<String> = (0..1 + self.random_below(8)).map(|_| self.row()).collect();
        format!(
            "INSERT INTO {table} ({}) VALUES {};\n",
            COLUMNS.map(|(name, _)| name).join(", "),
            rows.join(", ")
        )
    }

    fn any_table(&mut self) -> Table {
        let index = self.random_below(self.tables.len());
        self.tables[index].clone()
    }

    /// One or several transactions.
    pub fn changes(&mut self) -> String {
        let mut script = String::new();
        for _ in 0..self.random_below(4) {
            script.push_str("BEGIN;\n");
            for _ in 0..1 + self.random_below(4) {
                let change = self.change();
                if self.chance(15) {
                    script.push_str(&format!(
                        "SAVEPOINT s;\n{change}{};\n",
                        self.pick(&["ROLLBACK TO s", "RELEASE s"])
                    ))
                } else {
                    script.push_str(&change)
                }
            }
            script.push_str(if self.chance(90) { "COMMIT;\n" } else { "ROLLBACK;\n" });
        }
        script
    }

    fn change(&mut self) -> String {
        let table = self.any_table();
        // A statement may name a partition as well.
        let part =
            if table.is_partitioned && self.chance(40) { self.pick(&["_x", "_y"]) } else { "" };
        let name = &format!("{}{part}", table.name);
        let condition = self.condition(name);
        match self.random_below(20) {
            0..8 => self.insert(&table.name),
            8..14 => {
                let (mut column, kind) = COLUMNS[self.random_below(COLUMNS.len())];
                let mut value = self.literal(kind);
                if !part.is_empty() && column == "c" {
                    // It would have to stay in its partition.
                    (column, value) = ("a", "1".to_owned());
                }
                format!("UPDATE {name} SET {column} = {value} WHERE {condition};\n")
            }
            14..18 => format!("DELETE FROM {name} WHERE {condition};\n"),
            18 if table.has_key => format!("UPDATE {name} SET id = id + 1000 WHERE {condition};\n"),
            18 => format!("DELETE FROM {name};\n"),
            _ => format!("TRUNCATE {name};\n"),
        }
    }

    fn condition(&mut self, alias: &str) -> String {
        match self.random_below(7) {
            0 => format!("{alias}.a = {}", self.random_below(5)),
            1 => format!("{alias}.a > {}", self.random_below(3)),
            2 => format!("{alias}.c IN ('x', 'z')"),
            3 => format!("{alias}.d BETWEEN 1 AND 3"),
            4 => format!("{alias}.b IS NULL"),
            5 => format!("coalesce({alias}.e, {alias}.a > 0)"),
            _ => format!("({alias}.c || 'q' LIKE '_q' OR NOT {alias}.e)"),
        }
    }

    fn expression(&mut self, alias: &str, is_grouped: bool) -> String {
        // Subqueries are called otherwise.
        if alias.starts_with('n') && self.chance(40) {
            return self.rich_expression(alias, is_grouped);
        }
        match self.random_below(9) {
            0 => format!("{alias}.a"),
            1 => format!("{alias}.c"),
            2 => format!("{alias}.d"),
            3 => format!("{alias}.a + {alias}.b"),
            4 => format!("upper({alias}.c)"),
            5 => format!("CASE WHEN {alias}.e THEN {alias}.a ELSE -1 END"),
            6 => format!("{alias}.d * 2"),
            7 => format!("{alias}.e"),
            _ => format!("coalesce({alias}.c, 'none')"),
        }
    }

    /// An expression of a table, which has columns that subqueries have not; some cannot be grouped
    /// by.
    fn rich_expression(&mut self, alias: &str, is_grouped: bool) -> String {
        match self.random_below(if is_grouped { 9 } else { 11 }) {
            8 => format!("extract(year FROM {alias}.t)"),
            0 => format!("{alias}.f"),
            1 => format!("{alias}.g"),
            2 => format!("{alias}.h"),
            3 => format!("{alias}.i"),
            4 => format!("{alias}.m"),
            5 => format!("{alias}.p"),
            6 => format!("{alias}.t"),
            7 => format!("date_trunc('year', {alias}.t AT TIME ZONE 'UTC')"),
            9 => format!("{alias}.j"),
            _ => format!("ARRAY[{alias}.g, 1.0]"),
        }
    }

    fn new_name(&mut self) -> String {
        self.next_name += 1;
        format!("n{}", self.next_name)
    }

    /// FROM with the names that can be used of it.
    fn draw_from_clause(&mut self, depth: usize) -> (String, Vec<String>) {
        let (mut text, mut names) = self.source(depth);
        for _ in 0..[0, 0, 1, 1, 1, 2][self.random_below(6)] {
            let (right, right_names) = self.source(depth);
            let (left_name, right_name) = (&names[self.random_below(names.len())], &right_names[0]);
            let on = match self.random_below(6) {
                0 => format!("{left_name}.a < {right_name}.a"),
                1 => format!("{left_name}.c = {right_name}.c AND {right_name}.a > 0"),
                2 => format!("{left_name}.a = {right_name}.a AND {left_name}.c = {right_name}.c"),
                _ => format!("{left_name}.a = {right_name}.a"),
            };
            let is_equal = !on.contains('<');
            let kind = match self.random_below(8) {
                0..3 => "JOIN",
                3..5 => "LEFT JOIN",
                5 => "RIGHT JOIN",
                6 if is_equal => "FULL JOIN",
                _ => "JOIN",
            };
            let on =
                if kind == "FULL JOIN" { format!("{left_name}.a = {right_name}.a") } else { on };
            // Between two sources columns in common are named once.
            let can_share = names.len() == 1;
            text = match self.random_below(10) {
                0 if kind == "JOIN" => format!("{text} CROSS JOIN {right}"),
                1 | 2 if can_share => format!("{text} {kind} {right} USING (a, c)"),
                _ => format!("{text} {kind} {right} ON {on}"),
            };
            names.extend(right_names);
        }
        (text, names)
    }

    fn source(&mut self, depth: usize) -> (String, Vec<String>) {
        let name = self.new_name();
        if depth > 0 && self.chance(25) {
            let inner = self.inner(depth - 1);
            let name = name.replace('n', "s");
            return (format!("({inner}) AS {name}"), vec![name]);
        }
        if self.chance(12) {
            // A subquery by a name, or one that is there already.
            let known = self.ctes.last().and_then(|last| last.split(' ').next()).map(str::to_owned);
            let cte = match known.filter(|_| self.chance(40)) {
                Some(cte) => cte,
                None => {
                    let (inner, cte) = (self.inner(0), name.replace('n', "c"));
                    self.ctes.push(format!("{cte} AS ({inner})"));
                    cte
                }
            };
            let name = name.replace('n', "s");
            return (format!("{cte} AS {name}"), vec![name]);
        }
        if self.chance(8) {
            let recursion = name.replace('n', "r");
            let cte = self.recursive_query(&recursion);
            self.ctes.push(format!("{recursion} AS ({cte})"));
            let cte = name.replace('n', "c");
            let rows = format!("SELECT a, b, c, a::numeric(10,2) AS d, e FROM {recursion}");
            self.ctes.push(format!("{cte} AS ({rows})"));
            let name = name.replace('n', "s");
            return (format!("{cte} AS {name}"), vec![name]);
        }
        if !self.views.is_empty() && self.chance(15) {
            let view = self.views[0].clone();
            let name = name.replace('n', "s");
            return (format!("{view} AS {name}"), vec![name]);
        }
        let table = self.any_table();
        (format!("{} AS {name}", table.name), vec![name])
    }

    /// A subquery with the columns that every table has.
    fn inner(&mut self, depth: usize) -> String {
        let (from, names) = self.draw_from_clause(depth);
        if self.chance(30) {
            return self.broad_query(&from, &names);
        }
        let name = names[self.random_below(names.len())].clone();
        let other = names[self.random_below(names.len())].clone();
        match self.random_below(4) {
            0 => format!(
                "SELECT {name}.a, sum({other}.b)::bigint AS b, max({other}.c) AS c, sum({name}.d) AS d, bool_or({name}.e) AS e FROM {from} GROUP BY {name}.a"
            ),
            1 => format!(
                "SELECT DISTINCT {name}.a, {name}.b, {other}.c, {name}.d, {name}.e FROM {from}"
            ),
            2 => {
                let (table, list) =
                    (self.any_table().name, self.pick(&["a, b, c, d, e", "a, a, c, a, e"]));
                format!(
                    "SELECT {name}.a, {name}.b, {other}.c, {name}.d, {name}.e FROM {from} UNION ALL SELECT {list} FROM {table}"
                )
            }
            _ => format!(
                "SELECT {name}.a, {name}.b, {other}.c, {name}.d, {name}.e FROM {from} WHERE {}",
                self.where_condition(&name)
            ),
        }
    }

    /// A query, and whether it has groups.
    pub fn query(&mut self) -> (String, bool) {
        let (query, has_groups) = self.body();
        (self.with_ctes(query), has_groups)
    }

    fn with_ctes(&mut self, query: String) -> String {
        match std::mem::take(&mut self.ctes) {
            with if with.is_empty() => query,
            // Of no others a name begins so.
            with if with.iter().any(|cte| cte.starts_with('r')) => {
                format!("WITH RECURSIVE {} {query}", with.join(", "))
            }
            with => format!("WITH {} {query}", with.join(", ")),
        }
    }

    fn body(&mut self) -> (String, bool) {
        let (from, names) = self.draw_from_clause(2);
        if self.chance(30) {
            return (self.broad_query(&from, &names), true);
        }
        let any = |draw: &mut Self| names[draw.random_below(names.len())].clone();
        let mut conditions = Vec::new();
        if self.chance(40) {
            let name = any(self);
            conditions.push(self.where_condition(&name));
        }
        if self.chance(30) {
            let name = any(self);
            conditions.push(self.subquery(&name));
        }
        let filter = if conditions.is_empty() {
            String::new()
        } else {
            format!(" WHERE {}", conditions.join(" AND "))
        };
        match self.random_below(10) {
            0..4 => {
                let distinct = if self.chance(15) { "DISTINCT " } else { "" };
                let list: Vec<String> = (0..1 + self.random_below(4))
                    .map(|at| {
                        let name = any(self);
                        format!("{} AS x{at}", self.expression(&name, !distinct.is_empty()))
                    })
                    .collect();
                let query = format!("SELECT {distinct}{} FROM {from}{filter}", list.join(", "));
                (query, !distinct.is_empty())
            }
            4 => {
                let (name, other) = (any(self), self.any_table().name);
                let all = self.pick(&["ALL ", ""]);
                (
                    format!(
                        "SELECT {name}.a AS x0, {name}.c AS x1 FROM {from}{filter} UNION {all}SELECT a, c FROM {other}"
                    ),
                    false,
                )
            }
            _ => (self.grouped(&from, &filter, &names), true),
        }
    }

    fn grouped(&mut self, from: &str, filter: &str, names: &[String]) -> String {
        let mut keys: Vec<String> = Vec::new();
        for _ in 0..self.random_below(3) {
            let name = names[self.random_below(names.len())].clone();
            keys.push(self.expression(&name, true));
        }
        let mut list: Vec<String> =
            keys.iter().enumerate().map(|(at, key)| format!("{key} AS k{at}")).collect();
        for at in 0..1 + self.random_below(4) {
            let name = names[self.random_below(names.len())].clone();
            list.push(format!("{} AS x{at}", self.aggregate(&name)));
        }
        let group =
            if keys.is_empty() { String::new() } else { format!(" GROUP BY {}", keys.join(", ")) };
        let having = if self.chance(25) {
            self.pick(&[" HAVING count(*) > 1", " HAVING count(*) < 4"])
        } else {
            ""
        };
        format!("SELECT {} FROM {from}{filter}{group}{having}", list.join(", "))
    }
}
