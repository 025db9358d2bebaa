//! Being told to stop: the signal goes on to the work, which has a time of grace, then is killed.

use std::io;
use std::time::Duration;

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::family::Family;
use crate::voice::Voice;

/// What is left after the time of grace for telling what came of it: 4 s of a kubelet's usual 30.
fn farewell(grace: Duration) -> Duration {
    (grace * 4 / 25).max(Duration::from_secs(4))
}

/// By what and when it was told.
#[derive(Debug, Clone, Copy)]
pub struct Told {
    /// SIGTERM or SIGINT.
    pub signal: Signal,
    /// When everything must have been said: the kubelet kills soon after.
    pub last_word: Instant,
}

impl Told {
    /// The exit code for it.
    #[must_use]
    pub fn code(self) -> u8 {
        u8::try_from(128 + self.signal.as_raw()).unwrap_or(u8::MAX)
    }
}

/// Whether it was told to stop.
#[derive(Debug, Clone)]
pub struct Stop {
    told: watch::Receiver<Option<Told>>,
}

impl Stop {
    /// Begins to listen for signals and to send them on.
    ///
    /// # Errors
    /// When the kernel does not let it.
    pub fn listen(family: Family, grace: Duration, voice: Voice) -> io::Result<Self> {
        let (tell, told) = watch::channel(None);
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let mut user1 = signal(SignalKind::user_defined1())?;
        let mut user2 = signal(SignalKind::user_defined2())?;
        tokio::spawn(async move {
            let mut end: Option<Instant> = None;
            loop {
                let came = tokio::select! {
                    Some(()) = terminate.recv() => Signal::TERM,
                    Some(()) = interrupt.recv() => Signal::INT,
                    Some(()) = hangup.recv() => Signal::HUP,
                    Some(()) = user1.recv() => Signal::USR1,
                    Some(()) = user2.recv() => Signal::USR2,
                    () = sleep_until(end.unwrap_or_else(Instant::now)), if end.is_some() => {
                        voice.say("the time of grace is over, what still runs is killed");
                        family.signal(Signal::KILL);
                        end = None;
                        continue;
                    }
                };
                if matches!(came, Signal::TERM | Signal::INT) && tell.borrow().is_none() {
                    voice.say(&format!("told to stop by signal {}", came.as_raw()));
                    let over = Instant::now() + grace;
                    end = Some(over);
                    tell.send_replace(Some(Told { signal: came, last_word: over + farewell(grace) }));
                }
                family.signal(came);
            }
        });
        Ok(Self { told })
    }

    /// By what it was told to stop, if it was.
    #[must_use]
    pub fn told(&self) -> Option<Told> {
        *self.told.borrow()
    }

    /// Waits until it is told to stop.
    pub async fn asked(&self) {
        let mut told = self.told.clone();
        if told.wait_for(Option::is_some).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until everything must have been said: a while from now, or sooner once it was told to stop.
    pub async fn last_word(&self, patience: Duration) {
        let patient = Instant::now() + patience;
        let mut told = self.told.clone();
        let sooner = async move {
            match told.wait_for(Option::is_some).await.map(|told| *told) {
                Ok(Some(told)) => sleep_until(told.last_word).await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            () = sleep_until(patient) => {}
            () = sooner => {}
        }
    }
}
