//! Tests that the output of the work is forwarded at once, in order, with bounded memory, without secrets.

use std::process::Command;

use crate::support::Place;

#[test]
fn every_line_is_forwarded_before_the_next_one_exists() {
    let place = Place::new();
    Command::new("mkfifo").arg(place.file("go")).status().unwrap();
    // The script holds the pipe open: otherwise a read could see the end of the previous writer.
    let script =
        "exec 3<>go; for i in 1 2 3; do echo out $i; read -r _ <&3; echo err $i >&2; read -r _ <&3; done";
    let running = place.begin(script, &[]);
    for number in 1..=3 {
        assert_eq!(running.line(), format!("out {number}"));
        std::fs::write(place.file("go"), "\n").unwrap();
        assert_eq!(running.wait_for_log("err"), format!("err {number}"));
        std::fs::write(place.file("go"), "\n").unwrap();
    }
    assert_eq!(running.end().code, Some(0));
}

#[test]
fn forwards_unusual_lines_in_readable_form() {
    let place = Place::new();
    let done =
        place.script(r"printf 'a\xffb\r\n\n'; head -c 40000 /dev/zero | tr '\0' x; printf '\nno end'", &[]);
    assert_eq!(done.stdout[..2], ["a\u{fffd}b", ""]);
    let long: Vec<&String> = done.stdout.iter().filter(|line| line.starts_with('x')).collect();
    assert!(long.len() > 1 && long.iter().all(|piece| piece.len() <= 16 * 1024));
    assert_eq!(long.iter().map(|piece| piece.len()).sum::<usize>(), 40000);
    assert_eq!(done.stdout.last().unwrap(), "no end");
}

#[test]
fn forwarding_100_mb_needs_less_than_40_mib_of_memory() {
    let place = Place::new();
    place.write("auth/password", "a-password-to-look-for");
    // Ordinary lines, then one line of 50 MB. The runner is the script's parent.
    let script = "yes 'a line of output that is about as long as lines are' | head -c 50000000
        head -c 50000000 /dev/zero | tr '\\0' x; echo
        grep VmHWM /proc/$PPID/status";
    place.program("script", &format!("#!/bin/bash\n{script}\n"));
    let output = place.command(&[]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stdout.len() >= 100_000_000, "{}", output.stdout.len());
    let end = String::from_utf8_lossy(&output.stdout[output.stdout.len() - 100..]).into_owned();
    let peak = end.lines().last().unwrap().to_owned();
    let kilobytes: u64 = peak.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kilobytes < 40 * 1024, "{peak}");
}

#[test]
fn secrets_are_redacted_wherever_they_appear() {
    let place = Place::new();
    place.write("auth/password", "correct horse\n");
    place.write("auth/username", "admin");
    place.write("auth/ssh-privatekey", "-----BEGIN KEY-----\nMIIBOgIBAAJBAKj34GkxFhD9\n-----END KEY-----\n");
    let script = "echo user admin; echo pass correct horse; cat auth/ssh-privatekey >&2; base64 auth/password
        head -c 16380 /dev/zero | tr '\\0' x; cat auth/password
        echo 'TASK [login with correct horse] ***'; exit 3";
    let done = place.script(script, &[]);
    assert_eq!(done.code, Some(3));
    assert!(done.contains("user admin") && done.contains("pass ***"), "{:?}", done.stdout.first());
    let everything = format!("{:?}{:?}{}", done.stdout, done.stderr, place.read("termination-log"));
    for secret in ["correct", "horse", "MIIBOgIBAAJBAKj34GkxFhD9", "Y29ycmVjdCBob3JzZQ"] {
        assert!(!everything.contains(secret), "{secret} was written");
    }
}

#[test]
fn a_heartbeat_is_logged_while_the_work_writes_nothing() {
    let place = Place::new();
    Command::new("mkfifo").arg(place.file("go")).status().unwrap();
    let running = place.begin("echo 'TASK [slow one] ****'; read -r _ <go", &["--heartbeat", "0.2"]);
    let line = running.wait_for_log("still running");
    assert!(line.contains("TASK [slow one]"), "{line}");
    running.wait_for_log("still running");
    std::fs::write(place.file("go"), "\n").unwrap();
    assert_eq!(running.end().code, Some(0));
}

#[test]
fn the_termination_log_has_step_exit_code_and_last_lines() {
    let place = Place::new();
    let script = "echo 'PLAY [all] ***'; echo 'TASK [etcd : start] ****'; echo 'fatal: [h1]: FAILED!'
        for i in $(seq 1000); do echo \"a long line of standard error, number $i\" >&2; done; exit 2";
    assert_eq!(place.script(script, &[]).code, Some(2));
    let log = place.read("termination-log");
    assert!(log.len() <= 4096, "{}", log.len());
    let first = log.lines().next().unwrap();
    assert!(first.contains("script ended with exit code 2 at TASK [etcd : start]"), "{first}");
    assert!(log.contains("number 1000") && log.contains("fatal: [h1]: FAILED!"), "{log}");
    assert_eq!(place.script("exit 0", &[]).code, Some(0));
    assert_eq!(place.read("termination-log"), "succeeded: 1/1\n");
}

#[test]
fn a_closed_log_does_not_end_the_work() {
    let place = Place::new();
    place.program("script", "#!/bin/bash\nfor i in $(seq 20000); do echo line $i; done; exit 6\n");
    let mut child = place.command(&[]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(6));
}
