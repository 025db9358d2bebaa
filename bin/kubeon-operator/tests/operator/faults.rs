//! The operator's and the API server's worst days.

use std::time::Duration;

use kube::api::ListParams;
use kubeon_api::kubeonkube::OperationResult;
use kubeon_api::{KubernetesCluster, Phase};
use kubeon_envtest::{Fault, FaultRule, When};

use crate::lab::Lab;

/// Writes that one operation takes, with its Cluster's.
const WRITES: usize = 15;
/// Writes that making a declared cluster takes.
const DECLARED_WRITES: usize = 12;

#[tokio::test]
async fn killed_after_any_write_it_makes_exactly_one_job_and_ends_the_operation() {
    let mut lab = Lab::open().await;
    for n in 1..=WRITES {
        let (cluster, operation) = (format!("c{n}"), format!("o{n}"));
        lab.cluster(&cluster).await;
        lab.ask(&cluster, &operation).await;
        lab.proxy.fail(FaultRule { when: When::nth_write(n), how: Fault::CutAfter });
        lab.start();
        // The last writes are those of the end: the Job ends as soon as it is there.
        let ends = async {
            let running = lab.until_is(&operation, OperationResult::Running).await;
            let job = running.status.unwrap().job_ref.unwrap().name;
            lab.job_ends(&job, true).await;
            std::future::pending::<()>().await;
        };
        let cut = tokio::select! {
            cut = lab.proxy.is_cut(Duration::from_secs(20)) => cut.is_ok(),
            () = ends => unreachable!(),
        };
        lab.kill().await;
        lab.proxy.heal();
        lab.start();
        let now = lab.until(&operation, |operation| {
            operation.status.as_ref().is_some_and(|status| status.status.is_some())
        });
        let now = now.await;
        if now.status.as_ref().unwrap().status == Some(OperationResult::Running) {
            let job = now.status.unwrap().job_ref.unwrap().name;
            lab.job_ends(&job, true).await;
        }
        let ended = lab.until_is(&operation, OperationResult::Succeeded).await;
        assert_eq!(lab.job_names(&ended).await.len(), 1, "killed after write {n}");
        lab.until_cluster(&cluster, |cluster| {
            let status = cluster.status.clone().unwrap_or_default();
            status.conditions.len() == 1 && status.conditions[0].status == "Succeeded"
        })
        .await;
        lab.kill().await;
        if !cut {
            assert!(n > 9, "there were only {n} writes");
            break;
        }
    }
}

#[tokio::test]
async fn a_write_that_is_refused_or_lost_is_made_again_and_never_twice() {
    let mut lab = Lab::open().await;
    lab.start();
    let faults = [
        Fault::Status(409),
        Fault::Status(429),
        Fault::Status(500),
        Fault::LoseAnswer,
        Fault::Refuse,
        Fault::Status(503),
    ];
    for (at, fault) in faults.into_iter().enumerate() {
        for n in 1..=8 {
            let (cluster, operation) = (format!("c{at}-{n}"), format!("o{at}-{n}"));
            lab.proxy.fail(FaultRule { when: When::nth_write(n), how: fault.clone() });
            lab.cluster(&cluster).await;
            lab.ask(&cluster, &operation).await;
            let ended = lab.finish(&operation).await;
            lab.proxy.heal();
            assert_eq!(
                ended.status.as_ref().unwrap().status,
                Some(OperationResult::Succeeded),
                "{fault:?} at {n}"
            );
            assert_eq!(lab.job_names(&ended).await.len(), 1, "{fault:?} at {n}");
        }
    }
}

#[tokio::test]
async fn an_answer_that_never_comes_is_not_waited_for_without_end() {
    let mut lab = Lab::open().await;
    lab.start();
    lab.cluster("sample").await;
    lab.proxy.fail(FaultRule { when: When::nth("create", "jobs", 1), how: Fault::HangAfter });
    lab.ask("sample", "myops").await;
    let ended = lab.finish("myops").await;
    assert_eq!(lab.job_names(&ended).await.len(), 1);
}

#[tokio::test]
async fn a_leader_that_ends_gives_the_lease_back_and_the_next_one_goes_on() {
    let mut lab = Lab::open().await;
    lab.start_with(&[]);
    lab.cluster("sample").await;
    lab.ask("sample", "one").await;
    lab.until_is("one", OperationResult::Running).await;
    let (took, well) = lab.end().await;
    assert!(well && took < Duration::from_secs(5), "{took:?}");
    lab.start_with(&[]);
    let begun = std::time::Instant::now();
    lab.finish("one").await;
    assert!(
        begun.elapsed() < Duration::from_secs(12),
        "it waited for the old lease to end: {:?}",
        begun.elapsed()
    );
}

/// Contract B, case 43.
#[tokio::test]
async fn b43_a_declared_cluster_is_made_once_whichever_write_is_refused_or_lost() {
    let mut lab = Lab::open().await;
    lab.start();
    for (at, fault) in
        [Fault::Status(409), Fault::Status(500), Fault::LoseAnswer, Fault::Refuse].into_iter().enumerate()
    {
        for n in 1..=DECLARED_WRITES {
            let name = format!("shop-{at}-{n}");
            lab.proxy.fail(FaultRule { when: When::nth_write(n), how: fault.clone() });
            lab.declare(&name, &format!("10.0.{at}.{n}")).await;
            let job = |object: &KubernetesCluster| object.status.as_ref()?.job_name.clone();
            let object = lab.until_business(&name, |object| job(object).is_some()).await;
            lab.job_ends(&job(&object).unwrap(), true).await;
            let phase = |object: &KubernetesCluster| object.status.as_ref()?.phase;
            let made = lab.until_business(&name, |object| phase(object) == Some(Phase::Running)).await;
            lab.proxy.heal();
            assert_eq!(made.metadata.finalizers.as_ref().unwrap().len(), 1, "{fault:?} at {n}");
            let derived = format!("kubeon.io/cluster-uid={}", made.metadata.uid.as_deref().unwrap());
            let operations = lab.operations().list(&ListParams::default().labels(&derived)).await.unwrap();
            assert_eq!(operations.items.len(), 1, "{fault:?} at {n}");
            assert_eq!(lab.job_names(&operations.items[0]).await.len(), 1, "{fault:?} at {n}");
            assert_eq!(lab.inputs_of(&operations.items[0]).await, 1, "{fault:?} at {n}");
        }
    }
}
