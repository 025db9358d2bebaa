//! Disables the echo of `^C`, which would shift the redrawn lines.

use std::io;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// Until this value is dropped, the terminal does not echo control keys. Other keys are echoed.
pub(super) struct SilentKeys {
    before: Termios,
}

impl SilentKeys {
    /// `None` if standard input is not a terminal.
    pub(super) fn new() -> Option<Self> {
        let before = tcgetattr(io::stdin()).ok()?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHOCTL);
        tcsetattr(io::stdin(), OptionalActions::Now, &silent).ok()?;
        Some(Self { before })
    }
}

impl Drop for SilentKeys {
    fn drop(&mut self) {
        // This fails only when the terminal is closed.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}
