//! `kubeon-operator`: flags, logs, signals; the rest is the library's.

use std::process::ExitCode;

use clap::Parser as _;
use kubeon_operator::args::OperatorCli;
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    let cli = OperatorCli::parse();
    let filter = tracing_subscriber::EnvFilter::try_new(&cli.log).unwrap_or_default();
    tracing_subscriber::fmt().json().with_env_filter(filter).with_writer(std::io::stderr).init();
    match start(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "the operator ends");
            ExitCode::FAILURE
        }
    }
}

/// Two threads: what is left of the work is waiting.
fn start(cli: OperatorCli) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let result = runtime.block_on(async {
        let (mut end, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let stop = async move {
            tokio::select! {
                _ = end.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        kubeon_operator::run(cli.options()?, Box::pin(stop)).await
    });
    runtime.shutdown_background();
    result
}
