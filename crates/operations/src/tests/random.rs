//! Random histories: two operations of a cluster never run at the same time, and the reconciles converge.

use k8s_openapi::jiff::SignedDuration;
use proptest::prelude::*;
use serde_json::json;

use crate::testing::World;
use crate::write::ObjectKind;

#[derive(Debug, Clone)]
enum Happens {
    Ask,
    JobEnds(usize, bool),
    JobGone(usize),
    OperationGone(usize),
    Cancelled(usize),
    Paused(usize, bool),
    Changed(usize),
    InputsGone,
    InputsBack,
    Killed(usize),
    Time(i64),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        4 => Just(Happens::Ask),
        4 => (0_usize..4, any::<bool>()).prop_map(|(which, well)| Happens::JobEnds(which, well)),
        1 => (0_usize..4).prop_map(Happens::JobGone),
        1 => (0_usize..6).prop_map(Happens::OperationGone),
        1 => (0_usize..6).prop_map(Happens::Cancelled),
        1 => (0_usize..6, any::<bool>()).prop_map(|(which, on)| Happens::Paused(which, on)),
        1 => (0_usize..6).prop_map(Happens::Changed),
        1 => Just(Happens::InputsGone),
        2 => Just(Happens::InputsBack),
        3 => (0_usize..7).prop_map(Happens::Killed),
        1 => (1_i64..5000).prop_map(Happens::Time),
    ]
}

fn nth(world: &World, kind: ObjectKind, at: usize) -> Option<String> {
    let names: Vec<_> =
        world.objects.keys().filter(|target| target.kind == kind).map(|target| target.name.clone()).collect();
    names.get(at % names.len().max(1)).cloned()
}

fn happen(world: &mut World, what: &Happens, count: usize) {
    let patched = |world: &mut World, at: usize, patch: serde_json::Value| {
        if let Some(name) = nth(world, ObjectKind::Operation, at) {
            world.change(ObjectKind::Operation, "", &name, &patch);
        }
    };
    match what {
        Happens::Ask => world.ask(&format!("o{count}"), |_| {}),
        Happens::JobEnds(at, well) => {
            if let Some(name) = nth(world, ObjectKind::Job, *at) {
                world.job_says(&name, if *well { "Complete" } else { "Failed" });
            }
        }
        Happens::JobGone(at) => {
            if let Some(name) = nth(world, ObjectKind::Job, *at) {
                world.objects.retain(|target, _| target.kind != ObjectKind::Job || target.name != name);
            }
        }
        Happens::OperationGone(at) => {
            if let Some(name) = nth(world, ObjectKind::Operation, *at) {
                world.objects.retain(|target, _| target.kind != ObjectKind::Operation || target.name != name);
            }
        }
        Happens::Cancelled(at) => patched(world, *at, json!({"spec": {"cancelled": true}})),
        Happens::Paused(at, on) => patched(world, *at, json!({"spec": {"paused": on}})),
        Happens::Changed(at) => patched(world, *at, json!({"spec": {"action": "true"}})),
        Happens::InputsGone => world.objects.retain(|target, _| target.name != "hosts"),
        Happens::InputsBack => {
            world.put(ObjectKind::ConfigMap, "ns", "hosts", json!({"data": {"hosts.yml": "all: {}\n"}}));
        }
        Happens::Killed(after) => {
            world.settle_within(*after);
        }
        Happens::Time(seconds) => world.now += SignedDuration::from_secs(*seconds),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a42_never_do_two_operations_of_one_cluster_work_and_every_turn_ends(
        story in proptest::collection::vec((happens(), any::<bool>()), 1..40)
    ) {
        let mut world = World::with_cluster();
        for (count, (what, settles)) in story.iter().enumerate() {
            happen(&mut world, what, count);
            if *settles {
                world.settle();
                prop_assert_eq!(world.settle(), 0, "nothing is written without a change");
            }
        }
        world.settle();
        // When the inputs exist and the Jobs end, every operation that is not paused ends.
        happen(&mut world, &Happens::InputsBack, 0);
        for _ in 0..60 {
            world.settle();
            for name in world.jobs() {
                world.job_says(&name, "Complete");
            }
        }
        let open = world.all::<kubeon_api::ClusterOperation>(ObjectKind::Operation);
        let open: Vec<_> = open.iter().filter(|one| !crate::order::ended(one)).collect();
        prop_assert!(open.first().is_none_or(|_| open.iter().any(|one| one.spec.paused)), "{:?}", open);
    }
}
