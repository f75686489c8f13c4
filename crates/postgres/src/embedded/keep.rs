//! Keeping the embedded server as it is desired: started, stopped, started again when it ends by itself.

use super::*;

/// Keeps the server as desired until it is asked to be over.
pub(super) async fn supervise(shared: &Shared) {
    let mut desired = shared.desired.subscribe();
    let mut restarts = Restarts::default();
    let down = Condition::new("postgres_not_running", "postgres");
    loop {
        let wanted = *desired.borrow_and_update();
        match wanted {
            Desired::Over => break,
            Desired::Stopped => {
                shared.state.send_replace(State::Stopped);
                if desired.changed().await.is_err() {
                    break;
                }
                continue;
            }
            Desired::Running => {}
        }
        shared.state.send_if_modified(|state| {
            let stopped = *state == State::Stopped;
            if stopped {
                *state = State::Starting;
            }
            stopped
        });
        let reason = match shared.launch().await {
            Ok(postmaster) => {
                shared.state.send_replace(State::Running);
                down.recover("the embedded server is running again");
                let data = shared.layout().data;
                let interval = shared.config.write_back_interval.duration();
                let write_back = WriteBack::start(&data, interval);
                let asked = tokio::select! {
                    biased;
                    _ = desired.changed() => true,
                    () = postmaster.exited() => false,
                    never = shared.follow_sessions(&postmaster) => match never {},
                };
                // Nobody who stops or moves the server may find its files held or at work.
                write_back.stop().await;
                if asked {
                    postmaster
                        .stop(StopMode::Fast, shared.config.stop_timeout.duration())
                        .await;
                    continue;
                }
                end_orphans(&data).await;
                format!(
                    "it ended by itself: its log in {} may say why",
                    data.join("log").display()
                )
            }
            Err(error) => error.to_string(),
        };
        let decision = restarts.ended(shared.clock.now());
        if down.begin(&reason) {
            let (condition, subject) = ("postgres_not_running", "postgres");
            let wait_ms = decision.wait.as_millis();
            tracing::error!(condition, subject, %reason, wait_ms, "the embedded server is not running");
        }
        shared.state.send_replace(State::ended(&decision, reason));
        tokio::select! {
            _ = desired.changed() => {}
            () = tokio::time::sleep(decision.wait) => {}
        }
    }
    shared.state.send_replace(State::Stopped);
}
