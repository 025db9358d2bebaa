//! The operator is killed after any write of a scenario. The restarted operator continues from the observed
//! objects, no step is done twice, and the final objects are those of a run without a kill.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::SignedDuration;
use kubeon_api::ClusterOperation;
use kubeon_api::kubeonkube::Action;
use serde_json::json;

use super::kubernetes_cluster::{
    KNOWN_HOSTS, NAME, STATE, object, phase, running, saved, spec, wanted, world,
};
use crate::job_state::{JobState, job_state};
use crate::names;
use crate::testing::World;
use crate::write::{ObjectKind, ObjectRef};

/// An event; the operator reconciles after each event.
type Event = fn(&mut World);

struct Scenario<'s> {
    begins: fn() -> World,
    events: &'s [Event],
    ends: fn(&World),
    /// The fewest writes of the operator.
    least: usize,
}

/// When the operator is restarted.
#[derive(Debug, Clone, Copy)]
enum Restart {
    AtOnce,
    /// After the next event, which happens while no operator runs.
    Late,
}

impl Scenario<'_> {
    /// The objects after the scenario, and whether the operator was killed.
    fn run(&self, killed_after: usize, restart: Restart) -> (World, bool) {
        let mut world = (self.begins)();
        world.settle();
        world.written.clear();
        let mut left = Some(killed_after);
        for event in self.events {
            event(&mut world);
            left = match left {
                Some(most) => match world.settle_within(most) {
                    done if done < most => Some(most - done),
                    _ => None,
                },
                None => {
                    world.settle();
                    continue;
                }
            };
            if left.is_none() && matches!(restart, Restart::AtOnce) {
                world.settle();
            }
        }
        world.settle();
        (world, left.is_none())
    }

    fn check_all_kills(&self) {
        let (undisturbed, _) = self.run(usize::MAX, Restart::AtOnce);
        (self.ends)(&undisturbed);
        let writes = undisturbed.written.len();
        assert!(writes >= self.least, "there were only {writes} writes");
        for restart in [Restart::AtOnce, Restart::Late] {
            let killed = (0..).take_while(|killed_after| {
                let (mut world, killed) = self.run(*killed_after, restart);
                let at = format!("killed after {killed_after} of {writes} writes, restart {restart:?}");
                assert!(one_job_each(&world), "{at}: {:?}", world.jobs());
                (self.ends)(&world);
                assert_eq!(world.settle(), 0, "{at}: the reconciles do not converge");
                killed
            });
            assert_eq!(killed.count(), writes + 1, "after each write, and before the first");
        }
    }
}

/// Whether every remaining operation has exactly one Job.
fn one_job_each(world: &World) -> bool {
    let jobs = world.all::<Job>(ObjectKind::Job);
    let of = |uid: &str| {
        let label = |job: &&std::sync::Arc<Job>| {
            job.metadata
                .labels
                .as_ref()
                .and_then(|all| all.get(names::OPERATION_LABEL))
                .is_some_and(|one| one == uid)
        };
        jobs.iter().filter(label).count()
    };
    let operations = world.all::<ClusterOperation>(ObjectKind::Operation);
    operations.iter().all(|operation| of(operation.metadata.uid.as_deref().unwrap()) == 1)
}

/// Completes the running Job. If it does not exist yet, the restarted operator creates it first.
fn job_ends(world: &mut World) {
    let running_job = |world: &World| {
        let jobs = world.all::<Job>(ObjectKind::Job);
        let job = jobs.into_iter().find(|job| job_state(job) == JobState::Running)?;
        job.metadata.name.clone()
    };
    if running_job(world).is_none() {
        world.settle();
    }
    let name = running_job(world).expect("a Job runs");
    world.now += SignedDuration::from_secs(60);
    world.job_says(&name, "Complete");
}

fn nodes(world: &mut World, nodes: &[&str]) {
    let generation = object(world)["metadata"]["generation"].as_i64().unwrap() + 1;
    let patch = json!({"spec": spec(nodes), "metadata": {"generation": generation}});
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &patch);
}

fn deleted(world: &mut World) {
    let now = world.now.to_string();
    world.change(
        ObjectKind::KubernetesCluster,
        "default",
        NAME,
        &json!({"metadata": {"deletionTimestamp": now}}),
    );
}

/// The owner of the other finalizer removes it.
fn remove_other_finalizer(world: &mut World) {
    world.settle();
    assert_eq!(
        object(world)["metadata"]["finalizers"],
        json!(["other/one"]),
        "the operator removes its finalizer first"
    );
    world.objects.retain(|target, _| target.kind != ObjectKind::KubernetesCluster);
}

fn assert_up_to_date(world: &World, word: &str, jobs: usize, workers: &[&str], removed: &[&str]) {
    assert_eq!((phase(world), wanted(world)), ("Running".into(), word.into()));
    assert_eq!(world.jobs().len(), jobs, "{:?}", world.jobs());
    let metadata = &object(world)["metadata"];
    assert_eq!(metadata["finalizers"].as_array().unwrap().len(), 2);
    let applied = metadata["annotations"]["app.kubernetes.io/spec"].as_str().unwrap();
    assert!(workers.iter().all(|worker| applied.contains(worker)), "{applied}");
    assert!(!removed.iter().any(|worker| applied.contains(worker)), "{applied}");
    assert!(object(world)["status"]["operation"].is_null());
    for operation in world.all::<ClusterOperation>(ObjectKind::Operation) {
        let labels = operation.metadata.labels.clone().unwrap();
        assert_eq!(labels["hasCompleted"], "done", "{:?}", operation.metadata.name);
    }
}

/// Only the Jobs of the cluster remain; their TTL removes them.
fn assert_deleted(world: &World, jobs: usize) {
    assert_eq!(world.jobs().len(), jobs, "{:?}", world.jobs());
    let is_left = |target: &&ObjectRef| {
        let kept = [STATE, KNOWN_HOSTS, "default-test-cluster-kubeconfig"].contains(&target.name.as_str());
        kept || matches!(target.kind, ObjectKind::Operation | ObjectKind::KubernetesCluster)
    };
    let left: Vec<_> = world.objects.keys().filter(is_left).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_worker_comes_by_one_job() {
    let scenario = Scenario {
        begins: || running(&["10.0.0.2"]),
        events: &[|world| nodes(world, &["10.0.0.2", "10.0.0.4"]), job_ends],
        ends: |world| assert_up_to_date(world, "scale-up-finished", 2, &["10.0.0.2", "10.0.0.4"], &[]),
        least: 12,
    };
    scenario.check_all_kills();
}

#[test]
fn a_worker_goes_by_one_job() {
    let scenario = Scenario {
        begins: || running(&["10.0.0.2", "10.0.0.4"]),
        events: &[|world| nodes(world, &["10.0.0.2"]), job_ends],
        ends: |world| assert_up_to_date(world, "scale-down-finished", 2, &["10.0.0.2"], &["10.0.0.4"]),
        least: 12,
    };
    scenario.check_all_kills();
}

#[test]
fn replaced_workers_are_added_and_removed_by_one_job_each() {
    let scenario = Scenario {
        begins: || running(&["10.0.0.2"]),
        events: &[|world| nodes(world, &["10.0.0.4"]), job_ends, job_ends],
        ends: |world| assert_up_to_date(world, "scale-down-finished", 3, &["10.0.0.4"], &["10.0.0.2"]),
        least: 24,
    };
    scenario.check_all_kills();
}

#[test]
fn a_cluster_is_taken_down_by_one_job() {
    let scenario = Scenario {
        begins: || running(&["10.0.0.2"]),
        events: &[deleted, job_ends, remove_other_finalizer],
        ends: |world| assert_deleted(world, 2),
        least: 12,
    };
    scenario.check_all_kills();
}

/// The creation is stopped first: two Jobs never run at the same time.
#[test]
fn a_cluster_that_is_being_created_is_taken_down_by_one_job() {
    let scenario = Scenario {
        begins: || {
            let mut world = world(&["10.0.0.2"]);
            world.settle();
            saved(&mut world);
            world
        },
        events: &[deleted, creation_is_suspended, job_ends, remove_other_finalizer],
        ends: |world| assert_deleted(world, 2),
        least: 14,
    };
    scenario.check_all_kills();
}

/// Marks the suspended creation as suspended, as the Job controller does.
fn creation_is_suspended(world: &mut World) {
    let suspended_job = |world: &World| {
        let jobs = world.all::<Job>(ObjectKind::Job);
        let job =
            jobs.into_iter().find(|job| job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true))?;
        job.metadata.name.clone()
    };
    if suspended_job(world).is_none() {
        world.settle();
    }
    let name = suspended_job(world).expect("the Job is suspended");
    world.job_says(&name, "Suspended");
}

fn playbook(world: &mut World, name: &str, action: &str) {
    world.ask(name, |spec| {
        spec.main = Action { action_type: "playbook".into(), action: action.into(), ..Action::default() };
        spec.image = "wangzhichidocker/kubeonkube:v0.1".into();
    });
}

const KEPT: &str = "kubeonkube-sample-state";

/// The runner saves its state in the Secret before the Job ends.
fn playbook_ends(world: &mut World) {
    if !world.objects.keys().any(|target| target.name == KEPT) {
        world.settle();
    }
    world.change(ObjectKind::Secret, "ns", KEPT, &json!({"stringData": {"state.tar.zst": "keys"}}));
    job_ends(world);
}

#[test]
fn playbooks_are_one_job_each_and_the_second_gets_the_state_of_the_first() {
    let scenario = Scenario {
        begins: World::with_cluster,
        events: &[
            |world| playbook(world, "one", "cluster.yml"),
            playbook_ends,
            |world| playbook(world, "two", "scale.yml"),
            job_ends,
        ],
        ends: |world| {
            assert_eq!(world.jobs(), ["kubeonkube-one-job", "kubeonkube-two-job"]);
            for name in ["one", "two"] {
                assert_eq!(world.status(name)["status"], "Succeeded", "{name}");
                let labels = &world.get(ObjectKind::Operation, "", name)["metadata"]["labels"];
                assert_eq!(labels["hasCompleted"], "done", "{name}");
            }
            let kept = world.get(ObjectKind::Secret, "ns", KEPT);
            assert_eq!(kept["metadata"]["annotations"]["kubeon.io/job"], "kubeonkube-two-job");
            assert_eq!(kept["stringData"]["state.tar.zst"], "keys");
            let history = world.get(ObjectKind::Cluster, "", "sample")["status"]["conditions"].clone();
            let shown: Vec<_> =
                history.as_array().unwrap().iter().map(|entry| entry["status"].clone()).collect();
            assert_eq!(shown, ["Succeeded", "Succeeded"]);
        },
        least: 18,
    };
    scenario.check_all_kills();
}
