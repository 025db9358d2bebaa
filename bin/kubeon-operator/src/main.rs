//! `kubeon-operator`: parses flags, sets up logs and signals, and runs the library.

use std::process::ExitCode;
use std::time::Duration;

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
            tracing::error!(error = format!("{error:#}"), "the operator stops");
            ExitCode::FAILURE
        }
    }
}

/// Runs the operator on two threads, because it mostly waits for the API server.
fn start(cli: OperatorCli) -> anyhow::Result<()> {
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
        if cli.check_uninstall {
            let timeout = Duration::from_secs(u64::from(cli.request_timeout));
            return kubeon_operator::check_uninstall(cli.kubeconfig.as_deref(), timeout).await;
        }
        kubeon_operator::run(cli.options()?, Box::pin(stop)).await
    });
    runtime.shutdown_background();
    result
}
