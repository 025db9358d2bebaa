//! Tests the program as a process: killed during a step, and together with another writer.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test reports the line")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use kubeon_api::Digest;
use kubeon_wire::{Category, Content, Event, Fence, File, HostStep, Op, Request};
use sha2::{Digest as _, Sha256};

struct Program {
    child: Child,
    stdin: Option<ChildStdin>,
    events: std::sync::mpsc::Receiver<Event>,
}

impl Program {
    fn apply(root: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_kubeon-node"))
            .args(["--root".as_ref(), root.as_os_str(), "apply".as_ref()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, events) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = sender.send(serde_json::from_str(&line).unwrap());
            }
        });
        let stdin = child.stdin.take();
        Self { child, stdin, events }
    }

    fn opened(root: &Path, generation: u64) -> Self {
        let mut program = Self::apply(root);
        program.ask(&open(generation));
        assert!(matches!(program.next(), Event::Opened { .. }));
        program
    }

    fn ask(&mut self, request: &Request) {
        let mut line = serde_json::to_vec(request).unwrap();
        line.push(b'\n');
        self.raw(&line);
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    fn next(&self) -> Event {
        self.events.recv_timeout(Duration::from_secs(20)).unwrap()
    }

    /// The first event that is neither a start nor progress.
    fn outcome(&self) -> Event {
        loop {
            match self.next() {
                Event::Started { .. }
                | Event::Progress { .. }
                | Event::Received { .. }
                | Event::Note { .. } => {}
                other => return other,
            }
        }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn close(&mut self) -> Option<i32> {
        self.stdin = None;
        self.child.wait().unwrap().code()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn open(generation: u64) -> Request {
    Request::Open(Fence {
        cluster: "demo".parse().unwrap(),
        uid: "u1".into(),
        generation,
        version: "v1.36.3".parse().unwrap(),
        role: kubeon_api::HostRole::Worker,
    })
}

fn run(id: &str, op: Op) -> Request {
    Request::Run(HostStep {
        id: id.into(),
        digest: "d".into(),
        timeout_seconds: 60,
        journal: true,
        record_in: None,
        op,
    })
}

fn part(content: &[u8]) -> (Request, Digest, Vec<u8>) {
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o755);
    tar.append_data(&mut header, "kubelet", content).unwrap();
    let blob = zstd::encode_all(&tar.into_inner().unwrap()[..], 1).unwrap();
    let digest: Digest = hex::encode(Sha256::digest(&blob)).parse().unwrap();
    let (size, unpacked_size) = (blob.len() as u64, content.len() as u64);
    let op = Op::Part { name: "kubelet".into(), digest: digest.clone(), size, unpacked_size, source: None };
    (run("h1/part", op), digest, blob)
}

fn wait_for(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).map(|all| all.map(|entry| entry.unwrap().path()).collect()).unwrap_or_default()
}

#[test]
fn a_part_interrupted_by_a_kill_is_not_installed_and_the_next_session_installs_it() {
    let folder = tempfile::tempdir().unwrap();
    let parts = folder.path().join("var/lib/kubeon/parts");
    let noise: Vec<u8> =
        (0..4_000_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let (request, digest, blob) = part(&noise);
    let mut first = Program::opened(folder.path(), 1);
    first.ask(&request);
    first.raw(&blob[..blob.len() / 2]);
    wait_for("a file is unpacked", || entries(&parts).iter().any(|folder| !entries(folder).is_empty()));
    first.kill();
    assert!(!parts.join(digest.as_str()).exists());
    assert!(!entries(&parts).is_empty(), "the unfinished folder is still there");

    let mut second = Program::opened(folder.path(), 1);
    assert!(entries(&parts).is_empty(), "the next session removes it");
    second.ask(&request);
    second.raw(&blob);
    assert!(matches!(second.outcome(), Event::Done { changed: true, .. }));
    assert_eq!(fs::read(parts.join(digest.as_str()).join("kubelet")).unwrap(), noise);
    assert_eq!(second.close(), Some(0));
}

#[test]
fn after_a_kill_every_file_has_its_old_or_new_content() {
    let folder = tempfile::tempdir().unwrap();
    let files = |round: usize| -> Vec<File> {
        let content = |n: usize| Content::Text(format!("{round} ").repeat(1000 + n));
        (0..60).map(|n| File { path: format!("/etc/k/{n}"), mode: 0o644, content: content(n) }).collect()
    };
    let op = |round| run(&format!("h1/files-{round}"), Op::Files { files: files(round) });
    let mut first = Program::opened(folder.path(), 1);
    first.ask(&op(0));
    assert!(matches!(first.outcome(), Event::Done { changed: true, .. }));
    assert_eq!(first.close(), Some(0));
    for round in 1..12 {
        let mut program = Program::opened(folder.path(), 1);
        program.ask(&op(round));
        std::thread::sleep(Duration::from_millis(2 * round as u64));
        program.kill();
        let journal = folder.path().join(format!("var/lib/kubeon/journal/h1__files-{round}.json"));
        for n in 0..60 {
            let text = fs::read_to_string(folder.path().join(format!("etc/k/{n}"))).unwrap();
            let word = text.split_once(' ').unwrap().0.to_owned();
            assert_eq!(text, format!("{word} ").repeat(1000 + n), "file {n} is complete");
            assert!(!journal.exists() || word == round.to_string(), "journaled, so all files are new");
        }
    }
    let mut last = Program::opened(folder.path(), 1);
    last.ask(&op(99));
    assert!(matches!(last.outcome(), Event::Done { changed: true, .. }));
    assert_eq!(entries(&folder.path().join("etc/k")).len(), 60, "no temporary file is left");
}

#[test]
fn the_refusal_of_a_second_writer_names_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let first = Program::opened(folder.path(), 7);
    let mut second = Program::apply(folder.path());
    second.ask(&open(8));
    let Event::Refused { failure } = second.next() else { panic!("not refused") };
    assert_eq!(failure.category, Category::Held);
    assert!(failure.cause.contains(&format!("pid {} (generation 7)", first.child.id())), "{failure}");
    assert_eq!(second.child.wait().unwrap().code(), Some(1));
    drop(first);
    Program::opened(folder.path(), 8);
}

#[test]
fn ends_when_its_output_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_kubeon-node"))
        .args(["--root".as_ref(), folder.path().as_os_str(), "apply".as_ref()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{}", serde_json::to_string(&open(1)).unwrap()).unwrap();
    let ended = || child.try_wait().unwrap().is_some();
    let mut ended = ended;
    let end = Instant::now() + Duration::from_secs(5);
    while !ended() {
        assert!(Instant::now() < end, "the program did not end after its output was closed");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn sigterm_cancels_waiting_steps_and_ends_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = Program::opened(folder.path(), 1);
    let checks = vec![kubeon_wire::Check::Path { path: "/never".into() }];
    program.ask(&run("h1/wait", Op::Await { checks }));
    assert!(matches!(program.next(), Event::Started { .. }));
    let pid = rustix::process::Pid::from_raw(program.child.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let Event::Failed { failure, .. } = program.outcome() else { panic!("not failed") };
    assert_eq!(failure.category, Category::Cancelled);
    assert_eq!(program.child.wait().unwrap().code(), Some(130));
}
