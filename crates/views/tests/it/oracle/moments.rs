//! Views in mode immediate at any moment: in the middle of transactions of two writers and while
//! tables are altered, emptied, attached and detached, or views claimed, rebuilt or left behind
//! by an Egret that died. What a session reads of a view is what its query says to that session,
//! or it is refused.
//!
//! A case is one step, after which every session compares every view. `EGRET_VIEWS_CASES` and
//! `EGRET_VIEWS_SEED` are as for the other random tests.

use std::time::Duration;

use egret_base_test::eventually;
use egret_postgres::tokio_postgres::error::SqlState;
use egret_postgres::tokio_postgres::{Client, Error};
use egret_postgres_test::TestDatabase;
use egret_views::model::{Alteration, Mode, NewView, ReadableViews};
use egret_views::{Views, ViewsConfig};
use tokio::task::JoinHandle;

use super::draw::Draw;
use super::environment_number;
use crate::engine::{new_engine, new_view, view_ref};

/// Steps in the suite, over all versions.
const CASES: u64 = 320;

/// Steps between two databases.
const STEPS: u64 = 40;

/// The tables: `r` has rows that `c` refers to, a trigger of `r` writes to `c`, and `p` has
/// partitions, of which `p3` comes and goes.
const TABLES: &str = "
    CREATE TABLE r (id int PRIMARY KEY, g int, v int);
    CREATE TABLE c (id int PRIMARY KEY, r int REFERENCES r ON DELETE CASCADE ON UPDATE CASCADE, w int);
    CREATE TABLE p (id int, g int, v int) PARTITION BY RANGE (id);
    CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
    CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20);
    CREATE TABLE p3 (id int, g int, v int);
    CREATE UNLOGGED TABLE l (g int, label text);
    INSERT INTO r SELECT i, i % 3, i FROM generate_series(1, 8) AS i;
    INSERT INTO c SELECT i, i % 8 + 1, i FROM generate_series(1, 9) AS i;
    INSERT INTO p SELECT i, i % 3, i FROM generate_series(1, 19) AS i;
    INSERT INTO p3 VALUES (20, 0, 1), (21, 1, 2);
    INSERT INTO l VALUES (0, 'zero'), (1, 'one');
    CREATE FUNCTION more() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
    IF NEW.v % 4 = 0 THEN INSERT INTO c VALUES (NEW.id + 100, NEW.id, NEW.v) ON CONFLICT (id) DO UPDATE SET w = excluded.w; END IF;
    IF NEW.v % 5 = 0 THEN DELETE FROM c WHERE w = NEW.v; END IF;
    RETURN NULL;
    END $$;
    CREATE TRIGGER more AFTER INSERT OR UPDATE ON r FOR EACH ROW EXECUTE FUNCTION more()";

const QUERIES: [&str; 10] = [
    "SELECT r.g, count(*) AS n, sum(c.w) AS s FROM r LEFT JOIN c ON c.r = r.id GROUP BY r.g",
    "SELECT g, count(*) AS n, max(v) AS m FROM p GROUP BY g",
    "SELECT r.id, p.v FROM r JOIN p ON p.g = r.g WHERE r.v > 2",
    "SELECT DISTINCT g, v % 3 AS k FROM p",
    "SELECT r.id FROM r WHERE EXISTS (SELECT FROM c WHERE c.r = r.id AND c.w > 2)",
    "SELECT id, g FROM r UNION ALL SELECT id, g FROM p",
    "SELECT id, row_number() OVER (PARTITION BY g ORDER BY v, id) AS k FROM p",
    "SELECT a.id, b.id AS other FROM r AS a JOIN r AS b ON a.v = b.g",
    "SELECT l.label, sum(p.v) AS s FROM p JOIN l USING (g) GROUP BY l.label",
    "SELECT count(*) AS n, avg(c.w) AS a FROM c FULL JOIN p ON p.id = c.id",
];

/// Changes of rows. `{i}` and `{n}` are small numbers.
const CHANGES: [&str; 22] = [
    "INSERT INTO r VALUES ({i}, {n}, {n}) ON CONFLICT DO NOTHING",
    "INSERT INTO r VALUES ({i}, {n}, {n}), ({n}, 1, {i}) ON CONFLICT (id) DO UPDATE SET g = excluded.g, v = r.v + 1",
    "INSERT INTO c SELECT {i}, id, {n} FROM r WHERE id >= {n} ORDER BY id LIMIT 1 ON CONFLICT (id) DO UPDATE SET w = c.w + 1",
    "UPDATE r SET v = v + {n} WHERE g = {n}",
    "UPDATE r SET id = id + 50 WHERE id = {i}",
    "DELETE FROM r WHERE id = {i}",
    "DELETE FROM r WHERE g = {n}",
    "UPDATE c SET w = {n}, r = NULL WHERE id < {i}",
    "DELETE FROM c WHERE w = {n}",
    "INSERT INTO p VALUES ({i}, {n}, {n}), ({i}, {n}, {n})",
    "INSERT INTO p1 VALUES ({n}, {n}, {i})",
    "INSERT INTO p3 VALUES (2{n}, {n}, {i})",
    "UPDATE p SET g = {n} WHERE v < {i}",
    "UPDATE p SET id = (id + 7) % 20 WHERE g = {n}",
    "UPDATE p3 SET v = v + 1",
    "DELETE FROM p WHERE g = {n} AND v < {i}",
    "DELETE FROM p2",
    "UPDATE l SET label = label || '{n}' WHERE g = {n}",
    "INSERT INTO l VALUES ({n}, 'more')",
    "WITH gone AS (DELETE FROM p WHERE id = {i} RETURNING *), new AS (INSERT INTO r SELECT id + 200, g, v FROM gone ON CONFLICT DO NOTHING) \
     UPDATE c SET w = {n} WHERE id = {i}",
    "MERGE INTO r USING (SELECT DISTINCT g FROM p) AS s ON s.g = r.id WHEN MATCHED THEN UPDATE SET v = r.v + 1 \
     WHEN NOT MATCHED AND s.g < 3 THEN INSERT VALUES (s.g + 300, s.g, {n}) WHEN NOT MATCHED THEN DO NOTHING",
    "DO $$ BEGIN UPDATE p SET v = v + 1; INSERT INTO r VALUES (1, 1, 1), (1, 1, 1); EXCEPTION WHEN unique_violation THEN DELETE FROM c WHERE id = {i}; END $$",
];

/// What is no change of rows, or more than that.
const ALTERATIONS: [&str; 20] = [
    "TRUNCATE r CASCADE",
    "TRUNCATE c",
    "TRUNCATE p",
    "TRUNCATE p1, l",
    "ALTER TABLE p ATTACH PARTITION p3 FOR VALUES FROM (20) TO (30)",
    "ALTER TABLE p DETACH PARTITION p3",
    "ALTER TABLE p DETACH PARTITION p2",
    "ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20)",
    "ALTER TABLE c ALTER w TYPE int USING w + 1",
    "ALTER TABLE r ADD COLUMN IF NOT EXISTS more int DEFAULT 1",
    "ALTER TABLE r DROP COLUMN IF EXISTS more",
    "ALTER TABLE c DISABLE TRIGGER USER",
    "ALTER TABLE c ENABLE TRIGGER USER",
    "CREATE INDEX ON c (r)",
    "ALTER TABLE l SET LOGGED",
    "ALTER TABLE p1 RENAME TO p_first",
    "ALTER TABLE p_first RENAME TO p1",
    "VACUUM FULL r",
    "VACUUM FULL p",
    "ANALYZE",
];

/// A session of a user.
struct Session {
    name: &'static str,
    client: Client,
    is_open: bool,
    has_savepoint: bool,
}

impl Session {
    async fn new(database: &TestDatabase, name: &'static str) -> Self {
        let client = database.connect().await;
        let set =
            "SET search_path = public; SET lock_timeout = '15ms'; SET client_min_messages = error";
        client.batch_execute(set).await.unwrap();
        Self { name, client, is_open: false, has_savepoint: false }
    }

    /// Runs a statement; after an error the transaction is as it was, or over.
    async fn run(&mut self, sql: &str) -> Result<(), String> {
        let Err(error) = self.client.batch_execute(sql).await else {
            return Ok(());
        };
        let told = expected(&error).then_some(()).ok_or_else(|| format!("{sql}: {error:?}"));
        if self.is_open {
            if self.has_savepoint {
                self.client.batch_execute("ROLLBACK TO s").await.unwrap();
            } else {
                self.client.batch_execute("ROLLBACK").await.unwrap();
                self.is_open = false;
            }
        }
        told
    }

    async fn end(&mut self, how: &str) {
        // A deferred error would end it as well.
        _ = self.client.batch_execute(how).await;
        (self.is_open, self.has_savepoint) = (false, false);
    }

    /// Compares a view with its query; none if it is refused or locked.
    async fn compare(&self, name: &str, query: &str) -> Result<Option<()>, String> {
        let sql = format!(
            "SELECT sum(w), r::text FROM (SELECT r::text AS r, 1 AS w FROM {name} AS r UNION ALL \
             SELECT r::text, -1 FROM ({query}) AS r) AS both_sides GROUP BY r HAVING sum(w) <> 0 ORDER BY 2 LIMIT 9"
        );
        if self.is_open {
            self.client.batch_execute("SAVEPOINT compare").await.unwrap();
        }
        let found = self.client.query(&sql, &[]).await;
        if self.is_open {
            let back = "ROLLBACK TO compare; RELEASE compare";
            self.client.batch_execute(back).await.unwrap();
        }
        let rows = match found {
            Ok(rows) => rows,
            Err(error) => {
                let refused =
                    [SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, SqlState::LOCK_NOT_AVAILABLE];
                return if error.code().is_some_and(|code| refused.contains(code)) {
                    Ok(None)
                } else {
                    Err(format!("{name}: {error:?}"))
                };
            }
        };
        let wrong: Vec<(i64, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        if wrong.is_empty() {
            Ok(Some(()))
        } else {
            let reader = self.name;
            Err(format!("{reader} reads wrong rows of {name}, {query}: {wrong:?}"))
        }
    }
}

/// Whether a user may get this error: locks, constraints, objects that are there or not.
fn expected(error: &Error) -> bool {
    let code = error.code().map(SqlState::code).unwrap_or_default();
    ["21", "22", "23", "25", "40", "42", "55"].iter().any(|class| code.starts_with(class))
}

/// A database with an Egret that refreshes on request, and may die of it.
struct Scene {
    database: TestDatabase,
    views: Views,
    sessions: [Session; 3],
    shown: Vec<(String, &'static str)>,
    refreshes: Vec<JoinHandle<()>>,
    script: Vec<String>,
    /// Comparisons that were not refused.
    compared: u64,
    /// All comparisons that were made.
    asked: u64,
}

impl Scene {
    async fn new(version: u32, draw: &mut Draw) -> Self {
        let database = TestDatabase::create(version).await;
        let sessions = [
            Session::new(&database, "one writer").await,
            Session::new(&database, "the other writer").await,
            Session::new(&database, "a reader").await,
        ];
        sessions[0].client.batch_execute(TABLES).await.unwrap();
        let views = new_engine(&database, ViewsConfig::default());
        let mut shown = Vec::new();
        for at in 0..3 {
            let (name, query) = (format!("v{at}"), QUERIES[draw.random_below(QUERIES.len())]);
            let new = NewView { mode: Mode::Immediate, schedule: None, ..new_view(&name, query) };
            views.create(None, new).await.unwrap();
            shown.push((name, query));
        }
        Self {
            database,
            views,
            sessions,
            shown,
            refreshes: Vec::new(),
            script: Vec::new(),
            compared: 0,
            asked: 0,
        }
    }

    async fn step(&mut self, draw: &mut Draw) -> Result<(), String> {
        match draw.random_below(100) {
            0..12 => self.refresh(draw).await,
            12..15 => self.restart(),
            15..17 => self.suspend_or_resume(draw).await,
            _ => self.write(draw).await?,
        }
        self.compare().await
    }

    async fn write(&mut self, draw: &mut Draw) -> Result<(), String> {
        let at = draw.random_below(2);
        let session = &mut self.sessions[at];
        let (i, n) = (draw.random_below(20).to_string(), draw.random_below(4).to_string());
        let sql = match draw.random_below(20) {
            0 | 1 if session.is_open => draw.pick(&["COMMIT", "COMMIT", "ROLLBACK"]).to_owned(),
            2 if session.is_open && session.has_savepoint => {
                draw.pick(&["ROLLBACK TO s", "RELEASE s"]).to_owned()
            }
            2 | 3 if session.is_open && !session.has_savepoint => "SAVEPOINT s".to_owned(),
            0..4 => "BEGIN".to_owned(),
            4..9 => draw.pick(&ALTERATIONS).to_owned(),
            _ => draw.pick(&CHANGES).replace("{i}", &i).replace("{n}", &n),
        };
        self.script.push(format!("{}: {sql}", session.name));
        match sql.as_str() {
            "BEGIN" if session.is_open => {}
            "BEGIN" => {
                session.run("BEGIN").await?;
                session.is_open = true;
            }
            "COMMIT" | "ROLLBACK" => session.end(&sql).await,
            "SAVEPOINT s" => {
                session.run("SAVEPOINT s").await?;
                session.has_savepoint = true;
            }
            "RELEASE s" => {
                session.run("RELEASE s").await?;
                session.has_savepoint = false;
            }
            _ if sql.starts_with("VACUUM") && session.is_open => {}
            _ => session.run(&sql).await?,
        }
        Ok(())
    }

    /// Refreshes a view in the background: writers may hold it up.
    async fn refresh(&mut self, draw: &mut Draw) {
        let name = format!("v{}", draw.random_below(self.shown.len()));
        self.script.push(format!("refresh {name}"));
        let views = self.views.clone();
        let mut refresh = tokio::spawn(async move {
            // It may fail of locks.
            _ = views.refresh(&view_ref(&name)).await;
        });
        let wait = Duration::from_millis(draw.random_below(60) as u64);
        if tokio::time::timeout(wait, &mut refresh).await.is_err() {
            self.refreshes.push(refresh);
            if draw.chance(50) {
                self.restart();
            }
        }
    }

    /// Egret dies with what it is about, and starts again.
    fn restart(&mut self) {
        self.script.push("Egret starts".to_owned());
        for refresh in self.refreshes.drain(..) {
            refresh.abort();
        }
        self.views = new_engine(&self.database, ViewsConfig::default());
    }

    async fn suspend_or_resume(&mut self, draw: &mut Draw) {
        let name = format!("v{}", draw.random_below(self.shown.len()));
        let alteration = Alteration { is_active: Some(draw.chance(60)), ..Alteration::default() };
        self.script.push(format!("{:?} {name}", alteration.is_active));
        let view = view_ref(&name);
        let altered = self.views.alter(&view, alteration, ReadableViews::All);
        _ = tokio::time::timeout(Duration::from_millis(200), altered).await;
    }

    async fn compare(&mut self) -> Result<(), String> {
        for session in &self.sessions {
            for (name, query) in &self.shown {
                self.asked += 1;
                self.compared += session.compare(name, query).await?.map_or(0, |()| 1);
            }
        }
        Ok(())
    }

    /// When all writers have ended, each view can be read again.
    async fn end(mut self) -> Result<(u64, u64), String> {
        for session in &mut self.sessions {
            session.end("COMMIT").await;
        }
        self.restart();
        for (name, query) in &self.shown {
            let resume = Alteration { is_active: Some(true), ..Alteration::default() };
            let (views, view) = (&self.views, view_ref(name));
            eventually("the view is rebuilt", async || {
                let resume = views.alter(&view, resume.clone(), ReadableViews::All);
                resume.await.is_ok() && views.refresh(&view).await.is_ok()
            })
            .await;
            if self.sessions[2].compare(name, query).await?.is_none() {
                return Err(format!("{name} is refused after its refresh"));
            }
        }
        Ok((self.compared, self.asked))
    }
}

#[tokio::test]
async fn what_is_read_of_a_view_in_mode_immediate_is_right_or_refused() {
    let first = environment_number("EGRET_VIEWS_SEED", 1);
    let scenes = environment_number("EGRET_VIEWS_CASES", CASES).div_ceil(STEPS);
    let (mut compared, mut asked) = (0, 0);
    for (seed, version) in (first..first + scenes).zip([18, 15].into_iter().cycle()) {
        let mut draw = Draw::new(seed);
        let mut scene = Scene::new(version, &mut draw).await;
        for _ in 0..STEPS {
            if let Err(problem) = scene.step(&mut draw).await {
                panic!("seed {seed}: {problem}\n{}", scene.script.join("\n"));
            }
        }
        let script = scene.script.join("\n");
        let counts = scene.end().await;
        let counts = counts.unwrap_or_else(|problem| panic!("seed {seed}: {problem}\n{script}"));
        (compared, asked) = (compared + counts.0, asked + counts.1);
    }
    println!("{compared} of {asked} comparisons were not refused");
    assert!(compared * 4 > asked, "only {compared} of {asked} were not refused");
}
