//! `kubeon`: the command line. It reads flags and environment, calls the engine, and prints the result.
//!
//! ```text
//!   args/ ──► request.rs, target.rs ──► kubeon-engine ──► observe ─► plan ─► apply
//!                │                                                             │
//!                └──────────── cmd/ one file per command ─► display/, output/ ◄─┘
//! ```

mod args;
mod cli_error;
mod cmd;
mod context;
mod display;
mod engine_output;
mod help;
mod interrupt;
mod next_step;
mod output;
mod refusal_flags;
mod remedies;
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

/// A plan of 5,000 hosts has 150,000 steps with small strings, which many threads allocate and free. mimalloc
/// makes this a third faster.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let cli = match CommandLine::try_parse() {
        Ok(cli) => cli,
        Err(help) => return print_parser_message(&help),
    };
    let environment = CliEnvironment::read();
    let output = CliOutput::new(&cli.output, &environment);
    init_logging(&output);
    let result = run(&cli, environment, &output);
    output.end(&result);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => ExitCode::from(exit_code(error.category)),
    }
}

/// Prints the logs of the other crates, for debugging.
fn init_logging(output: &CliOutput) {
    let filter = match output.verbosity() {
        0..6 => return,
        6..8 => "kubeon=debug,kubeon_link_host=debug,kubeon_apply=debug,kubeon_lab=debug,kubeon_bundle=debug",
        _ => "debug",
    };
    let subscriber =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    if subscriber.try_init().is_err() {
        output.warn("debug logs cannot be shown");
    }
}

/// Prints help and version to standard output, and errors to standard error.
fn print_parser_message(message: &clap::Error) -> ExitCode {
    let printed = message.print().is_ok();
    let is_error = message.use_stderr() || !printed;
    ExitCode::from(if is_error { exit_code(ErrorCategory::Refused) } else { 0 })
}

fn run(cli: &CommandLine, environment: CliEnvironment, output: &CliOutput) -> Result<(), CliError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::failed(format!("cannot start: {error}")))?;
    let result = runtime.block_on(cmd::run(cli, environment, output));
    // Remaining tasks are abandoned. The hosts end their sessions without them.
    runtime.shutdown_background();
    result
}
