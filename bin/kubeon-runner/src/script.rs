//! The action `script`: runs the script that the operator generates from hooks, playbooks and commands.
//!
//! With `--state-secret`, a program `kubeon` that the script runs uses the state that an earlier Job saved. The
//! runner saves the state before the first change of a host, and at the end.

use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::commands::KubeonProgram;
use crate::inputs;
use crate::job::JobContext;
use crate::outcome::WorkOutcome;
use crate::persist::{self, StatePersistence};
use crate::save_barrier::SaveBarrier;
use crate::save_error::SaveError;
use crate::sinks::ScriptLines;
use crate::stream::{LINE, PROGRESS};

/// Runs the script.
pub(crate) async fn run(job: &JobContext) -> WorkOutcome {
    let script = &job.settings.flags.script;
    job.view.send_modify(|view| view.begin("Running", &format!("runs {}", script.display())));
    let mut command = Command::new(script);
    // Python buffers its output when that is not a terminal.
    command.stdin(Stdio::null()).env("PYTHONUNBUFFERED", "1");
    if job.settings.flags.meta.state_secret.is_none() {
        return work(job, command, None).await;
    }
    match PersistentRun::new(job) {
        Ok(run) => run_persistent(&run, command).await,
        Err(reason) => WorkOutcome::failed(1, reason),
    }
}

/// The context of a script whose state is persisted.
struct PersistentRun<'a> {
    job: &'a JobContext,
    engine: KubeonProgram,
    barrier: SaveBarrier,
    _home: TempDir,
}

impl<'a> PersistentRun<'a> {
    fn new(job: &'a JobContext) -> Result<Self, String> {
        let failed = |error| format!("cannot create a folder for the state: {error}");
        let home = persist::home(job).map_err(failed)?;
        let engine = inputs::engine(&job.settings, home.path()).map_err(|error| error.to_string())?;
        let barrier = SaveBarrier::open(home.path()).map_err(failed)?;
        Ok(Self { job, engine, barrier, _home: home })
    }

    fn persistence(&self) -> StatePersistence<'_> {
        StatePersistence { job: self.job, engine: &self.engine, known_hosts: None }
    }
}

async fn run_persistent(run: &PersistentRun<'_>, mut command: Command) -> WorkOutcome {
    let persistence = run.persistence();
    let saved = persistence.saved_cluster();
    if let Some(cluster) = &saved
        && let Err(outcome) = persistence.restore(cluster).await
    {
        return outcome;
    }
    run.engine.environment(&mut command);
    command.env("KUBEON_PROGRAM", &run.engine.program).env("KUBEON_HOLD_FOR", run.barrier.program());
    command.env("KUBEON_PROGRESS", "json");
    let mut outcome = work(run.job, command, Some(run)).await;
    if let Err(error) = persist_all(run, saved).await {
        run.job.log.line(&error.to_string());
        if outcome.code == 0 {
            outcome = WorkOutcome::failed(1, error.to_string());
        }
    }
    outcome
}

/// Saves the state and the kubeconfig of every cluster, and empties the Secrets of a cluster that no longer
/// exists.
async fn persist_all(run: &PersistentRun<'_>, saved: Option<String>) -> Result<(), SaveError> {
    let (persistence, existing) = (run.persistence(), run.engine.clusters());
    if let Some(removed) = saved.filter(|saved| !existing.contains(saved)) {
        persistence.forget(&removed).await?;
    }
    for cluster in &existing {
        persistence.save_state(cluster).await?;
        if run.engine.kubeconfig(cluster).is_file() {
            persistence.save_kubeconfig(cluster).await?;
        }
    }
    Ok(())
}

async fn work(job: &JobContext, mut command: Command, run: Option<&PersistentRun<'_>>) -> WorkOutcome {
    let script = job.settings.flags.script.display();
    let progress = run.is_some();
    let stdout = ScriptLines { output: job.to_stdout(), view: job.view.clone(), progress };
    let stderr = ScriptLines { output: job.to_stderr(), view: job.view.clone(), progress };
    let longest = if progress { PROGRESS } else { LINE };
    let mut running = match job.start(&mut command, stdout, stderr, longest) {
        Ok(running) => running,
        Err(error) => return WorkOutcome::failed(error.code(), error.to_string()),
    };
    let ending = tokio::select! {
        ending = running.ended() => ending,
        never = serve(run) => match never {},
    };
    let shutdown = job.shutdown.request();
    running.clean_up().await;
    WorkOutcome::of(ending, shutdown, || format!("{script} ended with {ending}"))
}

/// Saves the state each time the program waits for it. If this fails, the program ends without changing a
/// host.
async fn serve(run: Option<&PersistentRun<'_>>) -> std::convert::Infallible {
    let Some(run) = run else { return std::future::pending().await };
    loop {
        let request = run.barrier.next_request().await;
        let saved = run.persistence().save_while_held(&request.cluster).await;
        if let Err(error) = &saved {
            run.job.log.line(&format!("{error}; no host was changed"));
        }
        run.barrier.answer(&request, saved.is_ok());
    }
}
