//! The action `kubeon`: runs the program `kubeon` with its state in a Secret.
//!
//! ```text
//!   state ─► import ─► create --hold: precheck ── saved ──► export ─► Secret ─► "go" ─► … ─► end
//!                                                                                             └─► export ─► Secrets
//! ```
//!
//! Before the first change of a host, the Secret contains everything that the next operation needs, and the ConfigMap
//! contains the host keys. An operation that only plans runs `plan` instead, and saves the plan.

use std::io::{self, Write as _};
use std::process::{Command, Stdio};

use kubeon_api::refusal::failed_with;
use kubeon_api::{Operation, labels};
use tempfile::TempDir;
use tokio::sync::mpsc::unbounded_channel;

use crate::commands::ClusterCommands;
use crate::inputs::{self, Task};
use crate::job::{JobContext, RunningProgram};
use crate::known_hosts::KnownHosts;
use crate::outcome::WorkOutcome;
use crate::persist::{self, StatePersistence};
use crate::reaper::ProcessEnd;
use crate::save_error::SaveError;
use crate::saved_plan;
use crate::sinks::{PlainLines, ProgressLines};
use crate::skip_hosts;
use crate::snapshot;
use crate::stream::PROGRESS;

/// Any other change would make an empty cluster.
const UNFINISHED_ROLLBACK: &str = "a return to a snapshot has begun and the cluster is not on its hosts: declare the version of the \
    snapshot again and request rollbacking";

/// Runs the operation that the environment names.
pub(crate) async fn run(job: &JobContext) -> WorkOutcome {
    let ready = || -> Result<(Task, TempDir, ClusterCommands), String> {
        let task = inputs::task(&job.settings).map_err(|error| error.to_string())?;
        let home =
            persist::home(job).map_err(|error| format!("cannot create a folder for the state: {error}"))?;
        let kubeon = inputs::kubeon(&job.settings, home.path()).map_err(|error| error.to_string())?;
        Ok((task, home, kubeon))
    };
    let (task, _home, kubeon) = match ready() {
        Ok(ready) => ready,
        Err(reason) => return WorkOutcome::failed(1, reason),
    };
    let mut work = Work { job, kubeon, known_hosts: None };
    if let (Task::Change(_), Err(error)) = (task, work.persistence().meta()) {
        return WorkOutcome::failed(1, format!("{error}; no host was changed"));
    }
    if let Err(outcome) = work.persistence().restore(&work.kubeon.cluster).await {
        return outcome;
    }
    if let Err(error) = work.load_known_hosts() {
        return WorkOutcome::failed(1, format!("cannot load the host keys: {error}"));
    }
    let skipped = match skip_hosts::find(&job.settings, &work.kubeon.engine, &work.kubeon.cluster, task) {
        Ok(skipped) => skipped,
        Err(error) => return WorkOutcome::failed(1, error.to_string()),
    };
    if !skipped.unknown.is_empty() {
        job.log.line(&skipped.warning());
    }
    work.kubeon.skip_hosts.clone_from(&skipped.known);
    let outcome = match task {
        Task::Precheck => {
            job.view.send_modify(|view| view.precheck(None));
            work.run_command(work.kubeon.precheck()).await
        }
        Task::Plan(operation) => work.plan(operation).await,
        Task::Change(operation) => work.change(operation).await,
    };
    skipped.explain(outcome)
}

struct Work<'a> {
    job: &'a JobContext,
    kubeon: ClusterCommands,
    known_hosts: Option<KnownHosts>,
}

impl Work<'_> {
    fn persistence(&self) -> StatePersistence<'_> {
        StatePersistence {
            job: self.job,
            engine: &self.kubeon.engine,
            known_hosts: self.known_hosts.as_ref(),
        }
    }

    fn load_known_hosts(&mut self) -> io::Result<()> {
        let ClusterCommands { engine, cluster, .. } = &mut self.kubeon;
        self.known_hosts = KnownHosts::load(&self.job.settings, engine, cluster)?;
        engine.pinned_in = self.known_hosts.as_ref().map(|known| known.map().to_string());
        Ok(())
    }

    /// Plans the operation and saves the plan; writes nothing else.
    async fn plan(&self, operation: Operation) -> WorkOutcome {
        self.job.view.send_modify(|view| view.precheck(Some(("Planning", "planning"))));
        let file = self.kubeon.engine.home.join(labels::JOB_PLAN_KEY);
        let outcome = self.run_command(self.kubeon.plan(operation, &file)).await;
        if outcome.code != 0 {
            return outcome;
        }
        match saved_plan::save(self.job, &file).await {
            Ok(()) => outcome,
            Err(error) => WorkOutcome::failed(1, error.to_string()),
        }
    }

    async fn change(&self, operation: Operation) -> WorkOutcome {
        let continues =
            matches!(operation, Operation::Creating | Operation::Rollbacking | Operation::Terminating);
        if !continues && self.kubeon.is_being_replaced() {
            return WorkOutcome::failed(1, UNFINISHED_ROLLBACK.to_owned());
        }
        self.job.view.send_modify(|view| match operation {
            Operation::Creating => view.precheck(Some(("Creating", "creating the cluster"))),
            Operation::ScalingUp => view.precheck(Some(("ScalingUp", "adding hosts"))),
            Operation::Updating => view.precheck(Some(("Updating", "changing version or settings"))),
            Operation::Rollbacking => view.begin("RollingBack", "returning to the snapshot"),
            Operation::Renewing => view.precheck(Some(("Renewing", "renewing kubeconfigs and certificates"))),
            Operation::Repairing => view.precheck(Some(("Repairing", "doing what is missing on the hosts"))),
            Operation::Snapshotting => view.begin("Snapshotting", "writing a snapshot of etcd"),
            Operation::ScalingDown => view.precheck(Some(("ScalingDown", "removing hosts"))),
            _ => view.begin("Terminating", "removing the cluster from its hosts"),
        });
        let command = match operation {
            Operation::Snapshotting => snapshot::save(&self.job.settings, &self.kubeon),
            Operation::Creating => snapshot::restore(&self.job.settings, &self.kubeon)
                .map(|command| command.unwrap_or_else(|| self.kubeon.work(operation))),
            Operation::Rollbacking => snapshot::rollback(&self.job.settings, &self.kubeon),
            Operation::Updating => snapshot::before_upgrade(&self.job.settings, &self.kubeon),
            _ => Ok(self.kubeon.work(operation)),
        };
        let outcome = match command {
            Ok(command) => self.run_command(command).await,
            Err(error) => WorkOutcome::failed(1, error.to_string()),
        };
        self.persist(operation, outcome).await
    }

    /// Saves the state, the host keys and the kubeconfigs. If a write fails, the operation fails, but the
    /// changes on the hosts remain. The kubeconfigs are saved after a failure, too: the Secrets have what the state has, and
    /// the work before the failure may have changed it, and the authority. A cluster whose creation failed is not observed.
    async fn persist(&self, operation: Operation, mut outcome: WorkOutcome) -> WorkOutcome {
        let destroyed = operation == Operation::Terminating && outcome.code == 0;
        let (persistence, cluster) = (self.persistence(), &self.kubeon.cluster);
        let mut failures = Vec::new();
        if destroyed {
            failures.extend(persistence.forget_known_hosts().await.err());
        }
        if !destroyed && (self.kubeon.engine.knows(cluster) || outcome.code == 0) {
            failures.extend(persistence.save_state(cluster).await.err());
        }
        let created = outcome.code == 0 && operation == Operation::Creating;
        let has_kubeconfig = !destroyed && self.kubeon.engine.kubeconfig(cluster).is_file();
        if created || has_kubeconfig {
            match persistence.save_kubeconfig(cluster).await {
                Ok(kubeconfig) => {
                    outcome.kubeconfig = Some(kubeconfig).filter(|_| created);
                }
                Err(error) => failures.push(error),
            }
        }
        let is_observed = match operation {
            Operation::Creating => created,
            Operation::Snapshotting => false,
            _ => has_kubeconfig,
        };
        if is_observed {
            failures.extend(persistence.save_observer(cluster).await.err());
        }
        for error in failures {
            self.job.log.line(&error.to_string());
            if outcome.code == 0 {
                outcome = WorkOutcome {
                    kubeconfig: outcome.kubeconfig,
                    ..WorkOutcome::failed(1, error.to_string())
                };
            }
        }
        outcome
    }

    /// Runs one command of the program to its end.
    async fn run_command(&self, mut command: Command) -> WorkOutcome {
        let job = self.job;
        if let Some(request) = job.shutdown.request() {
            return WorkOutcome::stopped(request);
        }
        let (sender, mut saved) = unbounded_channel();
        let progress = ProgressLines { output: job.to_stderr(), view: job.view.clone(), saved: sender };
        let started =
            job.start(command.stdin(Stdio::piped()), PlainLines(job.to_stdout()), progress, PROGRESS);
        let mut running = match started {
            Ok(running) => running,
            Err(error) => return WorkOutcome::failed(error.code(), error.to_string()),
        };
        let mut unsaved = None;
        let ending = loop {
            tokio::select! {
                ending = running.ended() => break ending,
                Some(()) = saved.recv() => {
                    if let Err(error) = self.release(&mut running).await {
                        unsaved = Some(error);
                        break running.terminate(job.settings.flags.grace).await;
                    }
                }
            }
        };
        let shutdown = job.shutdown.request();
        running.clean_up().await;
        match (shutdown, unsaved) {
            (None, Some(error)) => WorkOutcome::failed(1, format!("{error}; no host was changed")),
            _ => WorkOutcome::of(ending, shutdown, || self.reason(&command, ending)),
        }
    }

    /// Saves the state, then lets the program continue.
    async fn release(&self, running: &mut RunningProgram) -> Result<(), SaveError> {
        self.persistence().save_while_held(&self.kubeon.cluster).await?;
        // The write fails if the program has ended, which the caller handles.
        let _ = running.child.stdin.as_mut().map(|stdin| stdin.write_all(b"go\n"));
        Ok(())
    }

    /// The reason for the failure. The first line names the command and its exit code.
    fn reason(&self, command: &Command, ending: ProcessEnd) -> String {
        let word = command.get_args().next().unwrap_or_default().to_string_lossy();
        let ending = format!("kubeon {word} ended with {ending}");
        let view = self.job.view.borrow();
        if let Some(unfit) = view.unfit() {
            return failed_with(unfit.lines());
        }
        let first = view.failures().first().map(|failure| {
            let name = failure.name.clone().unwrap_or_else(|| failure.host.to_string());
            format!("{} on {name}: {}", failure.step, failure.cause)
        });
        let Some(why) = first.or_else(|| view.end().map(str::to_owned)).filter(|why| !why.is_empty()) else {
            return ending;
        };
        let (line, more) =
            why.split_once('\n').map_or((why.as_str(), None), |(line, more)| (line, Some(more)));
        more.map_or_else(|| format!("{line} ({ending})"), |more| format!("{line} ({ending})\n{more}"))
    }
}
