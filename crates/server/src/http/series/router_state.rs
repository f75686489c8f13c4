//! State of the handlers of series.

use std::sync::Arc;

use axum::extract::FromRef;
use egret_base::Timestamp;
use egret_series::{Monitor, Series};

use crate::http::state::Build;

/// State of the handlers.
#[derive(Clone)]
pub(crate) struct SeriesState(pub(super) Arc<SeriesInner>);

pub(crate) struct SeriesInner {
    pub(super) series: Series,
    pub(super) monitor: Monitor,
    pub(super) build: Build,
    pub(super) started_at: Timestamp,
}

impl FromRef<SeriesState> for Series {
    fn from_ref(state: &SeriesState) -> Self {
        state.0.series.clone()
    }
}

impl FromRef<SeriesState> for Monitor {
    fn from_ref(state: &SeriesState) -> Self {
        state.0.monitor.clone()
    }
}
