//! The operator killed after any write of a story: what comes back goes on from the world, nothing is done twice, and the
//! world ends as it does when nobody is killed.

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

/// What happens, and between any two things the operator does what follows from it.
type Happens = fn(&mut World);

struct Story<'s> {
    begins: fn() -> World,
    happens: &'s [Happens],
    ends: fn(&World),
    /// Writes of the operator that it takes at least.
    least: usize,
}

/// When the operator comes back.
#[derive(Debug, Clone, Copy)]
enum Back {
    AtOnce,
    /// When the next thing has happened while nobody looked.
    Late,
}

impl Story<'_> {
    /// The world after it, and whether the operator lived long enough to be killed after that write.
    fn told(&self, killed_after: usize, back: Back) -> (World, bool) {
        let mut world = (self.begins)();
        world.settle();
        world.written.clear();
        let mut left = Some(killed_after);
        for happens in self.happens {
            happens(&mut world);
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
            if left.is_none() && matches!(back, Back::AtOnce) {
                world.settle();
            }
        }
        world.settle();
        (world, left.is_none())
    }

    fn holds_whenever_it_is_killed(&self) {
        let (untouched, _) = self.told(usize::MAX, Back::AtOnce);
        (self.ends)(&untouched);
        let writes = untouched.written.len();
        assert!(writes >= self.least, "there were only {writes} writes");
        for back in [Back::AtOnce, Back::Late] {
            let killed = (0..).take_while(|killed_after| {
                let (mut world, killed) = self.told(*killed_after, back);
                let at = format!("killed after {killed_after} of {writes} writes, back {back:?}");
                assert!(one_job_each(&world), "{at}: {:?}", world.jobs());
                (self.ends)(&world);
                assert_eq!(world.settle(), 0, "{at}: it is not at rest");
                killed
            });
            assert_eq!(killed.count(), writes + 1, "after each write, and before the first");
        }
    }
}

/// Whether every operation that is left has one Job, and no Job has another owner.
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

/// The Job that works ends well. One that was not made yet is made first, by who came back.
fn job_ends(world: &mut World) {
    let works = |world: &World| {
        let jobs = world.all::<Job>(ObjectKind::Job);
        let job = jobs.into_iter().find(|job| job_state(job) == JobState::Works)?;
        job.metadata.name.clone()
    };
    if works(world).is_none() {
        world.settle();
    }
    let name = works(world).expect("a Job works");
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

/// Another finalizer's owner removes its finalizer.
fn let_go(world: &mut World) {
    world.settle();
    assert_eq!(object(world)["metadata"]["finalizers"], json!(["other/one"]), "ours is gone first");
    world.objects.retain(|target, _| target.kind != ObjectKind::KubernetesCluster);
}

fn assert_up_to_date(world: &World, word: &str, jobs: usize, workers: &[&str], gone: &[&str]) {
    assert_eq!((phase(world), wanted(world)), ("Running".into(), word.into()));
    assert_eq!(world.jobs().len(), jobs, "{:?}", world.jobs());
    let metadata = &object(world)["metadata"];
    assert_eq!(metadata["finalizers"].as_array().unwrap().len(), 2);
    let applied = metadata["annotations"]["app.kubernetes.io/spec"].as_str().unwrap();
    assert!(workers.iter().all(|worker| applied.contains(worker)), "{applied}");
    assert!(!gone.iter().any(|worker| applied.contains(worker)), "{applied}");
    assert!(object(world)["status"]["operation"].is_null());
    for operation in world.all::<ClusterOperation>(ObjectKind::Operation) {
        let labels = operation.metadata.labels.clone().unwrap();
        assert_eq!(labels["hasCompleted"], "done", "{:?}", operation.metadata.name);
    }
}

/// Nothing is left of it but its Jobs, which go by themselves.
fn gone(world: &World, jobs: usize) {
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
    let story = Story {
        begins: || running(&["10.0.0.2"]),
        happens: &[|world| nodes(world, &["10.0.0.2", "10.0.0.4"]), job_ends],
        ends: |world| assert_up_to_date(world, "scale-up-finished", 2, &["10.0.0.2", "10.0.0.4"], &[]),
        least: 12,
    };
    story.holds_whenever_it_is_killed();
}

#[test]
fn a_worker_goes_by_one_job() {
    let story = Story {
        begins: || running(&["10.0.0.2", "10.0.0.4"]),
        happens: &[|world| nodes(world, &["10.0.0.2"]), job_ends],
        ends: |world| assert_up_to_date(world, "scale-down-finished", 2, &["10.0.0.2"], &["10.0.0.4"]),
        least: 12,
    };
    story.holds_whenever_it_is_killed();
}

#[test]
fn workers_that_are_exchanged_come_and_go_by_one_job_each() {
    let story = Story {
        begins: || running(&["10.0.0.2"]),
        happens: &[|world| nodes(world, &["10.0.0.4"]), job_ends, job_ends],
        ends: |world| assert_up_to_date(world, "scale-down-finished", 3, &["10.0.0.4"], &["10.0.0.2"]),
        least: 24,
    };
    story.holds_whenever_it_is_killed();
}

#[test]
fn a_cluster_is_taken_down_by_one_job() {
    let story = Story {
        begins: || running(&["10.0.0.2"]),
        happens: &[deleted, job_ends, let_go],
        ends: |world| gone(world, 2),
        least: 12,
    };
    story.holds_whenever_it_is_killed();
}

/// What made it is ended first: the two never work at the same time.
#[test]
fn a_cluster_that_is_being_made_is_taken_down_by_one_job() {
    let story = Story {
        begins: || {
            let mut world = world(&["10.0.0.2"]);
            world.settle();
            saved(&mut world);
            world
        },
        happens: &[deleted, creation_is_suspended, job_ends, let_go],
        ends: |world| gone(world, 2),
        least: 14,
    };
    story.holds_whenever_it_is_killed();
}

/// What a Job controller says of a Job that was told not to go on.
fn creation_is_suspended(world: &mut World) {
    let told = |world: &World| {
        let jobs = world.all::<Job>(ObjectKind::Job);
        let job =
            jobs.into_iter().find(|job| job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true))?;
        job.metadata.name.clone()
    };
    if told(world).is_none() {
        world.settle();
    }
    let name = told(world).expect("it was told not to go on");
    world.job_says(&name, "Suspended");
}

fn playbook(world: &mut World, name: &str, action: &str) {
    world.ask(name, |spec| {
        spec.main = Action { action_type: "playbook".into(), action: action.into(), ..Action::default() };
        spec.image = "wangzhichidocker/kubeonkube:v0.1".into();
    });
}

const KEPT: &str = "kubeonkube-sample-state";

/// What its runner keeps is in the Secret before the Job ends.
fn playbook_ends(world: &mut World) {
    if !world.objects.keys().any(|target| target.name == KEPT) {
        world.settle();
    }
    world.change(ObjectKind::Secret, "ns", KEPT, &json!({"stringData": {"state.tar.zst": "keys"}}));
    job_ends(world);
}

#[test]
fn playbooks_are_one_job_each_and_the_second_finds_what_the_first_kept() {
    let story = Story {
        begins: World::with_cluster,
        happens: &[
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
    story.holds_whenever_it_is_killed();
}
