//! Tests the tasks of process 1: children, orphans, signals, exit codes.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{Place, Running, alive, children, until};
use rustix::process::Signal;

#[test]
fn the_exit_code_is_that_of_the_work() {
    let place = Place::new();
    assert_eq!(place.script("exit 0", &[]).code, Some(0));
    assert_eq!(place.script("exit 7", &[]).code, Some(7));
    assert_eq!(place.script("kill -SEGV $$", &[]).code, Some(139));
    assert_eq!(place.script("kill -KILL $$", &[]).code, Some(137));
    assert!(place.read("termination-log").contains("killed by signal 9"));
}

#[test]
fn work_that_cannot_be_started_has_the_exit_code_of_a_shell_and_a_reason() {
    let place = Place::new();
    let missing = Running::start(&mut place.command(&[])).end();
    assert_eq!(missing.code, Some(127));
    assert!(place.read("termination-log").starts_with("cannot start script: No such file"), "{missing:?}");
    place.write("script", "#!/bin/bash\n");
    assert_eq!(Running::start(&mut place.command(&[])).end().code, Some(126));
    place.program("script", "#!/no/such/shell\n");
    let no_interpreter = Running::start(&mut place.command(&[])).end();
    assert_eq!(no_interpreter.code, Some(127));
    assert!(no_interpreter.contains("the interpreter that its first line names"));
}

#[test]
fn wrong_flags_have_exit_code_2() {
    let place = Place::new();
    assert_eq!(Running::start(&mut place.command(&["--grace", "soon"])).end().code, Some(2));
}

/// Contract B, case 39, without a process namespace: the runner becomes the parent of orphans as process 1 does.
#[test]
fn orphans_leave_no_zombies() {
    let place = Place::new();
    let script = "for i in $(seq 100); do (sleep 0.2 &); done; echo started; read -r _ <go; echo done";
    Command::new("mkfifo").arg(place.file("go")).status().unwrap();
    let running = place.begin(script, &[]);
    assert_eq!(running.line(), "started");
    let pid = running.pid();
    // All of them end while the script still runs, and no zombie is left.
    until("only the script is left", || children(pid) == 1);
    std::fs::write(place.file("go"), "\n").unwrap();
    assert_eq!(running.line(), "done");
    assert_eq!(running.end().code, Some(0));
}

#[test]
fn sigterm_reaches_the_whole_group_and_decides_the_outcome() {
    let place = Place::new();
    let script = "sleep 1000 & echo $!; trap 'echo caught; exit 0' TERM; echo ready; wait";
    let running = place.begin(script, &[]);
    let sleeper = running.line();
    assert_eq!(running.line(), "ready");
    running.signal(Signal::TERM);
    let done = running.end();
    assert_eq!(done.code, Some(143));
    assert_eq!(done.stdout, ["caught"]);
    until("the background process ended", || !alive(&sleeper));
    assert!(place.read("termination-log").starts_with("terminated"), "{}", place.read("termination-log"));
}

#[test]
fn sigint_has_its_own_code() {
    let place = Place::new();
    let running = place.begin("trap 'exit 3' INT; echo ready; while :; do sleep 0.05; done", &[]);
    running.line();
    running.signal(Signal::INT);
    assert_eq!(running.end().code, Some(130));
}

#[test]
fn work_that_does_not_stop_is_killed_after_the_grace_period() {
    let place = Place::new();
    let running = place.begin("trap '' TERM; sleep 1000 & echo $!; wait; wait", &["--grace", "0.5"]);
    let sleeper = running.line();
    let signalled = Instant::now();
    running.signal(Signal::TERM);
    let done = running.end();
    assert_eq!(done.code, Some(143));
    assert!(signalled.elapsed() >= Duration::from_millis(500));
    assert!(done.contains("the grace period is over"));
    until("the background process was killed", || !alive(&sleeper));
}

#[test]
fn other_signals_are_forwarded_and_do_not_stop_the_runner() {
    let place = Place::new();
    let script = "trap 'echo usr1' USR1; trap 'echo usr2' USR2; trap 'echo hup; exit 4' HUP
        echo ready; while :; do sleep 0.05; done";
    let running = place.begin(script, &[]);
    running.line();
    for (signal, word) in [(Signal::USR1, "usr1"), (Signal::USR2, "usr2"), (Signal::HUP, "hup")] {
        running.signal(signal);
        assert_eq!(running.line(), word);
    }
    assert_eq!(running.end().code, Some(4));
}

#[test]
fn a_process_that_left_the_group_does_not_delay_the_end() {
    let place = Place::new();
    let done = place.script("setsid sleep 1000 & echo $!; exit 5", &[]);
    assert_eq!(done.code, Some(5));
    let _ = Command::new("kill").arg(&done.stdout[0]).status();
}

/// Contract B, case 39, as process 1 of a namespace.
#[test]
fn as_process_1_it_reaps_a_hundred_orphans_and_forwards_sigterm() {
    let place = Place::new();
    let unshared = |script: &str| {
        place.program("script", &format!("#!/bin/bash\n{script}\n"));
        let mut command = Command::new("unshare");
        command.args([
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child",
            env!("CARGO_BIN_EXE_kubeon-runner"),
        ]);
        command.args(place.arguments()).current_dir(place.folder.path());
        Running::start(&mut command)
    };
    let possible = Command::new("unshare").args(["--pid", "--fork", "--mount-proc", "true"]).output();
    if !possible.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: this machine does not allow a process namespace");
        return;
    }
    let script = "echo parent $PPID
        for i in $(seq 100); do (sleep 0.2 &); done
        sleep 1.5; echo zombies $(grep -ls '^State:.Z' /proc/[0-9]*/status | wc -l)
        trap 'echo caught; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    let running = unshared(script);
    assert_eq!(running.line(), "parent 1");
    assert_eq!(running.line(), "zombies 0");
    assert_eq!(running.line(), "ready");
    let children = format!("/proc/{0}/task/{0}/children", running.child.id());
    let first = std::fs::read_to_string(children).unwrap().trim().parse().unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(first).unwrap(), Signal::TERM).unwrap();
    let done = running.end();
    assert_eq!(done.stdout, ["caught"]);
    assert_eq!(done.code, Some(143));
}
