//! The generation of a plan comes from the saved state and the masters, not from what any host claims.

use crate::support::{address, bare_hosts, intent};
use kubeon_plan::sim::{apply, run_to_completion};
use kubeon_plan::{Intent, Observation, PlanError, Snapshot, adopted_generation, destroy, plan};
use kubeon_wire::Facts;

/// One master and one worker that are up to date, except that the worker lost a file.
fn drifted() -> (Intent, Snapshot) {
    let (intent, mut snapshot) = (intent(1, 1), bare_hosts(2));
    run_to_completion(&intent, &mut snapshot, 1);
    facts(&mut snapshot, 1).journal.retain(|entry| !entry.id.starts_with("join/keys@"));
    (intent, snapshot)
}

fn facts(snapshot: &mut Snapshot, index: usize) -> &mut Facts {
    match snapshot.hosts.get_mut(&address(index)) {
        Some(Observation::Fresh(facts)) => facts,
        other => panic!("not observed: {other:?}"),
    }
}

fn claims(snapshot: &mut Snapshot, index: usize, generation: u64) {
    facts(snapshot, index).claim.as_mut().unwrap().generation = generation;
}

fn refusals(error: PlanError) -> Vec<String> {
    error
        .refusals()
        .iter()
        .map(|refusal| format!("{} {} {}", refusal.field, refusal.value, refusal.reason))
        .collect()
}

#[test]
fn the_claim_of_a_worker_does_not_move_it() {
    let (intent, mut snapshot) = drifted();
    claims(&mut snapshot, 1, 50);
    assert_eq!(plan(&intent, &snapshot).unwrap().generation, 2);
    claims(&mut snapshot, 0, 50);
    assert_eq!(plan(&intent, &snapshot).unwrap().generation, 51, "a master counts");
    facts(&mut snapshot, 0).claim.as_mut().unwrap().generation = 1;
    let saved = Intent { generation: 70, ..intent };
    assert_eq!(plan(&saved, &snapshot).unwrap().generation, 71, "the saved state counts");
}

#[test]
fn a_claim_that_no_run_can_have_written_is_refused() {
    for (index, host) in [(0, address(0)), (1, address(1))] {
        for generation in [u64::MAX, u64::MAX - 1, 1_000_001] {
            let (intent, mut snapshot) = drifted();
            claims(&mut snapshot, index, generation);
            for error in [plan(&intent, &snapshot).unwrap_err(), destroy(&intent, &snapshot).unwrap_err()] {
                let found = refusals(error);
                assert_eq!(found.len(), 1, "{found:?}");
                let start = format!("host {host} claims generation {generation}, ");
                assert!(found[0].starts_with(&start) && found[0].contains("claim.json"), "{found:?}");
            }
        }
    }
}

#[test]
fn a_state_at_the_largest_number_is_refused() {
    let (intent, snapshot) = drifted();
    let full = Intent { generation: u64::MAX, ..intent };
    let found = refusals(plan(&full, &snapshot).unwrap_err());
    assert!(found[0].starts_with("name demo is at the highest generation that there is"), "{found:?}");
}

#[test]
fn an_older_state_is_refused_after_a_change_from_the_adopted_one() {
    let (older, mut snapshot) = drifted();
    let adopted = Intent { generation: adopted_generation(1).unwrap(), ..older.clone() };
    assert!(plan(&older, &snapshot).is_ok(), "nothing was changed yet");
    let made = plan(&adopted, &snapshot).unwrap();
    apply(&made, made.steps.len(), &mut snapshot);
    for error in [plan(&older, &snapshot).unwrap_err(), destroy(&older, &snapshot).unwrap_err()] {
        let found = refusals(error);
        assert!(found[0].contains("another control machine adopted the cluster"), "{found:?}");
    }
    let next = Intent { generation: made.generation, ..adopted };
    assert_eq!(plan(&next, &snapshot).unwrap().steps, []);
    assert_eq!(adopted_generation(u64::MAX), None);
}
