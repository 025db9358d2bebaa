//! `kubeon-gateway`: parses flags, sets up logs and signals, and runs the library.

use std::process::ExitCode;

use clap::Parser as _;
use kubeon_gateway::args::GatewayCli;
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    let cli = GatewayCli::parse();
    let filter = tracing_subscriber::EnvFilter::try_new(&cli.log).unwrap_or_default();
    tracing_subscriber::fmt().json().with_env_filter(filter).with_writer(std::io::stderr).init();
    match start(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "the gateway stops");
            ExitCode::FAILURE
        }
    }
}

fn start(cli: GatewayCli) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let result = runtime.block_on(async {
        let (mut terminate, mut interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let stop = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        kubeon_gateway::run(cli.options()?, Box::pin(stop)).await
    });
    runtime.shutdown_background();
    result
}
