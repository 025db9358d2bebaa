//! A command for a host: its input, output and exit status.

use std::pin::Pin;
use std::time::Duration;

use tokio::io::AsyncRead;

/// A stream of a command's output. Under a terminal there is only [`Stream::Out`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// The end of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    /// The exit code; 0 is success.
    Code(u32),
    /// The signal that ended the command, such as `KILL`.
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

/// The standard input of a command.
pub enum CommandInput {
    /// Empty.
    Nothing,
    /// These bytes.
    Bytes(Vec<u8>),
    /// The bytes of this reader.
    Reader(Pin<Box<dyn AsyncRead + Send>>),
}

/// A command for [`SshHosts::exec`].
pub struct Command {
    /// A line for the host's `sh -c`. Arguments in it must be quoted.
    pub line: String,
    /// Its standard input.
    pub input: CommandInput,
    /// Whether it gets a terminal, which merges its streams.
    pub pty: bool,
    /// Whether it runs as root, with sudo when the login is another user.
    pub as_root: bool,
    /// Time limit; `None` waits as long as the connection lives.
    pub timeout: Option<Duration>,
}

impl Command {
    /// A line run as root, without input, terminal or time limit.
    #[must_use]
    pub fn new(line: impl Into<String>) -> Self {
        Self { line: line.into(), input: CommandInput::Nothing, pty: false, as_root: true, timeout: None }
    }
}

/// Callback for the output of a command.
pub(crate) type OnOutput<'a> = &'a (dyn Fn(Stream, &[u8]) + Send + Sync);
