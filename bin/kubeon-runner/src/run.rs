//! Runs the Job of one operation: prepares, runs the work, reports the result.

use std::fs;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::activity::Activity;
use crate::args::{RunArgs, RunnerEnvironment, RunnerSettings, WorkKind};
use crate::callback;
use crate::job::JobContext;
use crate::kubeon;
use crate::log::RunnerLog;
use crate::meta::{MetaCluster, TOKEN};
use crate::outcome::WorkOutcome;
use crate::progress_view::ProgressView;
use crate::reaper::ProcessReaper;
use crate::redactor::Redactor;
use crate::saved_log;
use crate::script;
use crate::shutdown::Shutdown;
use crate::spans::RunSpans;
use crate::status::StatusWriter;
use crate::tail::Tail;

/// The time limit for the last write of the status.
const LAST_STATUS: Duration = Duration::from_secs(120);

/// The time that the last status has before the callback when the runner is being stopped.
const HEAD_START: Duration = Duration::from_secs(1);

/// Runs the work, reports the result, and returns the exit code.
///
/// # Errors
/// When the signal handlers or the reaper cannot be installed.
pub(crate) async fn run(flags: RunArgs, environment: RunnerEnvironment) -> io::Result<u8> {
    let settings = RunnerSettings { flags, environment };
    let redactor = Arc::new(redactor(&settings));
    let log = RunnerLog::new(redactor.clone());
    saved_log::repeat(&settings.flags.earlier_log, &log);
    // Install the handlers first: no signal and no end of a process during the preparation may be lost.
    let reaper = ProcessReaper::install()?;
    let shutdown = Shutdown::listen(reaper.clone(), settings.flags.grace, log.clone())?;
    let (view, watched) = watch::channel(ProgressView::default());
    let meta = meta(&settings, &log).await;
    let status = write_status(&settings, meta.clone(), &redactor, &log, watched);
    let (activity, stdout, stderr) = (Activity::now(), Tail::default(), Tail::default());
    let view = Arc::new(view);
    let spans = RunSpans::start(&settings.environment, &redactor, &log);
    let job =
        JobContext { settings, redactor, log, reaper, shutdown, view, spans, activity, stdout, stderr, meta };

    let heartbeat = heartbeat(&job);
    let outcome = match job.settings.flags.action {
        WorkKind::Script => script::run(&job).await,
        WorkKind::Kubeon => kubeon::run(&job).await,
    };
    if let Some(heartbeat) = heartbeat {
        heartbeat.abort();
    }
    Ok(report(job, outcome, status).await)
}

/// Reports the result: log, termination log, status, callback and trace, and log and steps in a ConfigMap.
async fn report(job: JobContext, outcome: WorkOutcome, status: Option<JoinHandle<()>>) -> u8 {
    let reason = outcome.reason.as_deref().unwrap_or("completed");
    if outcome.code != 0 {
        job.log.line(&format!("exit code {}: {reason}", outcome.code));
    }
    let (at, steps) = (job.view.borrow().current(), job.view.borrow().steps());
    job.view.send_modify(|view| view.finish(outcome.result(), reason));
    let done = if outcome.code == 0 { job.view.borrow().steps().text } else { steps.text };
    let message = outcome.message(at.as_deref(), &done, &job.stderr, &job.stdout);
    let file = &job.settings.flags.termination_log;
    if let Err(error) = fs::write(file, job.redactor.redact(message.as_bytes())) {
        job.log.line(&format!("cannot write {}: {error}", file.display()));
    }
    let JobContext { settings, redactor, log, shutdown, .. } = &job;
    let last_status = async {
        let Some(status) = status else { return };
        tokio::select! {
            // A writer that failed has logged the reason.
            _ = status => {}
            () = shutdown.deadline(LAST_STATUS) => log.line("cannot write the last status in time"),
        }
    };
    let spans = job.spans.clone().end(&outcome, log);
    let callback = callback::send(settings, &outcome, shutdown, log, redactor);
    // The deadline of a shutdown is near.
    let is_stopped = shutdown.request().is_some();
    let status_and_callback = after(last_status, if is_stopped { HEAD_START } else { LAST_STATUS }, callback);
    if is_stopped {
        tokio::join!(status_and_callback, spans, saved_log::save(&job));
    } else {
        tokio::join!(status_and_callback, spans);
        saved_log::save(&job).await;
    }
    outcome.code
}

/// Waits for the last status, and sends the callback after it, or after this time: who receives the callback compares it with the
/// status.
async fn after(last_status: impl Future<Output = ()>, most: Duration, callback: impl Future<Output = ()>) {
    let mut last_status = pin!(last_status);
    if timeout(most, last_status.as_mut()).await.is_ok() {
        callback.await;
    } else {
        tokio::join!(last_status, callback);
    }
}

fn redactor(settings: &RunnerSettings) -> Redactor {
    let token = settings.flags.callback.callback_token_file.as_deref();
    let more: Vec<&Path> = token.into_iter().chain([Path::new(TOKEN)]).collect();
    Redactor::of_files(&settings.flags.auth, &more)
}

/// Connects to the meta cluster. A script also runs without it; work that must persist its state does not start.
async fn meta(settings: &RunnerSettings, log: &RunnerLog) -> Option<MetaCluster> {
    match MetaCluster::connect(settings.flags.meta.kubeconfig.as_deref(), log).await {
        Ok(Some(meta)) => Some(meta),
        Ok(None) => {
            let needed = settings.flags.operation.is_some() || settings.flags.action == WorkKind::Kubeon;
            if needed {
                log.line("no service account is mounted: the runner writes neither status nor state");
            }
            None
        }
        Err(error) => {
            log.line(&format!("{error}: the runner writes neither status nor state"));
            None
        }
    }
}

fn write_status(
    settings: &RunnerSettings,
    meta: Option<MetaCluster>,
    redactor: &Arc<Redactor>,
    log: &RunnerLog,
    view: watch::Receiver<ProgressView>,
) -> Option<JoinHandle<()>> {
    let operation = settings.flags.operation.clone()?;
    let writer = StatusWriter { meta: meta?, operation, redactor: redactor.clone(), log: log.clone() };
    Some(tokio::spawn(writer.run(view)))
}

fn heartbeat(job: &JobContext) -> Option<JoinHandle<()>> {
    let silence = job.settings.flags.heartbeat;
    let beat = || job.activity.clone().heartbeat(silence, job.log.clone(), job.view.clone());
    (!silence.is_zero()).then(|| tokio::spawn(beat()))
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use tokio::time::sleep;

    use super::*;

    /// What ends first when the last status takes this long and may take `most`.
    async fn order(takes: u64, most: u64) -> Vec<&'static str> {
        let ended = Mutex::new(Vec::new());
        let last_status = async {
            sleep(Duration::from_secs(takes)).await;
            ended.lock().push("status");
        };
        let callback = async { ended.lock().push("callback") };
        after(last_status, Duration::from_secs(most), callback).await;
        ended.into_inner()
    }

    #[tokio::test(start_paused = true)]
    async fn the_callback_follows_the_last_status_and_does_not_wait_for_ever() {
        assert_eq!(order(5, 120).await, ["status", "callback"]);
        assert_eq!(order(5, 1).await, ["callback", "status"]);
    }
}
