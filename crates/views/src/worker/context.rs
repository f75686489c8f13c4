//! Parts that the refresh workers of all databases share.

use std::sync::Arc;

use egret_base::{Clock, TaskSink};
use egret_postgres::Databases;

use crate::config::ViewsConfig;
use crate::error::ViewsError;
use crate::metrics::Metrics;
use crate::model::FollowSettings;

/// Settings and parts of the views engine.
pub struct ViewsContext {
    pub config: ViewsConfig,
    /// Databases in which views may be.
    pub databases: Databases,
    pub clock: Arc<dyn Clock>,
    pub metrics: Metrics,
    /// Turns change sets into tasks, where there are queues.
    pub task_publisher: Option<TaskPublisher>,
}

/// Turns change sets into tasks, in the queues of one tenant.
#[derive(Clone)]
pub struct TaskPublisher {
    /// Accepts the tasks of change sets.
    pub sink: Arc<dyn TaskSink>,
    /// Tenant that owns the queues.
    pub tenant: String,
}

impl ViewsContext {
    /// Settings of followers for a new view: where tasks are made, the default retention applies.
    ///
    /// # Errors
    /// [`ViewsError::Invalid`] for a queue that cannot exist.
    pub(crate) fn follow_settings(
        &self,
        following: &FollowSettings,
    ) -> Result<FollowSettings, ViewsError> {
        if let Some(queue) = &following.queue {
            self.check_queue(queue)?;
        }
        let default_retention = following.queue.as_ref().map(|_| self.config.change_sets_kept);
        Ok(FollowSettings {
            retention: following.retention.or(default_retention),
            queue: following.queue.clone(),
        })
    }

    /// Refuses a queue that cannot exist.
    ///
    /// # Errors
    /// [`ViewsError::Invalid`].
    pub(crate) fn check_queue(&self, queue: &str) -> Result<(), ViewsError> {
        let reason = match &self.task_publisher {
            None => "this Egret has no queues".to_owned(),
            Some(tasks) => match tasks.sink.check_queue(queue) {
                Ok(()) => return Ok(()),
                Err(rejection) => rejection.message,
            },
        };
        Err(ViewsError::Invalid { what: "queue", reason })
    }
}
