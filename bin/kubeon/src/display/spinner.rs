//! Shows work that is not a plan: named things that begin, say something and end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use console::{Term, truncate_str};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;

use super::lines;
use crate::output::{CliOutput, words};

/// A list of things under way. On a terminal each is a moving line; elsewhere each is a line when it ends.
pub(crate) struct Spinner {
    output: CliOutput,
    bars: Option<MultiProgress>,
    items: Mutex<BTreeMap<String, Item>>,
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.output.on_screen(None);
    }
}

struct Item {
    begin: Instant,
    bar: Option<ProgressBar>,
}

impl Spinner {
    /// Nothing is under way yet.
    pub(crate) fn new(output: &CliOutput) -> Self {
        let moving = output.moving && !output.is_quiet();
        let bars =
            moving.then(|| MultiProgress::with_draw_target(ProgressDrawTarget::term(Term::stderr(), 10)));
        output.on_screen(bars.clone());
        Self { output: output.clone(), bars, items: Mutex::new(BTreeMap::new()) }
    }

    /// Something began.
    pub(crate) fn begin(&self, name: &str, words: &str) {
        let bar = self.bars.as_ref().map(|bars| bars.add(bar()));
        if let Some(bar) = &bar {
            bar.set_message(self.text(&format!("  {name}  ● {words}")));
            bar.enable_steady_tick(Duration::from_millis(200));
        } else {
            self.line(4, &format!("{name}  ● {words}"));
        }
        self.items().insert(name.to_owned(), Item { begin: Instant::now(), bar });
    }

    /// It says something.
    pub(crate) fn says(&self, name: &str, words: &str) {
        let items = self.items();
        match items.get(name).and_then(|item| item.bar.as_ref()) {
            Some(bar) => bar.set_message(self.text(&format!("  {name}  ● {words}"))),
            None => self.line(4, &format!("{name}  · {words}")),
        }
    }

    /// A word on the whole, above what moves.
    pub(crate) fn say(&self, words: &str) {
        self.output.say(words);
    }

    /// It says something; begins with it.
    pub(crate) fn progress(&self, name: &str, words: &str) {
        let known = self.items().contains_key(name);
        if known { self.says(name, words) } else { self.begin(name, words) }
    }

    /// It ended well, or with a reason why not.
    pub(crate) fn end(&self, name: &str, result: Result<&str, &str>) {
        let item = self.items().remove(name);
        let took = item
            .as_ref()
            .map_or_else(String::new, |item| format!(" ({})", words::time(item.begin.elapsed())));
        let text = match result {
            Ok(words) => format!("{name}  ✓ {words}{took}"),
            Err(why) => format!("{name}  ✗ {why}{took}"),
        };
        match item.and_then(|item| item.bar) {
            Some(bar) => {
                bar.disable_steady_tick();
                bar.set_style(style("{msg}"));
                bar.finish_with_message(self.text(&format!("  {text}")));
            }
            None => self.line(1, &text),
        }
    }

    fn items(&self) -> parking_lot::MutexGuard<'_, BTreeMap<String, Item>> {
        self.items.lock()
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
