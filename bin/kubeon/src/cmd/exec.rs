//! `kubeon exec`.

use std::io::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kubeon_api::HostAddress;
use kubeon_link_host::{Command, SshHosts, Stream};

use super::Context;
use super::talk_to::{AT_ONCE, Nodes};
use crate::args::day::ExecArgs;
use crate::engine::Engine;
use crate::output::words;
use crate::selector::Member;
use crate::stop::{Code, Stop};

/// Runs a command on nodes.
pub async fn run(context: &Context<'_>, args: &ExecArgs) -> Result<(), Stop> {
    let engine = Engine::new(context)?;
    let nodes = Nodes::selected(&engine, &args.selector, &args.login, &args.contact).await?;
    let line = [args.command.as_slice(), args.args.as_slice()].concat().join(" ");
    let width = nodes.members.iter().map(|member| member.name.len()).max().unwrap_or(0);
    let limit = Duration::from_secs(args.timeout.max(1));
    let (line, writing) = (line.as_str(), Mutex::new(()));
    let writing = &writing;
    let at_once = if args.parallel { AT_ONCE } else { 1 };
    let working = nodes.each(at_once, |hosts, member| one(hosts, member, line, limit, width, writing));
    let results = tokio::select! {
        results = working => results,
        // The commands are ended on the hosts when their futures are dropped.
        () = interrupted() => return Err(Stop::new(Code::Interrupted, "exec: stopped; the commands were told to end")),
    };
    let failed: Vec<_> =
        results.into_iter().filter_map(|(member, result)| Some((member.name, result.err()?))).collect();
    if failed.is_empty() {
        return Ok(());
    }
    let count = words::count(nodes.members.len(), "node");
    let mut stop = Stop::failed(format!("the command failed on {} of {count}", failed.len()));
    stop.rows = failed;
    Err(stop)
}

async fn interrupted() {
    // Where the signal cannot be watched it ends the process by itself.
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn one(
    hosts: SshHosts,
    member: Member,
    line: &str,
    limit: Duration,
    width: usize,
    writing: &Mutex<()>,
) -> Result<(), String> {
    let prefix = format!("{:width$}  ", member.name);
    let out = Mutex::new(Lines::default());
    let err = Mutex::new(Lines::default());
    let hear = |stream: Stream, bytes: &[u8]| {
        let lines = if stream == Stream::Out { &out } else { &err };
        let whole = lines.lock().unwrap_or_else(PoisonError::into_inner).feed(bytes);
        write(stream, &prefix, &whole, writing);
    };
    let command = Command { timeout: Some(limit), ..Command::new(line) };
    let exit = hosts.exec(HostAddress::from(member.address), command, &hear).await;
    for (stream, lines) in [(Stream::Out, &out), (Stream::Err, &err)] {
        let rest = lines.lock().unwrap_or_else(PoisonError::into_inner).rest();
        write(stream, &prefix, &rest, writing);
    }
    match exit {
        Ok(exit) if exit.success() => Ok(()),
        Ok(exit) => Err(exit.to_string()),
        Err(failure) => Err(failure.cause),
    }
}

/// Writes whole lines, so that nodes side by side do not cut each other's lines.
fn write(stream: Stream, prefix: &str, lines: &[Vec<u8>], writing: &Mutex<()>) {
    if lines.is_empty() {
        return;
    }
    let mut text = Vec::new();
    for line in lines {
        text.extend_from_slice(prefix.as_bytes());
        text.extend_from_slice(line);
        text.push(b'\n');
    }
    let _turn = writing.lock().unwrap_or_else(PoisonError::into_inner);
    // The reader may have gone away; the command's end is told by its exit code all the same.
    let _ = match stream {
        Stream::Out => std::io::stdout().lock().write_all(&text),
        Stream::Err => std::io::stderr().lock().write_all(&text),
    };
}

/// Bytes cut into lines.
#[derive(Default)]
struct Lines {
    held: Vec<u8>,
}

/// A line longer than this is written in pieces.
const LONGEST: usize = 64 * 1024;

impl Lines {
    /// The lines that are whole now.
    fn feed(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.held.extend_from_slice(bytes);
        let mut whole = Vec::new();
        while let Some(end) = self.held.iter().position(|byte| *byte == b'\n') {
            let mut line: Vec<u8> = self.held.drain(..=end).collect();
            line.pop();
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            whole.push(line);
        }
        if self.held.len() > LONGEST {
            whole.push(std::mem::take(&mut self.held));
        }
        whole
    }

    /// What is left at the end.
    fn rest(&mut self) -> Vec<Vec<u8>> {
        if self.held.is_empty() { Vec::new() } else { vec![std::mem::take(&mut self.held)] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_a_line_until_it_is_whole() {
        let mut lines = Lines::default();
        assert!(lines.feed(b"on").is_empty());
        assert_eq!(lines.feed(b"e\r\ntwo\nth"), [b"one".to_vec(), b"two".to_vec()]);
        assert_eq!(lines.rest(), [b"th".to_vec()]);
        assert!(lines.rest().is_empty());
    }
}
