//! `kubeon exec`.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::time::Duration;

use kubeon_api::HostAddress;
use kubeon_link_host::{Command, Exit, SshHosts, Stream};
use parking_lot::Mutex;
use serde::Serialize;

use super::nodes::{AT_ONCE, ClusterNodes};
use crate::args::Format;
use crate::args::day::ExecArgs;
use crate::cli_error::CliError;
use crate::context::Context;
use crate::interrupt::Signals;
use crate::output::{CommandResult, TextTable, words};
use kubeon_engine::error::ErrorCategory;
use kubeon_engine::selector::Member;

/// Runs a command on nodes.
pub(super) async fn run(context: &Context<'_>, args: &ExecArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    let nodes = ClusterNodes::selected(&engine, &args.selector, &args.login, &args.contact).await?;
    let line = [args.command.as_slice(), args.args.as_slice()].concat().join(" ");
    let people = matches!(args.format.output, Format::Table | Format::Wide);
    let work = Work {
        line: &line,
        limit: Duration::from_secs(args.timeout.max(1)),
        width: people.then(|| nodes.members.iter().map(|member| member.name.len()).max().unwrap_or(0)),
        writing: Mutex::new(()),
    };
    let work = &work;
    let at_once = if args.parallel { AT_ONCE } else { 1 };
    let mut signals = Signals::new()?;
    let working = nodes.each(at_once, |hosts, member| async move { Ok(work.run(hosts, member).await) });
    let results: Vec<(Member, Result<Ran, String>)> = tokio::select! {
        results = working => results,
        // The commands are ended on the hosts when their futures are dropped.
        () = signals.next() => return Err(stopped(context, &nodes, &mut signals).await),
    };
    let ran: Vec<Ran> = results.into_iter().filter_map(|(_, result)| result.ok()).collect();
    if !people {
        let names = ran.iter().map(|ran| ran.node.clone()).collect();
        context
            .output
            .result(&CommandResult::new(&ran, TextTable::new(&[]), names)?.text(args.format.output)?)?;
    }
    let failed: Vec<_> = ran.iter().filter_map(|ran| Some((ran.node.clone(), ran.end.failure()?))).collect();
    if failed.is_empty() {
        return Ok(());
    }
    let count = words::count(nodes.members.len(), "node");
    let mut stop = CliError::failed(format!("the command failed on {} of {count}", failed.len()));
    stop.rows = failed;
    Err(stop)
}

/// Waits until no command runs any more on the nodes, unless a person does not want to.
async fn stopped(context: &Context<'_>, nodes: &ClusterNodes, signals: &mut Signals) -> CliError {
    context.output.say("stopping: the commands are told to end; press Ctrl-C again to stop at once");
    let stop = |title: &str| CliError::new(ErrorCategory::Interrupted, format!("exec: stopped; {title}"));
    let running = tokio::select! {
        running = nodes.contact.hosts.end_abandoned() => running,
        () = signals.next() => return stop("nobody waited until the commands ended, some may still run"),
    };
    if running.is_empty() {
        return stop("the commands were ended");
    }
    let name = |host: HostAddress| {
        let member = nodes.members.iter().find(|member| member.address == host.ip());
        member.map_or_else(|| host.to_string(), |member| member.name.clone())
    };
    let mut stop = stop(&format!("on {} a command may still run", words::count(running.len(), "node")));
    stop.rows = running.into_iter().map(|(host, failure)| (name(host), failure.cause)).collect();
    stop
}

/// What a command did on one node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Ran {
    node: String,
    address: Ipv4Addr,
    #[serde(flatten)]
    end: End,
    /// What it wrote, where that was not shown as it came.
    #[serde(skip_serializing_if = "Option::is_none")]
    stdout: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr: Option<String>,
}

/// How it ended.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
enum End {
    ExitCode(u32),
    Signal(String),
    /// It could not be run, or its end is unknown.
    Error(String),
}

impl End {
    /// Why it is no success.
    fn failure(&self) -> Option<String> {
        match self {
            Self::ExitCode(0) => None,
            Self::ExitCode(code) => Some(Exit::Code(*code).to_string()),
            Self::Signal(name) => Some(Exit::Signal(name.clone()).to_string()),
            Self::Error(why) => Some(why.clone()),
        }
    }
}

/// What is run on every node.
struct Work<'a> {
    line: &'a str,
    limit: Duration,
    /// For people: how wide the names are that stand before every line. Else what is written is kept.
    width: Option<usize>,
    writing: Mutex<()>,
}

impl Work<'_> {
    async fn run(&self, hosts: SshHosts, member: Member) -> Ran {
        let prefix = self.width.map(|width| format!("{:width$}  ", member.name));
        let texts = [const { Mutex::new(Text::new()) }; 2];
        let text = |stream: Stream| &texts[usize::from(stream == Stream::Err)];
        let hear = |stream: Stream, bytes: &[u8]| {
            let mut text = text(stream).lock();
            match &prefix {
                Some(prefix) => write(stream, prefix, &text.feed(bytes), &self.writing),
                None => text.keep(bytes),
            }
        };
        let command = Command { timeout: Some(self.limit), ..Command::new(self.line) };
        let exit = hosts.exec(HostAddress::from(member.address), command, &hear).await;
        let [out, err] = [Stream::Out, Stream::Err].map(|stream| {
            let mut text = text(stream).lock();
            match &prefix {
                Some(prefix) => {
                    write(stream, prefix, &text.rest(), &self.writing);
                    None
                }
                None => Some(text.kept()),
            }
        });
        let end = match exit {
            Ok(Exit::Code(code)) => End::ExitCode(code),
            Ok(Exit::Signal(name)) => End::Signal(name),
            Err(failure) => End::Error(failure.cause),
        };
        Ran { node: member.name, address: member.address, end, stdout: out, stderr: err }
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
    let _turn = writing.lock();
    // The reader may have gone away; the command's end is told by its exit code all the same.
    let _ = match stream {
        Stream::Out => std::io::stdout().lock().write_all(&text),
        Stream::Err => std::io::stderr().lock().write_all(&text),
    };
}

/// What a command writes to one stream: cut into lines, or kept.
struct Text {
    held: Vec<u8>,
}

/// A line longer than this is written in pieces.
const LONGEST: usize = 64 * 1024;
/// Most that is kept of one stream: what is more is left out, and its end says so.
const MOST: usize = 8 * 1024 * 1024;
const CUT: &str = "\n… (more was written; without -o it is shown whole)\n";

impl Text {
    const fn new() -> Self {
        Self { held: Vec::new() }
    }

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

    fn keep(&mut self, bytes: &[u8]) {
        // One byte too many tells that there was more.
        let room = (MOST + 1).saturating_sub(self.held.len()).min(bytes.len());
        self.held.extend_from_slice(&bytes[..room]);
    }

    fn kept(&mut self) -> String {
        let held = std::mem::take(&mut self.held);
        let cut = held.len() > MOST;
        let text = String::from_utf8_lossy(&held[..held.len().min(MOST)]).into_owned();
        if cut { text + CUT } else { text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_a_line_until_it_is_whole() {
        let mut lines = Text::new();
        assert!(lines.feed(b"on").is_empty());
        assert_eq!(lines.feed(b"e\r\ntwo\nth"), [b"one".to_vec(), b"two".to_vec()]);
        assert_eq!(lines.rest(), [b"th".to_vec()]);
        assert!(lines.rest().is_empty());
    }

    #[test]
    fn what_is_kept_has_a_bound_and_says_so() {
        let mut text = Text::new();
        text.keep(b"one\n");
        text.keep(b"two\n");
        assert_eq!(text.kept(), "one\ntwo\n");
        text.keep(&vec![b'x'; MOST]);
        assert_eq!(text.kept().len(), MOST);
        text.keep(&vec![b'x'; MOST]);
        text.keep(b"yy");
        assert!(text.kept().ends_with(CUT));
    }

    #[test]
    fn the_end_of_a_process_is_reported_by_its_name() {
        let ran = |end| Ran {
            node: "h1".to_owned(),
            address: Ipv4Addr::LOCALHOST,
            end,
            stdout: Some(String::new()),
            stderr: None,
        };
        let json = |end| serde_json::to_value(ran(end)).unwrap();
        let head = serde_json::json!({"node": "h1", "address": "127.0.0.1", "stdout": ""});
        for (end, field, value) in [
            (End::ExitCode(3), "exitCode", serde_json::json!(3)),
            (End::Signal("KILL".to_owned()), "signal", "KILL".into()),
            (End::Error("no route".to_owned()), "error", "no route".into()),
        ] {
            let mut whole = head.clone();
            whole[field] = value;
            assert_eq!(json(end), whole);
        }
        assert_eq!(End::ExitCode(0).failure(), None);
    }
}
