//! Shows the progress of tasks that are not steps of a plan.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use console::{Term, truncate_str};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use kubeon_engine::cluster_nodes::CopyObserver;
use parking_lot::Mutex;

use super::lines;
use crate::output::{CliOutput, words};

/// A list of running tasks. On a terminal each task is a redrawn line; elsewhere each finished task is a
/// line.
pub(crate) struct Spinner {
    output: CliOutput,
    bars: Option<MultiProgress>,
    tasks: Mutex<BTreeMap<String, Task>>,
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.output.set_screen(None);
    }
}

struct Task {
    begin: Instant,
    bar: Option<ProgressBar>,
}

impl CopyObserver for Spinner {
    fn connecting(&self, node: &str) {
        self.begin(node, "connecting");
    }

    fn copied(&self, node: &str, done: u64, total: u64) {
        let sizes = format!("{:.1}/{}", words::mebibytes(done), words::size(total));
        self.update(node, &format!("copying {sizes}"));
    }

    fn ended(&self, node: &str, result: Result<(), &str>) {
        self.end(node, result.map(|()| "copied"));
    }
}

impl Spinner {
    /// Creates an empty list.
    pub(crate) fn new(output: &CliOutput) -> Self {
        let moving = output.moving && !output.is_quiet();
        let bars =
            moving.then(|| MultiProgress::with_draw_target(ProgressDrawTarget::term(Term::stderr(), 10)));
        output.set_screen(bars.clone());
        Self { output: output.clone(), bars, tasks: Mutex::new(BTreeMap::new()) }
    }

    /// Starts a task.
    pub(crate) fn begin(&self, name: &str, text: &str) {
        let bar = self.bars.as_ref().map(|bars| bars.add(bar()));
        if let Some(bar) = &bar {
            bar.set_message(self.text(&format!("  {name}  ● {text}")));
            bar.enable_steady_tick(Duration::from_millis(200));
        } else {
            self.line(4, &format!("{name}  ● {text}"));
        }
        self.tasks().insert(name.to_owned(), Task { begin: Instant::now(), bar });
    }

    /// Updates the text of a task.
    pub(crate) fn update(&self, name: &str, text: &str) {
        let tasks = self.tasks();
        match tasks.get(name).and_then(|task| task.bar.as_ref()) {
            Some(bar) => bar.set_message(self.text(&format!("  {name}  ● {text}"))),
            None => self.line(4, &format!("{name}  · {text}")),
        }
    }

    /// Prints a message above the tasks.
    pub(crate) fn info(&self, text: &str) {
        self.output.info(text);
    }

    /// Updates a task, or starts it.
    pub(crate) fn progress(&self, name: &str, text: &str) {
        let known = self.tasks().contains_key(name);
        if known { self.update(name, text) } else { self.begin(name, text) }
    }

    /// Ends a task with its result, or with the reason of its failure.
    pub(crate) fn end(&self, name: &str, result: Result<&str, &str>) {
        let task = self.tasks().remove(name);
        let took = task
            .as_ref()
            .map_or_else(String::new, |task| format!(" ({})", words::time(task.begin.elapsed())));
        let text = match result {
            Ok(result) => format!("{name}  ✓ {result}{took}"),
            Err(why) => format!("{name}  ✗ {why}{took}"),
        };
        match task.and_then(|task| task.bar) {
            Some(bar) => {
                bar.disable_steady_tick();
                bar.set_style(style("{msg}"));
                bar.finish_with_message(self.text(&format!("  {text}")));
            }
            None => self.line(1, &text),
        }
    }

    fn tasks(&self) -> parking_lot::MutexGuard<'_, BTreeMap<String, Task>> {
        self.tasks.lock()
    }

    fn line(&self, level: u8, text: &str) {
        let time = jiff::Zoned::now().strftime("%H:%M:%S");
        self.output.detail(level, &format!("{time}  {text}"));
    }

    fn text(&self, line: &str) -> String {
        let width = usize::from(Term::stderr().size().1).saturating_sub(12).max(20);
        let line = truncate_str(line, width, "…").into_owned();
        if self.output.colour { lines::paint(&line) } else { line }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

fn bar() -> ProgressBar {
    ProgressBar::new_spinner().with_style(style("{msg} {elapsed}"))
}
