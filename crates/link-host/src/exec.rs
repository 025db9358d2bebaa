//! A person's command on a host.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use kubeon_api::HostAddress;
use kubeon_wire::{Category, StepFailure};
use tokio::io::AsyncRead;

use crate::connection::Connection;
use crate::failure::failure;
use crate::pool::{Pool, SshHosts};
use crate::remote::Remote;
use crate::shell::Rights;

/// Says first which process it is, so that it can be ended from outside, then becomes the command.
const WRAPPER: &str = "printf 'kubeon-pid %s\\n' $$; exec sh -c \"$1\"";

/// The same under a terminal, whose echo was off while a password may have been typed.
const PTY_WRAPPER: &str = "stty echo 2>/dev/null; printf 'kubeon-pid %s\\n' $$; exec sh -c \"$1\"";

/// How the line with the process id begins.
const BEGUN: &[u8] = b"kubeon-pid ";

/// Ends the process group of a command: first asks, then insists.
const END: &str = "g=$(sed 's/.*) //' \"/proc/$1/stat\" 2>/dev/null | cut -d' ' -f3); [ -n \"$g\" ] || exit 0
kill -s TERM -- \"-$g\" 2>/dev/null; i=0
while [ $i -lt 20 ] && kill -s 0 -- \"-$g\" 2>/dev/null; do sleep 0.1; i=$((i+1)); done
kill -s KILL -- \"-$g\" 2>/dev/null; exit 0";

/// Time for ending a command.
const ENDING: Duration = Duration::from_secs(10);

/// What the login shell says of itself before the command starts is dropped, up to so many bytes.
const NOISE: usize = 64 * 1024;

/// A stream of a command's output. Under a terminal there is only [`Stream::Out`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    /// With this code; 0 is success.
    Code(u32),
    /// By this signal, such as `KILL`.
    Signal(String),
}

impl Exit {
    /// Whether the command succeeded.
    #[must_use]
    pub fn success(&self) -> bool {
        *self == Self::Code(0)
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(name) => write!(f, "signal {name}"),
        }
    }
}

/// What a command reads.
pub enum Input {
    /// Nothing: its standard input is at its end.
    Nothing,
    /// These bytes.
    Bytes(Vec<u8>),
    /// What the reader gives.
    Reader(Pin<Box<dyn AsyncRead + Send>>),
}

/// A command for [`SshHosts::exec`].
pub struct Command {
    /// A line for the host's `sh -c`; who builds it from parts must quote them.
    pub line: String,
    /// What it reads.
    pub input: Input,
    /// Whether it gets a terminal; its streams are then one.
    pub pty: bool,
    /// Whether it runs as root, by sudo where the login is not root.
    pub as_root: bool,
    /// Time after which it is ended; `None` waits as long as the connection lives.
    pub timeout: Option<Duration>,
}

impl Command {
    /// A line run as root, without input, terminal or time limit.
    #[must_use]
    pub fn new(line: impl Into<String>) -> Self {
        Self { line: line.into(), input: Input::Nothing, pty: false, as_root: true, timeout: None }
    }
}

/// Receives output as it comes.
pub(crate) type OnOutput<'a> = &'a (dyn Fn(Stream, &[u8]) + Send + Sync);

impl SshHosts {
    /// Runs a command to its end and hands on its output as it comes. When the future is dropped, or
    /// the time is over, the command and what it started are ended on the host.
    ///
    /// # Errors
    /// When the host cannot be reached, the time is over, or the command's end cannot be told. A command that fails
    /// is no error: see [`Exit`].
    pub async fn exec(
        &self,
        host: HostAddress,
        command: Command,
        on_output: OnOutput<'_>,
    ) -> Result<Exit, StepFailure> {
        let connection = self.0.connection(host).await?;
        let rights = if command.as_root { connection.rights().await? } else { Rights::AsIs };
        let args = [command.line.as_str()];
        let remote = if command.pty {
            connection.start_in_terminal(&rights, PTY_WRAPPER, &args, BEGUN).await?
        } else {
            connection.start(&rights, WRAPPER, &args).await?
        };
        let mut leash = Leash { pool: Arc::clone(&self.0), running: None };
        let running =
            leash.running.insert(Running { connection, rights, remote, start: Start::default(), pid: None });
        let Running { connection, remote, start, pid, .. } = running;
        let mut hear = |stream: Stream, bytes: &[u8]| match stream {
            Stream::Err => on_output(stream, bytes),
            Stream::Out => {
                if let Some(said) = start.feed(bytes, on_output) {
                    *pid = Some(said);
                }
            }
        };
        let talking = remote.talk(connection, command.input, &mut hear);
        let ended = match command.timeout {
            None => Some(talking.await),
            Some(limit) => tokio::time::timeout(limit, talking).await.ok(),
        };
        if let Some(result) = ended {
            start.flush(on_output);
            if result.is_ok() {
                leash.running = None;
            }
            return result;
        }
        if let Some(running) = leash.running.take() {
            // Whether it ended or not, its time is over.
            drop(running.end().await);
        }
        let seconds = command.timeout.unwrap_or_default().as_secs_f32();
        Err(failure(Category::Timeout, format!("the command on {host} was ended after {seconds} s")))
    }

    /// Waits until the commands that nobody waits for any more are ended on their hosts, half a minute at most, and
    /// tells of those that may still run.
    pub async fn farewells(&self) -> Vec<(HostAddress, StepFailure)> {
        let mut endings = std::mem::take(&mut *self.0.endings());
        let mut failed = Vec::new();
        while let Some(ended) = endings.join_next().await {
            if let Ok((host, Err(failure))) = ended {
                failed.push((host, failure));
            }
        }
        failed
    }
}

/// The start of the output, up to the line with the process id.
#[derive(Default)]
struct Start {
    held: Vec<u8>,
    over: bool,
}

impl Start {
    /// Hands on what comes after the line; gives the process id when the line is complete.
    fn feed(&mut self, bytes: &[u8], on_output: OnOutput<'_>) -> Option<u32> {
        if self.over {
            on_output(Stream::Out, bytes);
            return None;
        }
        self.held.extend_from_slice(bytes);
        match self.line() {
            Some((pid, end)) => {
                self.over = true;
                if end < self.held.len() {
                    on_output(Stream::Out, &self.held[end..]);
                }
                self.held = Vec::new();
                pid
            }
            None if self.held.len() > NOISE => {
                self.flush(on_output);
                None
            }
            None => None,
        }
    }

    /// The process id in its line, and where the line ends; `None` while it is not complete.
    fn line(&self) -> Option<(Option<u32>, usize)> {
        let start = self.held.windows(BEGUN.len()).position(|window| window == BEGUN)? + BEGUN.len();
        let end = start + self.held[start..].iter().position(|byte| *byte == b'\n')?;
        let pid = std::str::from_utf8(&self.held[start..end]).ok().and_then(|text| text.trim().parse().ok());
        Some((pid, end + 1))
    }

    /// Hands on what is held when the line never came: it says why the command did not start.
    fn flush(&mut self, on_output: OnOutput<'_>) {
        self.over = true;
        if !self.held.is_empty() {
            on_output(Stream::Out, &std::mem::take(&mut self.held));
        }
    }
}

/// A command on its host.
struct Running {
    connection: Arc<Connection>,
    rights: Rights,
    remote: Remote,
    start: Start,
    pid: Option<u32>,
}

impl Running {
    /// Ends it and what it started.
    async fn end(mut self) -> Result<(), StepFailure> {
        let learned = match self.pid {
            Some(pid) => Ok(Some(pid)),
            None => tokio::time::timeout(ENDING, self.learn()).await,
        };
        let ended = match learned {
            Ok(Some(pid)) => kill(&self.connection, &self.rights, pid).await,
            Ok(None) => Ok(()),
            Err(_) => {
                let why = format!("it did not say which process it is within {} s", ENDING.as_secs());
                Err(failure(Category::Timeout, why))
            }
        };
        if let Err(error) = &ended {
            tracing::warn!(host = %self.connection.host, pid = self.pid, %error, "a command may still run");
        }
        ended
    }

    /// Waits for a command that has just begun to say which process it is; `None` when it is over.
    async fn learn(&mut self) -> Option<u32> {
        while !self.start.over {
            if let Some(pid) = self.start.feed(&self.remote.out().await?, &|_, _| {}) {
                self.pid = Some(pid);
            }
        }
        self.pid
    }
}

/// Ends the command on the host when nobody waits for it any more.
struct Leash {
    pool: Arc<Pool>,
    running: Option<Running>,
}

impl Drop for Leash {
    fn drop(&mut self) {
        let Some(running) = self.running.take() else { return };
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let pool = Arc::clone(&self.pool);
        let mut endings = self.pool.endings();
        // Nobody asked for those that are over.
        while endings.try_join_next().is_some() {}
        endings.spawn(async move {
            let ended = (running.connection.host, running.end().await);
            // Until now: the pool ends its tasks when it goes.
            drop(pool);
            ended
        });
    }
}

async fn kill(connection: &Connection, rights: &Rights, pid: u32) -> Result<(), StepFailure> {
    let pid = pid.to_string();
    connection.ask(rights, END, &[&pid], Input::Nothing, (ENDING, 4096)).await.map(drop)
}

#[cfg(test)]
mod tests {

    use parking_lot::Mutex;

    use super::*;

    fn feed(pieces: &[&str]) -> (Option<u32>, String) {
        let said = Mutex::new(String::new());
        let sink = |_: Stream, bytes: &[u8]| said.lock().push_str(std::str::from_utf8(bytes).unwrap());
        let (mut start, mut pid) = (Start::default(), None);
        for piece in pieces {
            pid = start.feed(piece.as_bytes(), &sink).or(pid);
        }
        start.flush(&sink);
        (pid, said.into_inner())
    }

    #[test]
    fn the_line_with_the_process_id_is_not_output() {
        assert_eq!(feed(&["kubeon-pid 71\nhello\n"]), (Some(71), "hello\n".into()));
        assert_eq!(feed(&["kube", "on-pid 7", "1\r", "\nhel", "lo\n"]), (Some(71), "hello\n".into()));
        assert_eq!(feed(&["motd\nkubeon-pid 71\n"]), (Some(71), String::new()));
        assert_eq!(feed(&["kubeon-pid 71\nkubeon-pid 72\n"]), (Some(71), "kubeon-pid 72\n".into()));
    }

    #[test]
    fn words_of_a_command_that_never_started_are_kept() {
        assert_eq!(feed(&["This account is ", "closed.\n"]), (None, "This account is closed.\n".into()));
    }
}
