//! The run: starts what may start, waits, and writes down what came of it.

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
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep_until};

use crate::attempt::attempt;
use crate::host_connection::{HostConnection, RunContext};
use crate::order::Order;
use crate::{HostPorts, RunEvent, RunObserver};

/// How many steps may run at once on one host, besides one part being sent.
pub const STEPS_AT_ONCE: usize = 8;

/// How long running steps may go on after the run was told to stop.
pub const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);

/// How many sessions are being opened at once; once open there is no limit.
const OPENINGS_AT_ONCE: usize = 64;

/// Carries out the plan and returns when every step is done, has failed, or will not be started.
///
/// A step starts as soon as all its needs are done and its host is open. A failed step takes everything
/// that needs it along; the rest continues. A host that refuses the fence, or cannot be reached in four
/// tries, fails all its steps. The plan must have been linted by the caller.
///
/// Never fails: what failed is in the outcome. Dropping the future abandons the sessions; what runs on the
/// hosts then ends there by itself.
pub async fn run(
    plan: &Plan,
    ports: &HostPorts<'_>,
    watch: &dyn RunObserver,
    stop: &CancellationToken,
) -> Outcome {
    let Plan { cluster, version: _, generation: _, hosts, steps, up_to_date, facts: _, notes: _ } = plan;
    let mut ledger =
        Ledger { steps, order: Order::new(steps, STEPS_AT_ONCE), watch, outcome: Outcome::default() };
    let openings = Semaphore::new(OPENINGS_AT_ONCE);
    let context = RunContext { act: ports.act, watch, stop, openings, lost: watch::Sender::new(None) };
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
    watch.on_event(RunEvent::PlanStarted {
        cluster,
        steps: steps.len(),
        hosts: connections.len(),
        up_to_date,
    });
    ledger.refuse_dangling();
    for host in unknown {
        ledger.lose(host, &fault(format!("{host} has steps but is not among the plan's hosts")));
    }
    run_steps(&mut ledger, &connections, ports, stop).await;
    join_all(connections.values().map(HostConnection::close)).await;
    ledger.close(stop);
    ledger.outcome
}

/// What ended: the first opening of a host, or a step.
enum Ended {
    Opening(HostAddress, Result<(), StepFailure>),
    Step(usize, Result<Report, StepFailure>),
}

/// Ends when nothing runs any more: every future in `running` is bounded by its own timeouts and tries.
async fn run_steps(
    ledger: &mut Ledger<'_>,
    connections: &BTreeMap<HostAddress, HostConnection<'_>>,
    ports: &HostPorts<'_>,
    stop: &CancellationToken,
) {
    let mut running: FuturesUnordered<BoxFuture<'_, Ended>> = FuturesUnordered::new();
    for connection in connections.values() {
        running
            .push(Box::pin(async { Ended::Opening(connection.host, connection.session().await.map(drop)) }));
    }
    let mut kept = FuturesUnordered::new();
    let mut shutdown_deadline: Option<Instant> = None;
    loop {
        if shutdown_deadline.is_none() {
            for place in ledger.order.start() {
                let step = &ledger.steps[place];
                // A step is only started on a host that was opened, so the line is there.
                let Some(connection) = connections.get(&step.host) else { continue };
                running.push(Box::pin(
                    async move { Ended::Step(place, attempt(connection, step, ports).await) },
                ));
            }
        }
        let deadline = shutdown_deadline.unwrap_or_else(Instant::now);
        tokio::select! {
            ended = running.next() => match ended {
                Some(ended) => {
                    if let Ended::Opening(host, Ok(())) = &ended {
                        kept.extend(connections.get(host).map(HostConnection::keep));
                    }
                    ledger.settle(ended, connections);
                }
                None => return,
            },
            Some(host) = kept.next() => ledger.notice(host, connections),
            () = stop.cancelled(), if shutdown_deadline.is_none() => shutdown_deadline = Some(Instant::now() + SHUTDOWN_TIMEOUT),
            () = sleep_until(deadline), if shutdown_deadline.is_some() => return,
        }
    }
}

/// Keeps the order and the outcome in step, and tells.
struct Ledger<'a> {
    steps: &'a [Step],
    order: Order<'a>,
    watch: &'a dyn RunObserver,
    outcome: Outcome,
}

impl Ledger<'_> {
    fn settle(&mut self, ended: Ended, connections: &BTreeMap<HostAddress, HostConnection<'_>>) {
        let lost = |host| connections.get(&host).and_then(HostConnection::lost);
        match ended {
            Ended::Opening(host, opened) => match lost(host) {
                Some(failure) => self.lose(host, failure),
                None if opened.is_ok() => self.order.open(host),
                // The run was told to stop.
                None => {}
            },
            Ended::Step(place, Ok(report)) => self.done(place, report),
            Ended::Step(place, Err(failure)) => {
                self.fail(place, failure);
                // Steps of a lost host fail for that reason; only what others wait for is skipped.
                let host = self.steps[place].host;
                lost(host).into_iter().for_each(|failure| self.lose(host, failure));
                self.skip_followers(place);
            }
        }
    }

    /// A host's line is kept no longer.
    fn notice(&mut self, host: HostAddress, connections: &BTreeMap<HostAddress, HostConnection<'_>>) {
        if let Some(failure) = connections.get(&host).and_then(HostConnection::lost) {
            self.lose(host, failure);
        }
    }

    fn done(&mut self, place: usize, report: Report) {
        let Report { changed, milliseconds } = report;
        let (host, step) = self.name(place);
        self.watch.on_event(RunEvent::Done { host, step: step.clone(), changed, milliseconds });
        self.outcome.steps.insert(step, StepOutcome::Done { changed, milliseconds });
        self.order.done(place);
    }

    fn fail(&mut self, place: usize, failure: StepFailure) {
        if failure.category == Category::Cancelled {
            self.skip(place, None);
        } else {
            self.note_failure(place, failure);
        }
    }

    /// All steps of the host that have not started fail; what needs them is skipped.
    fn lose(&mut self, host: HostAddress, failure: &StepFailure) {
        let given_up = self.order.give_up(host);
        given_up.iter().for_each(|place| self.note_failure(*place, failure.clone()));
        given_up.into_iter().for_each(|place| self.skip_followers(place));
    }

    /// Accounts for steps that nothing will start any more.
    fn close(&mut self, stop: &CancellationToken) {
        for place in [self.order.running(), self.order.waiting()].concat() {
            if stop.is_cancelled() {
                self.skip(place, None);
            } else {
                self.note_failure(place, fault("its needs lead back to itself".to_owned()));
            }
        }
    }

    fn note_failure(&mut self, place: usize, failure: StepFailure) {
        let (host, step) = self.name(place);
        self.watch.on_event(RunEvent::Failed { host, step: step.clone(), failure: failure.clone() });
        self.outcome.steps.insert(step, StepOutcome::Failed { failure });
    }

    fn skip_followers(&mut self, place: usize) {
        let id = &self.steps[place].id;
        let cause = match self.outcome.steps.get(id) {
            Some(StepOutcome::Skipped { because }) => because.clone(),
            _ => Some(id.clone()),
        };
        self.order.failed(place).into_iter().for_each(|follower| self.skip(follower, cause.as_ref()));
    }

    /// Fails the steps that come after one that the plan does not have: their order is not known.
    fn refuse_dangling(&mut self) {
        for (place, need) in self.order.dangling() {
            let cause = format!("it must come after {need}, which is not in the plan");
            self.note_failure(place, fault(cause));
            self.skip_followers(place);
        }
    }

    fn skip(&mut self, place: usize, because: Option<&StepId>) {
        let (host, step) = self.name(place);
        let because = because.cloned();
        self.watch.on_event(RunEvent::Skipped { host, step: step.clone(), because: because.clone() });
        self.outcome.steps.insert(step, StepOutcome::Skipped { because });
    }

    fn name(&self, place: usize) -> (HostAddress, StepId) {
        (self.steps[place].host, self.steps[place].id.clone())
    }
}

fn fault(cause: String) -> StepFailure {
    StepFailure { category: Category::Failed, cause, log: Vec::new() }
}
