//! `--hold`: nothing is done to a host before whoever started this program says so.

use std::time::Duration;

use kubeon_apply::Stop as Switch;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};

use crate::stop::{Code, Stop};

/// How long is waited for the line.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Longest line that is read.
const LINE: u64 = 4096;

/// Waits for a line, whatever it says.
///
/// # Errors
/// When none comes in time, the input ends, or the switch is thrown.
pub async fn wait(input: impl AsyncRead + Unpin, switch: &Switch) -> Result<(), Stop> {
    let mut line = Vec::new();
    let mut input = BufReader::new(input.take(LINE));
    tokio::select! {
        read = input.read_until(b'\n', &mut line) => match read {
            Ok(0) => Err(held("standard input ended")),
            Ok(_) => Ok(()),
            Err(error) => Err(held(&format!("standard input cannot be read: {error}"))),
        },
        () = tokio::time::sleep(PATIENCE) => Err(held(&format!("no line came within {} s", PATIENCE.as_secs()))),
        () = switch.stopped() => Err(Stop::new(Code::Interrupted, "stopped while held; no host was written to")),
    }
}

fn held(why: &str) -> Stop {
    Stop::refused(format!("held, and nobody said to go on: {why}; no host was written to"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_line_lets_it_go_on_and_nothing_else_does() {
        let switch = Switch::new();
        wait(&b"go\nmore"[..], &switch).await.unwrap();
        let ended = wait(&b""[..], &switch).await.unwrap_err();
        assert_eq!(ended.code, Code::Refused);
        assert!(ended.title.contains("standard input ended"), "{ended}");
        let (_open, silent) = tokio::io::duplex(8);
        let late = wait(silent, &switch).await.unwrap_err();
        assert!(late.title.contains("within 120 s"), "{late}");
    }

    #[tokio::test(start_paused = true)]
    async fn ctrl_c_ends_it() {
        let switch = Switch::new();
        switch.stop();
        let (_open, silent) = tokio::io::duplex(8);
        assert_eq!(wait(silent, &switch).await.unwrap_err().code, Code::Interrupted);
    }
}
