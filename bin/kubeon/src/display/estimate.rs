//! Estimates the duration of a run: the longest path through its steps, with typical durations.

use std::time::Duration;

use kubeon_plan::{Plan, Step};
use kubeon_wire::{Check, Op};

use super::progress_state::{StepProgress, StepStatus};

/// Receive rate of a host, and send rate of this machine, in bytes per second.
const HOST_RATE: f64 = 60.0 * 1_048_576.0;
const MACHINE_RATE: f64 = 120.0 * 1_048_576.0;

/// The expected durations of steps, in seconds.
#[derive(Debug, Clone)]
pub(crate) struct Estimate {
    weights: Vec<f64>,
    order: Vec<usize>,
    sending: f64,
    total: f64,
}

impl Estimate {
    /// The estimate before the run.
    pub(crate) fn new(plan: &Plan) -> Self {
        let weights: Vec<f64> = plan.steps.iter().map(weight).collect();
        let bytes: f64 = plan.steps.iter().map(|step| bytes(step) / MACHINE_RATE).sum();
        let indexes: std::collections::BTreeMap<_, _> =
            plan.steps.iter().enumerate().map(|(index, step)| (&step.id, index)).collect();
        let needs = |index: usize| plan.steps[index].needs.iter().filter_map(|id| indexes.get(id).copied());
        let mut ends = vec![0.0_f64; weights.len()];
        // A step comes after its needs, so one pass in order is sufficient.
        for index in 0..weights.len() {
            let start = needs(index).map(|need| ends[need]).fold(0.0, f64::max);
            ends[index] = start + weights[index];
        }
        let longest = ends.iter().copied().fold(0.0, f64::max);
        let order = (0..weights.len()).collect();
        Self { weights, order, sending: bytes, total: longest.max(bytes) + 1.0 }
    }

    /// The estimated total duration now: at least the elapsed time plus the remaining work.
    pub(crate) fn total(&self, steps: &[StepProgress], now: Duration) -> Duration {
        let mut ends = vec![0.0_f64; self.weights.len()];
        for &index in &self.order {
            let step = &steps[index];
            let remaining = match step.status {
                StepStatus::Waiting => self.weights[index],
                StepStatus::Running(since) => {
                    (self.weights[index] - (now.saturating_sub(since)).as_secs_f64()).max(0.5)
                }
                StepStatus::Done | StepStatus::Failed(_) | StepStatus::Skipped => 0.0,
            };
            let start = step.needs.iter().map(|&need| ends[need]).fold(0.0, f64::max);
            ends[index] = start + remaining;
        }
        let longest = ends.iter().copied().fold(0.0, f64::max);
        let (sent, size) =
            steps.iter().fold((0, 0), |(sent, size), step| (sent + step.sent, size + step.size));
        let unsent = if size == 0 { 0.0 } else { self.sending * (1.0 - ratio(sent, size)) };
        Duration::from_secs_f64((now.as_secs_f64() + longest.max(unsent)).max(self.total))
    }
}

/// `part` of `whole`, 0 to 1.
#[expect(clippy::cast_precision_loss)]
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 1.0 } else { (part as f64 / whole as f64).min(1.0) }
}

#[expect(clippy::cast_precision_loss)]
fn bytes(step: &Step) -> f64 {
    if let Op::Part { size, .. } = &step.op { *size as f64 } else { 0.0 }
}

/// The typical duration of a step in seconds, measured on two shared cores.
fn weight(step: &Step) -> f64 {
    match &step.op {
        Op::Kernel { .. } => 0.3,
        Op::Hosts { .. } | Op::Files { .. } | Op::Links { .. } => 0.1,
        Op::Part { .. } => 0.2 + bytes(step) / HOST_RATE,
        Op::Service { ready, .. } => {
            if ready.is_empty() {
                0.5
            } else {
                2.0
            }
        }
        Op::Image { .. } => 1.5,
        Op::Await { checks } => checks.iter().map(usual_wait).fold(0.5, f64::max),
        // The default grace period of pods.
        Op::Drain { .. } => 30.0,
        Op::Reset { .. } => 3.0,
        // One or two requests to the API server.
        _ => 0.5,
    }
}

fn usual_wait(check: &Check) -> f64 {
    match check {
        Check::NodesReady { .. } => 6.0,
        Check::NodeNotReady { .. } => 30.0,
        Check::DeploymentAvailable { .. } => 4.0,
        Check::Https { .. } => 3.0,
        _ => 1.0,
    }
}
