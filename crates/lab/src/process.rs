//! Processes on the machine that were started for a lab, found by a mark in their environment.
//!
//! The mark also finds processes that are not yet in a cgroup of the lab: programs that ran when a command was killed.

use std::{
    fs,
    io::{self, ErrorKind},
    path::Path,
    process, thread,
    time::{Duration, Instant},
};

use backon::{BackoffBuilder as _, ExponentialBuilder};
use rustix::process::{Pid, Signal, kill_process};

use crate::{Error, LabName, Result};

/// Environment variable of every process that is started for a lab; its value is the lab's name.
pub(crate) const MARK: &str = "KUBEON_LAB_PROCESS";

/// Time limit for a process to finish its exec.
const EXEC_TIMEOUT: Duration = Duration::from_millis(100);

/// Time limit for killed processes to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// The first pause before killed processes are listed again; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Processes with the lab's mark and, if `host` is given, with `LAB_HOST=host`; never this process.
pub(crate) fn marked(name: &LabName, host: Option<&str>) -> Result<Vec<i32>> {
    let mark = format!("{MARK}={name}").into_bytes();
    let host = host.map(|host| format!("LAB_HOST={host}").into_bytes());
    let proc = Path::new("/proc");
    let mut found = Vec::new();
    for entry in fs::read_dir(proc).map_err(Error::file("list", proc))? {
        let Ok(pid) = entry.map_err(Error::file("list", proc))?.file_name().to_string_lossy().parse::<i32>()
        else {
            continue;
        };
        // A process that has ended or is a zombie has no environment.
        let Ok(environ) = environment(&proc.join(pid.to_string())) else { continue };
        let has = |wanted: &Vec<u8>| environ.split(|&c| c == 0).any(|variable| variable == wanted.as_slice());
        if has(&mark) && host.as_ref().is_none_or(has) && pid.unsigned_abs() != process::id() {
            found.push(pid);
        }
    }
    Ok(found)
}

/// Environment of the process whose folder in /proc is `process`. During its exec a process shows a program but
/// neither environment nor arguments; this function waits up to 100 ms for the exec to finish.
fn environment(process: &Path) -> io::Result<Vec<u8>> {
    let begin = Instant::now();
    loop {
        let environ = fs::read(process.join("environ"))?;
        let starting = || {
            fs::read_link(process.join("exe")).is_ok()
                && fs::read(process.join("cmdline")).is_ok_and(|line| line.is_empty())
        };
        if !environ.is_empty() || begin.elapsed() >= EXEC_TIMEOUT || !starting() {
            return Ok(environ);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Kills the processes that `find` lists until it lists none. Fails with the remaining processes after 10 s.
pub(crate) fn kill_all(what: &str, find: impl Fn() -> Result<Vec<i32>>) -> Result<()> {
    let begin = Instant::now();
    let pauses = ExponentialBuilder::default().with_min_delay(FIRST_PAUSE).with_max_delay(LONGEST_PAUSE);
    let mut pauses = pauses.without_max_times().build();
    loop {
        let pids = find()?;
        if pids.is_empty() {
            return Ok(());
        }
        if begin.elapsed() >= KILL_TIMEOUT {
            let what = format!("{what}: processes {pids:?} do not end after SIGKILL");
            return Err(Error::Wait { what, waited: begin.elapsed(), log: String::new() });
        }
        for pid in pids {
            if let Some(pid) = Pid::from_raw(pid) {
                // For root the only failure is that the process has already ended.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        thread::sleep(pauses.next().unwrap_or(LONGEST_PAUSE));
    }
}

/// The first argument of a running process.
pub(crate) fn argument_zero(pid: i32) -> Option<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    Some(String::from_utf8_lossy(line.split(|&c| c == 0).next()?).into_owned())
}

/// Reads a file of the kernel that may disappear at any time; `None` when it has.
pub(crate) fn read_vanishing(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        // ENODEV: the cgroup was removed while its file was open.
        Err(error) if error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(19) => Ok(None),
        Err(error) => Err(Error::file("read", path)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn finds_and_kills_exactly_the_marked_processes() {
        let own: LabName = format!("t{}", process::id()).parse().unwrap();
        let other: LabName = format!("t{}x", process::id()).parse().unwrap();
        let start = |lab: &LabName| {
            Command::new("sleep").arg("60").env(MARK, lab.as_str()).env("LAB_HOST", "h1").spawn().unwrap()
        };
        let (mut a, mut b) = (start(&own), start(&other));
        let pid = i32::try_from(a.id()).unwrap();
        assert_eq!(marked(&own, None).unwrap(), [pid]);
        assert_eq!(marked(&own, Some("h1")).unwrap(), [pid]);
        assert!(marked(&own, Some("h2")).unwrap().is_empty());
        kill_all("test", || marked(&own, None)).unwrap();
        assert!(!a.wait().unwrap().success());
        assert!(b.try_wait().unwrap().is_none(), "a process of another lab was killed");
        b.kill().unwrap();
        b.wait().unwrap();
    }
}
