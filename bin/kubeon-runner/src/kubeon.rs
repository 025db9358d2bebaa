//! The action `kubeon`: the same program that a person runs, with its state kept in a Secret.
//!
//! ```text
//!   state ─► import ─► create --hold: precheck ── saved ──► export ─► Secret ─► "go" ─► … ─► end
//!                                                                                             └─► export ─► Secrets
//! ```
//!
//! Before the first effect on a host, everything that the next operation needs is in the Secret, and the keys of the hosts
//! are in their ConfigMap.

use std::io::{self, Write as _};
use std::process::{Command, Stdio};

use kubeon_api::Operation;
use tempfile::TempDir;
use tokio::sync::mpsc::unbounded_channel;

use crate::commands::Kubeon;
use crate::family::Ending;
use crate::inputs::{self, Task};
use crate::job::{Job, Running};
use crate::keep::{self, Keep, SaveError};
use crate::known_hosts::KnownHosts;
use crate::outcome::Outcome;
use crate::sinks::{Plain, Story};
use crate::stream::PROGRESS;
use crate::without;

/// Runs the operation that the environment names.
pub async fn run(job: &Job) -> Outcome {
    let ready = || -> Result<(Task, TempDir, Kubeon), String> {
        let task = inputs::task(&job.settings).map_err(|error| error.to_string())?;
        let home = keep::home(job).map_err(|error| format!("cannot make a folder for the state: {error}"))?;
        let kubeon = inputs::kubeon(&job.settings, home.path()).map_err(|error| error.to_string())?;
        Ok((task, home, kubeon))
    };
    let (task, _home, kubeon) = match ready() {
        Ok(ready) => ready,
        Err(reason) => return Outcome::failed(1, reason),
    };
    let mut work = Work { job, kubeon, known_hosts: None };
    if let (Task::Change(_), Err(error)) = (task, work.keep().meta()) {
        return Outcome::failed(1, format!("{error}; no host was changed"));
    }
    if let Err(outcome) = work.keep().restore(&work.kubeon.cluster).await {
        return outcome;
    }
    if let Err(error) = work.take_known_hosts() {
        return Outcome::failed(1, format!("cannot put the keys of the hosts in place: {error}"));
    }
    let named = match without::find(&job.settings, &work.kubeon.engine, &work.kubeon.cluster, task) {
        Ok(named) => named,
        Err(error) => return Outcome::failed(1, error.to_string()),
    };
    if !named.unknown.is_empty() {
        job.voice.say(&named.words());
    }
    work.kubeon.without.clone_from(&named.known);
    let outcome = match task {
        Task::Precheck => {
            job.board.send_modify(|board| board.precheck(None));
            work.stage(work.kubeon.precheck()).await
        }
        Task::Change(operation) => work.change(operation).await,
    };
    named.told_of(outcome)
}

struct Work<'a> {
    job: &'a Job,
    kubeon: Kubeon,
    known_hosts: Option<KnownHosts>,
}

impl Work<'_> {
    fn keep(&self) -> Keep<'_> {
        Keep { job: self.job, engine: &self.kubeon.engine, known_hosts: self.known_hosts.as_ref() }
    }

    fn take_known_hosts(&mut self) -> io::Result<()> {
        let Kubeon { engine, cluster, .. } = &mut self.kubeon;
        self.known_hosts = KnownHosts::begin(&self.job.settings, engine, cluster)?;
        engine.pinned_in = self.known_hosts.as_ref().map(|known| known.map().to_string());
        Ok(())
    }

    async fn change(&self, operation: Operation) -> Outcome {
        self.job.board.send_modify(|board| match operation {
            Operation::Creating => board.precheck(Some(("Creating", "makes the cluster"))),
            Operation::ScalingUp => board.precheck(Some(("ScalingUp", "adds workers"))),
            Operation::ScalingDown => board.precheck(Some(("ScalingDown", "removes workers"))),
            _ => board.stage("Terminating", "takes the cluster away from its hosts"),
        });
        let outcome = self.stage(self.kubeon.work(operation)).await;
        self.preserve(operation, outcome).await
    }

    /// Keeps what the next operation, and the people, need. What came of the hosts is not undone by a failure here,
    /// but the operation did not do all that it should.
    async fn preserve(&self, operation: Operation, mut outcome: Outcome) -> Outcome {
        let gone = operation == Operation::Terminating && outcome.code == 0;
        let made = operation == Operation::Creating && outcome.code == 0;
        let (keep, cluster) = (self.keep(), &self.kubeon.cluster);
        let mut failures = Vec::new();
        if gone {
            failures.extend(keep.forget_known_hosts().await.err());
        }
        if !gone && (self.kubeon.engine.knows(cluster) || outcome.code == 0) {
            failures.extend(keep.save_state(cluster).await.err());
        }
        if made {
            match keep.save_kubeconfig(cluster).await {
                Ok(kubeconfig) => outcome.kubeconfig = Some(kubeconfig),
                Err(error) => failures.push(error),
            }
        }
        for error in failures {
            self.job.voice.say(&error.to_string());
            if outcome.code == 0 {
                outcome = Outcome { kubeconfig: outcome.kubeconfig, ..Outcome::failed(1, error.to_string()) };
            }
        }
        outcome
    }

    /// Runs one command of the program to its end.
    async fn stage(&self, mut command: Command) -> Outcome {
        let job = self.job;
        if let Some(told) = job.stop.told() {
            return Outcome::told(told);
        }
        let (tell, mut saved) = unbounded_channel();
        let story = Story { output: job.to_stderr(), board: job.board.clone(), saved: tell };
        let started = job.start(command.stdin(Stdio::piped()), Plain(job.to_stdout()), story, PROGRESS);
        let mut running = match started {
            Ok(running) => running,
            Err(error) => return Outcome::failed(error.code(), error.to_string()),
        };
        let mut unsaved = None;
        let ending = loop {
            tokio::select! {
                ending = running.ended() => break ending,
                Some(()) = saved.recv() => {
                    if let Err(error) = self.let_go(&mut running).await {
                        unsaved = Some(error);
                        break running.give_up(job.settings.flags.grace).await;
                    }
                }
            }
        };
        let told = job.stop.told();
        running.settle().await;
        match (told, unsaved) {
            (None, Some(error)) => Outcome::failed(1, format!("{error}; no host was changed")),
            _ => Outcome::of(ending, told, || self.reason(&command, ending)),
        }
    }

    /// Saves what the program made, then lets it go on.
    async fn let_go(&self, running: &mut Running) -> Result<(), SaveError> {
        self.keep().save_while_held(&self.kubeon.cluster).await?;
        // A program that ended meanwhile is seen to have ended.
        let _ = running.child.stdin.as_mut().map(|stdin| stdin.write_all(b"go\n"));
        Ok(())
    }

    /// Why it was not done, its first line with the command and how that ended.
    fn reason(&self, command: &Command, ending: Ending) -> String {
        let word = command.get_args().next().unwrap_or_default().to_string_lossy();
        let how = format!("kubeon {word} ended with {ending}");
        let board = self.job.board.borrow();
        if let Some(unfit) = board.unfit() {
            return format!("[precheck] failed with:\n {}", unfit.replace('\n', "\n "));
        }
        let first = board.failures().first().map(|failure| {
            let name = failure.name.clone().unwrap_or_else(|| failure.host.to_string());
            format!("{} on {name}: {}", failure.step, failure.cause)
        });
        let Some(why) = first.or_else(|| board.end().map(str::to_owned)).filter(|why| !why.is_empty()) else {
            return how;
        };
        let (line, more) =
            why.split_once('\n').map_or((why.as_str(), None), |(line, more)| (line, Some(more)));
        more.map_or_else(|| format!("{line} ({how})"), |more| format!("{line} ({how})\n{more}"))
    }
}
