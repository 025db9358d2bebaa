//! A terminal for the program, provided by script(1).

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{Home, PROGRAM};

/// Time limit for expected output and for the end.
const TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) struct Terminal {
    child: Child,
    keys: Option<ChildStdin>,
    seen: Arc<Mutex<String>>,
    reader: Option<thread::JoinHandle<()>>,
}

impl Terminal {
    /// Runs `kubeon` and records the screen.
    pub(crate) fn run(home: &Home, args: &[&str]) -> Self {
        let line = shlex::try_join([&[PROGRAM], args].concat()).unwrap();
        let mut child = home
            .command_in_home("script")
            .args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("script(1) of the package bsdutils: {error}"));
        let (keys, mut screen) = (child.stdin.take(), child.stdout.take().unwrap());
        let seen = Arc::new(Mutex::new(String::new()));
        let all = Arc::clone(&seen);
        let reader = thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(read @ 1..) = screen.read(&mut piece) {
                all.lock().push_str(&String::from_utf8_lossy(&piece[..read]));
            }
        });
        Self { child, keys, seen, reader: Some(reader) }
    }

    /// Waits until the screen contains the text.
    pub(crate) fn wait_for(&self, words: &str) {
        let begin = Instant::now();
        while !self.seen.lock().contains(words) {
            assert!(begin.elapsed() < TIMEOUT, "{words:?} is not in {:?}", self.seen.lock());
            thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn type_line(&mut self, line: &str) {
        writeln!(self.keys.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Waits for the end. Returns the exit code and the screen.
    pub(crate) fn finish(mut self) -> (i32, String) {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begin.elapsed() < TIMEOUT, "the program does not end: {:?}", self.seen.lock());
            thread::sleep(Duration::from_millis(10));
        };
        self.reader.take().unwrap().join().unwrap();
        let seen = self.seen.lock().clone();
        (status.code().unwrap(), seen)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
