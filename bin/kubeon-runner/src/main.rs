//! `kubeon-runner`: process 1 of the Job of an operation.
//!
//! ```text
//!                 ┌─ script: /bin/entrypoint.sh ─┐   lines ─► redacted ─► own stdout, stderr
//!   args ─► job ──┤                              ├─►
//!                 └─ kubeon: the program kubeon ─┘   progress ─► progress_view ─► status of the operation
//!                                                                  └────► termination log, callback, exit code
//!   reaper: reaps every process     shutdown: forwards signals     redactor: replaces secrets
//! ```

mod activity;
mod args;
mod backoff;
mod bundle;
mod callback;
mod commands;
mod copy;
mod inputs;
mod job;
mod job_object;
mod known_hosts;
mod kubeon;
mod log;
mod meta;
mod outcome;
mod persist;
mod progress_view;
mod reaper;
mod recorded_log;
mod redactor;
mod run;
mod save_barrier;
mod save_error;
mod saved_log;
mod saved_plan;
mod script;
mod shutdown;
mod sinks;
mod skip_hosts;
mod snapshot;
mod spans;
mod status;
mod step_records;
mod stream;
mod tail;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;

use args::{RunnerCli, RunnerCommand, RunnerEnvironment};

fn main() -> ExitCode {
    let result = match RunnerCli::parse().command {
        RunnerCommand::Run(flags) => start(*flags),
        RunnerCommand::Copy { from, to } => copy::folder(&from, &to).map(|()| ExitCode::SUCCESS),
    };
    // An error before the work starts is reported in the log only.
    result.unwrap_or_else(|error| {
        let _ = writeln!(io::stderr(), "kubeon-runner: {error}");
        ExitCode::FAILURE
    })
}

fn start(flags: args::RunArgs) -> io::Result<ExitCode> {
    // Fails only if a provider is already installed, which is sufficient.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let code = runtime.block_on(run::run(flags, RunnerEnvironment::read()))?;
    // Tasks that still run are no longer needed.
    runtime.shutdown_background();
    Ok(ExitCode::from(code))
}
