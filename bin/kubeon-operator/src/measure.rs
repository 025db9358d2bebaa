//! Measures the operator's own cache, queue and limiters against the libraries for the same work, in one run:
//! `cargo test -p kubeon-operator --lib measure -- --ignored --nocapture --test-threads 1`. Decision 19 has the results.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::channel::mpsc;
use governor::{Quota, RateLimiter};
use k8s_openapi::api::batch::v1::Job;
use kube::runtime::reflector::store;
use kube::runtime::scheduler::{ScheduleRequest, scheduler};
use kube::runtime::watcher::Event;
use kubeon_api::ClusterOperation;
use kubeon_link_kube::{KubeWriter, Priority};
use kubeon_operations::QueueKey;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::cache::{CachedKind, ObjectCache};
use crate::job_rate::JobRateLimiter;
use crate::queue::{Queue, ReconcileOutcome, Urgency};

const OPERATIONS: usize = 2000;
const CLUSTERS: usize = 400;

fn cluster(at: usize) -> QueueKey {
    QueueKey::Cluster(format!("cluster-{}", at % CLUSTERS))
}

/// An operation with its script, steps and conditions: about 6 kB of JSON.
fn operation(at: usize) -> ClusterOperation {
    let name = format!("operation-{at}");
    let step = |at: usize| {
        json!({"type": format!("Step{at}"), "status": "True", "reason": "Done",
        "message": "the step was done on all hosts ".repeat(6), "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let conditions: Vec<Value> = (0..16).map(step).collect();
    let object = json!({
        "apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "ClusterOperation",
        "metadata": {"name": name, "uid": format!("uid-{at}"), "resourceVersion": (at + 1).to_string()},
        "spec": {"cluster": format!("cluster-{}", at % CLUSTERS), "actionType": "shell", "image": "busybox",
            "action": "echo one more line of a script\n".repeat(32)},
        "status": {"status": "Succeeded", "conditions": conditions},
    });
    serde_json::from_value(object).unwrap()
}

/// The Job of an operation: about 5 kB of JSON.
fn job(at: usize) -> Job {
    let meta = json!({"name": format!("kubeonkube-operation-{at}-job"), "namespace": "kubeon-system",
        "uid": format!("uid-job-{at}"), "resourceVersion": (at + 1).to_string(),
        "labels": {"kubeon.io/operation": format!("uid-{at}")},
        "annotations": {"kubeon.io/queue-key": cluster(at).to_string()}});
    let env: Vec<Value> =
        (0..24).map(|at| json!({"name": format!("NAME_{at}"), "value": "value ".repeat(16)})).collect();
    let container =
        json!({"name": "kubeonkube", "image": "busybox", "command": ["/bin/entrypoint.sh"], "env": env});
    let template = json!({"metadata": {"labels": meta["labels"], "annotations": meta["annotations"]},
        "spec": {"containers": [container], "volumes": [{"name": "conf", "configMap": {"name": "conf"}}]}});
    serde_json::from_value(json!({"metadata": meta, "spec": {"template": template}})).unwrap()
}

fn slim(mut job: Job) -> Job {
    job.slim();
    job
}

/// Bytes of memory that the process uses.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn ratio(ours: Duration, library: Duration) -> f64 {
    ours.as_secs_f64() / library.as_secs_f64()
}

/// Bytes that `fill` adds for each of the operations, and the time it takes.
fn filled<T>(fill: impl FnOnce() -> T) -> (T, usize, Duration) {
    let (before, start) = (resident(), Instant::now());
    let filled = fill();
    let time = start.elapsed();
    (filled, resident().saturating_sub(before) / OPERATIONS, time)
}

#[test]
#[ignore = "a measurement"]
fn measure_the_cache_against_the_reflectors_store() {
    let (cache, ours_bytes, ours_fill) = filled(|| {
        let cache = ObjectCache::new("kubeon-system".to_owned());
        for at in 0..OPERATIONS {
            cache.apply(operation(at));
            cache.apply(job(at));
        }
        cache
    });
    let ((operations, jobs), library_bytes, library_fill) = filled(|| {
        let ((operations, mut to_operations), (jobs, mut to_jobs)) = (store(), store());
        to_operations.apply_watcher_event(&Event::Init);
        to_jobs.apply_watcher_event(&Event::Init);
        for at in 0..OPERATIONS {
            to_operations.apply_watcher_event(&Event::InitApply(operation(at)));
            to_jobs.apply_watcher_event(&Event::InitApply(slim(job(at))));
        }
        to_operations.apply_watcher_event(&Event::InitDone);
        to_jobs.apply_watcher_event(&Event::InitDone);
        (operations, jobs)
    });
    let start = Instant::now();
    let ours: usize = (0..CLUSTERS)
        .map(|at| cache.objects_of(&cluster(at)))
        .map(|objects| objects.operations.len() + objects.jobs.len())
        .sum();
    let ours_time = start.elapsed();
    let start = Instant::now();
    let library: usize = (0..CLUSTERS)
        .map(|at| {
            let (name, queue_key) = (format!("cluster-{at}"), cluster(at).to_string());
            fn named(job: &Job) -> Option<&String> {
                job.metadata.annotations.as_ref()?.get("kubeon.io/queue-key")
            }
            operations.state_filter(|operation| operation.spec.cluster == name).len()
                + jobs.state_filter(|job| named(job) == Some(&queue_key)).len()
        })
        .sum();
    let library_time = start.elapsed();
    println!(
        "cache, {OPERATIONS} operations and as many Jobs of {CLUSTERS} clusters; ours, reflector::Store, ours/library"
    );
    println!("  bytes for each operation with its Job: {ours_bytes} {library_bytes}");
    println!("  list stored: {ours_fill:?} {library_fill:?} {:.2}", ratio(ours_fill, library_fill));
    println!(
        "  objects of every cluster: {ours_time:?} {library_time:?} {:.4}",
        ratio(ours_time, library_time)
    );
    assert_eq!((ours, library), (2 * OPERATIONS, 2 * OPERATIONS));
    assert!(ours_time < library_time);
}

const ROUNDS: usize = 50;
const URGENT: usize = 50;

#[tokio::test]
#[ignore = "a measurement"]
async fn measure_the_queue_against_the_scheduler() {
    let keys: Vec<QueueKey> = (0..OPERATIONS).map(|at| QueueKey::Cluster(format!("cluster-{at}"))).collect();
    let queue = Queue::default();
    queue.open();
    let start = Instant::now();
    for _ in 0..ROUNDS {
        keys.iter().for_each(|key| queue.wake(key, Urgency::Fresh));
        for _ in &keys {
            let item = queue.next(Urgency::Rest).await;
            queue.done(&item.queue_key, ReconcileOutcome::Done(None));
        }
    }
    let ours = start.elapsed();
    let (requests, received) = mpsc::unbounded();
    let mut scheduled = std::pin::pin!(scheduler(received));
    let request = |key: &QueueKey| {
        let run_at = tokio::time::Instant::now();
        requests.unbounded_send(ScheduleRequest { message: key.clone(), run_at }).unwrap();
    };
    let start = Instant::now();
    for _ in 0..ROUNDS {
        keys.iter().for_each(request);
        for _ in &keys {
            scheduled.next().await.unwrap();
        }
    }
    let library = start.elapsed();
    let events = (ROUNDS * OPERATIONS) as f64;
    let rate = |time: Duration| events / time.as_secs_f64();
    let urgent: HashSet<_> = keys.iter().step_by(OPERATIONS / URGENT).cloned().collect();
    keys.iter().for_each(|key| queue.wake(key, Urgency::Fresh));
    urgent.iter().for_each(|key| queue.wake(key, Urgency::Urgent));
    keys.iter().for_each(request);
    let (mut ours_last, mut library_last) = (0, 0);
    for at in 1..=OPERATIONS {
        if urgent.contains(&queue.next(Urgency::Rest).await.queue_key) {
            ours_last = at;
        }
        if urgent.contains(&scheduled.next().await.unwrap()) {
            library_last = at;
        }
    }
    println!("queue, {OPERATIONS} keys; ours, kube::runtime::scheduler, ours/library");
    println!("  events/s: {:.0} {:.0} {:.2}", rate(ours), rate(library), rate(ours) / rate(library));
    println!("  place of the last of {URGENT} urgent keys: {ours_last} {library_last}");
    assert_eq!(ours_last, URGENT);
}

/// A server with eight workers that needs 5 ms for a request.
async fn serve(workers: &Semaphore) {
    let _worker = workers.acquire().await.unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
}

/// 400 requests at once, and an urgent one every 10 ms: the median and the longest of those 20, and the time of all.
async fn load<F: Future<Output = ()>>(request: impl Fn(bool) -> F) -> (Duration, Duration, Duration) {
    let start = Instant::now();
    let normal = futures::future::join_all((0..400).map(|_| request(false)));
    let urgent = futures::future::join_all((1..=20).map(|at| {
        let request = &request;
        async move {
            tokio::time::sleep(Duration::from_millis(10) * at).await;
            let start = Instant::now();
            request(true).await;
            start.elapsed()
        }
    }));
    let (_, mut waited) = tokio::join!(normal, urgent);
    waited.sort_unstable();
    (waited[10], waited[19], start.elapsed())
}

#[tokio::test]
#[ignore = "a measurement"]
async fn measure_the_concurrency_limiter_against_a_semaphore() {
    let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
    let writer = KubeWriter::new(kube::Client::try_from(config).unwrap(), "measure", Duration::from_secs(1));
    let workers = Semaphore::new(8);
    let (writer, workers) = (&writer, &workers);
    let ours = load(|is_urgent| async move {
        let _permit = writer.permit(if is_urgent { Priority::High } else { Priority::Normal }).await;
        serve(workers).await;
    })
    .await;
    let permits = &Semaphore::new(24);
    let library = load(|_| async move {
        let _permit = permits.acquire().await.unwrap();
        serve(workers).await;
    })
    .await;
    println!(
        "limiter, 400 requests and 20 urgent ones; ours, tokio::sync::Semaphore (tower's ConcurrencyLimit), ours/library"
    );
    println!("  urgent, median: {:?} {:?} {:.2}", ours.0, library.0, ratio(ours.0, library.0));
    println!("  urgent, longest: {:?} {:?} {:.2}", ours.1, library.1, ratio(ours.1, library.1));
    println!("  all: {:?} {:?} {:.2}", ours.2, library.2, ratio(ours.2, library.2));
    assert!(ours.0 < library.0);
}

/// The time until 400 Jobs are created.
async fn time_of_400<F: Future<Output = ()>>(create: impl Fn() -> F) -> Duration {
    let start = Instant::now();
    futures::future::join_all((0..400).map(|_| create())).await;
    start.elapsed()
}

#[tokio::test]
#[ignore = "a measurement"]
async fn measure_the_rate_of_jobs_against_governor() {
    let (in_flight, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (in_flight, most) = (&in_flight, &most);
    let request = || async move {
        most.fetch_max(in_flight.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(20)).await;
        in_flight.fetch_sub(1, Ordering::Relaxed);
    };
    let limiter = &JobRateLimiter::default();
    let ours = time_of_400(|| async move { limiter.acquire().await.during(request()).await }).await;
    let ours_most = most.swap(0, Ordering::Relaxed);
    let quota = Quota::with_period(Duration::from_millis(12)).unwrap().allow_burst(NonZeroU32::MIN);
    let (governor, permits) = (&Arc::new(RateLimiter::direct(quota)), &Semaphore::new(4));
    let library = time_of_400(|| async move {
        let _permit = permits.acquire().await.unwrap();
        governor.until_ready().await;
        request().await;
    })
    .await;
    println!("rate, 400 Jobs of 20 ms; ours, governor with a semaphore, ours/library");
    println!("  all: {ours:?} {library:?} {:.2}", ratio(ours, library));
    println!("  in flight at most: {ours_most} {}", most.load(Ordering::Relaxed));
    assert!(ours_most <= 4);
}
