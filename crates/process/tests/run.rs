//! Tests with real programs: output, input, limits, process groups.

use std::time::{Duration, Instant};
use std::{fs, thread};

use kubeon_process::{BackgroundProgram, OutputPipe, ProgramError, ProgramRun};

fn shell(script: &str, limit: Duration) -> ProgramRun {
    with_script(ProgramRun::new("sh", limit), script)
}

fn with_script(mut run: ProgramRun, script: &str) -> ProgramRun {
    run.command().args(["-c", script]);
    run
}

const LONG: Duration = Duration::from_secs(20);

#[test]
fn returns_output_and_exit_code() {
    let output = shell("cat; echo bad >&2; exit 3", LONG).input("in").run().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!((output.stdout.as_str(), output.last_line().as_str()), ("in", "bad"));
}

#[test]
fn passes_more_than_a_pipe_holds_in_both_directions() {
    let text = "line\n".repeat(100_000);
    assert_eq!(ProgramRun::new("cat", LONG).input(text.clone()).run().unwrap().stdout, text);
}

#[test]
fn reports_lines_of_both_pipes() {
    let mut lines = Vec::new();
    shell("echo one; echo two >&2", LONG)
        .run_with(|pipe, line| lines.push((pipe == OutputPipe::Stderr, line.to_owned())))
        .unwrap();
    lines.sort();
    assert_eq!(lines, [(false, "one\n".to_owned()), (true, "two\n".to_owned())]);
}

#[test]
fn kills_the_program_and_its_children_at_the_limit() {
    let begin = Instant::now();
    let folder = std::env::temp_dir().join(format!("kubeon-process-{}", std::process::id()));
    let script = format!("sleep 60 & echo $! > {}; sleep 60", folder.display());
    let error = shell(&script, Duration::from_millis(500)).run().unwrap_err();
    assert!(matches!(error, ProgramError::Timeout { .. }), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(15));
    let child = fs::read_to_string(&folder).unwrap();
    fs::remove_file(&folder).unwrap();
    let state = || fs::read_to_string(format!("/proc/{}/stat", child.trim())).unwrap_or_default();
    while !(state().is_empty() || state().contains(") Z ")) {
        assert!(begin.elapsed() < Duration::from_secs(20), "the child lives: {}", state());
        thread::yield_now();
    }
}

#[test]
fn another_thread_stops_the_program() {
    let begin = Instant::now();
    let run = shell("echo started; sleep 60", LONG).inherit_stderr();
    let stopper = run.stopper();
    let stopping = thread::spawn(move || stopper.stop());
    let error = run.run().unwrap_err();
    assert!(matches!(error, ProgramError::Stopped { .. }), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(15));
    stopping.join().unwrap();
}

#[test]
fn a_program_that_writes_all_the_time_is_stopped_at_the_limit() {
    let begin = Instant::now();
    let error = ProgramRun::new("yes", Duration::from_millis(200)).run().unwrap_err();
    assert!(matches!(error, ProgramError::Timeout { .. }), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(15));
}

#[test]
fn a_child_that_keeps_the_output_open_does_not_block() {
    let begin = Instant::now();
    let output = shell("sleep 30 & echo done", LONG).run().unwrap();
    assert_eq!(output.stdout, "done\n");
    assert!(begin.elapsed() < Duration::from_secs(15));
}

#[test]
fn a_program_that_dies_with_its_parent_keeps_the_limit() {
    let run = with_script(ProgramRun::dying_with_parent("sh", Duration::from_secs(1)), "sleep 60 & sleep 60");
    let error = run.stdout().unwrap_err();
    assert!(matches!(error, ProgramError::Timeout { limit, .. } if limit.as_secs() == 1), "{error}");
}

#[test]
fn an_error_contains_the_end_of_standard_error() {
    let run = with_script(ProgramRun::dying_with_parent("sh", LONG), "echo no such thing >&2; exit 3");
    let error = run.stdout().unwrap_err().to_string();
    assert!(error.contains("no such thing") && error.contains('3'), "{error}");
}

#[test]
fn progress_is_not_part_of_the_failure() {
    let mut progress = Vec::new();
    let error = shell("echo progress >&2; echo noise: x >&2; echo broken >&2; exit 1", LONG)
        .without_noise("noise: ")
        .stderr_lines(|line| {
            let is_progress = line == "progress";
            if is_progress {
                progress.push(line.to_owned());
            }
            is_progress
        })
        .unwrap_err();
    assert_eq!(progress, ["progress"]);
    assert!(matches!(error, ProgramError::Failed { stderr_tail, .. } if stderr_tail == "broken"));
}

#[test]
fn names_the_program_that_is_missing() {
    let error = ProgramRun::new("no-such-program", LONG).run().unwrap_err();
    assert!(
        matches!(&error, ProgramError::Missing { program, .. } if program == "no-such-program"),
        "{error}"
    );
}

#[test]
fn a_background_program_writes_to_its_log_and_ends_when_killed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let log = || fs::File::create(&path).unwrap();
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "echo out; echo err >&2; exec sleep 60"]);
    let mut running = BackgroundProgram::start(command, log()).unwrap();
    let begin = Instant::now();
    while fs::read_to_string(&path).unwrap() != "out\nerr\n" {
        assert!(begin.elapsed() < Duration::from_secs(20), "the log stays empty");
        thread::sleep(Duration::from_millis(5));
    }
    assert!(running.exit_status().unwrap().is_none());
    running.kill();
    assert!(!running.exit_status().unwrap().unwrap().success());
    let missing = BackgroundProgram::start(std::process::Command::new("/no/such/program"), log());
    assert_eq!(missing.unwrap_err().kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn a_program_that_is_still_being_written_starts_when_it_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("written");
    fs::copy("/bin/true", &program).unwrap();
    let open = fs::OpenOptions::new().append(true).open(&program).unwrap();
    let writer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        drop(open);
    });
    let output = ProgramRun::new(&program, LONG).run().unwrap();
    assert!(output.success(), "{output:?}");
    writer.join().unwrap();
}

#[test]
fn a_program_that_stays_open_for_writing_ends_at_the_limit_and_when_it_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("written");
    fs::copy("/bin/true", &program).unwrap();
    let _open = fs::OpenOptions::new().append(true).open(&program).unwrap();
    let busy = ProgramRun::new(&program, Duration::from_millis(100)).run().unwrap_err();
    assert!(matches!(busy, ProgramError::Start { .. }), "{busy}");
    let stopped = ProgramRun::new(&program, LONG);
    stopped.stopper().stop();
    let error = stopped.run().unwrap_err();
    assert!(matches!(error, ProgramError::Stopped { .. }), "{error}");
}
