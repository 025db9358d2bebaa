//! A person at a terminal, which script(1) gives the program.

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{Home, PROGRAM};

/// How long the program may take to say something.
const TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) struct Person {
    child: Child,
    keys: Option<ChildStdin>,
    seen: Arc<Mutex<String>>,
    reader: Option<thread::JoinHandle<()>>,
}

impl Person {
    /// Types a command and looks at the screen.
    pub(crate) fn types(home: &Home, args: &[&str]) -> Self {
        let line = shlex::try_join([&[PROGRAM], args].concat()).unwrap();
        let mut child = home
            .at_home("script")
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

    pub(crate) fn sees(&self, words: &str) {
        let begin = Instant::now();
        while !self.seen.lock().contains(words) {
            assert!(begin.elapsed() < TIMEOUT, "{words:?} is not in {:?}", self.seen.lock());
            thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn answers(&mut self, line: &str) {
        writeln!(self.keys.as_mut().unwrap(), "{line}").unwrap();
    }

    /// The exit code, and all that was on the screen.
    pub(crate) fn ends(mut self) -> (i32, String) {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begin.elapsed() < TIMEOUT, "it does not end: {:?}", self.seen.lock());
            thread::sleep(Duration::from_millis(10));
        };
        self.reader.take().unwrap().join().unwrap();
        let seen = self.seen.lock().clone();
        (status.code().unwrap(), seen)
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
