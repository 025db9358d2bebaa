//! Programs that run beside a test and die with it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use kubeon_process::{OutputTail, die_with_parent};
use parking_lot::Mutex;

use crate::EnvtestError;

/// Lines of a log that an error carries.
const LAST_WORDS: usize = 15;
/// Characters of such a line.
const LONGEST: usize = 300;
/// Bytes of a log's end that are looked at for them.
const TAIL: usize = 16 * 1024;

/// A running program. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `program`, its words going to `<name>.log` in `folder`.
    pub(crate) fn start(
        name: &'static str,
        program: &Path,
        arguments: &[String],
        folder: &Path,
    ) -> Result<Self, EnvtestError> {
        let log = folder.join(format!("{name}.log"));
        let start = || -> io::Result<Child> {
            let out = File::create(&log)?;
            // The kernel ends it when the thread that started it is gone, which the keeper's is not before the process.
            let mut command = die_with_parent("KILL", program);
            command.args(arguments);
            command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out).current_dir(folder);
            // Nothing of a test's environment should change how the programs behave.
            command
                .env_clear()
                .env("PATH", std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin")));
            keeper_starts(command)
        };
        let child = start().map_err(|source| EnvtestError::Start { program: name, source })?;
        Ok(Self { name, child, log })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Fails when it is not running any more.
    pub(crate) fn is_alive(&mut self) -> Result<(), EnvtestError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => {
                let (program, status) = (self.name, status.to_string());
                Err(EnvtestError::Ended { program, status, words: self.last_words() })
            }
            Err(source) => Err(EnvtestError::Start { program: self.name, source }),
        }
    }

    /// Bytes of its log so far.
    pub(crate) fn said(&self) -> u64 {
        self.log.metadata().map_or(0, |metadata| metadata.len())
    }

    /// The end of its log.
    pub(crate) fn last_words(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(TAIL)..]).into_owned();
        let mut tail = OutputTail::new(LAST_WORDS);
        text.lines().for_each(|line| tail.push(&line.chars().take(LONGEST).collect::<String>()));
        tail.text()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

type Order = (Command, Sender<io::Result<Child>>);

/// Starts a command from a thread that lives as long as this process: a test's own thread may end while others still
/// use what it started.
fn keeper_starts(command: Command) -> io::Result<Child> {
    static KEEPER: OnceLock<Mutex<Sender<Order>>> = OnceLock::new();
    let keeper = KEEPER.get_or_init(|| {
        let (orders, inbox) = channel::<Order>();
        thread::spawn(move || {
            for (mut command, answer) in inbox {
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(orders)
    });
    let gone = || io::Error::other("the thread that starts programs is gone");
    let (answer, started) = channel();
    keeper.lock().send((command, answer)).map_err(|_| gone())?;
    started.recv().map_err(|_| gone())?
}
