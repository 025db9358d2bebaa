use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;

use kubeon_api::Digest;
use kubeon_wire::{Content, Fence, File};

use super::*;
use crate::durable::sha256;
use crate::input::Live;
use crate::root::Root;
use crate::testing::OutputBuffer;

fn fence(generation: u64) -> Request {
    Request::Open(Fence {
        cluster: "demo".parse().unwrap(),
        uid: "u1".into(),
        generation,
        version: "v1.36.3".parse().unwrap(),
        role: kubeon_api::HostRole::Master,
    })
}

fn step(id: &str, digest: &str, op: Op) -> HostStep {
    HostStep { id: id.into(), digest: digest.into(), timeout_seconds: 20, journal: true, record_in: None, op }
}

fn write(id: &str, digest: &str, path: &str, text: &str) -> Request {
    let file = File { path: path.into(), mode: 0o600, content: Content::Text(text.into()) };
    Request::Run(step(id, digest, Op::Files { files: vec![file] }))
}

/// A part with one program, and its blob.
fn part(content: &[u8]) -> (HostStep, Vec<u8>) {
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o755);
    tar.append_data(&mut header, "kubelet", content).unwrap();
    let blob = zstd::encode_all(&tar.into_inner().unwrap()[..], 1).unwrap();
    let digest: Digest = sha256(&blob).parse().unwrap();
    let (size, unpacked_size) = (blob.len() as u64, content.len() as u64);
    (
        step(
            "h1/part",
            digest.as_str(),
            Op::Part { name: "kubelet".into(), digest: digest.clone(), size, unpacked_size, source: None },
        ),
        blob,
    )
}

struct Lines(Vec<u8>);

impl Lines {
    fn open() -> Self {
        Self::opened(1)
    }

    fn opened(generation: u64) -> Self {
        Self(Vec::new()).ask(&fence(generation))
    }

    fn ask(mut self, request: &Request) -> Self {
        self.0.extend(serde_json::to_vec(request).unwrap());
        self.0.push(b'\n');
        self
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }
}

fn run_session(root: &Root, stream: impl Read) -> (Ending, Vec<Event>) {
    let output = OutputBuffer::default();
    let session = Session::new(HostSystem::new(root.clone()), Events::with_writer(Box::new(output.clone())));
    let ending = session.serve(stream);
    let events = output.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (ending, events)
}

fn run(root: &Root, lines: &Lines) -> Vec<Event> {
    run_session(root, &lines.0[..]).1
}

/// Sends the lines, and then no data until the session ends.
fn run_until_silence_ends_it(root: &Root, lines: &Lines) -> (Ending, Vec<Event>) {
    let (input, mut engine) = std::io::pipe().unwrap();
    engine.write_all(&lines.0).unwrap();
    let (start, result) = (Instant::now(), run_session(root, Live::new(input, Duration::from_millis(100))));
    assert!(start.elapsed() < SESSION_GRACE, "steps that only wait are cancelled");
    drop(engine);
    result
}

fn wait_for_ever() -> Request {
    let checks = vec![kubeon_wire::Check::Path { path: "/never".into() }];
    Request::Run(step("h1/wait", "d", Op::Await { checks }))
}

fn done(events: &[Event], step: &str) -> Option<bool> {
    events.iter().find_map(|event| match event {
        Event::Done { id, changed, .. } if id == step => Some(*changed),
        _ => None,
    })
}

fn failure(events: &[Event], step: &str) -> StepFailure {
    let failure = |event: &Event| match event {
        Event::Failed { id, failure } if id == step => Some(failure.clone()),
        _ => None,
    };
    events.iter().find_map(failure).unwrap_or_else(|| panic!("{step} did not fail: {events:?}"))
}

#[test]
fn an_up_to_date_step_is_not_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::new(folder.path());
    let ask = || Lines::open().ask(&write("h1/a", "d1", "/etc/a", "one"));
    assert_eq!(done(&run(&root, &ask()), "h1/a"), Some(true));
    assert_eq!(done(&run(&root, &ask()), "h1/a"), Some(false));
    // A digest contains only references to secrets: the content may differ with the same digest.
    let renewed = Lines::open().ask(&write("h1/a", "d1", "/etc/a", "two"));
    assert_eq!(done(&run(&root, &renewed), "h1/a"), Some(true));
    assert_eq!(done(&run(&root, &ask()), "h1/a"), Some(true));
    std::fs::write(root.at("/etc/a"), "by hand").unwrap();
    assert_eq!(done(&run(&root, &ask()), "h1/a"), Some(true), "a drifted step is repeated");
    assert_eq!(std::fs::read_to_string(root.at("/etc/a")).unwrap(), "one");
    let other = Lines::open().ask(&write("h1/a", "d2", "/etc/a", "two"));
    assert_eq!(done(&run(&root, &other), "h1/a"), Some(true));
}

#[test]
fn a_step_that_is_up_to_date_in_the_journal_is_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::new(folder.path());
    let link = |target: &str| {
        let link = kubeon_wire::Link { path: "/bin/k".into(), target: target.into() };
        Lines::open().ask(&Request::Run(step("h1/link", "d1", Op::Links { links: vec![link] })))
    };
    assert_eq!(done(&run(&root, &link("/var/lib/kubeon/one")), "h1/link"), Some(true));
    // Real steps with the same digest have the same content. This one differs to show that it is skipped.
    assert_eq!(done(&run(&root, &link("/var/lib/kubeon/two")), "h1/link"), Some(false));
    std::fs::remove_file(root.at("/bin/k")).unwrap();
    assert_eq!(
        done(&run(&root, &link("/var/lib/kubeon/one")), "h1/link"),
        Some(true),
        "a drifted step is repeated"
    );
}

#[test]
fn parallel_steps_are_independent() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::new(folder.path());
    let mut lines = Lines::open();
    for n in 0..40 {
        lines = lines.ask(&write(&format!("h1/{n}"), "d", &format!("/etc/{n}"), "x"));
    }
    let events = run(&root, &lines);
    for n in 0..40 {
        assert_eq!(done(&events, &format!("h1/{n}")), Some(true), "{events:?}");
    }
}

#[test]
fn a_part_is_unpacked_and_the_next_request_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::new(folder.path());
    // Larger than the channel between the reader and the step.
    let content: Vec<u8> =
        (0..9_000_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let (part, blob) = part(&content);
    assert!(blob.len() > 8 << 20, "{}", blob.len());
    let after = write("h1/after", "d", "/etc/after", "x");
    let lines = || Lines::open().ask(&Request::Run(part.clone())).raw(&blob).ask(&after);
    let events = run(&root, &lines());
    assert_eq!((done(&events, "h1/part"), done(&events, "h1/after")), (Some(true), Some(true)));
    let place = root.at(paths::PARTS).join(&part.digest).join("kubelet");
    assert_eq!(std::fs::read(&place).unwrap(), content);
    assert_eq!(std::fs::metadata(&place).unwrap().permissions().mode() & 0o777, 0o755);
    let events = run(&root, &lines());
    assert_eq!((done(&events, "h1/part"), done(&events, "h1/after")), (Some(false), Some(false)));
    std::fs::write(&place, "changed").unwrap();
    assert_eq!(done(&run(&root, &lines()), "h1/part"), Some(true), "a changed part is replaced");
    assert_eq!(std::fs::read(&place).unwrap(), content);
}

#[test]
fn the_arrival_of_a_part_is_reported_also_when_it_is_kept_for_other_hosts() {
    let identity = kubeon_pki::RunAuthority::new().unwrap().issue(std::net::Ipv4Addr::LOCALHOST).unwrap();
    let content: Vec<u8> =
        (0..4_000_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let ((first, first_blob), (second, second_blob)) = (part(&content), part(&content[1..]));
    let second = HostStep { id: "h1/second".into(), ..second };
    for forwards in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let mut lines = Lines::open();
        if forwards {
            lines = lines.ask(&Request::ForwardParts(identity.clone()));
        }
        lines = lines.ask(&Request::Run(first.clone())).raw(&first_blob);
        let events = run(&root, &lines.ask(&Request::Run(second.clone())).raw(&second_blob));
        for id in [&first.id, &second.id] {
            assert!(events.contains(&Event::Received { id: id.clone() }), "{events:?}");
            assert_eq!(done(&events, id), Some(true), "{events:?}");
        }
        let place = root.at(paths::PARTS).join(&second.digest).join("kubelet");
        assert_eq!(std::fs::read(&place).unwrap(), &content[1..]);
        assert!(!parts::spool(&root).exists());
    }
}

#[test]
fn refuses_a_flipped_bit_and_reads_the_next_request() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::new(folder.path());
    let (part, blob) = part(&[7; 100_000]);
    for at in [0, blob.len() / 2, blob.len() - 1] {
        let mut flipped = blob.clone();
        flipped[at] ^= 1;
        let after = write("h1/after", &at.to_string(), "/etc/after", "x");
        let events = run(&root, &Lines::open().ask(&Request::Run(part.clone())).raw(&flipped).ask(&after));
        assert_eq!(failure(&events, "h1/part").category, Category::Corrupt);
        assert!(done(&events, "h1/after").is_some());
        assert_eq!(parts::whole(&root).unwrap(), []);
        let left: Vec<_> = std::fs::read_dir(root.at(paths::PARTS)).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn an_incomplete_part_is_not_installed() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::new(folder.path());
    let (part, blob) = part(&[7; 100_000]);
    let events = run(&root, &Lines::open().ask(&Request::Run(part.clone())).raw(&blob[..blob.len() - 1]));
    let cut = failure(&events, "h1/part");
    assert_eq!(cut.category, Category::Unreachable);
    assert!(cut.cause.contains(&format!("{} of {} bytes", blob.len() - 1, blob.len())), "{cut}");
    assert_eq!(parts::whole(&root).unwrap(), []);
}

#[test]
fn reports_free_and_needed_space_for_a_part_that_does_not_fit() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::new(folder.path());
    let (mut part, blob) = part(b"x");
    if let Op::Part { unpacked_size, .. } = &mut part.op {
        *unpacked_size = 1 << 60;
    }
    let after = write("h1/after", "d", "/etc/after", "x");
    let events = run(&root, &Lines::open().ask(&Request::Run(part)).raw(&blob).ask(&after));
    let full = failure(&events, "h1/part");
    assert_eq!(full.category, Category::Exhausted);
    assert!(full.cause.contains("MiB free, 1099511627776 MiB needed"), "{full}");
    assert_eq!(done(&events, "h1/after"), Some(true));
}

#[test]
fn refuses_an_older_writer_before_any_step() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::new(folder.path());
    run(&root, &Lines::opened(5));
    let late = Lines::opened(4).ask(&write("h1/a", "d", "/etc/a", "x"));
    let (ending, events) = run_session(&root, &late.0[..]);
    assert_eq!(ending, Ending::Refused);
    assert!(matches!(&events[..], [Event::Refused { failure }] if failure.category == Category::Fenced));
    assert!(!root.at("/etc/a").exists());
}

#[test]
fn an_invalid_request_ends_the_session_and_is_not_repeated_in_the_failure() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::new(folder.path());
    for line in [&b"{\"run\":\"hunter2\"}\n"[..], b"hunter2\n", b"{\"hunter2\":1}\n"] {
        let (ending, events) = run_session(&root, &Lines::open().raw(line).0[..]);
        assert_eq!(ending, Ending::Refused);
        assert!(!format!("{events:?}").contains("hunter2"), "{events:?}");
    }
    let (ending, _) = run_session(&root, &b"{}\n"[..]);
    assert_eq!(ending, Ending::Refused, "the first request must open");
}

#[test]
fn secrets_must_be_resolved_and_are_never_in_events() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::new(folder.path());
    let file = |content, mode| vec![File { path: "/etc/key".into(), mode, content }];
    let secret = Content::Secret(kubeon_wire::SecretRef::ServiceAccountKey);
    let run_files =
        |files| run(&root, &Lines::open().ask(&Request::Run(step("h1/key", "d", Op::Files { files }))));
    let events = run_files(file(secret, 0o600));
    assert!(failure(&events, "h1/key").cause.contains("not resolved"));
    let key = "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----\n".to_owned();
    let events = run_files(file(Content::Sealed(key.clone()), 0o644));
    assert!(failure(&events, "h1/key").cause.contains("must not be readable by others"));
    assert!(!format!("{events:?}").contains("hunter2"));
    let events = run_files(file(Content::Sealed(key), 0o600));
    assert_eq!(done(&events, "h1/key"), Some(true));
    let entry = std::fs::read_to_string(root.at(paths::JOURNAL).join("h1__key.json")).unwrap();
    assert!(!entry.contains("hunter2"));
}

#[test]
fn the_end_of_the_input_ends_waiting_steps() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::new(folder.path());
    let start = Instant::now();
    let events = run(&root, &Lines::open().ask(&wait_for_ever()));
    assert_eq!(failure(&events, "h1/wait").category, Category::Cancelled);
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn silence_ends_the_session_and_releases_the_host_without_an_outcome_event() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::new(folder.path());
    let (ending, events) = run_until_silence_ends_it(&root, &Lines::open().ask(&wait_for_ever()));
    assert_eq!(ending, Ending::Closed);
    // An engine that was only suspended would take the event of a cancelled step as its outcome.
    let is_outcome = |event: &Event| matches!(event, Event::Done { .. } | Event::Failed { .. });
    assert!(!events.iter().any(is_outcome), "{events:?}");
    let next = Lines::opened(2).ask(&write("h1/a", "d", "/etc/a", "x"));
    assert_eq!(done(&run(&root, &next), "h1/a"), Some(true));
}

#[test]
fn silence_during_a_part_ends_the_session() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::new(folder.path());
    let (part, blob) = part(&[7; 100_000]);
    let lines = Lines::open().ask(&Request::Run(part)).raw(&blob[..blob.len() - 1]);
    assert_eq!(run_until_silence_ends_it(&root, &lines).0, Ending::Closed);
    assert_eq!(parts::whole(&root).unwrap(), []);
}

#[test]
fn pings_keep_a_session_open_while_a_step_runs() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::new(folder.path());
    let (input, mut engine) = std::io::pipe().unwrap();
    let silence = Duration::from_secs(2);
    let session = thread::spawn({
        let root = root.clone();
        move || run_session(&root, Live::new(input, silence))
    });
    engine.write_all(&Lines::open().ask(&wait_for_ever()).0).unwrap();
    let (start, ping) = (Instant::now(), Lines(Vec::new()).ask(&Request::Ping));
    while start.elapsed() < silence * 2 {
        engine.write_all(&ping.0).unwrap();
        thread::sleep(silence / 20);
    }
    engine.write_all(&Lines(Vec::new()).ask(&write("h1/a", "d", "/etc/a", "x")).0).unwrap();
    drop(engine);
    let (ending, events) = session.join().unwrap();
    assert_eq!((ending, done(&events, "h1/a")), (Ending::Closed, Some(true)));
    assert_eq!(
        failure(&events, "h1/wait").category,
        Category::Cancelled,
        "the end of the input, not silence"
    );
}
