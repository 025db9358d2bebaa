//! From options to a working operator, and its end.

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
use crate::queue::Urgency;
use crate::reconcile;
use crate::spans::OperatorSpans;
use crate::watches;

/// The lease's name.
const LEASE: &str = "kubeon-operator";
/// The owner of fields that the operator writes.
const MANAGER: &str = "kubeon-operator";
/// Workers on top of those that were asked for, for lanes that hurry.
const URGENT_WORKERS: usize = 16;
/// How long turns that are being made may go on after the end was asked for.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);

/// What the operator was asked for.
#[derive(Debug, Clone)]
pub struct OperatorOptions {
    /// How to reach the meta cluster; the pod's service account when absent.
    pub kubeconfig: Option<PathBuf>,
    /// What holds for every lane.
    pub settings: OperatorSettings,
    /// Whether to work only while holding the lease.
    pub leader_elect: bool,
    /// Where metrics are served.
    pub metrics_address: SocketAddr,
    /// Where health is told.
    pub health_address: SocketAddr,
    /// Where admission reviews are answered, if they are.
    pub admission: Option<Admission>,
    /// Lanes that are worked on side by side.
    pub workers: usize,
    /// How long an answer of the API server is waited for.
    pub request_timeout: Duration,
    /// The OpenTelemetry collector that traces are sent to; how is said by the rest of the environment.
    pub collector: Option<String>,
    /// A name that no other process has.
    pub instance: String,
}

/// Works until `stop` ends, or until the lease is lost.
///
/// # Errors
/// When the API server cannot be reached, an address cannot be had, or the lease was lost.
pub async fn run(options: OperatorOptions, mut stop: BoxFuture<'static, ()>) -> anyhow::Result<()> {
    let timeout = options.request_timeout;
    let client = connect_within(options.kubeconfig.as_deref(), timeout).await?;
    let namespace = options.settings.namespace.clone();
    let ((leading, leads), (ending, end)) = (watch::channel(false), watch::channel(false));
    let answering = match options.admission {
        Some(asked) => Some(admission::start(asked, &client, &namespace, leads, end).await?),
        None => None,
    };
    let writer = KubeWriter::new(client.clone(), MANAGER, timeout);
    let events = EventRecorder::start(client.clone(), &writer, MANAGER, &options.instance);
    let spans = match options.collector {
        Some(collector) => Some(OperatorSpans::new(Traces::start(MANAGER, &collector)?, collector)),
        None => None,
    };
    let context = Arc::new(OperatorContext::new(options.settings, writer, events, spans));
    // Before anybody may ask whether they have listed.
    watches::start(&context, &client);
    let readiness = answering.as_ref().map(|answering| answering.readiness.clone());
    let subject = HealthState { context: Arc::clone(&context), admission: readiness };
    let metrics = health::serve(&subject, options.metrics_address).await?;
    let health = health::serve(&subject, options.health_address).await?;
    tracing::info!(%metrics, %health, namespace, "the operator starts");
    configure(&context);
    // By connections of its own: it must not wait behind what the operator does.
    let lease = match options.leader_elect {
        true => {
            let own = connect_within(options.kubeconfig.as_deref(), timeout).await?;
            Some(Lease::new(own, &namespace, LEASE, &options.instance))
        }
        false => None,
    };
    lead(&context, lease, options.workers, &leading, &mut stop).await?;
    let lost = context.events.flush(SHUTDOWN_TIMEOUT).await;
    if lost > 0 {
        tracing::warn!(lost, "events are not told: the API server did not take them in time");
    }
    if let Some(spans) = &context.spans {
        spans.end().await;
    }
    // Only after a good end: who lost the lease must be gone at once.
    ending.send_replace(true);
    if let Some(answering) = answering {
        answering.shutdown().await;
    }
    Ok(())
}

/// Waits to lead, then works until `stop` ends or the lease is lost.
async fn lead(
    context: &Arc<OperatorContext>,
    lease: Option<Lease>,
    workers: usize,
    leading: &watch::Sender<bool>,
    stop: &mut BoxFuture<'static, ()>,
) -> anyhow::Result<()> {
    let mut held = None;
    if let Some(lease) = lease {
        tokio::select! {
            mine = lease.acquire() => held = Some(mine),
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
        end = keep(&mut held) => bail!("the lease was lost: {end:?}"),
        () = &mut *stop => return give_back(held).await,
    }
    // Not before: one that holds the lease and cannot begin is no leader to those who wait for its work.
    context.metrics.leads(true);
    context.lead();
    context.wake(context.cache.queue_keys().into_iter().collect());
    context.queue.open();
    tracing::info!("watches have listed what there is; work begins");
    for at in 0..workers + URGENT_WORKERS {
        let least = if at < workers { Urgency::Rest } else { Urgency::Urgent };
        tokio::spawn(reconcile::work(Arc::clone(context), least));
    }
    tokio::select! {
        end = keep(&mut held) => {
            // Others may lead from now on: whatever is still being written is refused by its version.
            bail!("the lease was lost: {end:?}");
        }
        () = unlistable::tell(context) => {}
        () = &mut *stop => {}
    }
    tracing::info!("asked to end");
    if tokio::time::timeout(SHUTDOWN_TIMEOUT, context.queue.close()).await.is_err() {
        tracing::warn!("turns that are still being made are left; the next leader goes on from the world");
    }
    context.metrics.leads(false);
    leading.send_replace(false);
    give_back(held).await
}

async fn keep(held: &mut Option<HeldLease>) -> LeaseEnd {
    match held {
        Some(held) => held.keep().await,
        None => std::future::pending().await,
    }
}

async fn give_back(held: Option<HeldLease>) -> anyhow::Result<()> {
    if let Some(held) = held
        && let Err(error) = held.release().await
    {
        tracing::warn!(%error, "the lease is not given back; it ends by itself");
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
