//! Ctrl-C and SIGTERM: the first one stops gently, the second one at once.

use kubeon_apply::Stop as Switch;
use tokio::signal::unix::{SignalKind, signal};

use crate::output::Talk;
use crate::stop::{Code, Stop};

/// Watches for signals from now on, for the rest of the process.
///
/// # Errors
/// When signals cannot be watched.
pub fn watch(switch: &Switch, talk: &Talk) -> Result<(), Stop> {
    let unwatchable = |error: std::io::Error| Stop::failed(format!("cannot watch for signals: {error}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(unwatchable)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(unwatchable)?;
    let (switch, talk) = (switch.clone(), talk.clone());
    tokio::spawn(async move {
        let mut next = async || {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        };
        next().await;
        switch.stop();
        talk.say("stopping: steps under way are finished first; press Ctrl-C again to stop at once");
        next().await;
        talk.on_screen(None);
        std::process::exit(Code::Interrupted as i32);
    });
    Ok(())
}
