//! The run: starts the steps that may start, waits for them and records the outcome.

use std::collections::BTreeMap;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

use futures::StreamExt;
use futures::future::{BoxFuture, join_all};
use futures::stream::FuturesUnordered;
use kubeon_api::HostAddress;
use kubeon_plan::{Outcome, Plan, Step, StepId, StepOutcome};
use kubeon_ports::Report;
use kubeon_wire::{Category, StepFailure};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep_until};

use crate::arrival::PartsArrival;
use crate::attempt::attempt;
use crate::forwarding::PartForwarding;
use crate::host_connection::{HostConnection, RunContext};
use crate::order::Order;
use crate::{HostPorts, RunEvent, RunObserver};

/// The number of steps that may run in parallel on one host, in addition to one part that is being sent.
pub const STEPS_AT_ONCE: usize = 8;

/// How long running steps may continue after the run was cancelled.
pub const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);

/// The number of sessions that are opened in parallel. Open sessions are not limited.
const OPENINGS_AT_ONCE: usize = 64;

/// Executes the plan. Returns when every step is done, has failed or will not be started.
///
/// A step starts as soon as all its needs are done and the session with its host is open. If a step fails,
/// the steps that need it are skipped and the others continue. If a host refuses the fence or cannot be
/// reached in four attempts, all its steps fail. The caller must lint the plan before.
///
/// It does not return an error: the outcome holds the failures. Dropping the future abandons the sessions;
/// steps that run on the hosts then end by themselves.
pub async fn run(
    plan: &Plan,
    ports: &HostPorts<'_>,
    observer: &dyn RunObserver,
    cancellation: &CancellationToken,
) -> Outcome {
    let Plan {
        cluster,
        version: _,
        nodes_at: _,
        generation: _,
        hosts,
        steps,
        continues: _,
        up_to_date,
        facts: _,
        awaits_network: _,
        notes: _,
        unreachable: _,
        waiting: _,
        rolling: _,
        quorum: _,
    } = plan;
    let (order, arrival) = (Order::new(steps, STEPS_AT_ONCE), PartsArrival::new(steps));
    let mut ledger = Ledger { steps, order, arrival, observer, outcome: Outcome::default() };
    let openings = Semaphore::new(OPENINGS_AT_ONCE);
    let forwarding = ports.forwarding.and_then(|identities| PartForwarding::of(plan, identities));
    let lost = watch::Sender::new(None);
    let (received, mut arriving) = mpsc::unbounded_channel();
    let context = RunContext { act: ports.act, observer, cancellation, openings, lost, forwarding, received };
    let (mut connections, mut unknown) = (BTreeMap::new(), Vec::new());
    for host in ledger.order.hosts() {
        match hosts.get(&host) {
            Some(planned) => {
                drop(connections.insert(host, HostConnection::new(host, &planned.fence, &context)))
            }
            None => unknown.push(host),
        }
    }
    let (cluster, up_to_date) = (cluster.clone(), *up_to_date);
    observer.on_event(RunEvent::PlanStarted {
        cluster,
        steps: steps.len(),
        hosts: connections.len(),
        up_to_date,
    });
    ledger.refuse_dangling();
    for host in unknown {
        ledger.lose(host, &failed(format!("{host} has steps but is not among the hosts of the plan")));
    }
    run_steps(&mut ledger, &connections, ports, cancellation, &mut arriving).await;
    join_all(connections.values().map(HostConnection::close)).await;
    ledger.close(cancellation);
    ledger.outcome
}

/// A finished future: the first opening of a host, or a step.
enum Ended {
    Opening(HostAddress, Result<(), StepFailure>),
    Step(usize, Result<Report, StepFailure>),
}

/// Runs until no step is running. Every future in `running` has timeouts and a limited number of attempts.
async fn run_steps(
    ledger: &mut Ledger<'_>,
    connections: &BTreeMap<HostAddress, HostConnection<'_>>,
    ports: &HostPorts<'_>,
    cancellation: &CancellationToken,
    arriving: &mut UnboundedReceiver<StepId>,
) {
    let mut running: FuturesUnordered<BoxFuture<'_, Ended>> = FuturesUnordered::new();
    for connection in connections.values() {
        running
            .push(Box::pin(async { Ended::Opening(connection.host, connection.session().await.map(drop)) }));
    }
    let mut sessions = FuturesUnordered::new();
    let mut shutdown_deadline: Option<Instant> = None;
    loop {
        if shutdown_deadline.is_none() {
            for index in ledger.order.start() {
                let step = &ledger.steps[index];
                // A step only starts on an open host, so its connection exists.
                let Some(connection) = connections.get(&step.host) else { continue };
                running.push(Box::pin(
                    async move { Ended::Step(index, attempt(connection, step, ports).await) },
                ));
            }
        }
        let deadline = shutdown_deadline.unwrap_or_else(Instant::now);
        tokio::select! {
            ended = running.next() => match ended {
                Some(ended) => {
                    if let Ended::Opening(host, Ok(())) = &ended {
                        sessions.extend(connections.get(host).map(HostConnection::watch_session));
                    }
                    ledger.settle(ended, connections);
                }
                None => return,
            },
            Some(host) = sessions.next() => ledger.session_ended(host, connections),
            Some(step) = arriving.recv() => ledger.received(&step),
            () = cancellation.cancelled(), if shutdown_deadline.is_none() => shutdown_deadline = Some(Instant::now() + SHUTDOWN_TIMEOUT),
            () = sleep_until(deadline), if shutdown_deadline.is_some() => return,
        }
    }
}

/// Updates the order and the outcome together, and sends run events.
struct Ledger<'a> {
    steps: &'a [Step],
    order: Order<'a>,
    arrival: PartsArrival,
    observer: &'a dyn RunObserver,
    outcome: Outcome,
}

impl Ledger<'_> {
    fn settle(&mut self, ended: Ended, connections: &BTreeMap<HostAddress, HostConnection<'_>>) {
        let lost = |host| connections.get(&host).and_then(HostConnection::lost);
        match ended {
            Ended::Opening(host, opened) => match lost(host) {
                Some(failure) => self.lose(host, failure),
                None if opened.is_ok() => self.order.open(host),
                // The run was cancelled.
                None => {}
            },
            Ended::Step(index, Ok(report)) => self.done(index, report),
            Ended::Step(index, Err(failure)) => {
                self.fail(index, failure);
                // Steps of a lost host fail with the reason of the loss. Steps of other hosts that need them
                // are skipped.
                let host = self.steps[index].host;
                lost(host).into_iter().for_each(|failure| self.lose(host, failure));
                self.skip_followers(index);
            }
        }
    }

    /// Handles the end of the monitoring of a session: if the host is lost, its steps fail.
    fn session_ended(&mut self, host: HostAddress, connections: &BTreeMap<HostAddress, HostConnection<'_>>) {
        if let Some(failure) = connections.get(&host).and_then(HostConnection::lost) {
            self.lose(host, failure);
        }
    }

    fn done(&mut self, index: usize, report: Report) {
        let Report { changed, milliseconds } = report;
        let (host, step) = self.host_and_id(index);
        self.observer.on_event(RunEvent::Done { host, step: step.clone(), changed, milliseconds });
        self.outcome.steps.insert(step, StepOutcome::Done { changed, milliseconds });
        self.order.done(index);
        self.arrived(index);
    }

    /// Records that the bytes of a part have arrived, before its step is done.
    fn received(&mut self, step: &StepId) {
        self.order.received(step).into_iter().for_each(|index| self.arrived(index));
    }

    fn arrived(&mut self, index: usize) {
        self.arrival.arrived(index).into_iter().for_each(|event| self.observer.on_event(event));
    }

    fn fail(&mut self, index: usize, failure: StepFailure) {
        if failure.category == Category::Cancelled {
            self.skip(index, None);
        } else {
            self.record_failure(index, failure);
        }
    }

    /// Fails all steps of the host that have not started, and skips the steps that need them.
    fn lose(&mut self, host: HostAddress, failure: &StepFailure) {
        let given_up = self.order.give_up(host);
        given_up.iter().for_each(|index| self.record_failure(*index, failure.clone()));
        given_up.into_iter().for_each(|index| self.skip_followers(index));
    }

    /// Records an outcome for the steps that will not start any more.
    fn close(&mut self, cancellation: &CancellationToken) {
        for index in [self.order.running(), self.order.waiting()].concat() {
            if cancellation.is_cancelled() {
                self.skip(index, None);
            } else {
                self.record_failure(
                    index,
                    failed("the step depends on itself through other steps".to_owned()),
                );
            }
        }
    }

    fn record_failure(&mut self, index: usize, failure: StepFailure) {
        let (host, step) = self.host_and_id(index);
        self.observer.on_event(RunEvent::Failed { host, step: step.clone(), failure: failure.clone() });
        self.outcome.steps.insert(step, StepOutcome::Failed { failure });
    }

    fn skip_followers(&mut self, index: usize) {
        let id = &self.steps[index].id;
        let cause = match self.outcome.steps.get(id) {
            Some(StepOutcome::Skipped { because }) => because.clone(),
            _ => Some(id.clone()),
        };
        self.order.failed(index).into_iter().for_each(|follower| self.skip(follower, cause.as_ref()));
    }

    /// Fails the steps that need a step which is not in the plan: their order is unknown.
    fn refuse_dangling(&mut self) {
        for (index, need) in self.order.dangling() {
            let cause = format!("the step needs {need}, which is not in the plan");
            self.record_failure(index, failed(cause));
            self.skip_followers(index);
        }
    }

    fn skip(&mut self, index: usize, because: Option<&StepId>) {
        let (host, step) = self.host_and_id(index);
        let because = because.cloned();
        self.observer.on_event(RunEvent::Skipped { host, step: step.clone(), because: because.clone() });
        self.outcome.steps.insert(step, StepOutcome::Skipped { because });
    }

    fn host_and_id(&self, index: usize) -> (HostAddress, StepId) {
        (self.steps[index].host, self.steps[index].id.clone())
    }
}

fn failed(cause: String) -> StepFailure {
    StepFailure { category: Category::Failed, cause, log: Vec::new() }
}
