//! `kubeon-runner`: process 1 of the Job of an operation.
//!
//! ```text
//!                 ┌─ script: /bin/entrypoint.sh ─┐   lines ─► hidden secrets ─► own stdout, stderr
//!   args ─► job ──┤                              ├─►
//!                 └─ kubeon: the program kubeon ─┘   progress ─► board ─► status of the operation
//!                                                                  └────► termination log, callback, exit code
//!   family: reaps every process     stop: passes signals on     masks: hide what is secret
//! ```

mod activity;
mod args;
mod backoff;
mod board;
mod bundle;
mod callback;
mod commands;
mod copy;
mod family;
mod inputs;
mod job;
mod keep;
mod known_hosts;
mod kubeon;
mod masks;
mod meta;
mod outcome;
mod run;
mod script;
mod sinks;
mod spans;
mod status;
mod stop;
mod stream;
mod tail;
mod voice;
mod waiting_room;
mod without;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;

use args::{Cli, Command, Environment};

fn main() -> ExitCode {
    let ended = match Cli::parse().command {
        Command::Run(flags) => start(*flags),
        Command::Copy { from, to } => copy::folder(&from, &to).map(|()| ExitCode::SUCCESS),
    };
    // What goes wrong here goes wrong before there is anything to tell it by but the log.
    ended.unwrap_or_else(|error| {
        let _ = writeln!(io::stderr(), "kubeon-runner: {error}");
        ExitCode::FAILURE
    })
}

fn start(flags: args::RunArgs) -> io::Result<ExitCode> {
    // Already there when something else installed it first, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let code = runtime.block_on(run::run(flags, Environment::read()))?;
    // What still runs belongs to nobody any more.
    runtime.shutdown_background();
    Ok(ExitCode::from(code))
}
