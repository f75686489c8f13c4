//! The source's data: what branches are copies of, and proof that bursts left it alone.

use anyhow::Result;
use tokio_postgres::Client;

use crate::postgres::ConnectionTarget;
use crate::refusal;
use crate::server::Server;

/// Rows of `filler` are about this long, so that a size is a number of rows.
const FILLER_ROW_BYTES: u64 = 1_024;

/// Rows of `filler` made by one statement.
const FILLER_CHUNK: u64 = 500_000;

/// A database is this much larger than what it was filled with, at most, besides a tenth of it.
const SIZE_SLACK_BYTES: u64 = 32 << 20;

/// The copy that `CREATE DATABASE … TEMPLATE` makes.
pub(crate) fn copy_name() -> String {
    format!("egret_bench_copy_{}", std::process::id())
}

/// Tables up to this size are read whole for the proof.
const CHECKED_BYTES_MAX: i64 = 64 << 20;

/// The table that events go to, with some in it already.
const EVENT_TABLE: &str = "
    CREATE TABLE IF NOT EXISTS event (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        at timestamptz NOT NULL DEFAULT now(),
        kind text NOT NULL,
        marker text NOT NULL,
        payload jsonb NOT NULL);
    CREATE INDEX IF NOT EXISTS event_kind_at ON event (kind, at);
    INSERT INTO event (kind, marker, payload)
    SELECT 'order', 'made', jsonb_build_object('user', n, 'total', n % 500)
    FROM generate_series(1, 20000) AS n
    WHERE NOT EXISTS (SELECT FROM event)";

/// State of the source: if two fingerprints are equal, nothing was written in between.
#[derive(Debug, PartialEq)]
pub struct Fingerprint {
    /// Every definition there is.
    catalogue: String,
    /// Rows written to each table.
    writes: Vec<(String, i64)>,
    /// The rows of small tables.
    rows: Vec<(String, Option<String>)>,
}

/// The source's superuser on this machine.
pub struct Source {
    target: ConnectionTarget,
    admin: ConnectionTarget,
    database: String,
    /// Whether the database was made for this measurement.
    owns_database: bool,
}

impl Source {
    /// Connects to a database of the embedded server of an Egret whose data directory is here,
    /// making the database if it is not there.
    ///
    /// # Errors
    /// When it cannot be reached or its password not read.
    pub async fn open(server: &Server, database: &str) -> Result<Self> {
        let url = server.superuser_url().await?;
        let admin = ConnectionTarget::parse(&format!("{url}/postgres?sslmode=disable"))?;
        let maintenance = admin.connect_client().await?;
        let existing = maintenance
            .query_opt("SELECT FROM pg_database WHERE datname = $1", &[&database])
            .await?;
        if existing.is_none() {
            let quoted = database.replace('"', "\"\"");
            maintenance.batch_execute(&format!("CREATE DATABASE \"{quoted}\"")).await?;
        }
        let target = ConnectionTarget::parse(&format!("{url}/{database}?sslmode=disable"))?;
        Ok(Self { target, admin, database: database.to_owned(), owns_database: existing.is_none() })
    }

    /// Drops the database if it was made for this measurement, and the copies of it; returns
    /// whether the source is another by that.
    pub async fn remove(&self) -> Result<bool> {
        let admin = self.connect_maintenance().await?;
        admin.batch_execute(&format!("DROP DATABASE IF EXISTS {}", copy_name())).await?;
        if self.owns_database {
            let quoted = self.database.replace('"', "\"\"");
            admin.batch_execute(&format!("DROP DATABASE \"{quoted}\" WITH (FORCE)")).await?;
        }
        Ok(self.owns_database)
    }

    /// A session in the maintenance database.
    pub(crate) async fn connect_maintenance(&self) -> Result<Client> {
        self.admin.connect_client().await
    }

    /// A session in it. None is kept: it would keep the database from being copied.
    pub async fn connect(&self) -> Result<Client> {
        self.target.connect_client().await
    }

    /// Makes the table of events, and as many bytes of other rows as are missing to `bytes`;
    /// returns how many bytes there are then.
    ///
    /// # Errors
    /// The server's; a refusal where there is more than was asked for.
    pub async fn fill(&self, bytes: u64, report_progress: impl Fn(String)) -> Result<u64> {
        let client = self.connect().await?;
        client.batch_execute(EVENT_TABLE).await?;
        client
            .batch_execute(
                "CREATE TABLE IF NOT EXISTS filler (id bigint NOT NULL, body text NOT NULL)
                 WITH (autovacuum_enabled = off);
                 ALTER TABLE filler ALTER COLUMN body SET STORAGE PLAIN",
            )
            .await?;
        let database_size = async || {
            let sql = "SELECT pg_database_size(current_database())";
            let bytes: i64 = client.query_one(sql, &[]).await?.get(0);
            anyhow::Ok(u64::try_from(bytes).unwrap_or_default())
        };
        let existing_bytes = database_size().await?;
        if existing_bytes > bytes + bytes / 10 + SIZE_SLACK_BYTES {
            return Err(refusal::usage(format!(
                "database {} has {} MB, more than --source-size: name another one with --database",
                self.database,
                existing_bytes >> 20
            )));
        }
        loop {
            let missing = bytes.saturating_sub(database_size().await?);
            let rows = (missing / FILLER_ROW_BYTES).min(FILLER_CHUNK);
            if rows == 0 {
                break;
            }
            report_progress(format!("creating the source: {} MB to go", missing >> 20));
            let insert = format!(
                "INSERT INTO filler SELECT n, repeat(md5(n::text), 30) FROM generate_series(1, {rows}) AS n"
            );
            client.batch_execute(&insert).await?;
        }
        // Neither this nor a checkpoint of it is to fall into a burst.
        client.batch_execute("VACUUM (ANALYZE)").await?;
        client.batch_execute("CHECKPOINT").await?;
        database_size().await
    }

    /// Looks at everything that a stray write would change.
    pub async fn fingerprint(&self) -> Result<Fingerprint> {
        // Counters are written by a session when it ends or after a second: a new one sees them
        // all.
        let client = self.connect().await?;
        let catalogue = client
            .query_one(
                "SELECT md5(string_agg(line, ',' ORDER BY line)) FROM (
                     SELECT attrelid::regclass::text || '.' || attname || ':' || atttypid AS line
                     FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
                     WHERE relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
                       AND relnamespace::regnamespace::text NOT LIKE 'pg_%'
                     UNION ALL SELECT indexrelid::regclass::text FROM pg_index
                     UNION ALL SELECT datname FROM pg_database
                     UNION ALL SELECT rolname FROM pg_roles) AS definitions",
                &[],
            )
            .await?
            .get::<_, Option<String>>(0);
        let tables = client
            .query(
                "SELECT relid::regclass::text, n_tup_ins + n_tup_upd + n_tup_del, pg_table_size(relid)
                 FROM pg_stat_user_tables ORDER BY relid",
                &[],
            )
            .await?;
        let (mut writes, mut rows) = (Vec::new(), Vec::new());
        for table in tables {
            let name: String = table.get(0);
            writes.push((name.clone(), table.get(1)));
            if table.get::<_, i64>(2) <= CHECKED_BYTES_MAX {
                let sql = format!(
                    "SELECT md5(string_agg(one, ',' ORDER BY one)) FROM (SELECT r::text AS one FROM {name} AS r) AS rows"
                );
                rows.push((name, client.query_one(&sql, &[]).await?.get(0)));
            }
        }
        Ok(Fingerprint { catalogue: catalogue.unwrap_or_default(), writes, rows })
    }

    /// How many rows of the source carry the mark of a branch's write.
    pub(crate) async fn count_marked_rows(&self, marker: &str) -> Result<i64> {
        let sql = "SELECT count(*) FROM event WHERE marker = $1";
        Ok(self.connect().await?.query_one(sql, &[&marker]).await?.get(0))
    }
}
