//! The frame of a Job's script, which makes bash fit to be process 1.
//!
//! ```text
//!   kubelet ── TERM ──► process 1 ── TERM ──► the work: one shell and its programs, a process group of their own
//!                           │                 (killed when it does not end)
//!                           └── then ──► what always runs, each in a shell of its own
//! ```
//!
//! The end of a pod is told to process 1 alone. A bash that waits for a program hears of nothing until that program ends,
//! and as process 1 it does not die of a signal either. So the work runs in the background, and bash waits for it.

/// Seconds that the work has to end once it was told. What is left of the pod's time is for what always runs.
pub(crate) const WORK_SECONDS: u32 = 30;

const HEAD: &str = "#!/bin/bash

set -o errexit
set -o nounset
set -o pipefail

# what is started here is a process group of its own
set -o monitor
";

/// Process groups are looked at, not the first process alone: what it started may still be tidying up.
const STOP: &str = "
# only process 1 is told to stop: the work hears of it here
_stop() {
trap : HUP INT TERM
if [[ -n ${!-} ]]; then
kill -s \"$1\" -- \"-$!\" || true
_end=$((SECONDS + {seconds}))
while kill -0 -- \"-$!\" && ((SECONDS < _end)); do sleep 0.1 || break; done
kill -s KILL -- \"-$!\" || true
fi 2>/dev/null
exit \"$2\"
}
trap '_stop HUP 129' HUP
trap '_stop INT 130' INT
trap '_stop TERM 143' TERM
";

/// Once the work has ended, a signal cannot prevent what always runs.
const END: &str = "_work &
_status=0
wait \"$!\" || _status=$?
trap : HUP INT TERM
exit \"$_status\"
";

/// The commands of a script.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    /// Hooks before the action.
    pub before: Vec<String>,
    /// The action.
    pub action: String,
    /// Hooks after an action that did what it should.
    pub after: Vec<String>,
    /// Hooks that run whatever happens.
    pub always: Vec<String>,
}

impl Commands {
    /// The script, with so many seconds between the word to stop and the death of the work. Hooks and action share one
    /// shell, the first of them that fails ends it, and its exit code is the script's.
    pub(crate) fn script(&self, seconds: u32) -> String {
        let lines = |commands: &[String]| commands.iter().map(|line| format!("{line}\n")).collect::<String>();
        let Self { before, action, after, always } = self;
        let work = format!(
            "\n_work() {{\n# its programs stay in its group\nset +o monitor\n\n# preinstall\n{}\n# run kubespray\n{action}\n\n# postinstall\n{}}}\n",
            lines(before),
            lines(after)
        );
        let stop = STOP.replace("{seconds}", &seconds.to_string());
        [HEAD, &finish(always), &stop, &work, END].concat().trim().to_owned()
    }
}

/// What always runs; none of it can keep the next from running.
fn finish(always: &[String]) -> String {
    if always.is_empty() {
        return String::new();
    }
    let each = always.iter().map(|hook| format!("(\nset +o errexit\n{hook}\n) || true\n"));
    format!(
        "\n# whatever happens\n_finish() {{\n_status=$?\n{}exit \"$_status\"\n}}\ntrap _finish EXIT\n",
        each.collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;
    use std::process::{Command, Output, Stdio};

    use super::*;

    fn commands(action: &str, always: &[&str]) -> Commands {
        let always = always.iter().map(|&hook| hook.to_owned()).collect();
        Commands {
            action: action.to_owned(),
            after: vec!["echo never".to_owned()],
            always,
            ..Commands::default()
        }
    }

    /// Runs a script as process 1 of a namespace of its own, and kills it after 20 s.
    fn as_process_one(script: &str) -> Output {
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", "20", "unshare", "--pid", "--fork", "--kill-child"]);
        if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["bash", "-c", script]).stdin(Stdio::null()).output().unwrap()
    }

    /// Work that is asleep when process 1 is told to end. A signal between the fork of a program and its start may be lost
    /// by any shell, so it is sent later.
    fn told(work: &str) -> String {
        work.replace("{asleep}", "sleep 60 & sleep 0.2; kill -s TERM 1")
    }

    fn said(output: &Output) -> (Option<i32>, String) {
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    #[test]
    fn what_is_told_to_process_1_alone_reaches_the_work_and_what_always_runs_runs() {
        let work = told("sh -c 'trap \"echo heard; exit\" TERM; {asleep}; wait'");
        let ended = as_process_one(&commands(&work, &["sleep 0.1; echo always"]).script(15));
        assert_eq!(said(&ended), (Some(143), "heard\nalways\n".to_owned()), "{ended:?}");
        let ended = as_process_one(&commands("(sleep 0.2; kill -s INT 1) & sleep 60", &[]).script(15));
        assert_eq!(said(&ended), (Some(130), String::new()), "{ended:?}");
    }

    #[test]
    fn work_that_does_not_end_is_killed_and_what_always_runs_runs() {
        let work = told("trap '' TERM; {asleep}; wait");
        let ended = as_process_one(&commands(&work, &["echo always"]).script(1));
        assert_eq!(said(&ended), (Some(143), "always\n".to_owned()), "{ended:?}");
    }

    #[test]
    fn a_second_signal_does_not_keep_what_always_runs_from_running() {
        let again = "kill -s TERM 1; sleep 0.1; echo always";
        let work = told("{asleep}; wait");
        let ended = as_process_one(&commands(&work, &[again, "echo too"]).script(15));
        assert_eq!(said(&ended), (Some(143), "always\ntoo\n".to_owned()), "{ended:?}");
    }

    #[test]
    fn of_what_always_runs_none_keeps_the_next_from_running_or_changes_the_code() {
        let always = ["exit 7", "false; echo on", "# nothing"];
        let ended = as_process_one(&commands("exit 3", &always).script(1));
        assert_eq!(said(&ended), (Some(3), "on\n".to_owned()), "{ended:?}");
    }

    #[test]
    fn hooks_and_action_share_a_shell_that_ends_with_the_first_failure() {
        let before = vec!["cd /proc".to_owned(), "word=hello".to_owned()];
        let good = Commands { before: before.clone(), ..commands("echo $word from $PWD", &[]) };
        let ended = as_process_one(&good.script(1));
        assert_eq!(said(&ended), (Some(0), "hello from /proc\nnever\n".to_owned()), "{ended:?}");
        let bad = Commands { before, ..commands("false\necho reached", &[]) };
        assert_eq!(said(&as_process_one(&bad.script(1))), (Some(1), String::new()));
        let empty = Commands { after: Vec::new(), ..commands("# nothing", &[]) };
        assert_eq!(said(&as_process_one(&empty.script(1))), (Some(0), String::new()));
    }

    #[test]
    fn what_cannot_be_read_is_a_failure_after_which_what_always_runs_runs() {
        let ended = as_process_one(&commands("echo )(", &["echo always"]).script(1));
        assert_eq!(said(&ended), (Some(2), "always\n".to_owned()), "{ended:?}");
    }
}
