//! Supervision of the embedded server: it is started, stopped, and restarted when it ends by
//! itself.

use super::*;

/// Keeps the server in the desired state until that is [`TargetState::Ended`].
pub(super) async fn supervise(shared: &EmbeddedInner) {
    let mut desired = shared.desired.subscribe();
    let mut restarts = RestartHistory::default();
    let fault = Condition::new("postgres_not_running", "postgres");
    loop {
        let target = *desired.borrow_and_update();
        match target {
            TargetState::Ended => break,
            TargetState::Stopped => {
                shared.state.send_replace(ServerState::Stopped);
                if desired.changed().await.is_err() {
                    break;
                }
                continue;
            }
            TargetState::Running => {}
        }
        shared.state.send_if_modified(|state| {
            let was_stopped = *state == ServerState::Stopped;
            if was_stopped {
                *state = ServerState::Starting;
            }
            was_stopped
        });
        let reason = match shared.launch().await {
            Ok(postmaster) => {
                shared.state.send_replace(ServerState::Running);
                fault.recover("the embedded server is running again");
                let data = shared.layout().data;
                let interval = shared.config.write_back_interval.duration();
                let write_back = WriteBack::start(&data, interval);
                let is_requested = tokio::select! {
                    biased;
                    _ = desired.changed() => true,
                    () = postmaster.await_exit() => false,
                    never = shared.follow_sessions(&postmaster) => match never {},
                };
                // Before the server is stopped or moved, its files must not be open or written to
                // by this task.
                write_back.stop().await;
                if is_requested {
                    postmaster.stop(StopMode::Fast, shared.config.stop_timeout.duration()).await;
                    continue;
                }
                kill_orphans(&data).await;
                format!(
                    "it exited unexpectedly: its log in {} may say why",
                    data.join("log").display()
                )
            }
            Err(error) => error.to_string(),
        };
        let decision = restarts.record_exit(shared.clock.now());
        if fault.begin(&reason) {
            let (condition, subject) = ("postgres_not_running", "postgres");
            let wait_ms = decision.wait.as_millis();
            tracing::error!(condition, subject, %reason, wait_ms, "the embedded server is not running");
        }
        shared.state.send_replace(ServerState::after_exit(&decision, reason));
        tokio::select! {
            _ = desired.changed() => {}
            () = tokio::time::sleep(decision.wait) => {}
        }
    }
    shared.state.send_replace(ServerState::Stopped);
}
