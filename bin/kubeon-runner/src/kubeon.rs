//! The action `kubeon`: the same program that a person runs, with its state kept in a Secret.
//!
//! ```text
//!   state ─► import ─► create --hold: precheck ── saved ──► export ─► Secret ─► "go" ─► … ─► end
//!                                                                                             └─► export ─► Secrets
//! ```
//!
//! Before the first effect on a host, everything that the next operation needs is in the Secret.

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use kubeon_api::Operation;
use tempfile::TempDir;
use tokio::sync::mpsc::unbounded_channel;

use crate::commands::Kubeon;
use crate::family::Ending;
use crate::inputs::{self, Task};
use crate::job::{HelperError, Job, Running};
use crate::meta::{LARGEST_SECRET, MetaError, Place};
use crate::outcome::Outcome;
use crate::sinks::{Plain, Story};

/// The key of the state in its Secret.
const STATE: &str = "state.tar.zst";
/// The key of the kubeconfig in its Secret.
const KUBECONFIG: &str = "kubeconfig";
/// How long saving may take while the program waits for it; it waits for 120 s.
const SAVE: Duration = Duration::from_secs(100);
/// Longest line of progress.
const PROGRESS: usize = 1024 * 1024;

/// Why something was not saved.
#[derive(Debug, thiserror::Error)]
enum SaveError {
    #[error("cannot take the state from the program: {0}")]
    Export(#[from] HelperError),
    #[error("cannot read {0}: {1}")]
    Read(String, std::io::Error),
    #[error("cannot write {0}: {1}")]
    Write(Place, MetaError),
    #[error("cannot write {0}: no success in time")]
    Late(Place),
    #[error("told to stop")]
    Stopped,
}

/// Runs the operation that the environment names.
pub async fn run(job: &Job) -> Outcome {
    let ready = || -> Result<(Task, TempDir, Kubeon), String> {
        let task = inputs::task(&job.settings).map_err(|error| error.to_string())?;
        let home = home(job).map_err(|error| format!("cannot make a folder for the state: {error}"))?;
        let kubeon = inputs::kubeon(&job.settings, home.path()).map_err(|error| error.to_string())?;
        Ok((task, home, kubeon))
    };
    let (task, _home, kubeon) = match ready() {
        Ok(ready) => ready,
        Err(reason) => return Outcome::failed(1, reason),
    };
    let work = Work { job, kubeon };
    if let Err(outcome) = work.restore().await {
        return outcome;
    }
    match task {
        Task::Precheck => {
            job.board.send_modify(|board| board.precheck(None));
            work.stage(work.kubeon.precheck()).await
        }
        Task::Change(operation) => work.change(operation).await,
    }
}

fn home(job: &Job) -> std::io::Result<TempDir> {
    let settings = &job.settings;
    let parent = settings.flags.kubeon.scratch.as_deref().unwrap_or(&settings.environment.temporary);
    let home = tempfile::Builder::new().prefix("kubeon-").tempdir_in(parent)?;
    fs::set_permissions(home.path(), Permissions::from_mode(0o700))?;
    Ok(home)
}

struct Work<'a> {
    job: &'a Job,
    kubeon: Kubeon,
}

impl Work<'_> {
    /// Puts what an earlier operation left in place.
    async fn restore(&self) -> Result<(), Outcome> {
        let file = &self.job.settings.flags.kubeon.state;
        let told = |error: &dyn std::fmt::Display| {
            Outcome::failed(1, format!("cannot restore the state from {}: {error}", file.display()))
        };
        let state = match File::open(file) {
            Ok(state) => state,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(told(&error)),
        };
        if state.metadata().map_err(|error| told(&error))?.len() == 0 {
            return Ok(());
        }
        let import = self.job.helper(&mut self.kubeon.import_state(), Some(state), LARGEST_SECRET).await;
        import.map(|_| ()).map_err(|error| self.job.stop.told().map_or_else(|| told(&error), Outcome::told))
    }

    async fn change(&self, operation: Operation) -> Outcome {
        self.job.board.send_modify(|board| match operation {
            Operation::Creating => board.precheck(Some(("Creating", "makes the cluster"))),
            Operation::ScalingUp => board.precheck(Some(("ScalingUp", "adds workers"))),
            Operation::ScalingDown => board.precheck(Some(("ScalingDown", "removes workers"))),
            _ => board.stage("Terminating", "takes the cluster away from its hosts"),
        });
        let outcome = self.stage(self.kubeon.work(operation)).await;
        self.keep(operation, outcome).await
    }

    /// Keeps what the next operation, and the people, need. What came of the hosts is not undone by a failure here,
    /// but the operation did not do all that it should.
    async fn keep(&self, operation: Operation, mut outcome: Outcome) -> Outcome {
        let gone = operation == Operation::Terminating && outcome.code == 0;
        let made = operation == Operation::Creating && outcome.code == 0;
        let known = self.kubeon.home.join("cluster").join(&self.kubeon.cluster).exists();
        let mut failures = Vec::new();
        if !gone && (known || outcome.code == 0) {
            failures.extend(self.save_state().await.err());
        }
        if made {
            match self.save_kubeconfig().await {
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
        tokio::select! {
            saved = self.save_state() => saved?,
            () = self.job.stop.asked() => return Err(SaveError::Stopped),
        }
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

    async fn save_state(&self) -> Result<(), SaveError> {
        let Some(_) = &self.job.meta else { return Ok(()) };
        let state = self.job.helper(&mut self.kubeon.export_state(), None, LARGEST_SECRET).await?;
        self.write(self.place(self.job.settings.flags.meta.state_secret.as_ref(), "state"), STATE, state)
            .await
    }

    /// Writes the admin kubeconfig, and gives it.
    async fn save_kubeconfig(&self) -> Result<String, SaveError> {
        let text = read(&self.kubeon.kubeconfig())?;
        if self.job.meta.is_some() {
            let named = self.job.settings.flags.meta.kubeconfig_secret.as_ref();
            self.write(self.place(named, "kubeconfig"), KUBECONFIG, text.clone().into_bytes()).await?;
        }
        Ok(text)
    }

    async fn write(&self, place: Place, key: &str, bytes: Vec<u8>) -> Result<(), SaveError> {
        let Some(meta) = &self.job.meta else { return Ok(()) };
        tokio::select! {
            saved = meta.save(&place, key, bytes) => saved.map_err(|error| SaveError::Write(place.clone(), error)),
            () = self.job.stop.last_word(SAVE) => Err(SaveError::Late(place.clone())),
        }
    }

    fn place(&self, named: Option<&String>, kind: &str) -> Place {
        let settings = &self.job.settings;
        let of_cluster = inputs::namespace(settings);
        let usual = || format!("{of_cluster}-{}-{kind}", self.kubeon.cluster);
        let name = named.cloned().unwrap_or_else(usual);
        Place { namespace: settings.flags.meta.secret_namespace.clone().unwrap_or(of_cluster), name }
    }
}

fn read(file: &Path) -> Result<String, SaveError> {
    fs::read_to_string(file).map_err(|error| SaveError::Read(file.display().to_string(), error))
}
