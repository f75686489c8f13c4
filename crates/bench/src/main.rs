//! The load harness as a program. `egret bench` executes it.

use std::io::Write;
use std::process::ExitCode;

use egret_bench::{Global, Refusal, ServerEndpoint};
use egret_bench_cli::{DESCRIPTOR_ARGUMENT, Job};
use serde_json::json;

/// The allocator of the server: what the harness costs a measurement is as little as can be.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let argument = std::env::args().nth(1);
    let descriptor = argument
        .as_deref()
        .and_then(|argument| argument.strip_prefix(DESCRIPTOR_ARGUMENT)?.parse().ok());
    let Some(descriptor) = descriptor else {
        let failure = Failure {
            exit: 2,
            code: "usage",
            message: "egret-bench is executed by `egret bench`".to_owned(),
        };
        return failure.print(false);
    };
    let job = match Job::from_descriptor(descriptor) {
        Ok(job) => job,
        Err(error) => return Failure::from(anyhow::Error::new(error)).print(false),
    };
    let json = job.json;
    match run(job) {
        Ok(code) => code,
        Err(error) => Failure::from(error).print(json),
    }
}

fn run(job: Job) -> anyhow::Result<ExitCode> {
    let endpoint = match job.server {
        Some(server) => Some(ServerEndpoint {
            tls: Some(server.tls_config()?),
            url: server.url,
            token: server.token,
            data_dir: server.data_dir,
        }),
        None => None,
    };
    let global = Global { json: job.json, endpoint, settings: job.settings, program: job.program };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(egret_bench::run(job.command, &global))
}

/// A failure as `egret` prints its own.
struct Failure {
    exit: u8,
    code: &'static str,
    message: String,
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        let (exit, code, message) = match error.downcast_ref::<Refusal>() {
            Some(Refusal::Usage(message)) => (2, "usage", message.clone()),
            Some(Refusal::Unreachable(message)) => (3, "server_unreachable", message.clone()),
            None => (1, "bench_failed", format!("{error:#}")),
        };
        Self { exit, code, message }
    }
}

impl Failure {
    fn print(&self, json: bool) -> ExitCode {
        let text = if json {
            let error = json!({
                "error": {
                    "code": self.code,
                    "detail": self.message,
                    "hint": null,
                    "request_id": null,
                    "position": null,
                    "exit_code": self.exit,
                }
            });
            format!("{error:#}")
        } else {
            format!("error: {}", self.message)
        };
        // Nothing sensible is left to do when standard error is gone.
        let _ = writeln!(std::io::stderr(), "{text}");
        ExitCode::from(self.exit)
    }
}
