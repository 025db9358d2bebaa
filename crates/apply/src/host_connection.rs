//! The line to one host: a session, opened once and opened again when it broke.

use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

use kubeon_api::HostAddress;
use kubeon_ports::{ActHost, HostSession};
use kubeon_wire::{Category, Fence, ORPHAN_LIFE, StepFailure};
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::{RunEvent, RunObserver};

/// How often a session is tried to be opened before the host counts as lost.
const OPEN_TRIES: u8 = 4;

/// How long a host that another session of the cluster holds is asked again. Where the engine of that session is
/// gone, killed or cut off, it ends by itself within this time; where not, somebody is at work.
const HELD_TIMEOUT: Duration = ORPHAN_LIFE.saturating_add(Duration::from_secs(7));

/// The pause before a host that is held is asked again; it waits a little itself before it answers.
const HELD_PAUSE: Duration = Duration::from_millis(500);

/// How long one try to open may take: the node program may have to be put in place first.
const OPEN_TIMEOUT: Duration = Duration::from_secs(120);

/// How much longer than a step's own timeout a host may be silent before its session counts as broken.
const GRACE_PERIOD: Duration = Duration::from_secs(15);

/// How many sessions of a host may end before their time in one run.
const SESSIONS: u8 = 8;

/// How long steps that wait for others go on waiting once a host of the run is lost: what they wait for may
/// be on it.
const IN_VAIN: Duration = Duration::from_secs(30);

/// No try of a step takes longer than this, whatever its host says.
const LONGEST_TRY: Duration = Duration::from_secs(4 * 3600);

/// How long a session may take to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// What all connections of a run share.
pub(crate) struct RunContext<'a> {
    pub act: &'a dyn ActHost,
    pub watch: &'a dyn RunObserver,
    pub stop: &'a CancellationToken,
    /// Bounds how many hosts are being opened at once.
    pub openings: Semaphore,
    /// The first host that was lost.
    pub lost: watch::Sender<Option<HostAddress>>,
}

impl RunContext<'_> {
    /// Returns when waiting has no point any more; never, while all hosts are there.
    pub(crate) async fn in_vain(&self) -> StepFailure {
        let mut lost = self.lost.subscribe();
        let lost = lost.wait_for(Option::is_some).await.map(|host| *host);
        // The sender lives in `self`, so the channel cannot close while this waits.
        let Ok(Some(host)) = lost else { return std::future::pending().await };
        sleep(IN_VAIN).await;
        let cause = format!("still waiting {} s after {host} was lost", IN_VAIN.as_secs());
        StepFailure { category: Category::Timeout, cause, log: Vec::new() }
    }
}

/// The line to one host.
pub(crate) struct HostConnection<'a> {
    pub host: HostAddress,
    fence: &'a Fence,
    context: &'a RunContext<'a>,
    /// Held while opening, so that many steps that find the session broken open it once.
    session: Mutex<Option<Arc<dyn HostSession>>>,
    lost: OnceLock<StepFailure>,
    heard: watch::Sender<Instant>,
}

impl<'a> HostConnection<'a> {
    pub(crate) fn new(host: HostAddress, fence: &'a Fence, context: &'a RunContext<'a>) -> Self {
        let heard = watch::Sender::new(Instant::now());
        Self { host, fence, context, session: Mutex::new(None), lost: OnceLock::new(), heard }
    }

    /// The open session; opens it where there is none.
    pub(crate) async fn session(&self) -> Result<Arc<dyn HostSession>, StepFailure> {
        let mut slot = self.session.lock().await;
        if let Some(failure) = self.lost.get() {
            return Err(failure.clone());
        }
        if let Some(session) = &*slot {
            return Ok(Arc::clone(session));
        }
        tokio::select! {
            opened = self.open() => {
                let session = opened.inspect_err(|failure| self.lose(failure))?;
                *slot = Some(Arc::clone(&session));
                self.context.watch.on_event(RunEvent::HostOpened { host: self.host });
                Ok(session)
            }
            () = self.context.stop.cancelled() => Err(cancelled()),
        }
    }

    /// Sees to it that a session that ends by itself is noticed and opened again, also while no step uses it.
    /// Returns when the host is lost or the run was told to stop.
    pub(crate) async fn keep(&self) -> HostAddress {
        for _ in 0..SESSIONS {
            let Ok(session) = self.session().await else { return self.host };
            let failure = session.ended().await;
            self.context.watch.on_event(RunEvent::HostRetrying {
                host: self.host,
                failure,
                pause_milliseconds: 0,
            });
            self.broke(&session).await;
        }
        self.lose(&unreachable(format!("{} lost its session {SESSIONS} times", self.host)));
        self.host
    }

    async fn open(&self) -> Result<Arc<dyn HostSession>, StepFailure> {
        let mut tries = Tries { attempt: 1, held: None };
        loop {
            let failure = match self.open_once().await {
                Ok(session) => return Ok(session),
                Err(failure) => failure,
            };
            let known = tries.held.is_some() && failure.category == Category::Held;
            let Some(pause) = tries.pause(failure.category) else { return Err(failure) };
            // A host that is held is asked often, and that it is held is told once.
            if !known {
                let pause_milliseconds = millis(pause);
                let host = self.host;
                self.context.watch.on_event(RunEvent::HostRetrying { host, failure, pause_milliseconds });
            }
            sleep(pause).await;
        }
    }

    async fn open_once(&self) -> Result<Arc<dyn HostSession>, StepFailure> {
        // The semaphore is never closed; were it, opening without a permit would only be less polite.
        let _permit = self.context.openings.acquire().await.ok();
        match timeout(OPEN_TIMEOUT, self.context.act.open(self.host, self.fence)).await {
            Ok(result) => result,
            Err(_) => Err(unreachable(format!(
                "{} did not open a session within {} s",
                self.host,
                OPEN_TIMEOUT.as_secs()
            ))),
        }
    }

    /// Waits for `work`, which the host is to finish within `patience`. A host that is silent for longer,
    /// about this step and every other, is taken to be gone. Steps wait behind the bytes of parts on a
    /// slow connection, so a word about any step counts; but no try lasts longer than [`LONGEST_TRY`].
    pub(crate) async fn hear<T>(
        &self,
        patience: Duration,
        work: impl Future<Output = Result<T, StepFailure>>,
    ) -> Result<T, StepFailure> {
        let patience = patience + GRACE_PERIOD;
        self.heard();
        let end = Instant::now() + LONGEST_TRY;
        let silence = async {
            loop {
                let deadline = (*self.heard.borrow() + patience).min(end);
                if Instant::now() >= deadline {
                    return;
                }
                sleep_until(deadline).await;
            }
        };
        tokio::select! {
            biased;
            result = work => result,
            () = silence => Err(unreachable(if Instant::now() >= end {
                format!("{} did not come to an end within {} h", self.host, LONGEST_TRY.as_secs() / 3600)
            } else {
                format!("{} said nothing for {} s", self.host, patience.as_secs())
            })),
        }
    }

    /// The host said something.
    pub(crate) fn heard(&self) {
        self.heard.send_replace(Instant::now());
    }

    /// Drops a session that broke. Another step may have opened a new one since; that one stays.
    pub(crate) async fn broke(&self, broken: &Arc<dyn HostSession>) {
        let mut slot = self.session.lock().await;
        if slot.as_ref().is_some_and(|session| Arc::ptr_eq(session, broken)) {
            *slot = None;
            hang_up(broken).await;
        }
    }

    /// Gives the host up for this run. The first reason stays.
    pub(crate) fn lose(&self, failure: &StepFailure) {
        let mut first = false;
        self.lost.get_or_init(|| {
            first = true;
            failure.clone()
        });
        if first {
            self.context.lost.send_if_modified(|lost| lost.replace(self.host).is_none());
            let failure = failure.clone();
            self.context.watch.on_event(RunEvent::HostLost { host: self.host, failure });
        }
    }

    /// Why the host is out of the run, when it is.
    pub(crate) fn lost(&self) -> Option<&StepFailure> {
        self.lost.get()
    }

    /// Ends the session, if there is one.
    pub(crate) async fn close(&self) {
        if let Some(session) = self.session.lock().await.take() {
            hang_up(&session).await;
        }
    }

    pub(crate) fn context(&self) -> &'a RunContext<'a> {
        self.context
    }
}

/// The tries to open one session.
struct Tries {
    /// The number of the try under way, without those that found the host held.
    attempt: u8,
    /// When the host was first found held.
    held: Option<Instant>,
}

impl Tries {
    /// The pause until the next try after one that failed; `None` where it would not help.
    fn pause(&mut self, failed: Category) -> Option<Duration> {
        if failed == Category::Held {
            let since = *self.held.get_or_insert_with(Instant::now);
            return (since.elapsed() < HELD_TIMEOUT).then_some(HELD_PAUSE);
        }
        let again = self.attempt < OPEN_TRIES && failed.retryable();
        let pause = pause_after(self.attempt);
        self.attempt += 1;
        again.then_some(pause)
    }
}

/// Closing is politeness towards a host that finishes by itself: a session that does not close is left.
async fn hang_up(session: &Arc<dyn HostSession>) {
    let _closed = timeout(CLOSE_TIMEOUT, session.close()).await;
}

/// The pause after the given try (from 1): 0.5, 1, 2, 4, 8, 8 … seconds.
pub(crate) fn pause_after(attempt: u8) -> Duration {
    Duration::from_millis(500 << attempt.saturating_sub(1).min(4))
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn cancelled() -> StepFailure {
    StepFailure {
        category: Category::Cancelled,
        cause: "the run was told to stop".to_owned(),
        log: Vec::new(),
    }
}

fn unreachable(cause: String) -> StepFailure {
    StepFailure { category: Category::Unreachable, cause, log: Vec::new() }
}
