//! The action `script`: what the operator made of hooks, playbooks and commands.
//!
//! With `--state-secret`, the program `kubeon` under it finds the state that an earlier Job left, and its state is kept:
//! before its first effect on a host, and at the end.

use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::commands::Engine;
use crate::inputs;
use crate::job::Job;
use crate::keep::{self, Keep, SaveError};
use crate::outcome::Outcome;
use crate::sinks::Words;
use crate::stream::{LINE, PROGRESS};
use crate::waiting_room::WaitingRoom;

/// Runs it.
pub async fn run(job: &Job) -> Outcome {
    let script = &job.settings.flags.script;
    job.board.send_modify(|board| board.stage("Running", &format!("runs {}", script.display())));
    let mut command = Command::new(script);
    // Python holds back what it says when nobody sits before it.
    command.stdin(Stdio::null()).env("PYTHONUNBUFFERED", "1");
    if job.settings.flags.meta.state_secret.is_none() {
        return work(job, command, None).await;
    }
    match Ground::new(job) {
        Ok(ground) => on(&ground, command).await,
        Err(reason) => Outcome::failed(1, reason),
    }
}

/// What a script works on that keeps a state.
struct Ground<'a> {
    job: &'a Job,
    engine: Engine,
    room: WaitingRoom,
    _home: TempDir,
}

impl<'a> Ground<'a> {
    fn new(job: &'a Job) -> Result<Self, String> {
        let made = |error| format!("cannot make a folder for the state: {error}");
        let home = keep::home(job).map_err(made)?;
        let engine = inputs::engine(&job.settings, home.path()).map_err(|error| error.to_string())?;
        let room = WaitingRoom::open(home.path()).map_err(made)?;
        Ok(Self { job, engine, room, _home: home })
    }

    fn keep(&self) -> Keep<'_> {
        Keep { job: self.job, engine: &self.engine, known_hosts: None }
    }
}

async fn on(ground: &Ground<'_>, mut command: Command) -> Outcome {
    let keep = ground.keep();
    let left = keep.left();
    if let Some(cluster) = &left
        && let Err(outcome) = keep.restore(cluster).await
    {
        return outcome;
    }
    ground.engine.environment(&mut command);
    command.env("KUBEON_PROGRAM", &ground.engine.program).env("KUBEON_HOLD_FOR", ground.room.program());
    command.env("KUBEON_PROGRESS", "json");
    let mut outcome = work(ground.job, command, Some(ground)).await;
    if let Err(error) = preserve(ground, left).await {
        ground.job.voice.say(&error.to_string());
        if outcome.code == 0 {
            outcome = Outcome::failed(1, error.to_string());
        }
    }
    outcome
}

/// Keeps what the next operation, and the people, need.
async fn preserve(ground: &Ground<'_>, left: Option<String>) -> Result<(), SaveError> {
    let (keep, now) = (ground.keep(), ground.engine.clusters());
    if let Some(gone) = left.filter(|left| !now.contains(left)) {
        keep.forget(&gone).await?;
    }
    for cluster in &now {
        keep.save_state(cluster).await?;
        if ground.engine.kubeconfig(cluster).is_file() {
            keep.save_kubeconfig(cluster).await?;
        }
    }
    Ok(())
}

async fn work(job: &Job, mut command: Command, ground: Option<&Ground<'_>>) -> Outcome {
    let called = job.settings.flags.script.display();
    let progress = ground.is_some();
    let stdout = Words { output: job.to_stdout(), board: job.board.clone(), progress };
    let stderr = Words { output: job.to_stderr(), board: job.board.clone(), progress };
    let longest = if progress { PROGRESS } else { LINE };
    let mut running = match job.start(&mut command, stdout, stderr, longest) {
        Ok(running) => running,
        Err(error) => return Outcome::failed(error.code(), error.to_string()),
    };
    let ending = tokio::select! {
        ending = running.ended() => ending,
        never = serve(ground) => match never {},
    };
    let told = job.stop.told();
    running.settle().await;
    Outcome::of(ending, told, || format!("{called} ended with {ending}"))
}

/// Saves whenever the program waits for that. One that hears that it was in vain ends without an effect.
async fn serve(ground: Option<&Ground<'_>>) -> std::convert::Infallible {
    let Some(ground) = ground else { return std::future::pending().await };
    loop {
        let asked = ground.room.next().await;
        let saved = ground.keep().save_while_held(&asked.cluster).await;
        if let Err(error) = &saved {
            ground.job.voice.say(&format!("{error}; no host is changed"));
        }
        ground.room.answer(&asked, saved.is_ok());
    }
}
