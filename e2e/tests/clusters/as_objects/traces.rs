//! The collector of the meta cluster's traces. It listens on loopback; connections from the lab are forwarded
//! to it.
//!
//! ```text
//!   operators, Jobs ─► h1 ─► the machine's address in the lab ─► collector
//! ```

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::TestLab;
use kubeon_envtest::{Collector, ReceivedSpan};

/// Operators send their spans every few seconds.
const TIMEOUT: Duration = Duration::from_secs(30);
const OPERATOR: &str = "kubeon-operator";
const RUNNER: &str = "kubeon-runner";

/// Listens until the process ends.
pub(crate) struct Traces {
    collector: Collector,
    /// The collector's URL for the lab.
    pub url: String,
}

impl Traces {
    /// Starts to listen.
    pub(crate) fn listen(lab: &TestLab) -> Result<Self> {
        let collector = Collector::start()?;
        let target: SocketAddr = collector.url().trim_start_matches("http://").parse()?;
        let listener = TcpListener::bind((lab.machine()?, 0))?;
        let address = listener.local_addr()?;
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                thread::spawn(move || forward(client, target));
            }
        });
        let connect = format!("timeout 5 bash -c '</dev/tcp/{}/{}'", address.ip(), address.port());
        lab.on("h1", &connect).with_context(|| {
            format!(
                "h1 cannot connect to {address} on this machine; does a firewall block the lab's packets?"
            )
        })?;
        Ok(Self { collector, url: format!("http://{address}") })
    }

    /// Checks that the trace of a succeeded operation of this kind is complete: it contains the operation, the
    /// operator's reconciles, and a step of the Job on a host of the lab.
    pub(crate) fn check_reaches_host(&self, lab: &TestLab, kind: &str) -> Result<()> {
        let complete = |spans: &[ReceivedSpan]| {
            succeeded(spans, kind).any(|operation| reaches_host(spans, operation, &lab.addresses))
        };
        let spans = self.collector.until(TIMEOUT, complete);
        ensure!(
            complete(&spans),
            "no trace of an operation of kind {kind} contains a step on a host: {:#?}",
            counts(&spans)
        );
        Ok(())
    }
}

/// Copies bytes in both directions until both sides are closed.
fn forward(mut client: TcpStream, target: SocketAddr) -> io::Result<()> {
    let mut server = TcpStream::connect(target)?;
    let (mut requests, mut upstream) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || {
        let copied = io::copy(&mut requests, &mut upstream);
        upstream.shutdown(Shutdown::Write).and(copied)
    });
    io::copy(&mut server, &mut client)?;
    client.shutdown(Shutdown::Both)
}

/// The operator's root spans of succeeded operations of a kind.
fn succeeded<'s>(spans: &'s [ReceivedSpan], kind: &'s str) -> impl Iterator<Item = &'s ReceivedSpan> {
    spans.iter().filter(move |span| {
        let is_root = span.name == "operation" && span.parent.is_empty() && span.service == OPERATOR;
        let of_kind = span.attribute("kubeon.action_type") == Some(kind);
        is_root && of_kind && span.attribute("kubeon.result") == Some("Succeeded")
    })
}

fn reaches_host(spans: &[ReceivedSpan], operation: &ReceivedSpan, hosts: &[String]) -> bool {
    let mut reconciles = children(spans, operation, "reconcile");
    let mut steps = children(spans, operation, "run")
        .flat_map(|run| children(spans, run, "stage"))
        .flat_map(|stage| children(spans, stage, "step"));
    let on_host = |step: &ReceivedSpan| {
        let host = step.attribute("host.address");
        step.service == RUNNER && hosts.iter().any(|address| Some(address.as_str()) == host)
    };
    reconciles.any(|span| span.service == OPERATOR) && steps.any(on_host)
}

/// The child spans of a span with this name.
fn children<'s>(
    spans: &'s [ReceivedSpan],
    parent: &'s ReceivedSpan,
    name: &'static str,
) -> impl Iterator<Item = &'s ReceivedSpan> {
    spans
        .iter()
        .filter(move |span| span.name == name && span.trace == parent.trace && span.parent == parent.span)
}

/// The number of received spans by kind.
fn counts(spans: &[ReceivedSpan]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for span in spans {
        let attributes =
            ["kubeon.action_type", "kubeon.result"].map(|key| span.attribute(key).unwrap_or_default());
        let kind = format!("{} {} {}", span.service, span.name, attributes.join(" "));
        *counts.entry(kind.trim_end().to_owned()).or_default() += 1;
    }
    counts
}
