//! The program with a person before it, and with signals sent to it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::home::Home;
use crate::home::person::Person;
use crate::home::sshd::{Sshd, sh};
use rustix::process::{Pid, Signal, kill_process};

const HOSTS: [&str; 4] = ["-m", "127.0.2.1", "-w", "127.0.2.2"];

#[test]
fn who_is_asked_whether_to_destroy_holds_the_cluster_meanwhile() {
    let home = Home::with_cluster("t");
    let mut person = Person::types(&home, &["destroy", "t"]);
    person.sees("[y/N]");
    let other = home.kubeon(&[&["create", "t", "v1.36.3", "-C"], &HOSTS[..]].concat());
    other.refuses(&["t is locked by \"kubeon destroy\""]);
    person.answers("n");
    let (code, seen) = person.ends();
    assert_eq!(code, 2, "{seen}");
    assert!(seen.contains("nobody agreed"), "{seen}");
    assert_eq!(home.kubeon(&[&["create", "t", "v1.36.3", "-C"], &HOSTS[..]].concat()).code, 0);
}

#[test]
fn who_is_asked_before_workers_leave_holds_the_cluster_meanwhile() {
    let home = Home::with_cluster("t");
    home.rewrite("t", "\"generation\": 0", "\"generation\": 3");
    let fewer = ["create", "t", "v1.36.3", "-C", "-m", "127.0.2.1", "--default-port", "1"];
    let mut person = Person::types(&home, &fewer);
    person.sees("Take 127.0.2.2 out of t");
    let other = home.kubeon(&[&fewer[..], &["--yes"]].concat());
    other.refuses(&["t is locked by \"kubeon create\""]);
    person.answers("y");
    let (code, seen) = person.ends();
    assert_eq!(code, 0, "{seen}");
    let state = std::fs::read_to_string(home.path().join(".kubeon/t.json")).unwrap();
    assert!(state.contains("\"leaving\""), "{state}");
}

/// The prompt for a password comes while the lock is held: what is saved after it is what was read before it.
#[test]
fn who_is_asked_for_a_password_overwrites_no_newer_cluster() {
    let home = Home::new();
    let create = [&["create", "t", "v1.36.3", "-C", "--default-passwd", "-"], &HOSTS[..]].concat();
    let mut person = Person::types(&home, &create);
    person.sees("password of root");
    let other = home.kubeon(&["create", "t", "v1.36.3", "-C", "-m", "127.0.2.9"]);
    other.refuses(&["t is locked by \"kubeon create\""]);
    person.answers("secret");
    let (code, seen) = person.ends();
    assert_eq!(code, 0, "{seen}");
    assert!(!seen.contains("secret"), "it is not shown: {seen}");
    let state = std::fs::read_to_string(home.path().join(".kubeon/t.json")).unwrap();
    assert!(state.contains("127.0.2.2") && !state.contains("secret"), "{state}");
}

/// A cluster whose hosts are all this sshd.
fn on(sshd: &Sshd) -> Home {
    let flags = sshd.flags();
    Home::with_cluster_of("t", &[&HOSTS[..], &flags.iter().map(String::as_str).collect::<Vec<_>>()].concat())
}

#[test]
fn the_key_of_a_new_host_is_shown_and_a_person_decides() {
    let sshd = Sshd::start();
    let home = on(&sshd);
    for (answer, code, words) in [("n", 2, "were not accepted"), ("y", 0, "127.0.2.1  hello")] {
        let mut person = Person::types(&home, &["exec", "t@cp1", "echo hello"]);
        person.sees(&format!("127.0.2.1        ED25519 {}", sshd.fingerprint()));
        person.sees("Are these the right hosts? [y/N]");
        assert!(!sshd.log().contains("Accepted"), "nobody logs in before the answer");
        person.answers(answer);
        let (ended, seen) = person.ends();
        assert_eq!(ended, code, "{seen}");
        assert!(seen.contains(words), "{seen}");
    }
    assert!(sshd.log().contains("Accepted publickey"));
}

/// Has the home know one key for both hosts, under hashed names as Debian's ssh writes them.
fn knows(home: &Home, sshd: &Sshd, key: &str) {
    let file = home.path().join(".ssh/known_hosts");
    std::fs::create_dir_all(home.path().join(".ssh")).unwrap();
    let public = std::fs::read_to_string(sshd.path(&format!("{key}.pub"))).unwrap();
    let lines = ["127.0.2.1", "127.0.2.2"].map(|host| format!("[{host}]:{} {public}", sshd.port));
    std::fs::write(&file, lines.concat()).unwrap();
    sh(&format!("ssh-keygen -q -H -f '{}' 2>&1", file.display()));
    let hashed = std::fs::read_to_string(&file).unwrap();
    assert!(hashed.lines().count() == 2 && hashed.lines().all(|line| line.starts_with("|1|")), "{hashed}");
}

/// An impostor is no host that is seen for the first time.
#[test]
fn a_changed_key_under_a_hashed_name_is_refused_and_nobody_is_asked() {
    let sshd = Sshd::start();
    let home = on(&sshd);
    sh(&format!("ssh-keygen -q -t ed25519 -N '' -f '{}'", sshd.path("before").display()));
    knows(&home, &sshd, "before");
    let (code, seen) = Person::types(&home, &["exec", "t@cp1", "echo hello"]).ends();
    assert_eq!(code, 1, "{seen}");
    assert!(seen.contains("shows another SSH host key than the pinned one"), "{seen}");
    assert!(!seen.contains("first time") && !sshd.log().contains("Accepted"), "{seen}");
    knows(&home, &sshd, "host");
    let (code, seen) = Person::types(&home, &["exec", "t@cp1", "echo hello"]).ends();
    assert_eq!(code, 0, "{seen}");
    assert!(seen.contains("127.0.2.1  hello") && !seen.contains("first time"), "{seen}");
}

/// An impostor must not get a password, not even from those who only look.
#[test]
fn a_look_sends_no_password_to_a_host_that_nobody_knows() {
    let sshd = Sshd::start();
    let home = Home::new();
    std::fs::write(home.path().join("password"), "hunter2\n").unwrap();
    let password = format!("@{}", home.path().join("password").display());
    let port = sshd.port.to_string();
    let look = ["precheck", "-m", "127.0.2.1", "--default-port", &port, "--default-passwd", &password];
    let said = home.kubeon(&look);
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.err.contains("is not known") && said.err.contains("--accept-new"), "{said:?}");
    let mut person = Person::types(&home, &look);
    person.sees("Are these the right hosts? [y/N]");
    person.answers("n");
    assert_eq!(person.ends().0, 2);
    assert!(!sshd.log().contains("password"), "{}", sshd.log());
    assert_eq!(home.kubeon(&[&look[..], &["--accept-new"]].concat()).code, 2, "it is the wrong one");
    assert!(sshd.log().contains("Failed password"), "{}", sshd.log());
    assert!(home.files().is_empty(), "a look pins nothing: {:?}", home.files());
}

#[test]
fn a_look_without_a_secret_needs_no_known_key() {
    let sshd = Sshd::start();
    let (home, flags) = (Home::new(), sshd.flags());
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let said = home.kubeon(&[&["precheck", "-m", "127.0.2.1"], &flags[..]].concat());
    assert!(!said.err.contains("is not known"), "{said:?}");
    assert!(sshd.log().contains("Accepted publickey"), "{}", sshd.log());
    assert!(home.files().is_empty());
}

/// `kubeon exec` on both hosts, until the command has begun on both.
fn begun(home: &Home, command: &str) -> Child {
    let mut child = home
        .at_home(crate::home::PROGRAM)
        .args(["exec", "t@all", "-P", "--accept-new", &format!("echo begun; {command}")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    for _ in 0..2 {
        assert!(lines.next().unwrap().unwrap().ends_with("  begun"));
    }
    child
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// The exit code and the words, within a bound.
fn ended(mut child: Child, within: Duration) -> (i32, String) {
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > within {
            child.kill().unwrap();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut words = String::new();
    child.stderr.take().unwrap().read_to_string(&mut words).unwrap();
    (child.wait().unwrap().code().unwrap(), words)
}

fn runs(line: &str) -> bool {
    Command::new("pgrep").args(["-x", "-f", line]).output().unwrap().status.success()
}

#[test]
fn an_interrupted_exec_leaves_no_command_on_a_host() {
    let sshd = Sshd::start();
    let home = on(&sshd);
    for (signal, command) in [
        (Signal::INT, "sleep 47141"),
        (Signal::TERM, "sleep 47141 & sleep 47141; wait"),
        (Signal::INT, "trap '' TERM; sleep 47141 & wait; wait; sleep 47141"),
    ] {
        let child = begun(&home, command);
        assert!(runs("sleep 47141"));
        send(&child, signal);
        let (code, words) = ended(child, Duration::from_secs(20));
        assert!(!runs("sleep 47141"), "{command} runs on after {signal:?}: {words}");
        assert_eq!(code, 130, "{words}");
        assert!(words.contains("the commands were ended"), "{words}");
    }
}

#[test]
fn a_second_signal_does_not_wait() {
    let sshd = Sshd::start();
    let home = on(&sshd);
    // Everybody who ends it waits two seconds before it insists.
    let mut child = begun(&home, "trap '' TERM; sleep 47142 & wait; wait; sleep 47142");
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
fn what_commands_and_copies_did_has_a_form_for_programs() {
    let sshd = Sshd::start();
    let home = on(&sshd);
    let json = |args: &[&str], code: i32| -> serde_json::Value {
        let said = home.kubeon(&[args, &["--accept-new", "-o", "json"]].concat());
        assert_eq!(said.code, code, "{said:?}");
        serde_json::from_str(&said.out).unwrap()
    };
    let ran = json(&["exec", "t@all", "echo out; echo err >&2; exit 3"], 1);
    let one = serde_json::json!({
        "node": "127.0.2.1", "address": "127.0.2.1", "exitCode": 3, "stdout": "out\n", "stderr": "err\n",
    });
    assert_eq!((ran.as_array().unwrap().len(), &ran[0]), (2, &one));
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
