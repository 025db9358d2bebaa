//! The connection to one host: a session that is opened once, and opened again when it breaks.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

use backon::{BackoffBuilder as _, ExponentialBackoff};
use kubeon_api::HostAddress;
use kubeon_plan::StepId;
use kubeon_ports::{ActHost, HostSession};
use kubeon_wire::{Category, Fence, ORPHAN_LIFE, StepFailure};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::backoff::pauses;
use crate::forwarding::{ForwardingHost, PartForwarding};
use crate::{RunEvent, RunObserver};

/// The number of attempts to open a session before the host counts as lost.
const OPEN_TRIES: usize = 4;

/// How long to retry while another session of the cluster holds the lock of the host. A session whose engine
/// was killed or disconnected ends within this time. If the lock is still held after it, another engine is
/// working on the host.
const HELD_TIMEOUT: Duration = ORPHAN_LIFE.saturating_add(Duration::from_secs(7));

/// The pause between two attempts while the host is locked. The host itself also waits briefly before it
/// refuses.
const HELD_PAUSE: Duration = Duration::from_millis(500);

/// The time limit of one attempt to open a session. It includes copying the node program to the host.
const OPEN_TIMEOUT: Duration = Duration::from_secs(300);

/// The time that is added to the timeout of a step before a silent session counts as broken.
const GRACE_PERIOD: Duration = Duration::from_secs(15);

/// How many sessions of one host may break in one run before the host counts as lost.
const MAX_SESSIONS: u8 = 8;

/// How long waiting steps continue after a host of the run was lost: the condition that they wait for may
/// depend on that host.
const LOST_HOST_TIMEOUT: Duration = Duration::from_secs(30);

/// The upper limit of one attempt of a step, even while its host reports progress.
const MAX_ATTEMPT_TIME: Duration = Duration::from_secs(4 * 3600);

/// The time limit for closing a session.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The context that all connections of a run share.
pub(crate) struct RunContext<'a> {
    pub act: &'a dyn ActHost,
    pub observer: &'a dyn RunObserver,
    pub cancellation: &'a CancellationToken,
    /// Limits the number of sessions that are opened in parallel.
    pub openings: Semaphore,
    /// The first host that was lost.
    pub lost: watch::Sender<Option<HostAddress>>,
    /// Which host forwards a part to which other one; `None` if this machine sends them all.
    pub forwarding: Option<PartForwarding<'a>>,
    /// The parts whose bytes have arrived, as their hosts report it.
    pub received: UnboundedSender<StepId>,
}

impl RunContext<'_> {
    /// Returns the failure of waiting steps some time after a host was lost. Never returns while no host is
    /// lost.
    pub(crate) async fn lost_host_timeout(&self) -> StepFailure {
        let mut lost = self.lost.subscribe();
        let lost = lost.wait_for(Option::is_some).await.map(|host| *host);
        // The sender lives in `self`, so the channel cannot close while this waits.
        let Ok(Some(host)) = lost else { return std::future::pending().await };
        sleep(LOST_HOST_TIMEOUT).await;
        let cause = format!("still waiting {} s after {host} was lost", LOST_HOST_TIMEOUT.as_secs());
        StepFailure { category: Category::Timeout, cause, log: Vec::new() }
    }
}

/// The connection to one host.
pub(crate) struct HostConnection<'a> {
    pub host: HostAddress,
    fence: &'a Fence,
    context: &'a RunContext<'a>,
    /// Locked while a session is opened, so that parallel steps open it only once.
    session: Mutex<Option<Arc<dyn HostSession>>>,
    lost: OnceLock<StepFailure>,
    last_event: watch::Sender<Instant>,
    forwards: Mutex<Option<AskedSession>>,
}

/// A session that was asked to forward parts.
struct AskedSession {
    session: Weak<dyn HostSession>,
    /// Where it forwards them; `None` if it does not.
    host: Option<ForwardingHost>,
}

impl<'a> HostConnection<'a> {
    pub(crate) fn new(host: HostAddress, fence: &'a Fence, context: &'a RunContext<'a>) -> Self {
        let last_event = watch::Sender::new(Instant::now());
        let (session, forwards) = (Mutex::new(None), Mutex::new(None));
        Self { host, fence, context, session, lost: OnceLock::new(), last_event, forwards }
    }

    /// Lets the host forward the parts of this session; `None` if it cannot.
    pub(crate) async fn forwarding_host(
        &self,
        session: &Arc<dyn HostSession>,
        forwarding: &PartForwarding<'_>,
    ) -> Option<ForwardingHost> {
        let mut known = self.forwards.lock().await;
        if let Some(asked) = &*known
            && asked.session.upgrade().is_some_and(|asked| Arc::ptr_eq(&asked, session))
        {
            return asked.host;
        }
        let identity = forwarding.identity(self.host)?;
        let address = identity.address;
        let port = session.forward_parts(identity).await;
        let port =
            port.inspect_err(|cause| tracing::info!(host = %self.host, cause, "no parts are forwarded"));
        let host = port.ok().map(|port| ForwardingHost { host: self.host, address, port });
        *known = Some(AskedSession { session: Arc::downgrade(session), host });
        host
    }

    /// Returns the open session, or opens one.
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
                self.context.observer.on_event(RunEvent::HostOpened { host: self.host });
                Ok(session)
            }
            () = self.context.cancellation.cancelled() => Err(cancelled()),
        }
    }

    /// Monitors the session and opens a new one when it ends, even while no step uses it. Returns when the
    /// host is lost or the run is cancelled.
    pub(crate) async fn watch_session(&self) -> HostAddress {
        for _ in 0..MAX_SESSIONS {
            let Ok(session) = self.session().await else { return self.host };
            let failure = session.ended().await;
            // What it kept for other hosts ended with the session.
            self.context.forwarding.iter().for_each(|forwarding| forwarding.set_apart(self.host));
            self.context.observer.on_event(RunEvent::HostRetrying {
                host: self.host,
                failure,
                pause_milliseconds: 0,
            });
            self.close_broken(&session).await;
        }
        self.lose(&unreachable(format!("{} lost its session {MAX_SESSIONS} times in this run", self.host)));
        self.host
    }

    async fn open(&self) -> Result<Arc<dyn HostSession>, StepFailure> {
        let pauses = pauses().with_max_times(OPEN_TRIES - 1).build();
        let mut tries = Tries { pauses, held: None };
        loop {
            let failure = match self.open_once().await {
                Ok(session) => return Ok(session),
                Err(failure) => failure,
            };
            let reported = tries.held.is_some() && failure.category == Category::Held;
            let Some(pause) = tries.pause(failure.category) else { return Err(failure) };
            // A locked host is retried often but reported once.
            if !reported {
                let pause_milliseconds = millis(pause);
                let host = self.host;
                self.context.observer.on_event(RunEvent::HostRetrying { host, failure, pause_milliseconds });
            }
            sleep(pause).await;
        }
    }

    async fn open_once(&self) -> Result<Arc<dyn HostSession>, StepFailure> {
        // The semaphore is never closed. Without a permit only the limit on parallel openings would be
        // missing.
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

    /// Waits for `work`, which the host must finish within `step_timeout`. If the host sends no event about
    /// any step for that time plus [`GRACE_PERIOD`], its session counts as broken. An event about any step
    /// restarts the timer, because on a slow connection a step waits until the bytes of parts are sent. No
    /// attempt takes longer than [`MAX_ATTEMPT_TIME`].
    pub(crate) async fn with_silence_limit<T>(
        &self,
        step_timeout: Duration,
        work: impl Future<Output = Result<T, StepFailure>>,
    ) -> Result<T, StepFailure> {
        let silence_limit = step_timeout + GRACE_PERIOD;
        self.event_received();
        let end = Instant::now() + MAX_ATTEMPT_TIME;
        let silence = async {
            loop {
                let deadline = (*self.last_event.borrow() + silence_limit).min(end);
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
                format!("{}: the step did not end within {} h", self.host, MAX_ATTEMPT_TIME.as_secs() / 3600)
            } else {
                format!("{} sent no event for {} s", self.host, silence_limit.as_secs())
            })),
        }
    }

    /// Records that the host sent an event.
    pub(crate) fn event_received(&self) {
        self.last_event.send_replace(Instant::now());
    }

    /// Closes a broken session. A new session that another step opened in the meantime stays open.
    pub(crate) async fn close_broken(&self, broken: &Arc<dyn HostSession>) {
        let mut slot = self.session.lock().await;
        if slot.as_ref().is_some_and(|session| Arc::ptr_eq(session, broken)) {
            *slot = None;
            close_session(broken).await;
        }
    }

    /// Marks the host as lost for this run. The first reason is kept.
    pub(crate) fn lose(&self, failure: &StepFailure) {
        let mut first = false;
        self.lost.get_or_init(|| {
            first = true;
            failure.clone()
        });
        if first {
            self.context.lost.send_if_modified(|lost| lost.replace(self.host).is_none());
            let failure = failure.clone();
            self.context.observer.on_event(RunEvent::HostLost { host: self.host, failure });
        }
    }

    /// The reason why the host is lost; `None` while it is not.
    pub(crate) fn lost(&self) -> Option<&StepFailure> {
        self.lost.get()
    }

    /// Ends the session, if there is one.
    pub(crate) async fn close(&self) {
        if let Some(session) = self.session.lock().await.take() {
            close_session(&session).await;
        }
    }

    pub(crate) fn context(&self) -> &'a RunContext<'a> {
        self.context
    }
}

/// The attempts to open one session.
struct Tries {
    /// The pauses that are left; attempts that found the host locked use none.
    pauses: ExponentialBackoff,
    /// When the host was first found locked.
    held: Option<Instant>,
}

impl Tries {
    /// The pause before the next attempt; `None` if a retry cannot help or no attempt is left.
    fn pause(&mut self, failed: Category) -> Option<Duration> {
        if failed == Category::Held {
            let since = *self.held.get_or_insert_with(Instant::now);
            return (since.elapsed() < HELD_TIMEOUT).then_some(HELD_PAUSE);
        }
        if failed.retryable() { self.pauses.next() } else { None }
    }
}

/// Closes the session. A session that does not close in time is abandoned: the host ends it by itself.
async fn close_session(session: &Arc<dyn HostSession>) {
    let _closed = timeout(CLOSE_TIMEOUT, session.close()).await;
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn cancelled() -> StepFailure {
    StepFailure { category: Category::Cancelled, cause: "the run was cancelled".to_owned(), log: Vec::new() }
}

fn unreachable(cause: String) -> StepFailure {
    StepFailure { category: Category::Unreachable, cause, log: Vec::new() }
}
