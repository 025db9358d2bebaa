//! A running program: its output and its end.

use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::process::Child;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};

use crate::output::{OutputPipe, ProgramOutput};

/// The most bytes of each pipe that are collected. Further bytes are read and dropped.
const OUTPUT_LIMIT: usize = 64 << 20;
/// The most bytes of a line. A longer line is split.
const LINE_LIMIT: u64 = 1 << 20;
/// How long to wait for the end of the output after the program ended: a child may keep it open.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);
/// How long to wait for the end of a program after SIGKILL.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// Size of the event queue; the reader threads block when it is full.
const QUEUE: usize = 256;

#[derive(Debug)]
enum ProgramEvent {
    Line(OutputPipe, Vec<u8>),
    Closed,
    Exited,
    Stop,
}

/// How the wait for a program ended.
pub(crate) enum ProgramEnd {
    Exited(ProgramOutput),
    Limit,
    Stopped,
}

/// The events of one run of a program.
#[derive(Debug)]
pub(crate) struct ProgramEvents {
    sender: SyncSender<ProgramEvent>,
    receiver: Receiver<ProgramEvent>,
}

impl ProgramEvents {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = sync_channel(QUEUE);
        Self { sender, receiver }
    }

    pub(crate) fn stopper(&self) -> ProgramStopper {
        ProgramStopper { events: self.sender.clone() }
    }

    /// Whether a run that has not started yet is stopped within the time.
    pub(crate) fn is_stopped_within(&self, time: Duration) -> bool {
        matches!(self.receiver.recv_timeout(time), Ok(ProgramEvent::Stop))
    }
}

/// Stops a run of a program from another thread.
#[derive(Debug, Clone)]
pub struct ProgramStopper {
    events: SyncSender<ProgramEvent>,
}

impl ProgramStopper {
    /// Ends the program like at its time limit. Does nothing when it has ended; a run that has not started yet ends at once.
    pub fn stop(&self) {
        // Sending fails only when the run is over.
        drop(self.events.send(ProgramEvent::Stop));
    }
}

pub(crate) struct ForegroundProgram {
    child: Child,
    group: bool,
    events: Receiver<ProgramEvent>,
    open_pipes: usize,
    exited: bool,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl ForegroundProgram {
    pub(crate) fn new(mut child: Child, group: bool, input: Option<Vec<u8>>, events: ProgramEvents) -> Self {
        let ProgramEvents { sender, receiver: events } = events;
        if let (Some(mut pipe), Some(input)) = (child.stdin.take(), input) {
            // Ignore write errors: a program that does not read all its input reports problems by its exit code.
            thread::spawn(move || drop(pipe.write_all(&input)));
        }
        let stdout = child.stdout.take().map(|pipe| read_lines(pipe, OutputPipe::Stdout, sender.clone()));
        let stderr = child.stderr.take().map(|pipe| read_lines(pipe, OutputPipe::Stderr, sender.clone()));
        if let Some(pid) = pid_of(&child) {
            thread::spawn(move || report_exit(pid, &sender));
        }
        let open_pipes = usize::from(stdout.is_some()) + usize::from(stderr.is_some());
        Self { child, group, events, open_pipes, exited: false, stdout: Vec::new(), stderr: Vec::new() }
    }

    /// Collects the output until the program ends, at most for `limit`.
    pub(crate) fn follow(
        &mut self,
        limit: Duration,
        on_line: &mut impl FnMut(OutputPipe, &str),
    ) -> io::Result<ProgramEnd> {
        let mut end = Instant::now() + limit;
        while !self.is_over() {
            let left = end.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(left) {
                Ok(ProgramEvent::Stop) if !self.exited => return Ok(ProgramEnd::Stopped),
                Ok(event) if self.exited || !left.is_zero() => {
                    let had_exited = self.exited;
                    self.take(event, on_line);
                    if self.exited && !had_exited {
                        end = Instant::now() + OUTPUT_GRACE;
                    }
                    if had_exited && left.is_zero() {
                        break;
                    }
                }
                _ if self.exited => break,
                _ => return Ok(ProgramEnd::Limit),
            }
        }
        let status = self.child.wait()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&self.stdout), text(&self.stderr));
        Ok(ProgramEnd::Exited(ProgramOutput { status, stdout, stderr }))
    }

    /// Ends the program, or its whole process group if it has one.
    pub(crate) fn stop(&mut self, grace_period: Duration) {
        if !grace_period.is_zero() {
            self.send(Signal::TERM);
            self.wait_until(grace_period, Self::is_over);
        }
        self.send(Signal::KILL);
        self.wait_until(KILL_LIMIT, |running| running.exited);
        if self.exited {
            // The exit code only says that the program was killed.
            drop(self.child.wait());
        }
    }

    fn wait_until(&mut self, limit: Duration, done: impl Fn(&Self) -> bool) {
        let end = Instant::now() + limit;
        while !done(self) {
            let left = end.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(left) {
                Ok(event) if !left.is_zero() => self.take(event, &mut |_, _| ()),
                _ => return,
            }
        }
    }

    fn is_over(&self) -> bool {
        self.exited && self.open_pipes == 0
    }

    fn take(&mut self, event: ProgramEvent, on_line: &mut impl FnMut(OutputPipe, &str)) {
        match event {
            ProgramEvent::Line(pipe, line) => {
                on_line(pipe, &String::from_utf8_lossy(&line));
                let text = match pipe {
                    OutputPipe::Stdout => &mut self.stdout,
                    OutputPipe::Stderr => &mut self.stderr,
                };
                let room = OUTPUT_LIMIT.saturating_sub(text.len()).min(line.len());
                text.extend_from_slice(&line[..room]);
            }
            ProgramEvent::Closed => self.open_pipes = self.open_pipes.saturating_sub(1),
            ProgramEvent::Exited => self.exited = true,
            ProgramEvent::Stop => {}
        }
    }

    /// Sends a signal. The program was not waited for yet, so the kernel has not reused its process id.
    fn send(&self, signal: Signal) {
        let Some(pid) = pid_of(&self.child) else { return };
        // Ignore errors: the program may have ended just now.
        let _ = if self.group { kill_process_group(pid, signal) } else { kill_process(pid, signal) };
    }
}

fn pid_of(child: &Child) -> Option<Pid> {
    Pid::from_raw(child.id().cast_signed())
}

/// Waits for the exit and leaves the exit code for `Child::wait`.
fn report_exit(pid: Pid, sender: &SyncSender<ProgramEvent>) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while matches!(waitid(WaitId::Pid(pid), options), Err(rustix::io::Errno::INTR)) {}
    // Ignore errors: the receiver is dropped after the limit.
    drop(sender.send(ProgramEvent::Exited));
}

fn read_lines(pipe: impl Read + Send + 'static, which: OutputPipe, sender: SyncSender<ProgramEvent>) {
    thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        loop {
            let mut line = Vec::new();
            // Keep the bytes that were read before an error; the exit code reports the failure.
            let read = reader.by_ref().take(LINE_LIMIT).read_until(b'\n', &mut line);
            let event = if line.is_empty() { ProgramEvent::Closed } else { ProgramEvent::Line(which, line) };
            let ended = matches!(event, ProgramEvent::Closed);
            if sender.send(event).is_err() || ended {
                return;
            }
            if read.is_err() {
                drop(sender.send(ProgramEvent::Closed));
                return;
            }
        }
    });
}
