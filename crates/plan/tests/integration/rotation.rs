//! The phases of a rotation of the keys. Read the texts in `tests/stories/`.

use kubeon_api::{ClusterKeys, KeyNumber, RotationPhase};
use kubeon_plan::sim::{apply, describe};
use kubeon_plan::{Intent, Plan, Snapshot, lint, plan};
use kubeon_wire::Op;

use crate::support::{created, golden, named, step, texts};

const HEALTHY: [Option<bool>; 3] = [Some(true), Some(true), Some(true)];

/// The plan of every phase, applied one after another, and the state at the end.
fn phases(masters: usize, workers: usize) -> (Vec<(RotationPhase, Plan)>, Intent, Snapshot) {
    let mut snapshot = created(masters, workers, &HEALTHY[..masters]);
    let mut keys = ClusterKeys::default().advanced();
    let mut plans = Vec::new();
    while let Some(phase) = keys.rotation() {
        let intent = Intent { keys, ..named(masters, workers) };
        let made = plan(&intent, &snapshot).unwrap();
        assert_eq!(lint(&made, &snapshot), [], "{phase}");
        apply(&made, made.steps.len(), &mut snapshot);
        let again = plan(&intent, &snapshot).unwrap();
        assert_eq!(again.steps.len(), 0, "{phase}: {}", describe(&again));
        plans.push((phase, made));
        keys = keys.advanced();
    }
    (plans, Intent { keys, ..named(masters, workers) }, snapshot)
}

#[test]
fn a_rotation_goes_from_node_to_node_in_every_phase() {
    let (plans, ended, snapshot) = phases(3, 2);
    let text: String =
        plans.iter().map(|(phase, made)| format!("phase {phase}\n{}\n", describe(made))).collect();
    golden("rotation", &text);
    for (phase, made) in &plans {
        let hosts: Vec<usize> = made.rolling.iter().map(|group| group.hosts.len()).collect();
        assert_eq!(hosts, [3, 2], "{phase}: every node restarts in its turn");
        assert!(made.rolling.iter().all(|group| group.at_once == 1), "{phase}");
    }
    assert!(plan(&ended, &snapshot).unwrap().steps.is_empty(), "the end of a rotation changes no host");
}

#[test]
fn kubelets_get_new_certificates_after_every_master_signs_with_the_new_keys() {
    let (plans, ..) = phases(3, 2);
    let forgets =
        |made: &Plan| made.steps.iter().filter(|step| matches!(step.op, Op::ForgetIdentity { .. })).count();
    let counts: Vec<usize> = plans.iter().map(|(_, made)| forgets(made)).collect();
    assert_eq!(counts, [0, 0, 5, 0]);
    let renew = &plans[2].1;
    let needs = texts(step(renew, "join/identity@h2").needs.iter());
    assert!(needs.contains(&"verify/node@h1".to_owned()), "a kubelet stops in its turn: {needs:?}");
    let needs = texts(step(renew, "join/keys@h2").needs.iter());
    assert_eq!(needs, ["join/identity@h2"], "a new bootstrap certificate");
    assert!(texts(step(renew, "join/kubelet@h2").needs.iter()).contains(&"join/keys@h2".to_owned()));
}

#[test]
fn secrets_are_stored_again_once_and_pods_prove_their_tokens() {
    let (plans, ..) = phases(1, 1);
    for (phase, made) in &plans {
        let ids: Vec<String> = texts(made.steps.iter().map(|step| &step.id));
        let renews = *phase == RotationPhase::Renew;
        assert_eq!(ids.contains(&"control/rewrite-secrets".to_owned()), renews, "{phase}");
        assert_eq!(ids.contains(&"verify/tokens@h2".to_owned()), renews, "{phase}");
    }
}

#[test]
fn a_cluster_with_its_first_keys_keeps_its_steps() {
    let intent = named(1, 1);
    assert!(intent.keys.is_first() && intent.keys.newest() == KeyNumber::FIRST);
    let made = plan(&intent, &created(1, 1, &HEALTHY[..1])).unwrap();
    assert_eq!(made.steps.len(), 0, "{}", describe(&made));
}

#[test]
fn a_worker_that_joins_after_a_rotation_uses_the_new_keys_at_once() {
    let (_, ended, mut snapshot) = phases(1, 1);
    let bigger = Intent { keys: ended.keys, ..named(1, 2) };
    snapshot.hosts.extend(crate::support::bare_hosts(3).hosts.into_iter().skip(2));
    let made = plan(&bigger, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    apply(&made, made.steps.len(), &mut snapshot);
    let again = plan(&bigger, &snapshot).unwrap();
    assert_eq!(texts(again.steps.iter().map(|step| &step.id)), [""; 0]);
}
