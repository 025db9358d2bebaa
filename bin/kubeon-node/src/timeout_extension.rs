//! How long a step may take: its time limit does not run while the host makes progress.
//!
//! A limit that is right for a usual host is wrong for one that is ten times slower. Two things count as
//! progress: what the step waits for changes ([`TimeoutExtension::progressed`]), and the processors and disks of the
//! host are saturated, because then the programs that the step waits for are still working. The limit is
//! extended up to [`FACTOR`] times its length.

use std::fs;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::root::Root;

/// The longest time of a step, as a multiple of its time limit.
const FACTOR: u32 = 10;
/// The share of saturated time in a sample from which the host counts as busy, in percent.
const BUSY_PERCENT: u64 = 70;
/// The shortest time between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(500);

/// The interval in which a waiting step tells the engine that it is running.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// Times of all processors since the boot, in the unit of `/proc/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CpuTimes {
    busy: u64,
    total: u64,
}

/// The extension of a step's time limit.
pub struct TimeoutExtension {
    start: Instant,
    longest: Duration,
    read: Box<dyn Fn() -> Option<CpuTimes> + Send + Sync>,
    state: Mutex<State>,
}

struct State {
    extension: Duration,
    reported: Instant,
    sampled: Instant,
    times: Option<CpuTimes>,
}

impl TimeoutExtension {
    /// The extension of a limit that starts now, on the host with this root.
    #[must_use]
    pub fn new(root: &Root, limit: Duration) -> Self {
        let stat = root.at("/proc/stat");
        Self::reading(limit, Instant::now(), move || parse(&fs::read_to_string(&stat).ok()?))
    }

    /// No extension.
    #[must_use]
    pub fn none() -> Self {
        Self::reading(Duration::ZERO, Instant::now(), || None)
    }

    fn reading(
        limit: Duration,
        start: Instant,
        read: impl Fn() -> Option<CpuTimes> + Send + Sync + 'static,
    ) -> Self {
        let longest = limit.saturating_mul(FACTOR - 1);
        let state = State { extension: Duration::ZERO, reported: start, sampled: start, times: read() };
        Self { start, longest, read: Box::new(read), state: Mutex::new(state) }
    }

    /// Starts the limit again: what the step waits for has changed.
    pub fn progressed(&self, now: Instant) {
        let mut state = self.state.lock();
        state.extension = state.extension.max(now.saturating_duration_since(self.start)).min(self.longest);
    }

    /// Whether the engine must hear again that the step is running. The next report is due one interval later.
    #[must_use]
    pub fn is_report_due(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        let due = now.saturating_duration_since(state.reported) >= REPORT_INTERVAL;
        if due {
            state.reported = now;
        }
        due
    }

    /// How much later than planned the step times out. A time in which the host was busy is added when it is
    /// over.
    #[must_use]
    pub fn at(&self, now: Instant) -> Duration {
        let mut state = self.state.lock();
        let elapsed = now.saturating_duration_since(state.sampled);
        if elapsed >= SAMPLE_INTERVAL && state.extension < self.longest {
            let times = (self.read)();
            if state.times.zip(times).is_some_and(|(before, now)| is_busy(before, now)) {
                state.extension = (state.extension + elapsed).min(self.longest);
            }
            state.sampled = now;
            state.times = times;
        }
        state.extension
    }
}

fn is_busy(before: CpuTimes, now: CpuTimes) -> bool {
    let (busy, total) = (now.busy.saturating_sub(before.busy), now.total.saturating_sub(before.total));
    total > 0 && busy.saturating_mul(100) >= total.saturating_mul(BUSY_PERCENT)
}

/// The first line of `/proc/stat`: `cpu USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL …`. Waiting for a disk
/// and time that the hypervisor took count as busy.
fn parse(text: &str) -> Option<CpuTimes> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let times: Vec<u64> = line.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
    let total: u64 = times.iter().sum();
    Some(CpuTimes { busy: total - times.get(3)?, total })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    /// A host whose processors are busy for the given percentage of every second.
    fn host(percent: u64) -> (TimeoutExtension, Instant) {
        let start = Instant::now();
        let read = Arc::new(AtomicU64::new(0));
        let times = move || {
            let count = read.fetch_add(1, Ordering::Relaxed);
            Some(CpuTimes { busy: count * percent, total: count * 100 })
        };
        (TimeoutExtension::reading(LIMIT, start, times), start)
    }

    fn after(timeout: &TimeoutExtension, start: Instant, seconds: u64) -> u64 {
        (1..=seconds).map(|second| timeout.at(start + Duration::from_secs(second)).as_secs()).last().unwrap()
    }

    #[test]
    fn the_limit_does_not_run_while_the_host_is_busy() {
        let (timeout, start) = host(95);
        assert_eq!(after(&timeout, start, 50), 50);
        assert_eq!(after(&timeout, start, 5000), 540, "the longest time is ten times the limit");
    }

    #[test]
    fn the_limit_runs_on_an_idle_host() {
        let (timeout, start) = host(40);
        assert_eq!(after(&timeout, start, 50), 0);
        assert_eq!(TimeoutExtension::none().at(start + LIMIT), Duration::ZERO);
    }

    #[test]
    fn the_limit_starts_again_with_progress() {
        let (timeout, start) = host(0);
        timeout.progressed(start + Duration::from_secs(40));
        assert_eq!(after(&timeout, start, 41), 40, "the step times out 60 s after its progress");
        timeout.progressed(start + Duration::from_secs(9999));
        assert_eq!(after(&timeout, start, 42), 540);
        let none = TimeoutExtension::none();
        none.progressed(Instant::now() + LIMIT);
        assert_eq!(none.at(Instant::now()), Duration::ZERO);
    }

    #[test]
    fn a_report_is_due_once_in_an_interval() {
        let (timeout, start) = host(0);
        let due = |seconds| timeout.is_report_due(start + Duration::from_secs(seconds));
        assert_eq!([1, 5, 6, 9, 10].map(due), [false, true, false, false, true]);
    }

    #[test]
    fn reads_the_times_of_all_processors() {
        let text = "cpu  10 1 5 100 20 2 3 4 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(parse(text), Some(CpuTimes { busy: 45, total: 145 }));
        for bad in ["", "cpu", "cpu  1 2", "intr 1 2 3 4"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
