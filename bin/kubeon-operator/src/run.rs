//! Start, leadership and shutdown of the operator.

mod unlistable;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use futures::future::BoxFuture;
use kubeon_link_kube::{EventRecorder, HeldLease, KubeWriter, Lease, LeaseEnd, connect_within};
use kubeon_operations::OperatorSettings;
use kubeon_traces::Traces;
use tokio::sync::watch;

use crate::admission::{self, Admission};
use crate::context::OperatorContext;
use crate::health::{self, HealthState};
use crate::observer;
use crate::operation_limit::{OperationLimit, OperationLimits};
use crate::queue::Urgency;
use crate::reconcile;
use crate::spans::OperatorSpans;
use crate::watches;

/// The name of the lease.
const LEASE: &str = "kubeon-operator";
/// The field manager of the operator's writes.
const MANAGER: &str = "kubeon-operator";
/// Additional workers for urgent keys.
const URGENT_WORKERS: usize = 16;
/// How long running reconciles may take at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);
/// The same after the loss of the lease, once for reconciles and once for events: another process may lead soon.
const LOSS_TIMEOUT: Duration = Duration::from_secs(1);

/// The options of the operator.
#[derive(Debug, Clone)]
pub struct OperatorOptions {
    /// The kubeconfig of the meta cluster; `None` for the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// The settings that apply to every queue key.
    pub settings: OperatorSettings,
    /// Whether to reconcile only while this process holds the lease.
    pub leader_elect: bool,
    /// The address of `/metrics`.
    pub metrics_address: SocketAddr,
    /// The address of `/healthz` and `/readyz`.
    pub health_address: SocketAddr,
    /// The admission webhook; `None` when it is off.
    pub admission: Option<Admission>,
    /// The number of keys that are reconciled at the same time.
    pub workers: usize,
    /// The most operations that run at the same time.
    pub limits: OperationLimits,
    /// The time between two observations of a business cluster; `None` when they are not observed.
    pub observe_every: Option<Duration>,
    /// The timeout of a request to the API server.
    pub request_timeout: Duration,
    /// The OpenTelemetry collector of the traces; the environment has its other settings.
    pub collector: Option<String>,
    /// A name that no other process has.
    pub instance: String,
}

/// Runs until `stop` ends, or until the lease is lost.
///
/// # Errors
/// When the API server cannot be reached, an address is in use, or the lease was lost.
pub async fn run(options: OperatorOptions, mut stop: BoxFuture<'static, ()>) -> anyhow::Result<()> {
    let timeout = options.request_timeout;
    let client = connect_within(options.kubeconfig.as_deref(), timeout).await?;
    let namespace = options.settings.namespace.clone();
    let ((leading, leads), (ending, end)) = (watch::channel(false), watch::channel(false));
    let webhook = match options.admission {
        Some(admission) => Some(admission::start(admission, &client, &namespace, leads, end).await?),
        None => None,
    };
    let writer = KubeWriter::new(client.clone(), MANAGER, timeout);
    let events = EventRecorder::start(client.clone(), &writer, MANAGER, &options.instance);
    let spans = match options.collector {
        Some(collector) => Some(OperatorSpans::new(Traces::start(MANAGER, &collector)?, collector)),
        None => None,
    };
    let context = Arc::new(OperatorContext::new(
        options.settings,
        OperationLimit::new(options.limits),
        writer,
        events,
        spans,
    ));
    // Before the health server starts, so that /readyz knows the initial lists.
    watches::start(&context, &client);
    let readiness = webhook.as_ref().map(|webhook| webhook.readiness.clone());
    let state = HealthState { context: Arc::clone(&context), admission: readiness };
    let metrics = health::serve(&state, options.metrics_address).await?;
    let health = health::serve(&state, options.health_address).await?;
    tracing::info!(%metrics, %health, namespace, "the operator starts");
    configure(&context);
    // The lease has its own connections, because a renewal must not wait behind other requests.
    let lease = match options.leader_elect {
        true => {
            let own = connect_within(options.kubeconfig.as_deref(), timeout).await?;
            Some(Lease::new(own, &namespace, LEASE, &options.instance))
        }
        false => None,
    };
    let duties = Duties { workers: options.workers, observe_every: options.observe_every };
    let led = lead(&context, lease, duties, &leading, &mut stop).await;
    // Also after the loss of the lease, because no other replica records the events of these writes.
    let timeout = if led.is_ok() { SHUTDOWN_TIMEOUT } else { LOSS_TIMEOUT };
    let lost = context.events.flush(timeout).await;
    if lost > 0 {
        tracing::warn!(lost, "events are not recorded: the API server did not accept them in time");
    }
    led?;
    if let Some(spans) = &context.spans {
        spans.end().await;
    }
    // Only after a normal end: a process that lost the lease must exit at once.
    ending.send_replace(true);
    if let Some(webhook) = webhook {
        webhook.shutdown().await;
    }
    Ok(())
}

/// What the leader does.
#[derive(Debug, Clone, Copy)]
struct Duties {
    /// The number of keys that are reconciled at the same time.
    workers: usize,
    /// The time between two observations of a business cluster; `None` when they are not observed.
    observe_every: Option<Duration>,
}

/// Waits for the lease, then reconciles until `stop` ends or the lease is lost.
async fn lead(
    context: &Arc<OperatorContext>,
    lease: Option<Lease>,
    duties: Duties,
    leading: &watch::Sender<bool>,
    stop: &mut BoxFuture<'static, ()>,
) -> anyhow::Result<()> {
    let mut held = None;
    if let Some(lease) = lease {
        tokio::select! {
            acquired = lease.acquire() => held = Some(acquired),
            () = &mut *stop => return Ok(()),
        }
        tracing::info!("this process leads");
    }
    leading.send_replace(true);
    let ready = async {
        context.listed.all().await;
        context.read_limit().await;
    };
    tokio::select! {
        () = ready => {}
        end = renew(&mut held) => bail!("the lease was lost: {end:?}"),
        () = &mut *stop => return release(held).await,
    }
    // Not before the lists are complete: a holder of the lease that cannot reconcile is not a leader for
    // users.
    context.metrics.leads(true);
    context.lead();
    context.wake(context.cache.queue_keys().into_iter().collect());
    context.queue.open();
    tracing::info!("the initial lists are complete; reconciles begin");
    for at in 0..duties.workers + URGENT_WORKERS {
        let least = if at < duties.workers { Urgency::Rest } else { Urgency::Urgent };
        tokio::spawn(reconcile::work(Arc::clone(context), least));
    }
    tokio::select! {
        end = renew(&mut held) => {
            // Another replica may lead from now on. The API server refuses later writes by their
            // resourceVersion.
            if tokio::time::timeout(LOSS_TIMEOUT, context.queue.close()).await.is_err() {
                tracing::warn!("running reconciles are aborted; the next leader continues them");
            }
            bail!("the lease was lost: {end:?}");
        }
        () = unlistable::report(context) => {}
        () = observe(context, duties.observe_every) => {}
        () = &mut *stop => {}
    }
    tracing::info!("the shutdown begins");
    if tokio::time::timeout(SHUTDOWN_TIMEOUT, context.queue.close()).await.is_err() {
        tracing::warn!("running reconciles are aborted; the next leader continues them");
    }
    context.metrics.leads(false);
    leading.send_replace(false);
    release(held).await
}

/// Observes the business clusters, without end.
async fn observe(context: &Arc<OperatorContext>, every: Option<Duration>) {
    match every {
        Some(every) => observer::observe(context, every).await,
        None => std::future::pending().await,
    }
}

async fn renew(held: &mut Option<HeldLease>) -> LeaseEnd {
    match held {
        Some(held) => held.renew_until_lost().await,
        None => std::future::pending().await,
    }
}

async fn release(held: Option<HeldLease>) -> anyhow::Result<()> {
    if let Some(held) = held
        && let Err(error) = held.release().await
    {
        tracing::warn!(%error, "the lease is not released; it expires by itself");
    }
    Ok(())
}

/// Reads the history limit whenever its ConfigMap changes.
fn configure(context: &Arc<OperatorContext>) {
    let context = Arc::clone(context);
    tokio::spawn(async move {
        loop {
            context.reconfigure.notified().await;
            context.read_limit().await;
        }
    });
}
