//! One step, tried as often as the plan allows.

use std::time::Duration;

use kubeon_plan::Step;
use kubeon_ports::Report;
use kubeon_wire::{Category, Event, Op, StepFailure};
use tokio::time::sleep;

use crate::host_connection::{HostConnection, millis, pause_after};
use crate::payload::resolve_secrets;
use crate::{HostPorts, RunEvent};

/// Does the step on its host. Tries again where the kind of failure says that it may help.
pub(crate) async fn attempt(
    connection: &HostConnection<'_>,
    step: &Step,
    ports: &HostPorts<'_>,
) -> Result<Report, StepFailure> {
    let context = connection.context();
    context.watch.on_event(RunEvent::StepStarted { host: connection.host, step: step.id.clone() });
    let mut attempt = 1;
    loop {
        let failure = match once(connection, step, ports).await {
            Ok(report) => return Ok(report),
            Err(failure) => failure,
        };
        let hopeless = attempt >= step.tries
            || !failure.category.retryable()
            || (waits(step) && context.lost.borrow().is_some());
        if hopeless || connection.lost().is_some() || context.stop.is_cancelled() {
            return Err(failure);
        }
        let pause = pause_after(attempt);
        attempt += 1;
        context.watch.on_event(RunEvent::Retrying {
            host: connection.host,
            step: step.id.clone(),
            failure: failure.clone(),
            attempt,
            pause_milliseconds: millis(pause),
        });
        tokio::select! {
            () = sleep(pause) => {}
            () = context.stop.cancelled() => return Err(failure),
        }
    }
}

async fn once(
    connection: &HostConnection<'_>,
    step: &Step,
    ports: &HostPorts<'_>,
) -> Result<Report, StepFailure> {
    let payload = resolve_secrets(step, ports)?;
    let session = connection.session().await?;
    let tell = |event: Event| {
        connection.heard();
        if let Some(happening) = translate(connection, step, event) {
            connection.context().watch.on_event(happening);
        }
    };
    let patience = Duration::from_secs(step.timeout_seconds.into());
    let work = connection.hear(patience, session.run(payload.step, payload.blob, &tell));
    let result = tokio::select! {
        result = work => result,
        failure = connection.context().in_vain(), if waits(step) => Err(failure),
    };
    connection.heard();
    match result.as_ref().map_err(|failure| failure.category) {
        Err(Category::Unreachable) => connection.broke(&session).await,
        Err(Category::Fenced | Category::Denied) => {
            result.as_ref().err().into_iter().for_each(|failure| connection.lose(failure));
        }
        _ => {}
    }
    result
}

/// Whether what it waits for may be on another host.
fn waits(step: &Step) -> bool {
    match &step.op {
        Op::Await { .. } => true,
        Op::Service { ready, .. } => !ready.is_empty(),
        _ => false,
    }
}

/// What of a host's event is news. That a step started, ended or failed is told by the run itself.
fn translate(connection: &HostConnection<'_>, step: &Step, event: Event) -> Option<RunEvent> {
    let (host, step) = (connection.host, step.id.clone());
    match event {
        Event::Progress { id: _, done, total } => Some(RunEvent::Progress { host, step, done, total }),
        Event::Note { id: _, text } => Some(RunEvent::Note { host, step, text }),
        Event::Opened { .. }
        | Event::Refused { .. }
        | Event::Started { .. }
        | Event::Done { .. }
        | Event::Failed { .. } => None,
    }
}
