//! Views: results of queries, kept fresh.

pub mod api;
pub mod config;
pub mod core;
pub mod error;
mod metrics;
pub mod model;
mod store;
mod worker;

pub use api::{Address, Begins, Follower, Options, TasksTo, Views};
pub use config::ViewsConfig;
pub use error::ViewsError;

/// The parts by themselves, for tests.
#[doc(hidden)]
pub mod testing {
    use egret_postgres::tokio_postgres::Client;

    use crate::store::describe::Names;
    pub use crate::store::install::install;
    pub use crate::store::refresh::{Reached, Refreshable, Refreshed};
    use crate::{
        ViewsConfig, ViewsError,
        model::{Following, MakerRights, Mode, NewView, ViewName},
    };

    /// Makes a view that is maintained incrementally. It is empty until it is refreshed.
    ///
    /// # Errors
    /// [`ViewsError`].
    pub async fn create(
        client: &mut Client,
        name: (&str, &str),
        query: &str,
    ) -> Result<Refreshable, ViewsError> {
        create_in(client, name, query, Mode::Incremental).await
    }

    /// Makes a view in a mode. It is empty until it is refreshed.
    ///
    /// # Errors
    /// [`ViewsError`].
    pub async fn create_in(
        client: &mut Client,
        (schema, name): (&str, &str),
        query: &str,
        mode: Mode,
    ) -> Result<Refreshable, ViewsError> {
        let view = NewView {
            name: ViewName {
                schema: schema.to_owned(),
                name: name.to_owned(),
            },
            query: query.to_owned(),
            mode,
            schedule: None,
            indexes: Vec::new(),
            owner: None,
            rights: MakerRights::all(),
            following: Following::default(),
        };
        let recording = ViewsConfig::default().recording();
        crate::store::create::create(client, &view, (None, Names::OfSession), recording).await
    }
}
