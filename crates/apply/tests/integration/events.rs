//! The events of a run. They must never contain a secret.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on must stop"
)]

use parking_lot::Mutex;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

use crate::support::{failure, ran};
use async_trait::async_trait;
use kubeon_api::HostAddress;
use kubeon_apply::{HostPorts, RunEvent, run};
use kubeon_ports::{ActHost, EventSink, HostSession, Report};
use kubeon_testkit::{Fault, Ports, SENTINEL, World, assert_golden, host, plan_of, step};
use kubeon_wire::{Category, Fence, HostStep, Leaf, SecretRef, StepFailure, Usage};

const H1: &str = "10.0.0.1";
const H2: &str = "10.0.0.2";

fn leaf() -> Leaf {
    Leaf {
        ca: kubeon_wire::CertificateAuthority::Kubernetes,
        common_name: "admin".to_owned(),
        organizations: vec![],
        dns_names: vec![],
        addresses: vec![],
        usage: Usage::Client,
        hours: 1,
    }
}

#[tokio::test(start_paused = true)]
async fn reports_all_events_in_order() {
    let world = World::of([host(H1), host(H2)]);
    world.inject_opening_faults(H2, [Fault::BreakBefore]);
    world.inject_faults("files@h1", [Fault::BreakBefore]);
    world.inject_faults("late@h2", [Fault::Fail(failure(Category::Failed))]);
    let plan = plan_of([
        step("part@h1", H1).unpacks("kubelet"),
        step("files@h1", H1).writes("/a", "a").tries(2).needs(["part@h1"]),
        step("late@h2", H2).needs(["files@h1"]),
        step("never@h1", H1).needs(["late@h2"]),
    ]);
    let ran = ran(&world, &plan).await;
    let events = ran.events.iter().fold(String::new(), |mut events, event| {
        writeln!(events, "{}", serde_json::to_string(event).unwrap()).unwrap();
        events
    });
    assert_golden("tests/golden/story.jsonl", &events);
}

type Printed = Arc<Mutex<String>>;

/// Hosts that print every step that is sent to them, as a log would.
struct PrintingHosts {
    ports: Ports,
    printed: Printed,
}

struct PrintingSession {
    inner: Arc<dyn HostSession>,
    printed: Printed,
}

#[async_trait]
impl ActHost for PrintingHosts {
    async fn open(&self, host: HostAddress, fence: &Fence) -> Result<Arc<dyn HostSession>, StepFailure> {
        let inner = self.ports.open(host, fence).await?;
        Ok(Arc::new(PrintingSession { inner, printed: Arc::clone(&self.printed) }))
    }
}

#[async_trait]
impl HostSession for PrintingSession {
    async fn run(
        &self,
        step: HostStep,
        blob: Option<PathBuf>,
        sink: EventSink<'_>,
    ) -> Result<Report, StepFailure> {
        writeln!(self.printed.lock(), "{step:?}").unwrap();
        self.inner.run(step, blob, sink).await
    }

    async fn ended(&self) -> StepFailure {
        self.inner.ended().await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn secrets_are_sent_only_to_the_host() {
    let world = World::of([host(H1), host(H2)]);
    world.inject_faults(
        "keys@h2",
        [Fault::Fail(failure(Category::Timeout)), Fault::Fail(failure(Category::Failed))],
    );
    let plan = plan_of([
        step("keys@h1", H1)
            .writes_secret("/sa.key", SecretRef::ServiceAccountKey)
            .writes_secret("/admin.crt", SecretRef::LeafCertificate(leaf()))
            .writes("/plain", "plain"),
        step("keys@h2", H2)
            .writes_secret("/ca.key", SecretRef::CaKey { ca: kubeon_wire::CertificateAuthority::Etcd })
            .tries(3),
    ]);
    let ports = world.ports();
    let printed = Printed::default();
    let act = PrintingHosts { ports: ports.clone(), printed: Arc::clone(&printed) };
    let observer = |event: RunEvent| {
        let json = serde_json::to_string(&event).unwrap();
        write!(printed.lock(), "{event:?}\n{json}\n").unwrap();
    };
    let outcome = run(
        &plan,
        &HostPorts { act: &act, secrets: &ports, blobs: &ports, forwarding: None },
        &observer,
        &CancellationToken::new(),
    )
    .await;
    let mut printed = printed.lock().clone();
    write!(printed, "{outcome:?}{plan:?}{}", serde_json::to_string(&plan).unwrap()).unwrap();
    writeln!(printed, "{}{:?}", world.render(), world.log()).unwrap();
    assert!(world.file(H1, "/sa.key").unwrap().contains(SENTINEL), "the host received the secret");
    assert!(world.file(H1, "/admin.crt").unwrap().contains(SENTINEL));
    assert_eq!(world.file(H1, "/plain").as_deref(), Some("plain"));
    assert!(printed.contains("Sealed(…)") && printed.contains("keys@h2"), "the output contains the steps");
    assert!(!printed.contains(SENTINEL), "a secret leaked into: {printed}");
}
