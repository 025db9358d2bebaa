//! A restarted operator knows neither the health of clusters nor what the API server refused. It writes nothing again.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::SignedDuration;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::kubernetes_cluster::{NAME, ends, object, running, saved, spec, world};
use super::previous::{self, PHASES, Phase, change, declared, paused, requested, workers};
use crate::testing::World;
use crate::view::StartPermission;
use crate::write::ObjectKind;
use crate::{ObservedHealth, ObservedVersions};

/// Phases beside those of [`previous`].
const MORE: [Phase; 8] = [
    ("resumed", resumed),
    ("refused", || declared(&json!({"cluster": {"nodeList": []}}))),
    ("paused before its operation", || declared(&json!({"paused": true, "cluster": workers()}))),
    ("outside of its window", outside_of_its_window),
    ("repairing", || requested(running(&["10.0.0.2"]), "repairing")),
    ("torn down", torn_down),
    ("cancelled", cancelled),
    ("waits for its place", waits_for_its_place),
];

/// The pod after the pause has not started yet.
fn resumed() -> World {
    let mut world = paused();
    let operation = object(&world)["status"]["operation"].as_str().unwrap().to_owned();
    world.change(ObjectKind::Operation, "", &operation, &json!({"spec": {"paused": false}}));
    world.settle();
    world
}

fn outside_of_its_window() -> World {
    // The world begins on a Thursday.
    let windows = json!([{"days": ["Sunday"], "start": "22:00", "hours": 2}]);
    declared(&json!({"maintenanceWindows": windows, "cluster": workers()}))
}

/// The finalizer of another program is left.
fn torn_down() -> World {
    let mut world = running(&["10.0.0.2"]);
    let now = world.now.to_string();
    change(&mut world, &json!({"metadata": {"deletionTimestamp": now}}));
    ends(&mut world, "Complete");
    world
}

fn cancelled() -> World {
    let mut world = previous::asked("hosts");
    world.change(ObjectKind::Operation, "", "one", &json!({"spec": {"cancelled": true}}));
    world.settle();
    world.job_says("kubeonkube-one-job", "Suspended");
    world.settle();
    world
}

fn waits_for_its_place() -> World {
    let mut world = World::with_cluster();
    world.start = StartPermission::Later { limit: 20, before: 3, region: None };
    world.ask("one", |_| {});
    world.settle();
    world
}

fn serving(not_ready: &[&str]) -> ObservedHealth {
    ObservedHealth::Serving {
        nodes: 3,
        not_ready: not_ready.iter().map(|&node| node.to_owned()).collect(),
        members_down: Vec::new(),
        versions: ObservedVersions::default(),
        certificates: None,
        drift: None,
        renewal_due: false,
    }
}

/// What the operator may observe of a cluster.
fn healths() -> [Option<ObservedHealth>; 5] {
    let unreachable = ObservedHealth::Unreachable("https://10.0.0.1:6443: connection refused".into());
    let refused = ObservedHealth::Refused("https://10.0.0.1:6443 refuses the credential".into());
    [None, Some(serving(&[])), Some(serving(&["h2"])), Some(unreachable), Some(refused)]
}

/// The writes that another operator plans for the same objects: before it observes the cluster, and afterwards.
fn writes_after_restart(world: &World) -> Vec<crate::Write> {
    let mut restarted = world.clone();
    restarted.refusals.clear();
    let mut writes = Vec::new();
    for health in [None, world.health.clone()] {
        restarted.health = health;
        writes.extend(restarted.next().stages.into_iter().flatten());
    }
    writes
}

#[test]
fn a_restart_writes_nothing_that_was_already_written() {
    for (phase, begin) in PHASES.into_iter().chain(MORE) {
        for health in healths() {
            let mut world = begin();
            world.now += SignedDuration::from_secs(5);
            world.health = health;
            world.settle();
            assert_eq!(writes_after_restart(&world), [], "{phase}, observed: {:?}", world.health);
        }
    }
}

/// What happens to a `KubernetesCluster`.
#[derive(Debug, Clone)]
enum Event {
    Workers(usize),
    JobEnds(bool),
    Requested(usize),
    Paused(bool),
    Cancelled,
    Observed(usize),
    Killed(usize),
    Time(i64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => (0_usize..3).prop_map(Event::Workers),
        4 => any::<bool>().prop_map(Event::JobEnds),
        2 => (0_usize..4).prop_map(Event::Requested),
        1 => any::<bool>().prop_map(Event::Paused),
        1 => Just(Event::Cancelled),
        2 => (0_usize..5).prop_map(Event::Observed),
        2 => (0_usize..9).prop_map(Event::Killed),
        1 => (1_i64..5000).prop_map(Event::Time),
    ]
}

/// The Job that has not ended.
fn open_job(world: &World) -> Option<String> {
    let jobs = world.all::<Job>(ObjectKind::Job);
    jobs.iter().find(|job| job.status.is_none())?.metadata.name.clone()
}

fn happen(world: &mut World, event: &Event) {
    let patched = |world: &mut World, patch: Value| {
        world.change(ObjectKind::KubernetesCluster, "default", NAME, &patch);
    };
    let generation = object(world)["metadata"]["generation"].as_i64().unwrap() + 1;
    match event {
        Event::Workers(at) => {
            let nodes: [&[&str]; 3] = [&["10.0.0.2"], &["10.0.0.2", "10.0.0.4"], &["10.0.0.4"]];
            patched(world, json!({"spec": spec(nodes[*at]), "metadata": {"generation": generation}}));
        }
        Event::JobEnds(well) => {
            if let Some(name) = open_job(world) {
                world.job_says(&name, if *well { "Complete" } else { "Failed" });
            }
        }
        Event::Requested(at) => {
            let word = ["creating", "scaling-up", "scaling-down", "repairing"][*at];
            patched(world, json!({"metadata": {"annotations": {"app.kubernetes.io/operation": word}}}));
        }
        Event::Paused(paused) => {
            patched(world, json!({"spec": {"paused": paused}, "metadata": {"generation": generation}}));
        }
        Event::Cancelled => {
            if let Some(name) = object(world)["status"]["operation"].as_str().map(str::to_owned) {
                world.change(ObjectKind::Operation, "", &name, &json!({"spec": {"cancelled": true}}));
            }
        }
        Event::Observed(at) => world.health = healths()[*at].clone(),
        Event::Killed(after) => {
            world.settle_within(*after);
        }
        Event::Time(seconds) => world.now += SignedDuration::from_secs(*seconds),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn a_restart_writes_nothing_at_any_time(
        events in proptest::collection::vec((event(), any::<bool>()), 1..30)
    ) {
        let mut world = world(&["10.0.0.2"]);
        world.settle();
        saved(&mut world);
        for (event, settles) in &events {
            happen(&mut world, event);
            if *settles {
                world.settle();
                prop_assert_eq!(writes_after_restart(&world), []);
            }
        }
        world.settle();
        prop_assert_eq!(writes_after_restart(&world), []);
    }
}
