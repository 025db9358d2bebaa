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

/// Programs that a command of the lab runs to its end. A killed command may leave them running.
pub(crate) fn tools(name: &LabName) -> Result<Vec<i32>> {
    let of_host = |pid: &i32| has_variable(*pid, |variable| variable.starts_with(b"LAB_HOST="));
    Ok(marked(name, None)?.into_iter().filter(|pid| !of_host(pid)).collect())
}

/// Whether the environment of a process has a variable, given as `name=value`, that meets the condition.
pub(crate) fn has_variable(pid: i32, condition: impl Fn(&[u8]) -> bool) -> bool {
    let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environ.split(|&c| c == 0).any(condition)
}

/// Whether a process has ended, or will without running another instruction of its program.
pub(crate) fn is_ending(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/status"))
        .map_or(true, |status| has_no_memory(&status) || is_killed(&status))
}

/// The kernel takes the memory of a process first.
fn has_no_memory(status: &str) -> bool {
    !status.lines().any(|line| line.starts_with("VmSize:"))
}

/// Whether SIGKILL was sent and not yet handled.
fn is_killed(status: &str) -> bool {
    let kill = 1_u64 << (Signal::KILL.as_raw() - 1);
    let pending = |line: &str| {
        let mask = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    };
    status.lines().filter_map(pending).any(|signals| signals & kill != 0)
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
    fn a_process_ends_when_it_is_killed_or_has_no_memory() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert!(!is_ending(pid));
        child.kill().unwrap();
        // It is not reaped: the kernel still lists it.
        let begin = Instant::now();
        while !is_ending(pid) {
            assert!(begin.elapsed() < KILL_TIMEOUT);
            thread::sleep(FIRST_PAUSE);
        }
        assert!(Path::new(&format!("/proc/{pid}")).exists());
        child.wait().unwrap();
        assert!(is_ending(pid));

        let status = |own: &str, shared: &str| format!("Name:\tx\nSigPnd:\t{own}\nShdPnd:\t{shared}\n");
        let [none, kill, terminate] = ["0000000000000000", "0000000000000100", "0000000000004000"];
        assert!(is_killed(&status(kill, none)) && is_killed(&status(none, kill)));
        assert!(!is_killed(&status(none, terminate)));
    }

    #[test]
    fn programs_of_a_killed_command_are_told_from_hosts() {
        let lab: LabName = format!("t{}y", process::id()).parse().unwrap();
        let start = |host: Option<&str>| {
            let mut command = Command::new("sleep");
            command.arg("60").env(MARK, lab.as_str());
            host.map(|host| command.env("LAB_HOST", host));
            command.spawn().unwrap()
        };
        let (mut tool, mut host) = (start(None), start(Some("h1")));
        assert_eq!(tools(&lab).unwrap(), [i32::try_from(tool.id()).unwrap()]);
        for child in [&mut tool, &mut host] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

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
