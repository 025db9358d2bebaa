//! One operation from its first process to its last word.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::activity::Activity;
use crate::args::{Action, Environment, RunArgs, Settings};
use crate::board::Board;
use crate::callback;
use crate::family::Family;
use crate::job::Job;
use crate::kubeon;
use crate::masks::Masks;
use crate::meta::{Meta, TOKEN};
use crate::outcome::Outcome;
use crate::script;
use crate::spans::Spans;
use crate::status::Writer;
use crate::stop::Stop;
use crate::tail::Tail;
use crate::voice::Voice;

/// How long the last status may take to be written.
const LAST_STATUS: Duration = Duration::from_secs(120);

/// Does the work, tells what came of it, and gives the exit code.
///
/// # Errors
/// When it cannot begin.
pub async fn run(flags: RunArgs, environment: Environment) -> io::Result<u8> {
    let settings = Settings { flags, environment };
    let masks = Arc::new(masks(&settings));
    let voice = Voice::new(masks.clone());
    // Signals and orphans first: nothing may be lost while the rest is made ready.
    let family = Family::adopt()?;
    let stop = Stop::listen(family.clone(), settings.flags.grace, voice.clone())?;
    let (board, watched) = watch::channel(Board::default());
    let meta = meta(&settings, &voice).await;
    let status = write_status(&settings, meta.clone(), &masks, &voice, watched);
    let (activity, stdout, stderr) = (Activity::now(), Tail::default(), Tail::default());
    let board = Arc::new(board);
    let spans = Spans::start(&settings.environment, &masks, &voice);
    let job = Job { settings, masks, voice, family, stop, board, spans, activity, stdout, stderr, meta };

    let heartbeat = heartbeat(&job);
    let outcome = match job.settings.flags.action {
        Action::Script => script::run(&job).await,
        Action::Kubeon => kubeon::run(&job).await,
    };
    if let Some(heartbeat) = heartbeat {
        heartbeat.abort();
    }
    Ok(farewell(job, outcome, status).await)
}

/// Tells what came of it, to everybody who should know.
async fn farewell(job: Job, outcome: Outcome, status: Option<JoinHandle<()>>) -> u8 {
    let reason = outcome.reason.as_deref().unwrap_or("all of it was done");
    if outcome.code != 0 {
        job.voice.say(&format!("ends with exit code {}: {reason}", outcome.code));
    }
    let (at, steps) = (job.board.borrow().current(), job.board.borrow().steps());
    job.board.send_modify(|board| board.ended(outcome.word(), reason));
    let done = if outcome.code == 0 { job.board.borrow().steps().text } else { steps.text };
    let message = outcome.message(at.as_deref(), &done, &job.stderr, &job.stdout);
    let log = &job.settings.flags.termination_log;
    if let Err(error) = fs::write(log, job.masks.hide(message.as_bytes())) {
        job.voice.say(&format!("cannot write {}: {error}", log.display()));
    }
    let Job { settings, masks, voice, stop, .. } = &job;
    let last_status = async {
        let Some(status) = status else { return };
        tokio::select! {
            // One that broke down has said why.
            _ = status => {}
            () = stop.last_word(LAST_STATUS) => voice.say("the last status could not be written in time"),
        }
    };
    let spans = job.spans.clone().end(&outcome, voice);
    tokio::join!(last_status, callback::tell(settings, &outcome, stop, voice, masks), spans);
    outcome.code
}

fn masks(settings: &Settings) -> Masks {
    let token = settings.flags.callback.callback_token_file.as_deref();
    let more: Vec<&Path> = token.into_iter().chain([Path::new(TOKEN)]).collect();
    Masks::of_files(&settings.flags.auth, &more)
}

/// The way to the meta cluster. A script is run without it, too; what must be kept is not begun.
async fn meta(settings: &Settings, voice: &Voice) -> Option<Meta> {
    match Meta::connect(settings.flags.meta.kubeconfig.as_deref()).await {
        Ok(Some(meta)) => Some(meta),
        Ok(None) => {
            let needed = settings.flags.operation.is_some() || settings.flags.action == Action::Kubeon;
            if needed {
                voice.say("no service account is mounted: neither status nor state is written");
            }
            None
        }
        Err(error) => {
            voice.say(&format!("{error}: neither status nor state is written"));
            None
        }
    }
}

fn write_status(
    settings: &Settings,
    meta: Option<Meta>,
    masks: &Arc<Masks>,
    voice: &Voice,
    board: watch::Receiver<Board>,
) -> Option<JoinHandle<()>> {
    let operation = settings.flags.operation.clone()?;
    let writer = Writer { meta: meta?, operation, masks: masks.clone(), voice: voice.clone() };
    Some(tokio::spawn(writer.run(board)))
}

fn heartbeat(job: &Job) -> Option<JoinHandle<()>> {
    let silence = job.settings.flags.heartbeat;
    let beat = || job.activity.clone().heartbeat(silence, job.voice.clone(), job.board.clone());
    (!silence.is_zero()).then(|| tokio::spawn(beat()))
}
