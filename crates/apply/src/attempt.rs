//! Executes one step, with as many attempts as the plan allows.

use std::sync::Arc;
use std::time::Duration;

use backon::BackoffBuilder as _;
use kubeon_api::HostAddress;
use kubeon_plan::Step;
use kubeon_ports::{HostSession, Report};
use kubeon_wire::{Category, Event, Op, StepFailure};
use tokio::time::sleep;

use crate::backoff::pauses;
use crate::host_connection::{HostConnection, millis};
use crate::payload::{Payload, resolve_secrets};
use crate::{HostPorts, RunEvent};

/// Executes the step on its host. Retries if the category of the failure allows it.
pub(crate) async fn attempt(
    connection: &HostConnection<'_>,
    step: &Step,
    ports: &HostPorts<'_>,
) -> Result<Report, StepFailure> {
    let context = connection.context();
    context.observer.on_event(RunEvent::StepStarted { host: connection.host, step: step.id.clone() });
    let mut attempt = 1;
    let mut pauses = pauses().with_max_times(usize::from(step.tries).saturating_sub(1)).build();
    loop {
        let failure = match attempt_once(connection, step, ports).await {
            Ok(report) => return Ok(report),
            Err(failure) => failure,
        };
        let give_up = !failure.category.retryable()
            || (may_depend_on_other_hosts(step) && context.lost.borrow().is_some());
        if give_up || connection.lost().is_some() || context.cancellation.is_cancelled() {
            return Err(failure);
        }
        let Some(pause) = pauses.next() else { return Err(failure) };
        attempt += 1;
        context.observer.on_event(RunEvent::Retrying {
            host: connection.host,
            step: step.id.clone(),
            failure: failure.clone(),
            attempt,
            pause_milliseconds: millis(pause),
        });
        tokio::select! {
            () = sleep(pause) => {}
            () = context.cancellation.cancelled() => return Err(failure),
        }
    }
}

async fn attempt_once(
    connection: &HostConnection<'_>,
    step: &Step,
    ports: &HostPorts<'_>,
) -> Result<Report, StepFailure> {
    let mut payload = resolve_secrets(step, ports)?;
    let session = connection.session().await?;
    let source = find_source(connection, &session, &mut payload).await;
    let forward = |event: Event| {
        connection.event_received();
        part_arrives(connection, step, source, &event);
        if let Some(run_event) = translate(connection, step, event) {
            connection.context().observer.on_event(run_event);
        }
    };
    let step_timeout = Duration::from_secs(step.timeout_seconds.into());
    let work = connection.with_silence_limit(step_timeout, session.run(payload.step, payload.blob, &forward));
    let result = tokio::select! {
        result = work => result,
        failure = connection.context().lost_host_timeout(), if may_depend_on_other_hosts(step) => Err(failure),
    };
    connection.event_received();
    if let (Err(failure), Some(forwarding), Op::Part { digest, .. }) =
        (&result, &connection.context().forwarding, &step.op)
    {
        forwarding.failed(digest, connection.host, source, failure.category);
    }
    match result.as_ref().map_err(|failure| failure.category) {
        Err(Category::Unreachable) => connection.close_broken(&session).await,
        Err(category) if category == Category::Fenced || category.is_denied() => {
            result.as_ref().err().into_iter().for_each(|failure| connection.lose(failure));
        }
        _ => {}
    }
    result
}

/// Lets another host forward the part of a step, and returns it. The host itself forwards the part from now on.
async fn find_source(
    connection: &HostConnection<'_>,
    session: &Arc<dyn HostSession>,
    payload: &mut Payload,
) -> Option<HostAddress> {
    let forwarding = connection.context().forwarding.as_ref()?;
    let blob = payload.blob.as_ref()?;
    let Op::Part { digest, source, .. } = &mut payload.step.op else { return None };
    if !forwarding.forwards(digest) {
        return None;
    }
    let host = connection.forwarding_host(session, forwarding).await?;
    let Some(from) = forwarding.join(digest, host) else {
        forwarding.prepare(digest, blob);
        return None;
    };
    match forwarding.source(digest, blob, from).await {
        Ok(found) => *source = Some(found),
        Err(error) => {
            tracing::warn!(host = %connection.host, %error, "a part is sent from here");
            return None;
        }
    }
    payload.blob = None;
    Some(from.host)
}

/// Records which parts arrived, and which hosts get bytes from other ones.
fn part_arrives(connection: &HostConnection<'_>, step: &Step, source: Option<HostAddress>, event: &Event) {
    let context = connection.context();
    if let Event::Received { .. } = event {
        // The receiver is closed at the end of the run.
        drop(context.received.send(step.id.clone()));
    }
    if let (Some(_), Some(forwarding), Event::Progress { .. } | Event::Received { .. }) =
        (source, &context.forwarding, event)
    {
        forwarding.reached(connection.host);
    }
}

/// Whether the step waits for a condition that may depend on another host.
fn may_depend_on_other_hosts(step: &Step) -> bool {
    match &step.op {
        Op::Await { .. } => true,
        Op::Service { ready, .. } => !ready.is_empty(),
        _ => false,
    }
}

/// Converts an event of the host. The run itself reports that a step started, ended or failed, so those give
/// `None`.
fn translate(connection: &HostConnection<'_>, step: &Step, event: Event) -> Option<RunEvent> {
    let (host, step) = (connection.host, step.id.clone());
    match event {
        Event::Progress { id: _, done, total } => Some(RunEvent::Progress { host, step, done, total }),
        Event::Note { id: _, text } => Some(RunEvent::Note { host, step, text }),
        Event::Opened { .. }
        | Event::Forwarding { .. }
        | Event::NotForwarding { .. }
        | Event::Refused { .. }
        | Event::Started { .. }
        | Event::Received { .. }
        | Event::Working { .. }
        | Event::Done { .. }
        | Event::Failed { .. } => None,
    }
}
