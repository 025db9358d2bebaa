//! A command on a host: one channel of the shared connection.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::{Duration, Instant};

use kubeon_wire::{Category, StepFailure};
use russh::{Channel, ChannelMsg, ChannelReadHalf, ChannelWriteHalf, Pty, client};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use crate::command::{CommandInput, Exit, Stream};
use crate::connection::Connection;
use crate::failure::failure;
use crate::shell::{self, PROMPT, Rights};
use crate::silence::LastByte;
use kubeon_api::Secret;

/// Time limit for getting a channel; long, because all may be in use.
const CHANNEL_TIMEOUT: Duration = Duration::from_secs(60);

/// Time limit and pause for repeated requests of a channel that the host refuses.
const REFUSED_CHANNEL_TIMEOUT: Duration = Duration::from_secs(5);
const REFUSED_CHANNEL_PAUSE: Duration = Duration::from_millis(20);

/// Bytes read from a file at a time.
pub(crate) const CHUNK: usize = 256 * 1024;

/// A command's standard input.
pub(crate) type StdinWriter = Pin<Box<dyn AsyncWrite + Send>>;

/// A command that was started.
pub(crate) struct Remote {
    pub(crate) read: ChannelReadHalf,
    pub(crate) write: StdinWriter,
    /// Messages that were read while sudo asked for the password.
    early: VecDeque<ChannelMsg>,
    control: Option<ChannelWriteHalf<client::Msg>>,
    _permit: OwnedSemaphorePermit,
}

/// Closes the channel: the command gets the end of its input, and its output is dropped.
impl Drop for Remote {
    fn drop(&mut self) {
        let Some(control) = self.control.take() else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = control.close().await {
                    tracing::debug!(%error, "the channel was already closed");
                }
            });
        }
    }
}

/// The exit code and the output of a command.
pub(crate) struct CommandOutput {
    pub(crate) exit: Exit,
    pub(crate) out: Vec<u8>,
    pub(crate) err: Vec<u8>,
    /// Time of the first byte.
    pub(crate) first: Option<Instant>,
}

impl CommandOutput {
    /// Standard error as text.
    pub(crate) fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.err).into_owned()
    }
}

impl Connection {
    /// Starts `script` in a POSIX shell with `args`.
    pub(crate) async fn start(
        &self,
        rights: &Rights,
        script: &str,
        args: &[&str],
    ) -> Result<Remote, StepFailure> {
        let prepared = shell::prepare(rights, script, args)?;
        let mut remote = self.launch(&prepared.line, None).await?;
        if !prepared.preface.is_empty() {
            let sent = remote.write.write_all(prepared.preface.as_bytes()).await;
            sent.map_err(|error| self.broken(&error.to_string()))?;
        }
        Ok(remote)
    }

    /// The same under a terminal. `start_marker` is the first output of the script, which follows sudo's approval.
    pub(crate) async fn start_in_terminal(
        &self,
        rights: &Rights,
        script: &str,
        args: &[&str],
        start_marker: &[u8],
    ) -> Result<Remote, StepFailure> {
        let prepared = shell::prepare_for_terminal(rights, script, args)?;
        let Rights::SudoPassword(password) = rights else {
            return self.launch(&prepared.line, Some(true)).await;
        };
        let mut remote = self.launch(&prepared.line, Some(false)).await?;
        let answering = remote.answer_prompt(password, start_marker);
        match timeout(CHANNEL_TIMEOUT, answering).await {
            Ok(Ok(())) => Ok(remote),
            Ok(Err(error)) => Err(self.broken(&error.to_string())),
            Err(_) => Err(self
                .broken(&format!("sudo did not start the command within {} s", CHANNEL_TIMEOUT.as_secs()))),
        }
    }

    /// Opens a channel. sshd may refuse it for a moment after another session has ended, so the request is
    /// repeated.
    async fn open_channel(&self) -> Result<Channel<client::Msg>, russh::Error> {
        let start = Instant::now();
        loop {
            match self.handle.channel_open_session().await {
                Err(russh::Error::ChannelOpenFailure(_)) if start.elapsed() < REFUSED_CHANNEL_TIMEOUT => {
                    tokio::time::sleep(REFUSED_CHANNEL_PAUSE).await;
                }
                result => return result,
            }
        }
    }

    /// Opens a channel and runs the line on it. `echo` requests a terminal, with or without echo.
    async fn launch(&self, line: &str, echo: Option<bool>) -> Result<Remote, StepFailure> {
        let permit = self.channels.clone().acquire_owned();
        let opening = async {
            let permit = permit.await.map_err(|_| russh::Error::Disconnect)?;
            let channel = self.open_channel().await?;
            if let Some(echo) = echo {
                let modes = [(Pty::ECHO, u32::from(echo))];
                channel.request_pty(false, "xterm", 80, 24, 0, 0, &modes).await?;
            }
            channel.exec(true, line.as_bytes()).await?;
            Ok::<_, russh::Error>((permit, channel))
        };
        let (permit, channel) = match timeout(CHANNEL_TIMEOUT, opening).await {
            Ok(Ok(open)) => open,
            Ok(Err(russh::Error::ChannelOpenFailure(_))) => return Err(self.no_session()),
            Ok(Err(error)) => return Err(self.broken(&error.to_string())),
            Err(_) => {
                return Err(self.broken(&format!("no free channel within {} s", CHANNEL_TIMEOUT.as_secs())));
            }
        };
        let write: StdinWriter = Box::pin(channel.make_writer());
        let (read, control) = channel.split();
        Ok(Remote { read, write, early: VecDeque::new(), control: Some(control), _permit: permit })
    }

    /// Runs `script` as [`Connection::run_script`] does, and fails when the host sends nothing for the time `silence`. The
    /// script should send something while it works.
    pub(crate) async fn run_live_script(
        &self,
        rights: &Rights,
        script: &str,
        input: CommandInput,
        silence: Duration,
        (within, limit): (Duration, usize),
    ) -> Result<CommandOutput, StepFailure> {
        let last = LastByte::new();
        let on_bytes = || last.arrived();
        tokio::select! {
            biased;
            answer = self.run_reporting(rights, (script, &[]), input, (within, limit), &on_bytes) => answer,
            () = last.silent_for(silence) => {
                let cause = format!("{} has sent nothing for {} s", self.host, silence.as_secs());
                Err(failure(Category::Timeout, cause))
            }
        }
    }

    /// Runs `script` to its end within a time limit and returns its output, at most `limit` bytes of each stream.
    pub(crate) async fn run_script(
        &self,
        rights: &Rights,
        script: &str,
        args: &[&str],
        input: CommandInput,
        bounds: (Duration, usize),
    ) -> Result<CommandOutput, StepFailure> {
        self.run_reporting(rights, (script, args), input, bounds, &|| {}).await
    }

    /// Runs a script with its arguments and calls `on_bytes` whenever output arrives.
    async fn run_reporting(
        &self,
        rights: &Rights,
        (script, args): (&str, &[&str]),
        input: CommandInput,
        (within, limit): (Duration, usize),
        on_bytes: &(dyn Fn() + Sync),
    ) -> Result<CommandOutput, StepFailure> {
        let running = async {
            let mut remote = self.start(rights, script, args).await?;
            let (mut out, mut err, mut first) = (Vec::new(), Vec::new(), None);
            let exit = remote
                .run_to_end(self, input, &mut |stream, bytes| {
                    on_bytes();
                    first.get_or_insert_with(Instant::now);
                    let buffer = if stream == Stream::Out { &mut out } else { &mut err };
                    let room = limit.saturating_sub(buffer.len()).min(bytes.len());
                    buffer.extend_from_slice(&bytes[..room]);
                })
                .await?;
            Ok(CommandOutput { exit, out, err, first })
        };
        match timeout(within, running).await {
            Ok(answer) => answer,
            Err(_) => Err(failure(
                Category::Timeout,
                format!("{} did not answer completely within {} s", self.host, within.as_secs()),
            )),
        }
    }

    fn no_session(&self) -> StepFailure {
        let cause = format!(
            "{} allows no further session on its connection; set MaxSessions in its sshd_config to 10, the default",
            self.host
        );
        failure(Category::Denied, cause)
    }

    pub(crate) fn broken(&self, why: &str) -> StepFailure {
        failure(Category::Unreachable, format!("the connection to {} broke: {why}", self.host))
    }
}

impl Remote {
    /// Sends sudo the password when it asks, once, and waits until the command has started or ended.
    async fn answer_prompt(&mut self, password: &Secret, start_marker: &[u8]) -> std::io::Result<()> {
        let (mut received, mut answered) = (Vec::new(), false);
        let has = |received: &[u8], text: &[u8]| received.windows(text.len()).any(|window| window == text);
        while let Some(message) = self.read.wait().await {
            let closed = matches!(message, ChannelMsg::Close);
            if let ChannelMsg::Data { data } = &message {
                received.extend_from_slice(data);
            }
            self.early.push_back(message);
            if !answered && has(&received, PROMPT.as_bytes()) {
                answered = true;
                self.write.write_all(format!("{}\n", password.expose()).as_bytes()).await?;
                received.clear();
            } else if closed || has(&received, start_marker) {
                return Ok(());
            } else if answered && has(&received, PROMPT.as_bytes()) {
                return Err(std::io::Error::other("sudo refused the password"));
            }
        }
        Ok(())
    }

    /// The next bytes of standard output; `None` when the command has ended.
    pub(crate) async fn out(&mut self) -> Option<Vec<u8>> {
        loop {
            let message = match self.early.pop_front() {
                Some(early) => early,
                None => self.read.wait().await?,
            };
            match message {
                ChannelMsg::Data { data } => return Some(data.to_vec()),
                ChannelMsg::Close => return None,
                _ => {}
            }
        }
    }

    /// Sends the input and forwards the output until the command has ended.
    pub(crate) async fn run_to_end(
        &mut self,
        connection: &Connection,
        input: CommandInput,
        on_output: &mut (dyn FnMut(Stream, &[u8]) + Send),
    ) -> Result<Exit, StepFailure> {
        let feeding = feed(&mut self.write, input);
        tokio::pin!(feeding);
        let mut fed = false;
        let mut exit = None;
        loop {
            let message = if let Some(early) = self.early.pop_front() {
                Some(early)
            } else {
                tokio::select! {
                    result = &mut feeding, if !fed => {
                        fed = true;
                        // A command may end without reading all of its input; only a broken source is a failure.
                        if let Err(FeedError::Source(error)) = result {
                            return Err(failure(Category::Failed, format!("the input cannot be read: {error}")));
                        }
                        continue;
                    }
                    message = self.read.wait() => message,
                }
            };
            match message {
                Some(ChannelMsg::Data { data }) => on_output(Stream::Out, &data),
                Some(ChannelMsg::ExtendedData { data, .. }) => on_output(Stream::Err, &data),
                Some(ChannelMsg::ExitStatus { exit_status }) => exit = Some(Exit::Code(exit_status)),
                Some(ChannelMsg::ExitSignal { signal_name, .. }) => {
                    exit = Some(Exit::Signal(format!("{signal_name:?}")));
                }
                Some(ChannelMsg::Failure) => {
                    return Err(failure(
                        Category::Denied,
                        format!("{} refuses to run commands", connection.host),
                    ));
                }
                Some(ChannelMsg::Close) | None => break,
                Some(_) => {}
            }
        }
        self.control = None;
        exit.ok_or_else(|| connection.broken("the exit status of the command is unknown"))
    }
}

enum FeedError {
    /// The input cannot be read.
    Source(std::io::Error),
    /// The command has closed its standard input.
    Closed,
}

/// Sends the input and closes it.
async fn feed(write: &mut StdinWriter, input: CommandInput) -> Result<(), FeedError> {
    match input {
        CommandInput::Nothing => {}
        CommandInput::Bytes(bytes) => {
            if !bytes.is_empty() {
                write.write_all(&bytes).await.map_err(|_| FeedError::Closed)?;
            }
        }
        CommandInput::Reader(reader) => pump(reader, write).await?,
    }
    write.shutdown().await.map_err(|_| FeedError::Closed)
}

async fn pump(mut reader: Pin<Box<dyn AsyncRead + Send>>, write: &mut StdinWriter) -> Result<(), FeedError> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let read = reader.read(&mut buffer).await.map_err(FeedError::Source)?;
        if read == 0 {
            return Ok(());
        }
        write.write_all(&buffer[..read]).await.map_err(|_| FeedError::Closed)?;
    }
}
