//! The conditions of a business cluster whose health is observed.

use k8s_openapi::jiff::SignedDuration;
use serde_json::{Value, json};

use super::kubernetes_cluster::{NAME, STATE, ends, object, running, scaled};
use crate::testing::World;
use crate::write::{ObjectKind, ObjectRef};
use crate::{ObservedCertificates, ObservedDrift, ObservedHealth, ObservedVersions};

fn serving(not_ready: &[&str]) -> Option<ObservedHealth> {
    serving_with(not_ready, &[], None)
}

fn serving_with(
    not_ready: &[&str],
    members_down: &[&str],
    certificates: Option<ObservedCertificates>,
) -> Option<ObservedHealth> {
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let (not_ready, members_down) = (owned(not_ready), owned(members_down));
    let versions = ObservedVersions::default();
    let renewal_due = false;
    let drift = None;
    Some(ObservedHealth::Serving {
        nodes: 3,
        not_ready,
        members_down,
        versions,
        certificates,
        drift,
        renewal_due,
    })
}

fn unreachable() -> Option<ObservedHealth> {
    Some(ObservedHealth::Unreachable("https://10.0.0.1:6443: connection refused".into()))
}

fn refused() -> Option<ObservedHealth> {
    Some(ObservedHealth::Refused("https://10.0.0.1:6443 refuses the credential of the observer: 401".into()))
}

/// The world a minute later with this health. Returns the reasons of the new events.
fn observe(world: &mut World, health: Option<ObservedHealth>) -> Vec<&'static str> {
    world.now += SignedDuration::from_secs(60);
    world.health = health;
    let reasons = world.next().notices.iter().map(|notice| notice.reason).collect();
    world.settle();
    reasons
}

/// Status, reason and transition time.
fn shown(world: &World, type_: &str) -> (String, String, String) {
    let all = object(world)["status"]["conditions"].as_array().unwrap();
    let found = all.iter().find(|one| one["type"] == type_).unwrap_or_else(|| panic!("{type_} is missing"));
    let text = |key: &str| found[key].as_str().unwrap().to_owned();
    (text("status"), text("reason"), text("lastTransitionTime"))
}

fn state(world: &World, type_: &str) -> (String, String) {
    let (status, reason, _) = shown(world, type_);
    (status, reason)
}

fn words(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

#[test]
fn ready_follows_the_api_server() {
    let mut world = running(&["10.0.0.2"]);
    assert_eq!(observe(&mut world, serving(&[])), [""; 0]);
    assert_eq!(state(&world, "Ready"), words("True", "Done"));
    assert_eq!(observe(&mut world, unreachable()), ["APIUnreachable"]);
    let failed = shown(&world, "Ready");
    assert_eq!(state(&world, "Ready"), words("False", "APIUnreachable"));
    assert_eq!(observe(&mut world, unreachable()), [""; 0], "nothing changed");
    assert_eq!(shown(&world, "Ready"), failed, "the transition time stays");
    assert_eq!(observe(&mut world, serving(&[])), ["APIAnswers"]);
    assert_eq!(state(&world, "Ready"), words("True", "Done"));
    assert_ne!(shown(&world, "Ready").2, failed.2);
}

#[test]
fn ready_is_unknown_while_the_cluster_refuses_the_observer() {
    let mut world = running(&["10.0.0.2"]);
    // Without the Secret with the state no renewal begins.
    world.objects.remove(&ObjectRef::new(ObjectKind::Secret, "default", STATE)).unwrap();
    observe(&mut world, serving(&["h2"]));
    assert_eq!(observe(&mut world, refused()), ["ObserverRefused"]);
    let unknown = shown(&world, "Ready");
    assert_eq!(state(&world, "Ready"), words("Unknown", "ObserverRefused"));
    assert_eq!(state(&world, "Degraded"), words("True", "NodesNotReady"), "what was observed last");
    let text = object(&world)["status"]["conditions"].to_string();
    assert!(
        text.contains("refuses the credential of the observer: 401") && !text.contains("Stalled"),
        "{text}"
    );
    assert_eq!(observe(&mut world, refused()), [""; 0], "nothing changed");
    assert_eq!(observe(&mut world, None), [""; 0], "a restarted operator keeps it");
    assert_eq!(shown(&world, "Ready"), unknown, "the transition time stays");
    observe(&mut world, unreachable());
    assert_eq!(state(&world, "Ready"), words("False", "APIUnreachable"));
    observe(&mut world, refused());
    assert_eq!(state(&world, "Ready"), words("Unknown", "ObserverRefused"));
    assert_eq!(observe(&mut world, serving(&["h2"])), ["APIAnswers"]);
    assert_eq!(state(&world, "Ready"), words("True", "Done"));
}

#[test]
fn an_unchanged_health_writes_nothing() {
    for health in [serving(&[]), serving(&["h2"]), unreachable(), refused()] {
        let mut world = running(&["10.0.0.2"]);
        observe(&mut world, health.clone());
        let written = world.written.len();
        observe(&mut world, health);
        assert_eq!(world.written.len(), written);
    }
}

#[test]
fn a_restarted_operator_keeps_what_was_observed_until_it_observes_again() {
    for (health, type_) in [(unreachable(), "Ready"), (serving(&["h2"]), "Degraded")] {
        let mut world = running(&["10.0.0.2"]);
        observe(&mut world, health);
        let (before, written) = (shown(&world, type_), world.written.len());
        observe(&mut world, None);
        assert_eq!((shown(&world, type_), world.written.len()), (before, written));
    }
}

#[test]
fn nodes_that_are_not_ready_degrade_the_cluster_and_do_not_stall_it() {
    let mut world = running(&["10.0.0.2"]);
    assert_eq!(observe(&mut world, serving(&["h2", "h3"])), ["NodesNotReady"]);
    assert_eq!(state(&world, "Degraded"), words("True", "NodesNotReady"));
    assert_eq!(state(&world, "Ready"), words("True", "Done"));
    let text = object(&world)["status"]["conditions"].to_string();
    assert!(text.contains("2 of 3 nodes are not ready: h2, h3"), "{text}");
    assert!(!text.contains("Stalled"), "{text}");
    // What the API server said last stays while it does not answer.
    observe(&mut world, unreachable());
    assert_eq!(state(&world, "Degraded"), words("True", "NodesNotReady"));
    assert_eq!(observe(&mut world, serving(&[])), ["APIAnswers", "Recovered"]);
    assert_eq!(state(&world, "Degraded"), words("False", "AsExpected"));
}

#[test]
fn a_failed_operation_stays_visible() {
    let mut world = running(&["10.0.0.2"]);
    observe(&mut world, serving(&["h2"]));
    scaled(&mut world, &["10.0.0.2", "10.0.0.4"]);
    assert_eq!(state(&world, "Degraded"), words("True", "NodesNotReady"), "also while an operation runs");
    ends(&mut world, "Failed");
    assert_eq!(state(&world, "Degraded"), words("True", "Failed"));
    for health in [serving(&["h2"]), unreachable(), serving(&[])] {
        observe(&mut world, health);
        assert_eq!(state(&world, "Degraded"), words("True", "Failed"));
    }
}

#[test]
fn a_cluster_that_is_deleted_is_not_judged() {
    let mut world = running(&["10.0.0.2"]);
    let deleted: Value = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &deleted);
    world.settle();
    let (before, written) = (shown(&world, "Ready"), world.written.len());
    observe(&mut world, unreachable());
    assert_eq!((shown(&world, "Ready"), world.written.len()), (before, written));
}

#[test]
fn a_message_names_a_few_nodes() {
    let names: Vec<String> = (0..9).map(|at| format!("h{at}")).collect();
    let mut world = running(&["10.0.0.2"]);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    observe(&mut world, serving(&names));
    let text = object(&world)["status"]["conditions"].to_string();
    assert!(text.contains("9 of 3 nodes are not ready: h0, h1, h2, h3, h4 and 4 more"), "{text}");
}

#[test]
fn members_of_etcd_that_do_not_serve_degrade_the_cluster() {
    let mut world = running(&["10.0.0.2"]);
    assert_eq!(observe(&mut world, serving_with(&[], &["h3"], None)), ["EtcdMembersDown"]);
    assert_eq!(state(&world, "Degraded"), words("True", "EtcdMembersDown"));
    assert_eq!(state(&world, "Ready"), words("True", "Done"));
    let text = object(&world)["status"]["conditions"].to_string();
    assert!(text.contains("members of etcd do not serve: h3") && !text.contains("Stalled"), "{text}");
    observe(&mut world, serving_with(&["h3"], &["h3"], None));
    let text = object(&world)["status"]["conditions"].to_string();
    assert!(text.contains("1 of 3 nodes are not ready: h3; members of etcd do not serve: h3"), "{text}");
    assert_eq!(observe(&mut world, serving(&[])), ["Recovered"]);
    assert_eq!(state(&world, "Degraded"), words("False", "AsExpected"));
}

#[test]
fn nodes_of_another_version_are_named_while_no_operation_runs() {
    let versions = |most: &str, others: &[&str]| {
        let mut health = serving(&[]);
        if let Some(ObservedHealth::Serving { versions, .. }) = &mut health {
            let others = others.iter().map(|&node| node.to_owned()).collect();
            *versions = ObservedVersions { most: most.to_owned(), others };
        }
        health
    };
    let mut world = running(&["10.0.0.2"]);
    let declared = object(&world)["status"]["version"].as_str().unwrap().to_owned();
    assert_eq!(observe(&mut world, versions(&declared, &[])), [""; 0]);
    assert_eq!(observe(&mut world, versions(&declared, &["h3 v1.35.4"])), ["OtherVersions"]);
    let text = object(&world)["status"]["conditions"].to_string();
    assert!(text.contains(&format!("nodes with another version than {declared}: h3 v1.35.4")), "{text}");
    observe(&mut world, versions("v1.35.4", &[]));
    let text = object(&world)["status"]["conditions"].to_string();
    assert!(text.contains(&format!("the nodes run v1.35.4 instead of {declared}")), "{text}");
    assert_eq!(observe(&mut world, versions(&declared, &[])), ["Recovered"]);
    scaled(&mut world, &["10.0.0.2", "10.0.0.4"]);
    observe(&mut world, versions("v1.35.4", &[]));
    let text = object(&world)["status"]["conditions"].to_string();
    assert!(!text.contains("v1.35.4"), "an operation runs: {text}");
}

#[test]
fn the_certificate_that_ends_first_is_shown_and_what_was_not_renewed_in_time() {
    let certificates = |overdue: &[&str]| {
        let overdue = overdue.iter().map(|&path| path.to_owned()).collect();
        let first_end = "2027-03-04T05:06:07Z".parse().unwrap();
        Some(ObservedCertificates { first_end, ends_soon: false, overdue })
    };
    let mut world = running(&["10.0.0.2"]);
    observe(&mut world, serving_with(&[], &[], certificates(&[])));
    assert_eq!(state(&world, "CertificatesRenewed"), words("True", "AsExpected"));
    let text = object(&world)["status"]["conditions"].to_string();
    assert!(text.contains("the first certificate ends on 2027-03-04 05:06 UTC"), "{text}");
    observe(&mut world, serving_with(&[], &[], certificates(&["h1: /etc/kubernetes/pki/apiserver.crt"])));
    assert_eq!(state(&world, "CertificatesRenewed"), words("False", "Overdue"));
    let before = shown(&world, "CertificatesRenewed");
    for unknown in [serving(&[]), unreachable(), None] {
        observe(&mut world, unknown);
        assert_eq!(shown(&world, "CertificatesRenewed"), before, "what was observed last stays");
    }
}

#[test]
fn a_certificate_that_ends_soon_is_shown() {
    let mut world = running(&["10.0.0.2"]);
    let ends = |ends_soon| {
        let first_end = "2026-01-09T05:06:07Z".parse().unwrap();
        serving_with(&[], &[], Some(ObservedCertificates { first_end, ends_soon, overdue: Vec::new() }))
    };
    observe(&mut world, ends(true));
    assert_eq!(state(&world, "CertificatesExpiring"), words("True", "EndsSoon"));
    let text = object(&world)["status"]["conditions"].to_string();
    assert!(text.contains("ends on 2026-01-09 05:06 UTC") && !text.contains("Stalled"), "{text}");
    observe(&mut world, ends(false));
    assert_eq!(state(&world, "CertificatesExpiring"), words("False", "AsExpected"));
}

#[test]
fn masters_that_differ_from_what_operations_wrote_are_shown() {
    let drifted = |count, named: &[&str]| {
        let mut health = serving(&[]);
        if let Some(ObservedHealth::Serving { drift, .. }) = &mut health {
            let named = named.iter().map(|&text| text.to_owned()).collect();
            *drift = Some(ObservedDrift { count, named });
        }
        health
    };
    let mut world = running(&["10.0.0.2"]);
    assert_eq!(observe(&mut world, drifted(0, &[])), [""; 0]);
    assert_eq!(state(&world, "Drifted"), words("False", "AsExpected"));
    assert_eq!(observe(&mut world, drifted(3, &["h1: /etc/kubernetes/admin.conf was changed"])), ["Drifted"]);
    assert_eq!(state(&world, "Drifted"), words("True", "ChangedOnHosts"));
    assert_eq!(state(&world, "Ready"), words("True", "Done"));
    let text = object(&world)["status"]["conditions"].to_string();
    assert!(text.contains("h1: /etc/kubernetes/admin.conf was changed and 2 more"), "{text}");
    assert!(!text.contains("Stalled") && !text.contains("Reconciling"), "{text}");
    let before = shown(&world, "Drifted");
    for unknown in [serving(&[]), unreachable(), None] {
        observe(&mut world, unknown);
        assert_eq!(shown(&world, "Drifted"), before, "what was observed last stays");
    }
    observe(&mut world, drifted(0, &[]));
    assert_eq!(state(&world, "Drifted"), words("False", "AsExpected"));
}
