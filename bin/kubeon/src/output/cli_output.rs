//! The output of the program: results go to standard output, messages and progress go to standard error.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;

use indicatif::MultiProgress;
use kubeon_wire::Progress;
use parking_lot::Mutex;

use super::keys::SilentKeys;
use crate::args::{CliEnvironment, ProgressForm, VerbosityFlags};
use crate::cli_error::CliError;

/// From this level on the logs of the other crates are printed.
const DEBUG: u8 = 6;

/// The output of a command. Clones share the screen.
#[derive(Clone)]
pub(crate) struct CliOutput {
    quiet: bool,
    verbosity: u8,
    /// Standard error is a terminal that can redraw lines.
    pub moving: bool,
    /// Standard error takes colours.
    pub colour: bool,
    /// Messages and progress are written as lines of JSON.
    json: bool,
    /// The user can be asked: standard input and error are terminals.
    pub can_ask: bool,
    screen: Arc<Mutex<Option<LiveScreen>>>,
}

/// The lines that are redrawn.
struct LiveScreen {
    screen: MultiProgress,
    _keys: Option<SilentKeys>,
}

impl CliOutput {
    /// Creates the output from flags, environment and the standard streams.
    pub(crate) fn new(flags: &VerbosityFlags, environment: &CliEnvironment) -> Self {
        let json = flags.progress == ProgressForm::Json;
        let terminal = io::stderr().is_terminal() && !json;
        let verbosity = u8::try_from(flags.verbosity.clamp(0, 8)).unwrap_or(1);
        let capable = terminal && !environment.dumb_terminal;
        Self {
            quiet: flags.quiet || verbosity == 0,
            verbosity,
            // Debug logs bypass the screen and would break the redrawn lines.
            moving: capable && verbosity < DEBUG,
            colour: capable && !environment.no_color,
            json,
            can_ask: terminal && io::stdin().is_terminal(),
            screen: Arc::default(),
        }
    }

    /// Whether only results and errors are printed.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// The level of `-v`, 0 to 8.
    pub(crate) fn verbosity(&self) -> u8 {
        self.verbosity
    }

    /// Prints a result to standard output.
    ///
    /// # Errors
    /// When standard output is closed or full.
    pub(crate) fn result(&self, text: &str) -> Result<(), CliError> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        Ok(out.flush()?)
    }

    /// Prints an informational message to standard error. Write errors are ignored.
    pub(crate) fn info(&self, line: &str) {
        if self.quiet {
            return;
        }
        if self.json {
            return self.note(line, false);
        }
        let screen = self.screen.lock();
        let _ = match screen.as_ref() {
            Some(live) => live.screen.println(line),
            None => writeln!(io::stderr().lock(), "{line}"),
        };
    }

    /// Sets the screen that redraws lines; messages are printed above them. `None`: no line is redrawn any
    /// more.
    pub(crate) fn set_screen(&self, screen: Option<MultiProgress>) {
        *self.screen.lock() = screen.map(|screen| LiveScreen { screen, _keys: SilentKeys::new() });
    }

    /// Prints a message if `-v` is at least `level`.
    pub(crate) fn detail(&self, level: u8, line: &str) {
        if self.verbosity >= level {
            self.info(line);
        }
    }

    /// Prints a warning to standard error.
    pub(crate) fn warn(&self, line: &str) {
        if self.json && !self.quiet {
            return self.note(line, true);
        }
        self.info(&format!("warning: {line}"));
    }

    fn note(&self, line: &str, warning: bool) {
        self.progress(&Progress::Note { text: line.to_owned(), warning });
    }

    /// Whether progress is written as lines of JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Writes a progress event to standard error if progress is JSON. Write errors are ignored.
    pub(crate) fn progress(&self, progress: &Progress) {
        if !self.json {
            return;
        }
        if let Ok(mut line) = serde_json::to_vec(progress) {
            line.push(b'\n');
            let _ = io::stderr().lock().write_all(&line);
        }
    }

    /// Reports the end of a command to standard error.
    pub(crate) fn end(&self, result: &Result<(), CliError>) {
        match result {
            Ok(()) => {
                self.progress(&Progress::End { ok: true, reason: None, next: None, refusals: Vec::new() })
            }
            Err(error) if self.json => {
                let reason = Some(error.reason()).filter(|reason| !reason.is_empty());
                self.progress(&Progress::End {
                    ok: false,
                    reason,
                    next: error.command(),
                    refusals: error.refusals.to_vec(),
                });
            }
            Err(error) => drop(write!(io::stderr().lock(), "{error}")),
        }
    }

    /// Asks a yes-or-no question. Returns false when the user cannot answer.
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
