//! A command on a host: one channel of the shared connection.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::{Duration, Instant};

use kubeon_wire::{Category, StepFailure};
use russh::{Channel, ChannelMsg, ChannelReadHalf, ChannelWriteHalf, Pty, client};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use crate::connection::Connection;
use crate::exec::{Exit, Input, Stream};
use crate::failure::failure;
use crate::shell::{self, PROMPT, Rights};
use kubeon_api::Secret;

/// Time to get a channel; long, because a free one may have to be waited for.
const CHANNEL: Duration = Duration::from_secs(60);

/// How long, and how often, a channel is asked for that the host refuses.
const FULL: Duration = Duration::from_secs(5);
const FULL_PAUSE: Duration = Duration::from_millis(20);

/// Bytes read from a file at a time.
pub(crate) const CHUNK: usize = 256 * 1024;

/// The way into a command's standard input.
pub(crate) type Writer = Pin<Box<dyn AsyncWrite + Send>>;

/// A command that was started.
pub(crate) struct Remote {
    pub(crate) read: ChannelReadHalf,
    pub(crate) write: Writer,
    /// What was read before anybody listened.
    early: VecDeque<ChannelMsg>,
    control: Option<ChannelWriteHalf<client::Msg>>,
    _permit: OwnedSemaphorePermit,
}

/// A command that nobody talks to any more gets its standard input ended and its output unread.
impl Drop for Remote {
    fn drop(&mut self) {
        let Some(control) = self.control.take() else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = control.close().await {
                    tracing::debug!(%error, "the channel is closed already");
                }
            });
        }
    }
}

/// What a command said, when all of it is wanted.
pub(crate) struct Answer {
    pub(crate) exit: Exit,
    pub(crate) out: Vec<u8>,
    pub(crate) err: Vec<u8>,
    /// When the first byte came.
    pub(crate) first: Option<Instant>,
}

impl Answer {
    /// What was said on standard error, as text.
    pub(crate) fn words(&self) -> String {
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

    /// The same under a terminal. `begun` is what the script says first, once sudo has let it in.
    pub(crate) async fn start_in_terminal(
        &self,
        rights: &Rights,
        script: &str,
        args: &[&str],
        begun: &[u8],
    ) -> Result<Remote, StepFailure> {
        let prepared = shell::prepare_for_terminal(rights, script, args)?;
        let Rights::SudoPassword(password) = rights else {
            return self.launch(&prepared.line, Some(true)).await;
        };
        let mut remote = self.launch(&prepared.line, Some(false)).await?;
        let answering = remote.answer(password, begun);
        match timeout(CHANNEL, answering).await {
            Ok(Ok(())) => Ok(remote),
            Ok(Err(error)) => Err(self.broken(&error.to_string())),
            Err(_) => {
                Err(self.broken(&format!("sudo did not let the command in within {} s", CHANNEL.as_secs())))
            }
        }
    }

    /// sshd counts a session that has just ended a moment longer than we do, so it may refuse the next one.
    async fn open_channel(&self) -> Result<Channel<client::Msg>, russh::Error> {
        let start = Instant::now();
        loop {
            match self.handle.channel_open_session().await {
                Err(russh::Error::ChannelOpenFailure(_)) if start.elapsed() < FULL => {
                    tokio::time::sleep(FULL_PAUSE).await;
                }
                result => return result,
            }
        }
    }

    /// Opens a channel and runs the line on it; `echo` says whether a terminal shows what is typed.
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
        let (permit, channel) = match timeout(CHANNEL, opening).await {
            Ok(Ok(open)) => open,
            Ok(Err(russh::Error::ChannelOpenFailure(_))) => return Err(self.no_session()),
            Ok(Err(error)) => return Err(self.broken(&error.to_string())),
            Err(_) => return Err(self.broken(&format!("no free channel within {} s", CHANNEL.as_secs()))),
        };
        let write: Writer = Box::pin(channel.make_writer());
        let (read, control) = channel.split();
        Ok(Remote { read, write, early: VecDeque::new(), control: Some(control), _permit: permit })
    }

    /// Runs `script` to its end and gives back all that it said, `limit` bytes of each stream at most.
    pub(crate) async fn ask(
        &self,
        rights: &Rights,
        script: &str,
        args: &[&str],
        input: Input,
        (within, limit): (Duration, usize),
    ) -> Result<Answer, StepFailure> {
        let asking = async {
            let mut remote = self.start(rights, script, args).await?;
            let (mut out, mut err, mut first) = (Vec::new(), Vec::new(), None);
            let exit = remote
                .talk(self, input, &mut |stream, bytes| {
                    first.get_or_insert_with(Instant::now);
                    let kept = if stream == Stream::Out { &mut out } else { &mut err };
                    let room = limit.saturating_sub(kept.len()).min(bytes.len());
                    kept.extend_from_slice(&bytes[..room]);
                })
                .await?;
            Ok(Answer { exit, out, err, first })
        };
        match timeout(within, asking).await {
            Ok(answer) => answer,
            Err(_) => Err(failure(
                Category::Timeout,
                format!("{} gave no full answer within {} s", self.host, within.as_secs()),
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
    /// Gives sudo the password when it asks, once, and waits until the command has begun or ended.
    async fn answer(&mut self, password: &Secret, begun: &[u8]) -> std::io::Result<()> {
        let (mut heard, mut answered) = (Vec::new(), false);
        let has = |heard: &[u8], words: &[u8]| heard.windows(words.len()).any(|window| window == words);
        while let Some(message) = self.read.wait().await {
            let over = matches!(message, ChannelMsg::Close);
            if let ChannelMsg::Data { data } = &message {
                heard.extend_from_slice(data);
            }
            self.early.push_back(message);
            if !answered && has(&heard, PROMPT.as_bytes()) {
                answered = true;
                self.write.write_all(format!("{}\n", password.expose()).as_bytes()).await?;
                heard.clear();
            } else if over || has(&heard, begun) {
                return Ok(());
            } else if answered && has(&heard, PROMPT.as_bytes()) {
                return Err(std::io::Error::other("sudo did not take the password"));
            }
        }
        Ok(())
    }

    /// The next bytes of standard output; `None` when the command is over.
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

    /// Feeds the input and hands on the output until the command has ended.
    pub(crate) async fn talk(
        &mut self,
        connection: &Connection,
        input: Input,
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
                        // A command need not read all of its input; only a broken source is a failure.
                        if let Err(Feed::Source(error)) = result {
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
        exit.ok_or_else(|| connection.broken("the command's end is unknown"))
    }
}

enum Feed {
    Source(std::io::Error),
    Gone,
}

/// Writes the input and then its end.
async fn feed(write: &mut Writer, input: Input) -> Result<(), Feed> {
    match input {
        Input::Nothing => {}
        Input::Bytes(bytes) => {
            if !bytes.is_empty() {
                write.write_all(&bytes).await.map_err(|_| Feed::Gone)?;
            }
        }
        Input::Reader(reader) => pump(reader, write).await?,
    }
    write.shutdown().await.map_err(|_| Feed::Gone)
}

async fn pump(mut reader: Pin<Box<dyn AsyncRead + Send>>, write: &mut Writer) -> Result<(), Feed> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let read = reader.read(&mut buffer).await.map_err(Feed::Source)?;
        if read == 0 {
            return Ok(());
        }
        write.write_all(&buffer[..read]).await.map_err(|_| Feed::Gone)?;
    }
}
