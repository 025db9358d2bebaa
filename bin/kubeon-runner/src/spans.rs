//! Traces the run, its stages and each step on a host, and sends the spans to an OpenTelemetry collector, when one is set.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use std::time::SystemTime;

use kubeon_api::HostAddress;
use kubeon_traces::{Span, TraceParent, Traces};
use kubeon_wire::Progress;
use parking_lot::Mutex;

use crate::args::RunnerEnvironment;
use crate::log::RunnerLog;
use crate::outcome::WorkOutcome;
use crate::redactor::Redactor;

/// The maximum number of steps that are traced at the same time. Further steps have no span of their own.
const MOST_STEPS: usize = 10_000;

/// Sends the spans of this run. Without a collector it does nothing.
#[derive(Clone, Default)]
pub(crate) struct RunSpans(Option<Arc<Shared>>);

struct Shared {
    traces: Traces,
    redactor: Arc<Redactor>,
    operation: Option<TraceParent>,
    run: TraceParent,
    started: SystemTime,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    stages: HashMap<String, Stage>,
    steps: HashMap<(HostAddress, String), Step>,
}

/// A stage: from its first step to the end of its last one.
struct Stage {
    ids: TraceParent,
    started: SystemTime,
    ended: SystemTime,
}

/// A running step.
struct Step {
    stage: TraceParent,
    name: String,
    why: String,
    started: SystemTime,
}

impl RunSpans {
    /// Starts the span of the run, when the environment names a collector and the operation's trace.
    #[must_use]
    pub(crate) fn start(environment: &RunnerEnvironment, redactor: &Arc<Redactor>, log: &RunnerLog) -> Self {
        let (Some(operation), Some(collector)) = (&environment.traceparent, &environment.collector) else {
            return Self::default();
        };
        let started = operation.parse::<TraceParent>().map_err(|error| error.to_string()).and_then(|ids| {
            Traces::start("kubeon-runner", collector)
                .map(|traces| (ids, traces))
                .map_err(|error| error.to_string())
        });
        match started {
            Ok((operation, traces)) => Self(Some(Arc::new(Shared {
                traces,
                redactor: redactor.clone(),
                run: operation.child(),
                operation: Some(operation),
                started: SystemTime::now(),
                state: Mutex::default(),
            }))),
            Err(error) => {
                log.line(&format!("cannot send traces: {error}"));
                Self::default()
            }
        }
    }

    /// Records a progress event.
    pub(crate) fn record(&self, progress: &Progress) {
        let Some(shared) = &self.0 else { return };
        let mut state = shared.state.lock();
        match progress {
            Progress::Started { host, name, stage, step, why } => {
                let stage = state.start_step(stage, shared.run);
                if state.steps.len() < MOST_STEPS {
                    let started =
                        Step { stage, name: name.clone(), why: why.clone(), started: SystemTime::now() };
                    state.steps.insert((*host, step.clone()), started);
                }
            }
            Progress::Finished { host, step, changed, .. } => {
                let attributes = vec![("kubeon.changed", changed.to_string())];
                state.end_step(shared, *host, step, attributes, None);
            }
            Progress::Failed { host, step, cause, .. } => {
                state.end_step(shared, *host, step, Vec::new(), Some(cause));
            }
            Progress::Precheck { .. }
            | Progress::Plan { .. }
            | Progress::Saved
            | Progress::PartsReceived { .. }
            | Progress::Note { .. }
            | Progress::End { .. } => {}
        }
    }

    /// Ends the spans of the stages and the run, and sends the rest.
    pub(crate) async fn end(self, outcome: &WorkOutcome, log: &RunnerLog) {
        let Some(shared) = self.0 else { return };
        let mut state = mem::take(&mut *shared.state.lock());
        for (name, stage) in state.stages.drain() {
            shared.traces.send(Span {
                ids: stage.ids,
                parent: Some(shared.run),
                name: "stage",
                started: stage.started,
                ended: stage.ended,
                attributes: vec![("kubeon.stage", name)],
                failure: None,
            });
        }
        shared.traces.send(Span {
            ids: shared.run,
            parent: shared.operation,
            name: "run",
            started: shared.started,
            ended: SystemTime::now(),
            attributes: vec![("kubeon.exit_code", outcome.code.to_string())],
            failure: (outcome.code != 0)
                .then(|| shared.redactor.redact_text(outcome.reason.as_deref().unwrap_or("failed"))),
        });
        let traces = shared.traces.clone();
        match tokio::task::spawn_blocking(move || traces.end()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => log.line(&error.to_string()),
            Err(error) => log.line(&error.to_string()),
        }
    }
}

impl State {
    /// Returns the span of a stage and starts it with its first step.
    fn start_step(&mut self, name: &str, run: TraceParent) -> TraceParent {
        let now = SystemTime::now();
        let stage = self.stages.entry(name.to_owned());
        stage.or_insert_with(|| Stage { ids: run.child(), started: now, ended: now }).ids
    }

    fn end_step(
        &mut self,
        shared: &Shared,
        host: HostAddress,
        step: &str,
        mut attributes: Vec<(&'static str, String)>,
        failure: Option<&String>,
    ) {
        let Some(started) = self.steps.remove(&(host, step.to_owned())) else { return };
        let ended = SystemTime::now();
        if let Some(stage) = self.stages.values_mut().find(|stage| stage.ids == started.stage) {
            stage.ended = ended;
        }
        attributes.extend([
            ("host.name", started.name),
            ("host.address", host.to_string()),
            ("kubeon.step", shared.redactor.redact_text(step)),
            ("kubeon.why", shared.redactor.redact_text(&started.why)),
        ]);
        shared.traces.send(Span {
            ids: started.stage.child(),
            parent: Some(started.stage),
            name: "step",
            started: started.started,
            ended,
            attributes,
            failure: failure.map(|cause| shared.redactor.redact_text(cause)),
        });
    }
}
