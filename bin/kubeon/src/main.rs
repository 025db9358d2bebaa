//! `kubeon`: the command line. It reads flags and environment, asks the engine, and shows what came of it.
//!
//! ```text
//!   args/ ──► request.rs, target.rs ──► kubeon-engine ──► observe ─► plan ─► apply
//!                │                                                             │
//!                └──────────── cmd/ one file a command ──► display/, output/ ◄─┘
//! ```

mod args;
mod cli_error;
mod cmd;
mod context;
mod display;
mod engine_output;
mod help;
mod interrupt;
mod output;
mod refusal_flags;
mod report;
mod request;
mod target;

use std::process::ExitCode;

use clap::Parser as _;
use mimalloc::MiMalloc;

use args::{CliEnvironment, CommandLine};
use cli_error::{CliError, exit_code};
use kubeon_engine::error::ErrorCategory;
use output::CliOutput;

/// A plan of 5,000 hosts is 150,000 steps of small texts, made and let go of by many threads at once: a third faster.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let cli = match CommandLine::try_parse() {
        Ok(cli) => cli,
        Err(help) => return told_by_parser(&help),
    };
    let environment = CliEnvironment::read();
    let output = CliOutput::new(&cli.output, &environment);
    trace(&output);
    let result = run(&cli, environment, &output);
    output.end(&result);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => ExitCode::from(exit_code(stop.category)),
    }
}

/// What the crates below say of their work, for those who look for a fault.
fn trace(output: &CliOutput) {
    let filter = match output.verbosity() {
        0..6 => return,
        6..8 => "kubeon=debug,kubeon_link_host=debug,kubeon_apply=debug,kubeon_lab=debug,kubeon_bundle=debug",
        _ => "debug",
    };
    let subscriber =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    if subscriber.try_init().is_err() {
        output.warn("debugging words cannot be shown");
    }
}

/// Help and version go to standard output; what cannot be read is refused.
fn told_by_parser(message: &clap::Error) -> ExitCode {
    let printed = message.print().is_ok();
    let wrong = message.use_stderr() || !printed;
    ExitCode::from(if wrong { exit_code(ErrorCategory::Refused) } else { 0 })
}

fn run(cli: &CommandLine, environment: CliEnvironment, output: &CliOutput) -> Result<(), CliError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::failed(format!("cannot start: {error}")))?;
    let result = runtime.block_on(cmd::run(cli, environment, output));
    // What still runs belongs to nobody any more; hosts end their part by themselves.
    runtime.shutdown_background();
    result
}
