//! Where words go: results to standard output, everything that moves or explains to standard error.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;

use indicatif::MultiProgress;
use kubeon_wire::Progress;
use parking_lot::Mutex;

use super::keys::SilentKeys;
use crate::args::{CliEnvironment, ProgressForm, VerbosityFlags};
use crate::cli_error::CliError;

/// From this level on the crates below speak as well.
const DEBUG: u8 = 6;

/// What may be said, and how.
#[derive(Clone)]
pub(crate) struct CliOutput {
    quiet: bool,
    verbosity: u8,
    /// Standard error is a terminal that can redraw lines.
    pub moving: bool,
    /// Standard error takes colours.
    pub colour: bool,
    /// Everything is told as lines of JSON.
    json: bool,
    /// A person can be asked: standard input and error are terminals.
    pub can_ask: bool,
    screen: Arc<Mutex<Option<Moving>>>,
}

/// Lines that move, for as long as they do.
struct Moving {
    screen: MultiProgress,
    _keys: Option<SilentKeys>,
}

impl CliOutput {
    /// From flags, environment and what the standard streams are.
    pub(crate) fn new(flags: &VerbosityFlags, environment: &CliEnvironment) -> Self {
        let json = flags.progress == ProgressForm::Json;
        let terminal = io::stderr().is_terminal() && !json;
        let verbosity = u8::try_from(flags.verbosity.clamp(0, 8)).unwrap_or(1);
        let capable = terminal && !environment.dumb_terminal;
        Self {
            quiet: flags.quiet || verbosity == 0,
            verbosity,
            // Debugging words come from everywhere and would tear moving lines apart.
            moving: capable && verbosity < DEBUG,
            colour: capable && !environment.no_color,
            json,
            can_ask: terminal && io::stdin().is_terminal(),
            screen: Arc::default(),
        }
    }

    /// Whether only results and errors are wanted.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// The level of `-v`, 0 to 8.
    pub(crate) fn verbosity(&self) -> u8 {
        self.verbosity
    }

    /// A result, to standard output.
    ///
    /// # Errors
    /// When standard output is closed or full.
    pub(crate) fn result(&self, text: &str) -> Result<(), CliError> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        Ok(out.flush()?)
    }

    /// A line that explains, to standard error. Nobody can be told when that fails.
    pub(crate) fn say(&self, line: &str) {
        if self.quiet {
            return;
        }
        if self.json {
            return self.note(line, false);
        }
        let screen = self.screen.lock();
        let _ = match screen.as_ref() {
            Some(moving) => moving.screen.println(line),
            None => writeln!(io::stderr().lock(), "{line}"),
        };
    }

    /// From now on lines move on this screen, and what is said goes above them; `None` when they stand still again.
    pub(crate) fn on_screen(&self, screen: Option<MultiProgress>) {
        *self.screen.lock() = screen.map(|screen| Moving { screen, _keys: SilentKeys::new() });
    }

    /// A line for those who asked for more with `-v`.
    pub(crate) fn detail(&self, level: u8, line: &str) {
        if self.verbosity >= level {
            self.say(line);
        }
    }

    /// A warning, to standard error.
    pub(crate) fn warn(&self, line: &str) {
        if self.json && !self.quiet {
            return self.note(line, true);
        }
        self.say(&format!("warning: {line}"));
    }

    fn note(&self, line: &str, warning: bool) {
        self.progress(&Progress::Note { text: line.to_owned(), warning });
    }

    /// Whether programs listen.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// A line for programs, to standard error, where they listen. Nobody can be told when that fails.
    pub(crate) fn progress(&self, progress: &Progress) {
        if !self.json {
            return;
        }
        if let Ok(mut line) = serde_json::to_vec(progress) {
            line.push(b'\n');
            let _ = io::stderr().lock().write_all(&line);
        }
    }

    /// How a command ended, to standard error.
    pub(crate) fn end(&self, result: &Result<(), CliError>) {
        match result {
            Ok(()) => {
                self.progress(&Progress::End { ok: true, reason: None, next: None, refusals: Vec::new() })
            }
            Err(stop) if self.json => {
                let reason = Some(stop.reason()).filter(|reason| !reason.is_empty());
                self.progress(&Progress::End {
                    ok: false,
                    reason,
                    next: stop.next(),
                    refusals: stop.refusals.to_vec(),
                });
            }
            Err(stop) => drop(write!(io::stderr().lock(), "{stop}")),
        }
    }

    /// Asks a question that is answered by yes or no; no when nobody can be asked.
    ///
    /// # Errors
    /// When the terminal cannot be read.
    pub(crate) fn ask(&self, question: &str) -> io::Result<bool> {
        if !self.can_ask {
            return Ok(false);
        }
        write!(io::stderr().lock(), "{question} [y/N] ")?;
        let mut line = String::new();
        io::stdin().read_line(&mut line)?;
        Ok(matches!(line.trim(), "y" | "Y" | "yes"))
    }
}
