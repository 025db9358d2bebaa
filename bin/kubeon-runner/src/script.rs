//! The action `script`: what the operator made of hooks, playbooks and commands.

use std::process::{Command, Stdio};

use crate::job::Job;
use crate::outcome::Outcome;
use crate::sinks::Words;
use crate::stream::LINE;

/// Runs it.
pub async fn run(job: &Job) -> Outcome {
    let script = &job.settings.flags.script;
    let called = script.display();
    job.board.send_modify(|board| board.stage("Running", &format!("runs {called}")));
    let mut command = Command::new(script);
    // Python holds back what it says when nobody sits before it.
    command.stdin(Stdio::null()).env("PYTHONUNBUFFERED", "1");
    let words = |output| Words { output, board: job.board.clone() };
    let mut running = match job.start(&mut command, words(job.to_stdout()), words(job.to_stderr()), LINE) {
        Ok(running) => running,
        Err(error) => return Outcome::failed(error.code(), error.to_string()),
    };
    let ending = running.ended().await;
    let told = job.stop.told();
    running.settle().await;
    Outcome::of(ending, told, || format!("{called} ended with {ending}"))
}
