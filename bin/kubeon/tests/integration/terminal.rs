//! The program on a terminal, and with signals.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::home::Home;
use crate::home::person::Terminal;
use crate::home::sshd::{Sshd, sh};
use rustix::process::{Pid, Signal, kill_process};

const HOSTS: [&str; 4] = ["-m", "127.0.2.1", "-w", "127.0.2.2"];

#[test]
fn the_question_of_destroy_locks_the_cluster() {
    let home = Home::with_cluster("t");
    let mut terminal = Terminal::run(&home, &["destroy", "t"]);
    terminal.wait_for("[y/N]");
    let other = home.kubeon(&[&["create", "t", "v1.36.3", "-C"], &HOSTS[..]].concat());
    other.refuses(&["t is locked by \"kubeon destroy\""]);
    terminal.type_line("n");
    let (code, seen) = terminal.finish();
    assert_eq!(code, 2, "{seen}");
    assert!(seen.contains("not confirmed"), "{seen}");
    assert_eq!(home.kubeon(&[&["create", "t", "v1.36.3", "-C"], &HOSTS[..]].concat()).code, 0);
}

#[test]
fn pause_ends_the_command_that_has_the_lock_and_waits_for_its_end() {
    let home = Home::with_cluster("t");
    let terminal = Terminal::run(&home, &["destroy", "t"]);
    terminal.wait_for("[y/N]");
    let paused = home.kubeon(&["pause", "t"]);
    assert_eq!(paused.code, 0, "{paused:?}");
    assert!(paused.out.contains("t is paused") && paused.err.contains("\"kubeon destroy\""), "{paused:?}");
    let (code, seen) = terminal.finish();
    assert_ne!(code, 0, "{seen}");
    home.kubeon(&["pause", "t"]).refuses(&["no command changes t now"]);
}

#[test]
fn the_question_before_workers_leave_locks_the_cluster() {
    let home = Home::with_cluster("t");
    home.rewrite("t", "\"generation\": 0", "\"generation\": 3");
    let fewer = ["create", "t", "v1.36.3", "-C", "-m", "127.0.2.1", "--default-port", "1"];
    let mut terminal = Terminal::run(&home, &fewer);
    terminal.wait_for("Remove 127.0.2.2 from t");
    let other = home.kubeon(&[&fewer[..], &["--yes"]].concat());
    other.refuses(&["t is locked by \"kubeon create\""]);
    terminal.type_line("y");
    let (code, seen) = terminal.finish();
    assert_eq!(code, 0, "{seen}");
    let state = std::fs::read_to_string(home.path().join(".kubeon/t.json")).unwrap();
    assert!(state.contains("\"leaving\""), "{state}");
}

/// The lock is held during the prompt for a password, so that no other command changes the state meanwhile.
#[test]
fn the_prompt_for_a_password_locks_the_cluster() {
    let home = Home::new();
    let create = [&["create", "t", "v1.36.3", "-C", "--default-passwd", "-"], &HOSTS[..]].concat();
    let mut terminal = Terminal::run(&home, &create);
    terminal.wait_for("password of root");
    let other = home.kubeon(&["create", "t", "v1.36.3", "-C", "-m", "127.0.2.9"]);
    other.refuses(&["t is locked by \"kubeon create\""]);
    terminal.type_line("secret");
    let (code, seen) = terminal.finish();
    assert_eq!(code, 0, "{seen}");
    assert!(!seen.contains("secret"), "it is not shown: {seen}");
    let state = std::fs::read_to_string(home.path().join(".kubeon/t.json")).unwrap();
    assert!(state.contains("127.0.2.2") && !state.contains("secret"), "{state}");
}

/// A stored cluster whose hosts all are this sshd.
fn cluster_on(sshd: &Sshd) -> Home {
    let flags = sshd.flags();
    Home::with_cluster_of("t", &[&HOSTS[..], &flags.iter().map(String::as_str).collect::<Vec<_>>()].concat())
}

#[test]
fn the_key_of_a_new_host_is_shown_and_the_user_decides() {
    let sshd = Sshd::start();
    let home = cluster_on(&sshd);
    for (answer, code, words) in [("n", 2, "were not accepted"), ("y", 0, "127.0.2.1  hello")] {
        let mut terminal = Terminal::run(&home, &["exec", "t@cp1", "echo hello"]);
        terminal.wait_for(&format!("127.0.2.1        ED25519 {}", sshd.fingerprint()));
        terminal.wait_for("Are these the right hosts? [y/N]");
        assert!(!sshd.log().contains("Accepted"), "no login before the answer");
        terminal.type_line(answer);
        let (exit_code, seen) = terminal.finish();
        assert_eq!(exit_code, code, "{seen}");
        assert!(seen.contains(words), "{seen}");
    }
    assert!(sshd.log().contains("Accepted publickey"));
}

/// Writes a known_hosts file with one key for both hosts and hashed names, as ssh on Debian does.
fn write_known_hosts(home: &Home, sshd: &Sshd, key: &str) {
    let file = home.path().join(".ssh/known_hosts");
    std::fs::create_dir_all(home.path().join(".ssh")).unwrap();
    let public = std::fs::read_to_string(sshd.path(&format!("{key}.pub"))).unwrap();
    let lines = ["127.0.2.1", "127.0.2.2"].map(|host| format!("[{host}]:{} {public}", sshd.port));
    std::fs::write(&file, lines.concat()).unwrap();
    sh(&format!("ssh-keygen -q -H -f '{}' 2>&1", file.display()));
    let hashed = std::fs::read_to_string(&file).unwrap();
    assert!(hashed.lines().count() == 2 && hashed.lines().all(|line| line.starts_with("|1|")), "{hashed}");
}

/// A host with a changed key is not treated as a new host.
#[test]
fn a_changed_key_with_a_hashed_name_is_refused_without_a_question() {
    let sshd = Sshd::start();
    let home = cluster_on(&sshd);
    sh(&format!("ssh-keygen -q -t ed25519 -N '' -f '{}'", sshd.path("before").display()));
    write_known_hosts(&home, &sshd, "before");
    let (code, seen) = Terminal::run(&home, &["exec", "t@cp1", "echo hello"]).finish();
    assert_eq!(code, 1, "{seen}");
    assert!(seen.contains("shows another SSH host key than the pinned one"), "{seen}");
    assert!(!seen.contains("first time") && !sshd.log().contains("Accepted"), "{seen}");
    write_known_hosts(&home, &sshd, "host");
    let (code, seen) = Terminal::run(&home, &["exec", "t@cp1", "echo hello"]).finish();
    assert_eq!(code, 0, "{seen}");
    assert!(seen.contains("127.0.2.1  hello") && !seen.contains("first time"), "{seen}");
}

/// A password is never sent to an unknown host, not even to observe it.
#[test]
fn precheck_sends_no_password_to_an_unknown_host() {
    let sshd = Sshd::start();
    let home = Home::new();
    std::fs::write(home.path().join("password"), "hunter2\n").unwrap();
    let password = format!("@{}", home.path().join("password").display());
    let port = sshd.port.to_string();
    let precheck = ["precheck", "-m", "127.0.2.1", "--default-port", &port, "--default-passwd", &password];
    let output = home.kubeon(&precheck);
    assert_eq!(output.code, 2, "{output:?}");
    assert!(output.err.contains("is not known") && output.err.contains("--accept-new"), "{output:?}");
    let mut terminal = Terminal::run(&home, &precheck);
    terminal.wait_for("Are these the right hosts? [y/N]");
    terminal.type_line("n");
    assert_eq!(terminal.finish().0, 2);
    let output = home.kubeon(&[&precheck[..], &["--accept-new"]].concat());
    assert_eq!(output.code, 2, "{output:?}");
    let why = "a password is sent only to a host whose key is known";
    assert!(output.err.contains(why) && output.err.contains("--known-hosts"), "{output:?}");
    assert!(!sshd.log().contains("password"), "{}", sshd.log());
    write_known_hosts(&home, &sshd, "host");
    let known = home.path().join(".ssh/known_hosts");
    let output = home.kubeon(&[&precheck[..], &["--known-hosts", known.to_str().unwrap()]].concat());
    assert_eq!(output.code, 2, "the password is wrong: {output:?}");
    assert!(sshd.log().contains("Failed password"), "{}", sshd.log());
    assert!(home.files().is_empty(), "precheck pins no key: {:?}", home.files());
}

#[test]
fn precheck_without_a_secret_needs_no_known_key() {
    let sshd = Sshd::start();
    let (home, flags) = (Home::new(), sshd.flags());
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let output = home.kubeon(&[&["precheck", "-m", "127.0.2.1"], &flags[..]].concat());
    assert!(!output.err.contains("is not known"), "{output:?}");
    assert!(sshd.log().contains("Accepted publickey"), "{}", sshd.log());
    assert!(home.files().is_empty());
}

/// Starts `kubeon exec` on both hosts and waits until the command has started on both.
fn start_exec(home: &Home, command: &str) -> Child {
    let mut child = home
        .command_in_home(crate::home::PROGRAM)
        .args(["exec", "t@all", "-P", "--accept-new", &format!("echo started; {command}")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    for _ in 0..2 {
        assert!(lines.next().unwrap().unwrap().ends_with("  started"));
    }
    child
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Waits for the end. Returns the exit code and standard error.
fn wait_for_end(mut child: Child, within: Duration) -> (i32, String) {
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > within {
            child.kill().unwrap();
            panic!("the program does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut words = String::new();
    child.stderr.take().unwrap().read_to_string(&mut words).unwrap();
    (child.wait().unwrap().code().unwrap(), words)
}

fn is_running(line: &str) -> bool {
    Command::new("pgrep").args(["-x", "-f", line]).output().unwrap().status.success()
}

#[test]
fn an_interrupted_exec_leaves_no_command_on_a_host() {
    let sshd = Sshd::start();
    let home = cluster_on(&sshd);
    for (signal, command) in [
        (Signal::INT, "sleep 47141"),
        (Signal::TERM, "sleep 47141 & sleep 47141; wait"),
        (Signal::INT, "trap '' TERM; sleep 47141 & wait; wait; sleep 47141"),
    ] {
        let child = start_exec(&home, command);
        // The shell has been forked; it may not yet have become the program.
        let begin = Instant::now();
        while !is_running("sleep 47141") {
            assert!(begin.elapsed() < Duration::from_secs(20), "{command} does not run");
            std::thread::sleep(Duration::from_millis(10));
        }
        send(&child, signal);
        let (code, words) = wait_for_end(child, Duration::from_secs(20));
        assert!(!is_running("sleep 47141"), "{command} still runs after {signal:?}: {words}");
        assert_eq!(code, 130, "{words}");
        assert!(words.contains("the commands were ended"), "{words}");
    }
}

#[test]
fn a_second_signal_does_not_wait() {
    let sshd = Sshd::start();
    let home = cluster_on(&sshd);
    // kubeon sends SIGKILL two seconds after SIGTERM.
    let mut child = start_exec(&home, "trap '' TERM; sleep 47142 & wait; wait; sleep 47142");
    send(&child, Signal::INT);
    let mut words = BufReader::new(child.stderr.take().unwrap());
    let mut first = String::new();
    words.read_line(&mut first).unwrap();
    assert!(first.contains("press Ctrl-C again"), "{first}");
    send(&child, Signal::INT);
    let begin = Instant::now();
    let code = child.wait().unwrap().code().unwrap();
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    let mut rest = String::new();
    words.read_to_string(&mut rest).unwrap();
    assert_eq!(code, 130, "{rest}");
    assert!(rest.contains("may still run"), "{rest}");
}

#[test]
fn exec_and_copy_support_json() {
    let sshd = Sshd::start();
    let home = cluster_on(&sshd);
    let json = |args: &[&str], code: i32| -> serde_json::Value {
        let output = home.kubeon(&[args, &["--accept-new", "-o", "json"]].concat());
        assert_eq!(output.code, code, "{output:?}");
        serde_json::from_str(&output.out).unwrap()
    };
    let results = json(&["exec", "t@all", "echo out; echo err >&2; exit 3"], 1);
    let first = serde_json::json!({
        "node": "127.0.2.1", "address": "127.0.2.1", "exitCode": 3, "stdout": "out\n", "stderr": "err\n",
    });
    assert_eq!((results.as_array().unwrap().len(), &results[0]), (2, &first));
    let copied = json(&["copy", "t@cp1", "/etc/hostname", "/var/lib/x"], 0);
    assert_eq!((&copied[0]["path"], &copied[0]["files"]), (&"/var/lib/x".into(), &1.into()));
    let planned = json(&["copy", "t@all", "/etc/hostname", "/var/lib/x", "--dry-run"], 0);
    assert_eq!(
        planned,
        serde_json::json!([
            {"node": "127.0.2.1", "path": "/var/lib/x"}, {"node": "127.0.2.2", "path": "/var/lib/x"},
        ])
    );
}
