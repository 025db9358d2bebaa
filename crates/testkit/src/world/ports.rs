//! The real ports on top of the world. They work while the process lives.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use kubeon_api::{Digest, HostAddress};
use kubeon_ports::{ActHost, Blobs, Clock, EventSink, HostSession, ProbeHost, Report, SecretError, Secrets};
use kubeon_wire::{Category, Check, Event, Facts, Fence, HostStep, Op, SecretRef, StepFailure};
use tokio::time::{Instant, sleep, timeout};

use super::effect::Effect;
use super::fault::Fault;
use super::host::SimulatedHost;
use super::op_effects::{effects_of, record};
use super::shared_state::SharedState;

/// A part of every secret that [`Ports`] resolves. An output that contains it leaked a secret.
pub const SENTINEL: &str = "not-for-your-eyes-7f3a";

/// The longest pause before an effect if the world is shuffled, in milliseconds.
const PAUSE_MILLISECONDS: u64 = 40;

const API_SERVER: &str = "kube-apiserver.service";
/// How long a host waits for the other members of etcd before its own member restarts.
const MEMBER_LIMIT: Duration = Duration::from_secs(20);
const MEMBER_INTERVAL: Duration = Duration::from_millis(500);
/// How long a step waits for the API server of its host, which may restart beside it.
const API_LIMIT: Duration = Duration::from_secs(60);

/// The ports of one process. When the process dies, no call returns any more.
#[derive(Clone)]
pub struct Ports {
    pub(super) world: SharedState,
    pub(super) life: u64,
}

impl Ports {
    fn dead(&self) -> bool {
        let state = self.world.lock();
        state.dead || state.life != self.life
    }

    /// Returns only if the process lives.
    async fn alive(&self) {
        if self.dead() {
            std::future::pending::<()>().await;
        }
    }

    async fn up(&self, host: HostAddress) -> Result<(), StepFailure> {
        self.alive().await;
        let is_up = |host: &SimulatedHost| host.is_reachable() && host.accepts_logins;
        let up = self.world.lock().hosts.get(&host).is_some_and(is_up);
        if up { Ok(()) } else { Err(failure(Category::Unreachable, format!("{host}: no route to host"))) }
    }

    async fn apply_effect(&self, host: HostAddress, effect: Effect) -> Result<bool, StepFailure> {
        let pause = self.world.lock().draw();
        match pause {
            Some(number) => sleep(Duration::from_millis(number % PAUSE_MILLISECONDS)).await,
            None => tokio::task::yield_now().await,
        }
        // After the limit, the effect fails and says why.
        if effect.is_through_api()
            && let Ok(ended) = timeout(API_LIMIT, self.wait_for_api(host)).await
        {
            ended?;
        }
        self.up(host).await?;
        let changed =
            self.world.lock().apply(host, effect).map_err(|cause| failure(Category::Failed, cause))?;
        self.world.notify();
        // The process may have died right after this effect. Then the call never returns.
        self.alive().await;
        Ok(changed)
    }

    /// Persists the generation of a plan, as a command does before it applies the plan. The process may die
    /// right after it.
    pub async fn persist_generation(&self, generation: u64) {
        self.alive().await;
        tokio::task::yield_now().await;
        self.alive().await;
        self.world.lock().persist_generation(generation);
        self.world.notify();
        self.alive().await;
    }

    /// Returns when all checks succeed or the host is down.
    async fn wait_for(&self, host: HostAddress, checks: &[Check]) -> Result<(), StepFailure> {
        let mut changed = self.world.changes();
        loop {
            self.up(host).await?;
            let unmet = checks.iter().any(|check| self.world.lock().holds(host, check).is_err());
            if !unmet {
                return Ok(());
            }
            // The world outlives its ports, so this cannot fail.
            drop(changed.changed().await);
        }
    }

    /// Returns when the API server of the host answers or the host is down.
    async fn wait_for_api(&self, host: HostAddress) -> Result<(), StepFailure> {
        let mut changed = self.world.changes();
        loop {
            self.up(host).await?;
            if self.world.lock().api_ready(host) {
                return Ok(());
            }
            drop(changed.changed().await);
        }
    }

    /// Waits until the member of etcd on the host may restart.
    async fn wait_for_members(&self, host: HostAddress) -> Result<(), StepFailure> {
        let end = Instant::now() + MEMBER_LIMIT;
        loop {
            self.up(host).await?;
            let allowed = self.world.lock().may_restart_member(host);
            match allowed {
                Ok(()) => return Ok(()),
                Err(cause) if Instant::now() >= end => return Err(failure(Category::Timeout, cause)),
                Err(_) => sleep(MEMBER_INTERVAL).await,
            }
        }
    }

    /// Stops a unit for its restart, as soon as it may. If it may not, an API server that ended for the restart starts again.
    async fn halt(&self, host: HostAddress, name: String, watches: Vec<String>) -> Result<bool, StepFailure> {
        let end = Instant::now() + MEMBER_LIMIT;
        loop {
            let halt = Effect::Halt { name: name.clone(), watches: watches.clone() };
            match self.apply_effect(host, halt).await {
                Err(refused) if refused.category == Category::Failed && Instant::now() >= end => {
                    self.start_api_server(host).await?;
                    return Err(StepFailure { category: Category::Timeout, ..refused });
                }
                Err(refused) if refused.category == Category::Failed => sleep(MEMBER_INTERVAL).await,
                done => return done,
            }
        }
    }

    async fn start_api_server(&self, host: HostAddress) -> Result<(), StepFailure> {
        let ended = {
            let state = self.world.lock();
            let unit = state.host(host).units.get(API_SERVER);
            let ended = unit.filter(|unit| unit.running.is_none() && unit.started.is_some());
            ended.map(|unit| unit.watches.clone())
        };
        let Some(watches) = ended else { return Ok(()) };
        self.apply_effect(host, Effect::Start { name: API_SERVER.to_owned(), watches }).await.map(drop)
    }

    /// The first unmet check.
    fn unmet(&self, host: HostAddress, checks: &[Check]) -> String {
        let state = self.world.lock();
        checks.iter().find_map(|check| state.holds(host, check).err()).unwrap_or_default()
    }
}

#[async_trait]
impl ProbeHost for Ports {
    async fn facts(&self, host: HostAddress) -> Result<Facts, StepFailure> {
        self.world.lock().contacted.insert(host);
        self.up(host).await?;
        let state = self.world.lock();
        let mut facts = state.host(host).facts(state.now);
        facts.cluster = state.cluster_facts(host);
        facts.cluster_steps = facts.cluster.as_ref().and_then(|_| state.cluster_steps(host));
        Ok(facts)
    }
}

#[async_trait]
impl ActHost for Ports {
    async fn open(&self, host: HostAddress, fence: &Fence) -> Result<Arc<dyn HostSession>, StepFailure> {
        self.world.lock().contacted.insert(host);
        self.up(host).await?;
        let fault =
            self.world.lock().opening_faults.get_mut(&host).and_then(std::collections::VecDeque::pop_front);
        match fault {
            Some(Fault::Fail(failure)) => return Err(failure),
            Some(Fault::BreakBefore | Fault::BreakAfter) => return Err(broken(host)),
            Some(Fault::Silence) => std::future::pending().await,
            Some(Fault::Slow(time)) => sleep(time).await,
            None => {}
        }
        let claim = self.world.lock().host(host).claim.clone();
        if let Some(claim) = claim {
            if claim.cluster != fence.cluster || claim.uid != fence.uid {
                return Err(failure(
                    Category::Fenced,
                    format!("{host} belongs to cluster {}", claim.cluster),
                ));
            }
            if claim.generation > fence.generation {
                let cause =
                    format!("{host} has seen generation {}, this is {}", claim.generation, fence.generation);
                return Err(failure(Category::Fenced, cause));
            }
        }
        self.apply_effect(host, Effect::Claim(fence.clone())).await?;
        *self.world.lock().opened.entry(host).or_default() += 1;
        let cuts = self.world.lock().host(host).cuts;
        let (generation, broken) = (fence.generation, AtomicBool::new(false));
        Ok(Arc::new(Session { ports: self.clone(), host, generation, cuts, broken }))
    }
}

impl Secrets for Ports {
    fn resolve(&self, secret: &SecretRef) -> Result<String, SecretError> {
        let what = serde_json::to_string(secret).unwrap();
        let dates = match secret {
            SecretRef::LeafCertificate(leaf) => {
                let now = self.world.lock().now;
                format!(" not-before={now} not-after={}", now + i64::from(leaf.hours) * 3600)
            }
            _ => String::new(),
        };
        Ok(format!("{SENTINEL} {what}{dates}\n"))
    }
}

impl Blobs for Ports {
    fn blob(&self, digest: &Digest) -> Option<PathBuf> {
        let lost = self.world.lock().lost_blobs.contains(digest.as_str());
        (!lost).then(|| PathBuf::from(format!("/bundle/blobs/sha256/{digest}")))
    }
}

impl Clock for Ports {
    fn now_seconds(&self) -> i64 {
        self.world.lock().now
    }
}

struct Session {
    ports: Ports,
    host: HostAddress,
    generation: u64,
    cuts: usize,
    broken: AtomicBool,
}

#[async_trait]
impl HostSession for Session {
    async fn run(
        &self,
        step: HostStep,
        blob: Option<PathBuf>,
        sink: EventSink<'_>,
    ) -> Result<Report, StepFailure> {
        self.usable().await?;
        let fault =
            self.world().lock().faults.get_mut(&step.id).and_then(std::collections::VecDeque::pop_front);
        let id = step.id.clone();
        self.trace(format!("+{id}"));
        sink(Event::Started { id: id.clone() });
        let result = self.run_with_fault(fault, step, blob, sink).await;
        self.trace(format!("-{id}"));
        let report = result.inspect_err(|failure| self.note_break(failure))?;
        sink(Event::Done { id, changed: report.changed, milliseconds: report.milliseconds });
        Ok(report)
    }

    async fn ended(&self) -> StepFailure {
        // The world does not notify about the loss of a host, so this polls. The time in tests is simulated.
        while self.world().lock().host(self.host).cuts == self.cuts && !self.broken.load(Ordering::SeqCst) {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
        broken(self.host)
    }

    async fn close(&self) {
        self.broken.store(true, Ordering::SeqCst);
    }
}

impl Session {
    fn world(&self) -> &SharedState {
        &self.ports.world
    }

    fn trace(&self, line: String) {
        // A step of the test stage is written as the text that the test used.
        let line = line.replace("verify/", "").replace("@test", "");
        self.world().lock().trace.push(line);
    }

    fn note_break(&self, failure: &StepFailure) {
        if failure.category == Category::Unreachable {
            self.broken.store(true, Ordering::SeqCst);
        }
    }

    async fn connected(&self) -> Result<(), StepFailure> {
        self.ports.alive().await;
        let cut = self.world().lock().host(self.host).cuts != self.cuts;
        if cut || self.broken.load(Ordering::SeqCst) { Err(broken(self.host)) } else { Ok(()) }
    }

    async fn usable(&self) -> Result<(), StepFailure> {
        self.connected().await?;
        let latest = self.world().lock().host(self.host).claim.as_ref().map_or(0, |claim| claim.generation);
        if latest > self.generation {
            return Err(failure(Category::Fenced, format!("{} has seen generation {latest}", self.host)));
        }
        Ok(())
    }

    async fn run_with_fault(
        &self,
        fault: Option<Fault>,
        step: HostStep,
        blob: Option<PathBuf>,
        sink: EventSink<'_>,
    ) -> Result<Report, StepFailure> {
        match fault {
            Some(Fault::Fail(failure)) => return Err(failure),
            Some(Fault::BreakBefore) => return Err(broken(self.host)),
            Some(Fault::Silence) => std::future::pending().await,
            Some(Fault::Slow(time)) => {
                sleep(time).await;
                self.connected().await?;
            }
            Some(Fault::BreakAfter) => {
                self.perform(step, blob, sink).await?;
                return Err(broken(self.host));
            }
            None => {}
        }
        self.perform(step, blob, sink).await
    }

    async fn perform(
        &self,
        step: HostStep,
        blob: Option<PathBuf>,
        sink: EventSink<'_>,
    ) -> Result<Report, StepFailure> {
        let start = Instant::now();
        if let Op::Part { name, size, .. } = &step.op {
            let bytes =
                blob.ok_or_else(|| failure(Category::Corrupt, format!("the bytes of {name} are missing")))?;
            sink(Event::Note { id: step.id.clone(), text: format!("receiving {}", bytes.display()) });
            sink(Event::Progress { id: step.id.clone(), done: *size, total: *size });
        }
        if let Op::StopServices { before_member: true, .. } = &step.op {
            self.ports.wait_for_members(self.host).await?;
        }
        let effects = effects_of(&step.op, self.world().lock().host(self.host));
        let mut changed = false;
        let recorded_before = step.journal && matches!(step.op, Op::Drain { .. });
        if recorded_before {
            self.ports.apply_effect(self.host, record(step.clone())).await?;
        }
        if step.record_in.is_some() && matches!(step.op, Op::Objects { .. }) {
            self.ports.apply_effect(self.host, Effect::ForgetClusterRecord(step.id.clone())).await?;
        }
        for effect in effects.map_err(|cause| failure(Category::Failed, cause))? {
            changed |= match effect {
                Effect::Halt { name, watches } => self.ports.halt(self.host, name, watches).await?,
                other => self.ports.apply_effect(self.host, other).await?,
            };
        }
        let (Op::Service { ready: checks, .. } | Op::Await { checks }) = &step.op else {
            let step = HostStep { journal: step.journal && !recorded_before, ..step };
            return self.record(step, changed, start).await;
        };
        let limit = Duration::from_secs(step.timeout_seconds.into());
        match timeout(limit, self.ports.wait_for(self.host, checks)).await {
            Ok(result) => result?,
            Err(_) => {
                self.ports.alive().await;
                let cause = format!("{} after {} s", self.ports.unmet(self.host, checks), limit.as_secs());
                return Err(failure(Category::Timeout, cause));
            }
        }
        self.record(step, changed, start).await
    }

    async fn record(&self, step: HostStep, changed: bool, start: Instant) -> Result<Report, StepFailure> {
        if step.journal {
            self.ports.apply_effect(self.host, record(step)).await?;
        }
        let milliseconds = u64::try_from(start.elapsed().as_millis()).unwrap();
        Ok(Report { changed, milliseconds })
    }
}

fn failure(category: Category, cause: String) -> StepFailure {
    StepFailure { category, cause, log: Vec::new() }
}

fn broken(host: HostAddress) -> StepFailure {
    failure(Category::Unreachable, format!("{host}: connection reset"))
}
