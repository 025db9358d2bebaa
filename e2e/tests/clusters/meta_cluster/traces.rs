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
    /// Where it is reached from the lab.
    pub url: String,
}

impl Traces {
    /// Begins to listen.
    pub(crate) fn listen(lab: &TestLab) -> Result<Self> {
        let collector = Collector::start()?;
        let to: SocketAddr = collector.url().trim_start_matches("http://").parse()?;
        let listener = TcpListener::bind((lab.machine()?, 0))?;
        let here = listener.local_addr()?;
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                thread::spawn(move || pass_on(near, to));
            }
        });
        let knock = format!("timeout 5 bash -c '</dev/tcp/{}/{}'", here.ip(), here.port());
        lab.on("h1", &knock).with_context(|| {
            format!("h1 does not reach {here} on this machine; does a firewall refuse what comes from a lab?")
        })?;
        Ok(Self { collector, url: format!("http://{here}") })
    }

    /// One of the succeeded operations of this kind is traced completely: from the object and the operator's
    /// reconciles to a step of its Job on a host of the lab.
    pub(crate) fn reach_a_host(&self, lab: &TestLab, kind: &str) -> Result<()> {
        let whole = |sent: &[ReceivedSpan]| {
            succeeded(sent, kind).any(|one| reaches_a_host(sent, one, &lab.addresses))
        };
        let sent = self.collector.until(TIMEOUT, whole);
        ensure!(whole(&sent), "no operation of kind {kind} is told down to a host: {:#?}", counts(&sent));
        Ok(())
    }
}

/// Both ways, until both ends are done.
fn pass_on(mut near: TcpStream, to: SocketAddr) -> io::Result<()> {
    let mut far = TcpStream::connect(to)?;
    let (mut asks, mut asked) = (near.try_clone()?, far.try_clone()?);
    thread::spawn(move || {
        let copied = io::copy(&mut asks, &mut asked);
        asked.shutdown(Shutdown::Write).and(copied)
    });
    io::copy(&mut far, &mut near)?;
    near.shutdown(Shutdown::Both)
}

/// Operations of a kind that did what was asked, as the operator tells it.
fn succeeded<'s>(sent: &'s [ReceivedSpan], kind: &'s str) -> impl Iterator<Item = &'s ReceivedSpan> {
    sent.iter().filter(move |span| {
        let whole = span.name == "operation" && span.parent.is_empty() && span.service == OPERATOR;
        let of_kind = span.attribute("kubeon.action_type") == Some(kind);
        whole && of_kind && span.attribute("kubeon.result") == Some("Succeeded")
    })
}

fn reaches_a_host(sent: &[ReceivedSpan], operation: &ReceivedSpan, hosts: &[String]) -> bool {
    let mut reconciles = under(sent, operation, "reconcile");
    let mut steps = under(sent, operation, "run")
        .flat_map(|run| under(sent, run, "stage"))
        .flat_map(|stage| under(sent, stage, "step"));
    let on_a_host = |step: &ReceivedSpan| {
        let host = step.attribute("host.address");
        step.service == RUNNER && hosts.iter().any(|address| Some(address.as_str()) == host)
    };
    reconciles.any(|span| span.service == OPERATOR) && steps.any(on_a_host)
}

/// The child spans of a span with this name.
fn under<'s>(
    sent: &'s [ReceivedSpan],
    whole: &'s ReceivedSpan,
    name: &'static str,
) -> impl Iterator<Item = &'s ReceivedSpan> {
    sent.iter()
        .filter(move |span| span.name == name && span.trace == whole.trace && span.parent == whole.span)
}

/// The number of received spans by kind.
fn counts(sent: &[ReceivedSpan]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for span in sent {
        let about =
            ["kubeon.action_type", "kubeon.result"].map(|key| span.attribute(key).unwrap_or_default());
        let kind = format!("{} {} {}", span.service, span.name, about.join(" "));
        *counts.entry(kind.trim_end().to_owned()).or_default() += 1;
    }
    counts
}
