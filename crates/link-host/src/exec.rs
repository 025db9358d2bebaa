//! Runs a command of a user on a host.

use std::sync::Arc;
use std::time::Duration;

use kubeon_api::HostAddress;
use kubeon_wire::{Category, StepFailure};

use crate::command::{Command, CommandInput, Exit, OnOutput, Stream};
use crate::connection::Connection;
use crate::failure::failure;
use crate::pool::{Pool, SshHosts};
use crate::remote::Remote;
use crate::shell::Rights;

/// Prints its process id, so that the command can be ended from outside, and then executes the command.
const WRAPPER: &str = "printf 'kubeon-pid %s\\n' $$; exec sh -c \"$1\"";

/// The same under a terminal. The echo was off while a password may have been typed.
const PTY_WRAPPER: &str = "stty echo 2>/dev/null; printf 'kubeon-pid %s\\n' $$; exec sh -c \"$1\"";

/// The start of the line with the process id.
const PID_PREFIX: &[u8] = b"kubeon-pid ";

/// Ends the process group of a command: SIGTERM, then SIGKILL after 2 s.
const END: &str = "g=$(sed 's/.*) //' \"/proc/$1/stat\" 2>/dev/null | cut -d' ' -f3); [ -n \"$g\" ] || exit 0
kill -s TERM -- \"-$g\" 2>/dev/null; i=0
while [ $i -lt 20 ] && kill -s 0 -- \"-$g\" 2>/dev/null; do sleep 0.1; i=$((i+1)); done
kill -s KILL -- \"-$g\" 2>/dev/null; exit 0";

/// Time limit for ending a command.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of output of the login shell before the command starts; they are dropped.
const PREAMBLE_LIMIT: usize = 64 * 1024;

impl SshHosts {
    /// Runs a command to its end and calls `on_output` with its output as it arrives. When the future is dropped, or at the
    /// time limit, the command and its children are ended on the host.
    ///
    /// # Errors
    /// When the host cannot be reached, at the time limit, or when the exit status is unknown. A command that fails is not an
    /// error: see [`Exit`].
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
            connection.start_in_terminal(&rights, PTY_WRAPPER, &args, PID_PREFIX).await?
        } else {
            connection.start(&rights, WRAPPER, &args).await?
        };
        let mut guard = EndOnDrop { pool: Arc::clone(&self.0), running: None };
        let command_run = guard.running.insert(Running {
            connection,
            rights,
            remote,
            start: OutputStart::default(),
            pid: None,
        });
        let Running { connection, remote, start, pid, .. } = command_run;
        let mut on_bytes = |stream: Stream, bytes: &[u8]| match stream {
            Stream::Err => on_output(stream, bytes),
            Stream::Out => {
                if let Some(found) = start.feed(bytes, on_output) {
                    *pid = Some(found);
                }
            }
        };
        let running = remote.run_to_end(connection, command.input, &mut on_bytes);
        let ended = match command.timeout {
            None => Some(running.await),
            Some(limit) => tokio::time::timeout(limit, running).await.ok(),
        };
        if let Some(result) = ended {
            start.flush(on_output);
            if result.is_ok() {
                guard.running = None;
            }
            return result;
        }
        if let Some(running) = guard.running.take() {
            // `end` logs its failure. The result is a timeout in both cases.
            drop(running.end().await);
        }
        let seconds = command.timeout.unwrap_or_default().as_secs_f32();
        Err(failure(Category::Timeout, format!("the command on {host} was ended after {seconds} s")))
    }

    /// Waits until abandoned commands are ended on their hosts, at most half a minute. Returns the commands that
    /// may still run.
    pub async fn end_abandoned(&self) -> Vec<(HostAddress, StepFailure)> {
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

/// The output up to the line with the process id.
#[derive(Default)]
struct OutputStart {
    buffer: Vec<u8>,
    complete: bool,
}

impl OutputStart {
    /// Forwards the output after the line. Returns the process id when the line is complete.
    fn feed(&mut self, bytes: &[u8], on_output: OnOutput<'_>) -> Option<u32> {
        if self.complete {
            on_output(Stream::Out, bytes);
            return None;
        }
        self.buffer.extend_from_slice(bytes);
        match self.line() {
            Some((pid, end)) => {
                self.complete = true;
                if end < self.buffer.len() {
                    on_output(Stream::Out, &self.buffer[end..]);
                }
                self.buffer = Vec::new();
                pid
            }
            None if self.buffer.len() > PREAMBLE_LIMIT => {
                self.flush(on_output);
                None
            }
            None => None,
        }
    }

    /// The process id, and the end of its line; `None` while the line is not complete.
    fn line(&self) -> Option<(Option<u32>, usize)> {
        let start =
            self.buffer.windows(PID_PREFIX.len()).position(|window| window == PID_PREFIX)? + PID_PREFIX.len();
        let end = start + self.buffer[start..].iter().position(|byte| *byte == b'\n')?;
        let pid =
            std::str::from_utf8(&self.buffer[start..end]).ok().and_then(|text| text.trim().parse().ok());
        Some((pid, end + 1))
    }

    /// Forwards the output when the line did not arrive: the output may explain why the command did not start.
    fn flush(&mut self, on_output: OnOutput<'_>) {
        self.complete = true;
        if !self.buffer.is_empty() {
            on_output(Stream::Out, &std::mem::take(&mut self.buffer));
        }
    }
}

/// A command on its host.
struct Running {
    connection: Arc<Connection>,
    rights: Rights,
    remote: Remote,
    start: OutputStart,
    pid: Option<u32>,
}

impl Running {
    /// Ends the command and its children.
    async fn end(mut self) -> Result<(), StepFailure> {
        let found_pid = match self.pid {
            Some(pid) => Ok(Some(pid)),
            None => tokio::time::timeout(END_TIMEOUT, self.read_pid()).await,
        };
        let ended = match found_pid {
            Ok(Some(pid)) => kill(&self.connection, &self.rights, pid).await,
            Ok(None) => Ok(()),
            Err(_) => {
                let why = format!("its process id is unknown after {} s", END_TIMEOUT.as_secs());
                Err(failure(Category::Timeout, why))
            }
        };
        if let Err(error) = &ended {
            tracing::warn!(host = %self.connection.host, pid = self.pid, %error, "a command may still run");
        }
        ended
    }

    /// Waits for the process id of a command that has just started; `None` when the command has ended.
    async fn read_pid(&mut self) -> Option<u32> {
        while !self.start.complete {
            if let Some(pid) = self.start.feed(&self.remote.out().await?, &|_, _| {}) {
                self.pid = Some(pid);
            }
        }
        self.pid
    }
}

/// Ends the command on the host when its future is dropped.
struct EndOnDrop {
    pool: Arc<Pool>,
    running: Option<Running>,
}

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        let Some(running) = self.running.take() else { return };
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let pool = Arc::clone(&self.pool);
        let mut endings = self.pool.endings();
        // Removes finished tasks: their results are not needed.
        while endings.try_join_next().is_some() {}
        endings.spawn(async move {
            let ended = (running.connection.host, running.end().await);
            // Dropping the pool would abort this task.
            drop(pool);
            ended
        });
    }
}

async fn kill(connection: &Connection, rights: &Rights, pid: u32) -> Result<(), StepFailure> {
    let pid = pid.to_string();
    connection.run_script(rights, END, &[&pid], CommandInput::Nothing, (END_TIMEOUT, 4096)).await.map(drop)
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    fn feed(pieces: &[&str]) -> (Option<u32>, String) {
        let forwarded = Mutex::new(String::new());
        let sink = |_: Stream, bytes: &[u8]| forwarded.lock().push_str(std::str::from_utf8(bytes).unwrap());
        let (mut start, mut pid) = (OutputStart::default(), None);
        for piece in pieces {
            pid = start.feed(piece.as_bytes(), &sink).or(pid);
        }
        start.flush(&sink);
        (pid, forwarded.into_inner())
    }

    #[test]
    fn the_line_with_the_process_id_is_not_output() {
        assert_eq!(feed(&["kubeon-pid 71\nhello\n"]), (Some(71), "hello\n".into()));
        assert_eq!(feed(&["kube", "on-pid 7", "1\r", "\nhel", "lo\n"]), (Some(71), "hello\n".into()));
        assert_eq!(feed(&["motd\nkubeon-pid 71\n"]), (Some(71), String::new()));
        assert_eq!(feed(&["kubeon-pid 71\nkubeon-pid 72\n"]), (Some(71), "kubeon-pid 72\n".into()));
    }

    #[test]
    fn output_of_a_command_that_never_started_is_forwarded() {
        assert_eq!(feed(&["This account is ", "closed.\n"]), (None, "This account is closed.\n".into()));
    }
}
