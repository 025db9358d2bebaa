//! One run of the tests by ginkgo.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kubeon_process::ProgramRun;

use super::programs::TestPrograms;
use super::report::TestReport;

/// Time limit of a run: the whole set takes an hour or two on two cores.
const LIMIT: Duration = Duration::from_secs(4 * 3600);
/// Tests that need the cluster for themselves are not part of the parallel set.
const SKIPPED: &str = r"\[Serial\]|\[Disruptive\]|\[Flaky\]";
/// Between two lines of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(30);
const LOG: &str = "tests.log";
const REPORT: &str = "report.json";

/// What to run against which cluster.
pub(super) struct TestRun<'a> {
    pub(super) programs: &'a TestPrograms,
    pub(super) kubeconfig: PathBuf,
    pub(super) kubectl: PathBuf,
    pub(super) focus: Option<&'a str>,
    pub(super) parallel: usize,
    pub(super) out: &'a Path,
}

impl TestRun<'_> {
    /// Runs the tests; a test that fails is not an error. The log and ginkgo's report stay in the folder.
    pub(super) fn start(&self) -> Result<TestReport> {
        let (report, log) = (self.out.join(REPORT), self.out.join(LOG));
        let mut file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut progress = TestProgress::new();
        let mut failed_write = None;
        let ended = self.ginkgo().run_with(|_, line| {
            if let Err(error) = file.write_all(line.as_bytes()) {
                failed_write.get_or_insert(error);
            }
            progress.read(line);
        })?;
        if let Some(error) = failed_write {
            return Err(error).with_context(|| format!("cannot write {}", log.display()));
        }
        ensure!(report.is_file(), "ginkgo wrote no report ({}): see {}", ended.last_line(), log.display());
        TestReport::load(&report)
    }

    fn ginkgo(&self) -> ProgramRun {
        let mut run = ProgramRun::dying_with_parent(self.programs.path("ginkgo"), LIMIT);
        let ginkgo = run.command();
        ginkgo.current_dir(self.out);
        ginkgo.args(["run", "-v", "--no-color", "--timeout=4h", "--output-interceptor-mode=none"]);
        ginkgo.arg(format!("--procs={}", self.parallel)).arg(format!("--json-report={REPORT}"));
        // A test must match both: ginkgo joins several --focus by "or".
        let focus = self.focus.map_or_else(String::new, |focus| format!("({focus}).*"));
        ginkgo.arg(format!(r"--focus={focus}\[Conformance\]")).arg(format!("--skip={SKIPPED}"));
        ginkgo.arg(self.programs.path("e2e.test")).arg("--");
        ginkgo.arg("--kubeconfig").arg(&self.kubeconfig).arg("--kubectl-path").arg(&self.kubectl);
        ginkgo.args(["--provider=skeleton", "--disable-log-dump", "--allowed-not-ready-nodes=0"]);
        run
    }
}

/// Progress of the run, read from ginkgo's output.
struct TestProgress {
    begin: Instant,
    said: Instant,
    total: Option<usize>,
    done: usize,
    failed: usize,
}

impl TestProgress {
    fn new() -> Self {
        Self { begin: Instant::now(), said: Instant::now(), total: None, done: 0, failed: 0 }
    }

    fn read(&mut self, line: &str) {
        if let Some(total) = total(line) {
            self.total = Some(total);
        }
        match ended(line) {
            Some(passed) => {
                self.done += 1;
                self.failed += usize::from(!passed);
            }
            None => return,
        }
        if self.said.elapsed() >= PROGRESS_INTERVAL {
            self.said = Instant::now();
            crate::terminal::say(&self.text(self.begin.elapsed()));
        }
    }

    fn text(&self, elapsed: Duration) -> String {
        let total = self.total.unwrap_or(self.done).max(self.done);
        let left = elapsed.as_secs_f64() / self.done.max(1) as f64 * (total - self.done) as f64;
        format!(
            "  {} of {total} tests, {} failed, about {:.0} min left",
            self.done,
            self.failed,
            (left / 60.0).ceil()
        )
    }
}

/// The number of tests in the line `Will run 411 of 7206 specs`.
fn total(line: &str) -> Option<usize> {
    line.trim().strip_prefix("Will run ")?.split(' ').next()?.parse().ok()
}

/// Whether the test passed, for a line that ends a test: `• [2.134 seconds]` or `• [FAILED] [300.1 seconds]`.
fn ended(line: &str) -> Option<bool> {
    let rest = line.strip_prefix("• [")?;
    Some(!["FAILED", "PANICKED", "TIMEDOUT", "INTERRUPTED"].iter().any(|state| rest.starts_with(state)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_progress_of_ginkgo() {
        let mut progress = TestProgress::new();
        for line in [
            "Will run 10 of 7206 specs\n",
            "• [2.134 seconds]\n",
            "• [FAILED] [300.1 seconds]\n",
            "S [SKIPPED]\n",
        ] {
            progress.read(line);
        }
        assert_eq!(progress.text(Duration::from_secs(60)), "  2 of 10 tests, 1 failed, about 4 min left");
    }
}
