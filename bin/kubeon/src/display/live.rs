//! Shows the progress of a run on standard error.

use std::sync::Arc;
use std::time::{Duration, Instant};

use console::Term;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use kubeon_apply::{RunEvent, RunObserver};
use kubeon_plan::Plan;
use parking_lot::Mutex;

use super::events::ProgressEvents;
use super::progress_view::RunProgress;
use super::{lines, plain};
use crate::output::CliOutput;

/// How often the view is drawn again.
const TICK: Duration = Duration::from_millis(100);

/// Shows the events of a run. On a terminal the view is redrawn; elsewhere every finished step is a line.
pub(crate) struct Display {
    shared: Arc<Shared>,
    ticker: Option<tokio::task::JoinHandle<()>>,
}

struct Shared {
    view: Mutex<RunProgress>,
    begin: Instant,
    output: CliOutput,
    screen: Option<Screen>,
    /// Set if progress is JSON: then only these events are written.
    events: Option<ProgressEvents>,
}

struct Screen {
    bars: MultiProgress,
    shown: Mutex<Vec<ProgressBar>>,
}

impl Display {
    /// Starts the display of a run. Must be called inside the runtime.
    pub(crate) fn begin(plan: &Plan, output: &CliOutput) -> Self {
        let moving = output.moving && !output.is_quiet();
        let target = || ProgressDrawTarget::term(Term::stderr(), 10);
        let screen = moving.then(|| Screen {
            bars: MultiProgress::with_draw_target(target()),
            shown: Mutex::new(Vec::new()),
        });
        output.set_screen(screen.as_ref().map(|screen| screen.bars.clone()));
        let shared = Arc::new(Shared {
            view: Mutex::new(RunProgress::new(plan)),
            begin: Instant::now(),
            output: output.clone(),
            screen,
            events: output.is_json().then(|| ProgressEvents::new(plan)),
        });
        let ticker = moving.then(|| {
            let shared = Arc::clone(&shared);
            tokio::spawn(async move {
                let mut tick = tokio::time::interval(TICK);
                // `drop` aborts this task.
                loop {
                    tick.tick().await;
                    shared.draw();
                }
            })
        });
        Self { shared, ticker }
    }
}

/// Draws the last state and leaves it on the screen.
impl Drop for Display {
    fn drop(&mut self) {
        if let Some(ticker) = &self.ticker {
            ticker.abort();
        }
        self.shared.draw();
        if let Some(screen) = &self.shared.screen {
            let shown = screen.shown.lock();
            shown.iter().for_each(ProgressBar::abandon);
        }
        self.shared.output.set_screen(None);
    }
}

impl RunObserver for Display {
    fn on_event(&self, event: RunEvent) {
        self.shared.on_event(&event);
    }
}

impl Shared {
    fn on_event(&self, event: &RunEvent) {
        if let Some(events) = &self.events {
            events.line(event).iter().for_each(|line| self.output.progress(line));
            return;
        }
        let now = self.begin.elapsed();
        let mut view = self.view.lock();
        view.on_event(event, now);
        let level = self.output.verbosity();
        // On a terminal the view shows the event. Lines are printed in addition from `-v 4` on.
        if self.screen.is_some() && level < 4 {
            return;
        }
        if let Some(line) = plain::line(&view, event, level) {
            drop(view);
            let time = jiff::Zoned::now().strftime("%H:%M:%S").to_string();
            self.output.info(&format!("{time}  {line}"));
        }
    }

    fn draw(&self) {
        let Some(screen) = &self.screen else { return };
        let (height, width) = Term::stderr().size();
        let view = self.view.lock();
        let lines = lines::lines(
            &view,
            self.begin.elapsed(),
            usize::from(width).saturating_sub(1),
            usize::from(height),
        );
        drop(view);
        let mut shown = screen.shown.lock();
        while shown.len() < lines.len() {
            shown.push(screen.bars.add(bar()));
        }
        while shown.len() > lines.len() {
            if let Some(bar) = shown.pop() {
                bar.finish_and_clear();
                screen.bars.remove(&bar);
            }
        }
        for (bar, line) in shown.iter().zip(lines) {
            bar.set_message(if self.output.colour { lines::paint(&line) } else { line });
        }
    }
}

fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
    ProgressBar::new_spinner().with_style(style)
}
