//! What the list says of a cluster.

use super::*;

fn state(status: Status) -> StoredCluster {
    let mut spec = kubeon_plan::sim::cluster(&["10.0.0.1"], &["10.0.0.2", "10.0.0.3"]);
    for (host, name) in spec.masters.iter_mut().chain(&mut spec.workers).zip(["n1", "n2", "n3"]) {
        host.name = Some(name.parse().unwrap());
    }
    StoredCluster { status, ..StoredCluster::new(spec.name.clone(), spec) }
}

fn facts(ready: &[(&str, bool)]) -> ClusterFacts {
    let node =
        |ready: bool| NodeFact { ready, reason: "kubelet stopped posting".to_owned(), ..NodeFact::default() };
    ClusterFacts {
        api_ready: true,
        nodes: Some(ready.iter().map(|(name, ready)| ((*name).to_owned(), node(*ready))).collect()),
        ..ClusterFacts::default()
    }
}

#[test]
fn ready_only_when_every_node_is() {
    let well = row(&state(Status::Running), true, Ok(facts(&[("n1", true), ("n2", true), ("n3", true)])), 0);
    assert_eq!((well.state, well.note.as_str()), ("Ready", ""));
    assert_eq!((well.masters.to_string(), well.workers.to_string()), ("1/1".into(), "2/2".into()));
    let sick = row(&state(Status::Running), true, Ok(facts(&[("n1", true), ("n2", false)])), 0);
    assert_eq!(sick.state, "Degraded");
    assert_eq!(sick.workers.to_string(), "0/2");
    assert_eq!(sick.note, "worker n2: kubelet stopped posting; 1 more");
}

#[test]
fn a_silent_cluster_is_unreachable_and_counts_nothing() {
    let dead = Silence { why: "no route".to_owned(), dead: true };
    let row = row(&state(Status::Running), false, Err(dead), 0);
    assert_eq!(
        (row.state, row.masters.to_string(), row.note.as_str()),
        ("Unreachable", "?/1".into(), "no route")
    );
}

#[test]
fn a_cluster_of_which_nobody_knows_is_not_called_dead() {
    let row = row(&state(Status::Running), false, Err(Silence::unknown("no answer in full")), 0);
    assert_eq!(
        (row.state, row.masters.to_string(), row.note.as_str()),
        ("Unknown", "?/1".into(), "no answer in full")
    );
}

#[test]
fn nodes_that_were_not_told_are_no_sick_nodes() {
    let untold = ClusterFacts { nodes: None, ..facts(&[]) };
    let row = row(&state(Status::Running), true, Ok(untold), 0);
    assert_eq!((row.state, row.workers.to_string()), ("Unknown", "?/2".into()));
    assert_eq!(row.note, "the nodes were not told in time");
}

#[test]
fn an_unfinished_cluster_says_how_to_go_on() {
    let row = row(&state(Status::Creating), false, Err(Silence::unknown("")), 0);
    assert_eq!((row.state, row.note.as_str()), ("Creating", "continue with: kubeon create demo"));
}
