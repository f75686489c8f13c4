//! An Egret without doors: volume, embedded server and engine in a directory of one test.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use egret_base::lifecycle::Stack;
use egret_base::settings::Size;
use egret_base::{SystemClock, SystemEntropy};
use egret_branches::model::{BranchName, DEFAULT_TENANT, NewBranch};
use egret_branches::{
    Branches, BranchesConfig, BranchesError, Children, Options, Steps, VolumeService, open_volume,
};
use egret_postgres::embedded::Layout;
use egret_postgres::test_support::{Guardian, free_port, test_directory};
use egret_postgres::tokio_postgres::Client;
use egret_postgres::{EmbeddedServer, PostgresConfig, pool};
use prometheus_client::registry::Registry;

/// Where everything of one test is; removed with it.
pub struct Home {
    pub directory: PathBuf,
    pub config: BranchesConfig,
    pub postgres: PostgresConfig,
    _guardian: Option<Guardian>,
}

/// A running engine with what is under it.
pub struct Egret {
    pub branches: Branches,
    pub source: Arc<EmbeddedServer>,
    stack: Stack,
}

impl Home {
    pub fn new(purpose: &str) -> Self {
        let directory = test_directory(purpose);
        let guardian = Guardian::new(&directory);
        let mut home = Self::at(&directory);
        home._guardian = Some(guardian);
        home
    }

    /// A home that another process looks after.
    pub fn at(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            config: BranchesConfig {
                volume_size: Size::gib(1),
                free_min: Size::mib(64),
                free_critical: Size::mib(32),
                // Tests of the pool ask for one.
                pool_min: 0,
                ..BranchesConfig::default()
            },
            postgres: PostgresConfig {
                port: free_port(),
                sessions_max: 20,
                ..PostgresConfig::default()
            },
            _guardian: None,
        }
    }

    pub async fn start(&self) -> Egret {
        self.start_with(None).await
    }

    pub async fn start_with(&self, steps: Option<Arc<dyn Steps>>) -> Egret {
        let egret = self.build(steps);
        egret.stack.start().await.expect("egret starts");
        egret
    }

    fn build(&self, steps: Option<Arc<dyn Steps>>) -> Egret {
        crate::logs::watch();
        let mounted = open_volume(&self.directory, &self.config).expect("the volume opens");
        let (clock, entropy) = (Arc::new(SystemClock), Arc::new(SystemEntropy));
        let layout = Layout {
            data: mounted.source(),
            socket_dir: self.directory.join("run/source"),
            log_file: self.directory.join("postgres-start.log"),
            password_file: self.directory.join("superuser.password"),
        };
        let source = Arc::new(EmbeddedServer::new(
            self.postgres.clone(),
            layout,
            clock.clone(),
            entropy.clone(),
        ));
        let options = Options {
            config: self.config.clone(),
            mounted,
            data_dir: self.directory.clone(),
            run_dir: self.directory.join("run/branches"),
            source: source.clone(),
            clock,
            entropy,
        };
        let mut metrics = Registry::default();
        let branches = match steps {
            Some(steps) => Branches::with_steps(options, &mut metrics, steps),
            None => Branches::new(options, &mut metrics),
        };
        let mut stack = Stack::default();
        stack.push(Arc::new(VolumeService::new(&self.directory)));
        stack.push(source.clone());
        stack.push(Arc::new(branches.clone()));
        Egret {
            branches,
            source,
            stack,
        }
    }
}

impl Egret {
    /// Stops everything; whatever was logged until then must have been expected.
    pub async fn stop(&self) {
        self.stack.stop().await;
        crate::logs::assert_quiet();
    }

    /// A superuser's session in the source.
    pub async fn source(&self, database: &str) -> Client {
        // A user's session, with the server's own defaults.
        pool::connect(self.source.connection(database, "test").options(""))
            .await
            .expect("the source accepts connections")
    }

    /// Database `app` with a table of a thousand rows in it, owned by the superuser.
    pub async fn make_app(&self) {
        let admin = self.source("postgres").await;
        admin.batch_execute("CREATE DATABASE app").await.unwrap();
        let app = self.source("app").await;
        app.batch_execute(
            "CREATE TABLE item (id bigint PRIMARY KEY, name text NOT NULL);
             INSERT INTO item SELECT n, 'item ' || n FROM generate_series(1, 1000) AS n",
        )
        .await
        .unwrap();
    }

    /// Makes a branch with a plain request.
    pub async fn branch(&self, name: &str) -> egret_branches::model::Branch {
        let request = NewBranch::named(self::name(name));
        self.branches.create(request).await.unwrap().into_branch()
    }

    /// The first value that a query on a branch answers.
    pub async fn ask(&self, branch: &str, sql: &str) -> Result<Option<String>, BranchesError> {
        let answer = self
            .branches
            .query(DEFAULT_TENANT, &name(branch), "app", sql, &[], None)
            .await?;
        Ok(answer
            .rows
            .into_iter()
            .next()
            .and_then(|row| row.into_iter().next().flatten()))
    }

    /// Destroys a branch that has no children.
    pub async fn destroy(&self, branch: &str) {
        let destroyed = self
            .branches
            .destroy(DEFAULT_TENANT, &name(branch), Children::Refuse)
            .await;
        destroyed.unwrap();
    }

    /// Waits until the files behind every tombstone are gone and every branch that is to run does,
    /// then checks that registry and disk agree.
    pub async fn assert_consistent(&self) {
        loop {
            let check = self.branches.check_registry().await.unwrap();
            // Branches that ran before are started behind.
            let starting = check
                .findings
                .iter()
                .all(|finding| finding.what == "postmaster");
            if check.tombstones == 0 && (check.consistent || !starting) {
                assert!(check.consistent, "{check:?}");
                return;
            }
            tokio::task::yield_now().await;
        }
    }
}

pub fn name(text: &str) -> BranchName {
    text.parse().expect("a valid name")
}
