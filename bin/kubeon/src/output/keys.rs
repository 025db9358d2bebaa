//! Keeps `^C` off the lines that move: the terminal would write it at their end and shift them.

use std::io;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// While this lives, control keys are not echoed; what is typed otherwise is.
pub(super) struct SilentKeys {
    before: Termios,
}

impl SilentKeys {
    /// `None` where standard input is no terminal.
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
        // The terminal is gone when this fails.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}
