//! `kubeon exec`.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::time::Duration;

use kubeon_api::HostAddress;
use kubeon_link_host::{Command, Exit, SshHosts, Stream};
use parking_lot::Mutex;
use serde::Serialize;

use crate::args::Format;
use crate::args::day::ExecArgs;
use crate::cli_error::CliError;
use crate::context::Context;
use crate::interrupt::Signals;
use crate::output::{CommandResult, TextTable, words};
use kubeon_engine::cluster_nodes::{ClusterNodes, MAX_CONCURRENT};
use kubeon_engine::error::ErrorCategory;
use kubeon_engine::selector::Member;

/// Runs a command on nodes.
pub(super) async fn run(context: &Context<'_>, args: &ExecArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    let nodes = ClusterNodes::selected(&engine, &args.selector, &args.login.access(&args.contact)).await?;
    let line = [args.command.as_slice(), args.args.as_slice()].concat().join(" ");
    let limit = Duration::from_secs(args.timeout.max(1));
    let at_once = if args.parallel { MAX_CONCURRENT } else { 1 };
    let request = NodeLine { command: "exec", line: &line, limit, at_once, format: args.format.output };
    run_on(context, &nodes, &request).await
}

/// A line for the shells of nodes.
pub(super) struct NodeLine<'a> {
    /// The command of the user, for messages.
    pub(super) command: &'static str,
    /// The line.
    pub(super) line: &'a str,
    /// Its time limit on each node.
    pub(super) limit: Duration,
    /// How many nodes run it at a time.
    pub(super) at_once: usize,
    /// The form of the output.
    pub(super) format: Format,
}

/// Runs a line on nodes and prints its output with the names of the nodes.
///
/// # Errors
/// When the line fails on a node, or the user interrupts it.
pub(super) async fn run_on(
    context: &Context<'_>,
    nodes: &ClusterNodes,
    request: &NodeLine<'_>,
) -> Result<(), CliError> {
    let is_text = matches!(request.format, Format::Table | Format::Wide);
    let work = NodeCommand {
        line: request.line,
        limit: request.limit,
        width: is_text.then(|| nodes.members.iter().map(|member| member.name.len()).max().unwrap_or(0)),
        writing: Mutex::new(()),
    };
    let work = &work;
    let mut signals = Signals::new()?;
    let working =
        nodes.each(request.at_once, |hosts, member| async move { Ok(work.run(hosts, member).await) });
    let results: Vec<(Member, Result<NodeResult, String>)> = tokio::select! {
        results = working => results,
        // The commands are ended on the hosts when their futures are dropped.
        () = signals.next() => return Err(stopped(context, nodes, request.command, &mut signals).await),
    };
    let ran: Vec<NodeResult> = results.into_iter().filter_map(|(_, result)| result.ok()).collect();
    if !is_text {
        let names = ran.iter().map(|ran| ran.node.clone()).collect();
        context
            .output
            .result(&CommandResult::new(&ran, TextTable::new(&[]), names)?.text(request.format)?)?;
    }
    let failed: Vec<_> = ran.iter().filter_map(|ran| Some((ran.node.clone(), ran.end.failure()?))).collect();
    if failed.is_empty() {
        return Ok(());
    }
    let count = words::count(nodes.members.len(), "node");
    let mut error = CliError::failed(format!("the command failed on {} of {count}", failed.len()));
    error.rows = failed;
    Err(error.remedy(nodes.contact.remedy().as_ref()))
}

/// Waits until no command runs on the nodes any more, or until the next signal.
async fn stopped(
    context: &Context<'_>,
    nodes: &ClusterNodes,
    command: &str,
    signals: &mut Signals,
) -> CliError {
    context.output.info("stopping: ending the commands; press Ctrl-C again to stop at once");
    let interrupted =
        |title: &str| CliError::new(ErrorCategory::Interrupted, format!("{command}: stopped; {title}"));
    let running = tokio::select! {
        running = nodes.contact.hosts.end_abandoned() => running,
        () = signals.next() => return interrupted("the commands may still run"),
    };
    if running.is_empty() {
        return interrupted("the commands were ended");
    }
    let name = |host: HostAddress| {
        let member = nodes.members.iter().find(|member| member.address == host.ip());
        member.map_or_else(|| host.to_string(), |member| member.name.clone())
    };
    let mut error =
        interrupted(&format!("a command may still run on {}", words::count(running.len(), "node")));
    error.rows = running.into_iter().map(|(host, failure)| (name(host), failure.cause)).collect();
    error
}

/// The result of a command on a node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeResult {
    node: String,
    address: Ipv4Addr,
    #[serde(flatten)]
    end: End,
    /// Its output, if the output was not printed during the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    stdout: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr: Option<String>,
}

/// The end of a command.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
enum End {
    ExitCode(u32),
    Signal(String),
    /// The command could not be run, or its end is unknown.
    Error(String),
}

impl End {
    /// The reason of a failure; `None` if the command succeeded.
    fn failure(&self) -> Option<String> {
        match self {
            Self::ExitCode(0) => None,
            Self::ExitCode(code) => Some(Exit::Code(*code).to_string()),
            Self::Signal(name) => Some(Exit::Signal(name.clone()).to_string()),
            Self::Error(why) => Some(why.clone()),
        }
    }
}

/// A command for every node.
struct NodeCommand<'a> {
    line: &'a str,
    limit: Duration,
    /// Width of the node name before every printed line; `None`: collect the output instead of printing it.
    width: Option<usize>,
    writing: Mutex<()>,
}

impl NodeCommand<'_> {
    async fn run(&self, hosts: SshHosts, member: Member) -> NodeResult {
        let prefix = self.width.map(|width| format!("{:width$}  ", member.name));
        let texts = [const { Mutex::new(StreamText::new()) }; 2];
        let text = |stream: Stream| &texts[usize::from(stream == Stream::Err)];
        let on_output = |stream: Stream, bytes: &[u8]| {
            let mut text = text(stream).lock();
            match &prefix {
                Some(prefix) => write(stream, prefix, &text.feed(bytes), &self.writing),
                None => text.collect(bytes),
            }
        };
        let command = Command { timeout: Some(self.limit), ..Command::new(self.line) };
        let exit = hosts.exec(HostAddress::from(member.address), command, &on_output).await;
        let [out, err] = [Stream::Out, Stream::Err].map(|stream| {
            let mut text = text(stream).lock();
            match &prefix {
                Some(prefix) => {
                    write(stream, prefix, &text.rest(), &self.writing);
                    None
                }
                None => Some(text.collected()),
            }
        });
        let end = match exit {
            Ok(Exit::Code(code)) => End::ExitCode(code),
            Ok(Exit::Signal(name)) => End::Signal(name),
            Err(failure) => End::Error(failure.cause),
        };
        NodeResult { node: member.name, address: member.address, end, stdout: out, stderr: err }
    }
}

/// Writes complete lines, so that the output of parallel nodes is not mixed within a line.
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
    let _guard = writing.lock();
    // Write errors are ignored: the exit code reports the end of the command.
    let _ = match stream {
        Stream::Out => std::io::stdout().lock().write_all(&text),
        Stream::Err => std::io::stderr().lock().write_all(&text),
    };
}

/// The output of a command on one stream: split into lines, or collected.
struct StreamText {
    buffer: Vec<u8>,
}

/// Longer lines are printed in pieces, in bytes.
const MAX_LINE: usize = 64 * 1024;
/// Maximum number of collected bytes of a stream. Longer output is truncated.
const MAX_COLLECTED: usize = 8 * 1024 * 1024;
const TRUNCATED: &str = "\n… (output truncated; run without -o to see all of it)\n";

impl StreamText {
    const fn new() -> Self {
        Self { buffer: Vec::new() }
    }

    /// Adds bytes and returns the complete lines.
    fn feed(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.buffer.extend_from_slice(bytes);
        let mut lines = Vec::new();
        while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
            let mut line: Vec<u8> = self.buffer.drain(..=end).collect();
            line.pop();
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            lines.push(line);
        }
        if self.buffer.len() > MAX_LINE {
            lines.push(std::mem::take(&mut self.buffer));
        }
        lines
    }

    /// The rest at the end, without a line break.
    fn rest(&mut self) -> Vec<Vec<u8>> {
        if self.buffer.is_empty() { Vec::new() } else { vec![std::mem::take(&mut self.buffer)] }
    }

    fn collect(&mut self, bytes: &[u8]) {
        // One byte more than the maximum shows that the output was longer.
        let room = (MAX_COLLECTED + 1).saturating_sub(self.buffer.len()).min(bytes.len());
        self.buffer.extend_from_slice(&bytes[..room]);
    }

    fn collected(&mut self) -> String {
        let bytes = std::mem::take(&mut self.buffer);
        let is_truncated = bytes.len() > MAX_COLLECTED;
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_COLLECTED)]).into_owned();
        if is_truncated { text + TRUNCATED } else { text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_a_line_until_it_is_complete() {
        let mut lines = StreamText::new();
        assert!(lines.feed(b"on").is_empty());
        assert_eq!(lines.feed(b"e\r\ntwo\nth"), [b"one".to_vec(), b"two".to_vec()]);
        assert_eq!(lines.rest(), [b"th".to_vec()]);
        assert!(lines.rest().is_empty());
    }

    #[test]
    fn collected_output_is_truncated_with_a_notice() {
        let mut text = StreamText::new();
        text.collect(b"one\n");
        text.collect(b"two\n");
        assert_eq!(text.collected(), "one\ntwo\n");
        text.collect(&vec![b'x'; MAX_COLLECTED]);
        assert_eq!(text.collected().len(), MAX_COLLECTED);
        text.collect(&vec![b'x'; MAX_COLLECTED]);
        text.collect(b"yy");
        assert!(text.collected().ends_with(TRUNCATED));
    }

    #[test]
    fn the_end_of_a_process_is_reported_by_its_name() {
        let ran = |end| NodeResult {
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
