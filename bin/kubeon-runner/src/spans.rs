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

/// The most steps that are traced at the same time; more have only the span of their stage.
const MOST_STEPS: usize = 10_000;

/// Sends the spans of this run; without a collector it does nothing.
#[derive(Clone, Default)]
pub(crate) struct RunSpans(Option<Arc<Shared>>);

struct Shared {
    traces: Traces,
    redactor: Arc<Redactor>,
    operation: Option<TraceParent>,
    run: TraceParent,
    begun: SystemTime,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    stages: HashMap<String, Stage>,
    steps: HashMap<(HostAddress, String), Step>,
}

/// A stage: from its first step to the end of its last one.
struct Stage {
    place: TraceParent,
    begun: SystemTime,
    ended: SystemTime,
}

/// A step that runs.
struct Step {
    stage: TraceParent,
    name: String,
    why: String,
    begun: SystemTime,
}

impl RunSpans {
    /// Starts the span of the run, when the environment names a collector and the operation's trace.
    #[must_use]
    pub(crate) fn start(environment: &RunnerEnvironment, redactor: &Arc<Redactor>, log: &RunnerLog) -> Self {
        let (Some(operation), Some(collector)) = (&environment.traceparent, &environment.collector) else {
            return Self::default();
        };
        let started = operation.parse::<TraceParent>().map_err(|error| error.to_string()).and_then(|place| {
            Traces::start("kubeon-runner", collector)
                .map(|traces| (place, traces))
                .map_err(|error| error.to_string())
        });
        match started {
            Ok((operation, traces)) => Self(Some(Arc::new(Shared {
                traces,
                redactor: redactor.clone(),
                run: operation.child(),
                operation: Some(operation),
                begun: SystemTime::now(),
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
                let stage = state.enter(stage, shared.run);
                if state.steps.len() < MOST_STEPS {
                    let begun =
                        Step { stage, name: name.clone(), why: why.clone(), begun: SystemTime::now() };
                    state.steps.insert((*host, step.clone()), begun);
                }
            }
            Progress::Finished { host, step, changed, .. } => {
                let about = vec![("kubeon.changed", changed.to_string())];
                state.leave(shared, *host, step, about, None);
            }
            Progress::Failed { host, step, cause, .. } => {
                state.leave(shared, *host, step, Vec::new(), Some(cause));
            }
            Progress::Precheck { .. }
            | Progress::Plan { .. }
            | Progress::Saved
            | Progress::Note { .. }
            | Progress::End { .. } => {}
        }
    }

    /// Ends the spans of the stages and the run, and sends the rest.
    pub(crate) async fn end(self, outcome: &WorkOutcome, log: &RunnerLog) {
        let Some(shared) = self.0 else { return };
        let mut state = mem::take(&mut *shared.state.lock());
        for (name, stage) in state.stages.drain() {
            shared.traces.tell(Span {
                place: stage.place,
                parent: Some(shared.run),
                name: "stage",
                begun: stage.begun,
                ended: stage.ended,
                about: vec![("kubeon.stage", name)],
                failure: None,
            });
        }
        shared.traces.tell(Span {
            place: shared.run,
            parent: shared.operation,
            name: "run",
            begun: shared.begun,
            ended: SystemTime::now(),
            about: vec![("kubeon.exit_code", outcome.code.to_string())],
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
    /// The span of a stage, one of whose steps starts.
    fn enter(&mut self, name: &str, run: TraceParent) -> TraceParent {
        let now = SystemTime::now();
        let stage = self.stages.entry(name.to_owned());
        stage.or_insert_with(|| Stage { place: run.child(), begun: now, ended: now }).place
    }

    fn leave(
        &mut self,
        shared: &Shared,
        host: HostAddress,
        step: &str,
        mut about: Vec<(&'static str, String)>,
        failure: Option<&String>,
    ) {
        let Some(begun) = self.steps.remove(&(host, step.to_owned())) else { return };
        let ended = SystemTime::now();
        if let Some(stage) = self.stages.values_mut().find(|stage| stage.place == begun.stage) {
            stage.ended = ended;
        }
        about.extend([
            ("host.name", begun.name),
            ("host.address", host.to_string()),
            ("kubeon.step", shared.redactor.redact_text(step)),
            ("kubeon.why", shared.redactor.redact_text(&begun.why)),
        ]);
        shared.traces.tell(Span {
            place: begun.stage.child(),
            parent: Some(begun.stage),
            name: "step",
            begun: begun.begun,
            ended,
            about,
            failure: failure.map(|cause| shared.redactor.redact_text(cause)),
        });
    }
}
