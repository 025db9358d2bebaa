//! The frame of a Job's script, with which bash can run as process 1.
//!
//! ```text
//!   kubelet ── TERM ──► process 1 ── TERM ──► the work: one shell and its programs, in their own process group
//!                           │                 (killed after the grace period)
//!                           └── then ──► the hooks that always run, each in its own shell
//! ```
//!
//! When a pod ends, only process 1 gets the signal. While bash waits for a program in the foreground, it handles no signal,
//! and as process 1 it does not die from a signal either. So the work runs in the background, and bash waits for it.

/// Seconds between SIGTERM and SIGKILL of the work. The rest of the pod's grace period is for the hooks that always run.
pub(crate) const WORK_SECONDS: u32 = 30;

const HEAD: &str = "#!/bin/bash

set -o errexit
set -o nounset
set -o pipefail

# what is started here is a process group of its own
set -o monitor
";

/// Waits for the whole process group, not only for its first process: a child may still be cleaning up.
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

/// After the end of the work, a signal does not prevent the hooks that always run.
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
    /// Hooks that run after a successful action.
    pub after: Vec<String>,
    /// Hooks that always run.
    pub always: Vec<String>,
}

impl Commands {
    /// The script, with this number of seconds between SIGTERM and SIGKILL of the work. Hooks and action share one shell; the
    /// first failure ends it, and its exit code is the exit code of the script.
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

/// The function for the hooks that always run. A failed hook does not prevent the next one.
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

    /// Runs a script as process 1 of its own PID namespace, and kills it after 20 s.
    fn as_process_one(script: &str) -> Output {
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", "20", "unshare", "--pid", "--fork", "--kill-child"]);
        if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["bash", "-c", script]).stdin(Stdio::null()).output().unwrap()
    }

    /// Work that sleeps when process 1 gets SIGTERM. A shell may lose a signal between fork and exec of a program, so the
    /// signal is sent a little later.
    fn signalled(work: &str) -> String {
        work.replace("{asleep}", "sleep 60 & sleep 0.2; kill -s TERM 1")
    }

    fn result(output: &Output) -> (Option<i32>, String) {
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    #[test]
    fn a_signal_to_process_1_reaches_the_work_and_always_hooks_run() {
        let work = signalled("sh -c 'trap \"echo heard; exit\" TERM; {asleep}; wait'");
        let ended = as_process_one(&commands(&work, &["sleep 0.1; echo always"]).script(15));
        assert_eq!(result(&ended), (Some(143), "heard\nalways\n".to_owned()), "{ended:?}");
        let ended = as_process_one(&commands("(sleep 0.2; kill -s INT 1) & sleep 60", &[]).script(15));
        assert_eq!(result(&ended), (Some(130), String::new()), "{ended:?}");
    }

    #[test]
    fn work_that_ignores_the_signal_is_killed_and_always_hooks_run() {
        let work = signalled("trap '' TERM; {asleep}; wait");
        let ended = as_process_one(&commands(&work, &["echo always"]).script(1));
        assert_eq!(result(&ended), (Some(143), "always\n".to_owned()), "{ended:?}");
    }

    #[test]
    fn a_second_signal_does_not_prevent_always_hooks() {
        let again = "kill -s TERM 1; sleep 0.1; echo always";
        let work = signalled("{asleep}; wait");
        let ended = as_process_one(&commands(&work, &[again, "echo too"]).script(15));
        assert_eq!(result(&ended), (Some(143), "always\ntoo\n".to_owned()), "{ended:?}");
    }

    #[test]
    fn a_failed_always_hook_neither_prevents_the_next_nor_changes_the_exit_code() {
        let always = ["exit 7", "false; echo on", "# nothing"];
        let ended = as_process_one(&commands("exit 3", &always).script(1));
        assert_eq!(result(&ended), (Some(3), "on\n".to_owned()), "{ended:?}");
    }

    #[test]
    fn hooks_and_action_share_a_shell_that_ends_with_the_first_failure() {
        let before = vec!["cd /proc".to_owned(), "word=hello".to_owned()];
        let good = Commands { before: before.clone(), ..commands("echo $word from $PWD", &[]) };
        let ended = as_process_one(&good.script(1));
        assert_eq!(result(&ended), (Some(0), "hello from /proc\nnever\n".to_owned()), "{ended:?}");
        let bad = Commands { before, ..commands("false\necho reached", &[]) };
        assert_eq!(result(&as_process_one(&bad.script(1))), (Some(1), String::new()));
        let empty = Commands { after: Vec::new(), ..commands("# nothing", &[]) };
        assert_eq!(result(&as_process_one(&empty.script(1))), (Some(0), String::new()));
    }

    #[test]
    fn always_hooks_run_after_a_syntax_error() {
        let ended = as_process_one(&commands("echo )(", &["echo always"]).script(1));
        assert_eq!(result(&ended), (Some(2), "always\n".to_owned()), "{ended:?}");
    }
}
