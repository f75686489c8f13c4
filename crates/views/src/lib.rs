//! Views: results of queries, kept fresh.

pub mod api;
pub mod config;
pub mod core;
pub mod error;
mod metrics;
pub mod model;
mod store;
mod worker;

pub use api::{FollowMode, Follower, Options, TaskPublisher, ViewRef, Views};
pub use config::ViewsConfig;
pub use error::ViewsError;

/// The parts by themselves, for tests.
#[doc(hidden)]
pub mod testing {
    use egret_postgres::tokio_postgres::Client;

    pub use crate::store::install::install;
    use crate::store::query_description::NameResolution;
    pub use crate::store::refresh::outcome::RefreshOutcome;
    pub use crate::store::refresh::outcome::RefreshPoint;
    pub use crate::store::refreshable::Refreshable;
    use crate::{
        ViewsConfig, ViewsError,
        model::{FollowSettings, MakerRights, Mode, NewView, ViewName},
    };

    /// Makes a view that is maintained incrementally. It is empty until it is refreshed.
    pub async fn create(
        client: &mut Client,
        schema: &str,
        name: &str,
        query: &str,
    ) -> Result<Refreshable, ViewsError> {
        create_in_mode(client, schema, name, query, Mode::Incremental).await
    }

    /// Makes a view in a mode. It is empty until it is refreshed.
    pub async fn create_in_mode(
        client: &mut Client,
        schema: &str,
        name: &str,
        query: &str,
        mode: Mode,
    ) -> Result<Refreshable, ViewsError> {
        let view = NewView {
            name: ViewName { schema: schema.to_owned(), name: name.to_owned() },
            query: query.to_owned(),
            mode,
            schedule: None,
            indexes: Vec::new(),
            owner: None,
            rights: MakerRights::administrator(),
            follow_settings: FollowSettings::default(),
        };
        let capture_options = ViewsConfig::default().capture_options();
        let names = NameResolution::SessionSearchPath;
        crate::store::create::create(client, &view, None, names, capture_options).await
    }
}
