//! Programs that run during a test and end with it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::net::{SocketAddrV4, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use kubeon_process::{BackgroundProgram, OutputTail, die_with_parent};
use parking_lot::Mutex;

use crate::EnvtestError;

/// How long a program may take to listen.
const LISTEN_LIMIT: Duration = Duration::from_secs(60);
/// Lines of a log in an error.
const TAIL_LINES: usize = 15;
/// Characters of such a line.
const LINE_LENGTH: usize = 300;
/// Bytes at the end of a log that are searched for these lines.
const TAIL_BYTES: usize = 16 * 1024;

/// A running program. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    name: &'static str,
    program: BackgroundProgram,
    log: PathBuf,
}

impl ServerProcess {
    /// Starts the program at `path` with its output in `<name>.log` in `folder`.
    pub(crate) fn start(
        name: &'static str,
        path: &Path,
        arguments: &[String],
        folder: &Path,
    ) -> Result<Self, EnvtestError> {
        let log = folder.join(format!("{name}.log"));
        let start = || -> io::Result<BackgroundProgram> {
            let output = File::create(&log)?;
            // The kernel kills the program when the thread that started it ends. The starter thread ends only with this
            // process.
            let mut command = die_with_parent("KILL", path);
            command.args(arguments).current_dir(folder);
            // The environment of a test must not change how the programs behave.
            command
                .env_clear()
                // Servers of tests live for seconds: collecting garbage less often saves a tenth of the time of the tests.
                .env("GOGC", "400")
                .env("PATH", std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin")));
            start_in_starter_thread(command, output)
        };
        let program = start().map_err(|source| EnvtestError::Start { program: name, source })?;
        Ok(Self { name, program, log })
    }

    pub(crate) fn id(&self) -> u32 {
        self.program.id()
    }

    /// Fails if the program has ended.
    pub(crate) fn check_alive(&mut self) -> Result<(), EnvtestError> {
        match self.program.exit_status() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => {
                let (program, status) = (self.name, status.to_string());
                Err(EnvtestError::Ended { program, status, log: self.log_tail() })
            }
            Err(source) => Err(EnvtestError::Start { program: self.name, source }),
        }
    }

    /// Waits until the program accepts connections.
    pub(crate) fn wait_until_it_listens(&mut self, address: SocketAddrV4) -> Result<(), EnvtestError> {
        let end = Instant::now() + LISTEN_LIMIT;
        while TcpStream::connect(address).is_err() {
            self.check_alive()?;
            if Instant::now() >= end {
                let what = format!("the start of {}", self.name);
                return Err(EnvtestError::TooLate { what, limit: LISTEN_LIMIT, log: self.log_tail() });
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// The size of the program's log in bytes.
    pub(crate) fn log_size(&self) -> u64 {
        self.log.metadata().map_or(0, |metadata| metadata.len())
    }

    /// The last lines of the program's log.
    pub(crate) fn log_tail(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]).into_owned();
        let mut tail = OutputTail::new(TAIL_LINES);
        text.lines().for_each(|line| tail.push(&line.chars().take(LINE_LENGTH).collect::<String>()));
        tail.text()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.program.kill();
    }
}

type StartRequest = (Command, File, Sender<io::Result<BackgroundProgram>>);

/// Starts a command in a thread that lives as long as this process: the thread of a test may end while other tests use
/// the program that it started.
fn start_in_starter_thread(command: Command, output: File) -> io::Result<BackgroundProgram> {
    static STARTER: OnceLock<Mutex<Sender<StartRequest>>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (requests, inbox) = channel::<StartRequest>();
        thread::spawn(move || {
            for (command, output, answer) in inbox {
                let _ = answer.send(BackgroundProgram::start(command, output));
            }
        });
        Mutex::new(requests)
    });
    let ended = || io::Error::other("the thread that starts programs has ended");
    let (answer, started) = channel();
    starter.lock().send((command, output, answer)).map_err(|_| ended())?;
    started.recv().map_err(|_| ended())?
}
