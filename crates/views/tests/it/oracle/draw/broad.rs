//! Queries beyond filters, joins and groups: windows, first rows, sets, functions, and subqueries
//! that are values.

use super::Draw;

impl Draw {
    /// A query with the columns that every table has, over something that FROM has. What SQL leaves
    /// open makes no difference.
    pub(super) fn broad_query(&mut self, from: &str, names: &[String]) -> String {
        let name = names[self.random_below(names.len())].clone();
        let other = names[self.random_below(names.len())].clone();
        let filter = if self.chance(30) {
            format!(" WHERE {}", self.where_condition(&other))
        } else {
            String::new()
        };
        let rest = format!("FROM {from}{filter}");
        match self.random_below(11) {
            0 | 1 => self.windows(&name, &other, &rest),
            2 | 3 => self.first_rows_query(&name, &other, &rest),
            4 | 5 => self.combined_query(&name, &other, &rest),
            6 => self.grouping_sets(&name, &other, &rest),
            7 => {
                let call = self.pick(&["generate_series(1, $)", "unnest(ARRAY[$, 1])"]);
                let call = call.replace('$', &format!("{name}.a"));
                format!(
                    "SELECT f.x AS a, {name}.b, {other}.c, {name}.d, {name}.e FROM {from} CROSS JOIN LATERAL {call} AS f (x){filter}"
                )
            }
            8 => format!(
                "SELECT unnest(ARRAY[{name}.a, {other}.a]) AS a, {name}.b, {other}.c, {name}.d, {name}.e {rest}"
            ),
            9 => self.lateral(&name, from, &filter),
            _ => self.values(&name, &other, &rest),
        }
    }

    /// A condition for WHERE: that of rows, or one that the clock is in.
    pub(super) fn where_condition(&mut self, name: &str) -> String {
        // Subqueries, which are called otherwise, have no times.
        if !(self.has_clock && name.starts_with('n') && self.chance(25)) {
            return self.condition(name);
        }
        let condition = self.pick(&[
            "N.t > now()",
            "N.t <= now()",
            "N.t > now() - interval '1 hour'",
            "N.t BETWEEN now() - interval '20 ms' AND now() + interval '20 ms'",
            "(N.e OR N.t < CURRENT_TIMESTAMP)",
            "(N.t > now()) IS NOT TRUE",
            "N.t::date >= CURRENT_DATE",
            "date_trunc('second', N.t) <> date_trunc('second', now() - interval '1 hour')",
        ]);
        condition.replace("N.", &format!("{name}."))
    }

    /// A query that names itself, and ends: what it comes to has no other values than tables have,
    /// or they only get greater, or so often.
    pub(super) fn recursive_query(&mut self, name: &str) -> String {
        let (first, next) = (self.any_table().name, self.any_table().name);
        let is_all = self.chance(35);
        let steps = [
            ("x.a, R.b, x.c, x.e", "R JOIN T AS x ON x.a = R.a + 1 AND x.c = R.c", "true"),
            ("x.a, R.b, x.c, R.e", "R JOIN T AS x ON x.c = R.c AND x.e", "true"),
            ("x.a, R.b, R.c, x.e", "R LEFT JOIN T AS x ON x.a = R.a + 1 AND x.c = R.c", "true"),
            ("R.a + 1, R.b, R.c, R.e", "R", "R.a < 4 AND R.a IN (SELECT x.a FROM T AS x)"),
            (
                "R.a + 1, R.b, R.c, R.e",
                "R",
                "R.a < 3 AND NOT EXISTS (SELECT FROM T AS x WHERE x.a = R.a AND x.c = R.c)",
            ),
            ("R.a, (SELECT max(x.b) FROM T AS x WHERE x.a = R.a), R.c, NOT R.e", "R", "true"),
        ];
        let (list, from, condition) = steps[self.random_below(steps.len())];
        let filter = if self.chance(50) {
            format!(" WHERE {}", self.condition(&first))
        } else {
            String::new()
        };
        let (all, zero, one, ends) = if is_all {
            (" ALL", ", 0 AS depth", ", R.depth + 1", " AND R.depth < 2")
        } else {
            ("", "", "", "")
        };
        let step = format!("SELECT {list}{one} FROM {from} WHERE {condition}{ends}");
        let step = step.replace("R.", &format!("{name}."));
        let step =
            step.replace("FROM R", &format!("FROM {name}")).replace("T AS", &format!("{next} AS"));
        format!("SELECT a, b, c, e{zero} FROM {first}{filter} UNION{all} {step}")
    }

    fn first_rows_query(&mut self, name: &str, other: &str, rest: &str) -> String {
        let five = format!("{name}.a, {name}.b, {other}.c, {name}.d, {name}.e");
        match self.random_below(2) {
            0 => {
                let on = self.pick(&["a", "c", "a, c"]);
                let on = on
                    .split(", ")
                    .map(|one| format!("{name}.{one}"))
                    .collect::<Vec<String>>()
                    .join(", ");
                let down = self.pick(&["", " DESC", " NULLS FIRST"]);
                format!(
                    "SELECT DISTINCT ON ({on}) {five} {rest} ORDER BY {on}, {name}.b{down}, {other}.c, {name}.d, {name}.e, {name}.a"
                )
            }
            _ => {
                let down = self.pick(&["", " DESC", " NULLS FIRST"]);
                let limit = self.pick(&[
                    "LIMIT 3",
                    "LIMIT 1",
                    "LIMIT 4 OFFSET 1",
                    "OFFSET 2",
                    "FETCH FIRST 2 ROWS WITH TIES",
                ]);
                format!(
                    "SELECT {five} {rest} ORDER BY {name}.b{down}, {other}.c, {name}.d, {name}.e, {name}.a {limit}"
                )
            }
        }
    }

    fn combined_query(&mut self, name: &str, other: &str, rest: &str) -> String {
        let five = format!("{name}.a, {name}.b, {other}.c, {name}.d, {name}.e");
        let operation = self.pick(&["INTERSECT", "EXCEPT"]);
        let all = self.pick(&["", " ALL"]);
        let table = self.any_table().name;
        match self.chance(50) {
            // Whole rows are seldom the same.
            true => format!(
                "SELECT {name}.a, NULL::bigint AS b, {other}.c, NULL::numeric AS d, NULL::boolean AS e {rest} {operation}{all} SELECT a, NULL, c, NULL, NULL FROM {table}"
            ),
            false => {
                format!("SELECT {five} {rest} {operation}{all} SELECT a, b, c, d, e FROM {table}")
            }
        }
    }

    fn grouping_sets(&mut self, name: &str, other: &str, rest: &str) -> String {
        let (a, c) = (format!("{name}.a"), format!("{other}.c"));
        let sets = [
            format!("ROLLUP ({a}, {c})"),
            format!("CUBE ({a}, {c})"),
            format!("GROUPING SETS (({a}), ({c}), ())"),
            format!("{a}, ROLLUP ({c})"),
        ];
        let sets = &sets[self.random_below(sets.len())];
        format!(
            "SELECT {name}.a, sum({name}.b)::bigint + grouping({name}.a) AS b, {other}.c, sum({name}.d) AS d, bool_or({name}.e) AS e {rest} GROUP BY {sets}"
        )
    }

    fn windows(&mut self, name: &str, other: &str, rest: &str) -> String {
        let partition =
            self.pick(&["PARTITION BY N.a", "PARTITION BY O.c, N.a", "PARTITION BY O.c", ""]);
        let order = self.pick(&[
            "",
            " ORDER BY N.a",
            " ORDER BY N.b DESC, O.c",
            " ORDER BY O.c NULLS FIRST, N.d",
        ]);
        let over = format!("OVER ({partition}{order})")
            .replace("N.", &format!("{name}."))
            .replace("O.", &format!("{other}."));
        let number = self.pick(&["rank()", "dense_rank()", "count(*)", "sum(N.b)", "max(N.b)"]);
        let number = number.replace('N', name);
        let text = if self.chance(50) {
            format!("max({other}.c) OVER (PARTITION BY {name}.a)")
        } else {
            format!("{other}.c")
        };
        format!(
            "SELECT {name}.a, ({number} {over})::bigint AS b, {text} AS c, {name}.d, bool_or({name}.e) {over} AS e {rest}"
        )
    }

    fn lateral(&mut self, name: &str, from: &str, filter: &str) -> String {
        let table = self.any_table().name;
        let column = self.pick(&["a", "c"]);
        let own =
            if self.chance(40) { format!(" AND {}", self.condition("l")) } else { String::new() };
        let left = self.pick(&["CROSS JOIN LATERAL", "LEFT JOIN LATERAL"]);
        let on = if left.starts_with('L') { " ON true" } else { "" };
        let depends = self.dependent_condition("l", &format!("{name}.{column}"), column);
        let inner = match self.random_below(6) {
            5 => format!(
                "SELECT max(l.b) AS b, min(l.c) AS c, (SELECT count(*) FROM {table} AS z WHERE z.a = {name}.a) + count(*) AS d FROM {table} AS l WHERE {depends}{own}"
            ),
            0 => format!(
                "SELECT max(l.b) AS b, min(l.c) AS c, sum(l.d) + count(*) AS d FROM {table} AS l WHERE {depends}{own}"
            ),
            1 => format!(
                "SELECT l.b, l.c, l.d FROM {table} AS l WHERE {depends}{own} ORDER BY l.b, l.c, l.d LIMIT 2"
            ),
            2 => format!(
                "SELECT DISTINCT l.b, {name}.c || l.c AS c, l.d FROM {table} AS l WHERE {depends}{own}"
            ),
            _ => format!(
                "SELECT l.b, l.c, l.d FROM {table} AS l WHERE l.{column} = {name}.{column}{own}"
            ),
        };
        format!(
            "SELECT {name}.a, y.b, y.c, y.d, {name}.e FROM {from} {left} ({inner}) AS y{on}{filter}"
        )
    }

    fn values(&mut self, name: &str, other: &str, rest: &str) -> String {
        let table = self.any_table().name;
        let column = self.pick(&["a", "c", "b"]);
        let call = self.pick(&[
            "max(v.b)",
            "count(*)",
            "sum(v.a)",
            "coalesce(min(v.b), 0) + count(v.c)",
            "coalesce(max(v.b), N.b)",
            "count(*) + N.a",
            "count(*) + (SELECT count(*) FROM T AS z WHERE z.a = N.a)",
        ]);
        let mut conditions = Vec::new();
        if self.chance(70) {
            conditions.push(self.dependent_condition("v", &format!("{name}.{column}"), column));
        }
        if self.chance(25) {
            let within = self.pick(&[
                "v.c = (SELECT min(z.c) FROM T AS z)",
                "(SELECT max(z.a) FROM T AS z WHERE z.c = N.c) = v.a",
                "v.b = N.b + v.a",
                "v.a IN (SELECT z.a FROM T AS z WHERE z.b > N.b)",
            ]);
            conditions.push(within.to_owned());
        }
        let named = |text: &str| {
            let text = text.replace("N.", &format!("{name}."));
            text.replace("T AS", &format!("{table} AS"))
        };
        let depends = if conditions.is_empty() {
            String::new()
        } else {
            named(&format!(" WHERE {}", conditions.join(" AND ")))
        };
        let having = if self.chance(20) {
            named(" HAVING count(*) < coalesce(N.a, 2)")
        } else {
            String::new()
        };
        let call = named(call);
        let exists = match self.random_below(6) {
            0 | 1 => format!("EXISTS (SELECT FROM {table} AS v{depends})"),
            2 => format!("{name}.a < ANY (SELECT v.a FROM {table} AS v{depends})"),
            3 => format!("({name}.a, {name}.c) IN (SELECT v.a, v.c FROM {table} AS v{depends})"),
            _ => format!("{name}.e"),
        };
        format!(
            "SELECT {name}.a, (SELECT {call} FROM {table} AS v{depends}{having}) AS b, {other}.c, {name}.d, {exists} AS e {rest}"
        )
    }

    /// What a subquery compares with something around it.
    fn dependent_condition(&mut self, inner: &str, outer: &str, column: &str) -> String {
        let operator = self.pick(&["=", "=", "<", ">=", "<>", "IS NOT DISTINCT FROM"]);
        format!("{inner}.{column} {operator} {outer}")
    }

    /// An aggregate of a table or subquery.
    pub(super) fn aggregate(&mut self, name: &str) -> String {
        let filter = if self.chance(20) {
            format!(" FILTER (WHERE {})", self.condition(name))
        } else {
            String::new()
        };
        let rich = if name.starts_with('n') { 23 } else { 17 };
        let call = match self.random_below(rich) {
            17 => format!("sum({name}.g)"),
            18 => format!("sum({name}.p)"),
            19 => format!("max({name}.t)"),
            20 => format!("count({name}.j)"),
            21 => format!("sum(extract(year FROM {name}.t))"),
            22 => format!("avg(extract(month FROM {name}.t))"),
            0 | 1 => "count(*)".to_owned(),
            2 => format!("count({name}.c)"),
            3 => format!("sum({name}.a)"),
            4 => format!("sum({name}.b)"),
            5 => format!("sum({name}.d)"),
            6 => format!("avg({name}.a)"),
            7 => format!("avg({name}.d)"),
            8 => format!("min({name}.c)"),
            9 => format!("max({name}.b)"),
            10 => format!("count(DISTINCT {name}.c)"),
            11 => format!("string_agg({name}.c, ',' ORDER BY {name}.c)"),
            12 => format!("bool_and({name}.e)"),
            13 => format!("array_agg({name}.a ORDER BY {name}.a)"),
            14 => format!("sum({name}.d * (1 - {name}.a))"),
            15 => format!("avg(CASE WHEN {name}.e THEN {name}.d * 0.5 ELSE {name}.a END)"),
            _ => format!("min({name}.a)"),
        };
        format!("{call}{filter}")
    }

    /// A condition with a subquery.
    pub(super) fn subquery(&mut self, name: &str) -> String {
        let (from, names) = self.draw_from_clause(1);
        let inner = names[self.random_below(names.len())].clone();
        let mut conditions = Vec::new();
        if self.chance(60) {
            let column = self.pick(&["a", "c", "b"]);
            let operator = self.pick(&["=", "=", "=", "<"]);
            conditions.push(format!("{inner}.{column} {operator} {name}.{column}"));
        }
        let mut own = String::new();
        if self.chance(30) {
            let condition = self.where_condition(&inner);
            own = format!(" WHERE {condition}");
            conditions.push(condition);
        }
        let filter = if conditions.is_empty() {
            String::new()
        } else {
            format!(" WHERE {}", conditions.join(" AND "))
        };
        let column = self.pick(&["a", "b", "c", "d"]);
        let select = match self.random_below(9) {
            6 => format!("(SELECT max({inner}.{column}) FROM {from}{filter} GROUP BY {inner}.c)"),
            7 => format!(
                "(SELECT {inner}.{column} FROM {from}{filter} ORDER BY {inner}.{column} LIMIT 2)"
            ),
            0 => format!("(SELECT max({inner}.{column}) FROM {from}{own})"),
            1 => format!("(SELECT {inner}.{column} FROM {from}{own} GROUP BY {inner}.{column})"),
            _ => format!("(SELECT {inner}.{column} FROM {from}{filter})"),
        };
        match self.random_below(9) {
            0 | 1 => format!("EXISTS {select}"),
            2 | 3 => format!("NOT EXISTS {select}"),
            4 => format!("{name}.{column} IN {select}"),
            5 => format!("{name}.{column} NOT IN {select}"),
            6 => format!("{name}.{column} < ANY {select}"),
            7 => format!("{name}.{column} >= ALL {select}"),
            _ => format!("NOT ({name}.{column} <> ALL {select})"),
        }
    }
}
