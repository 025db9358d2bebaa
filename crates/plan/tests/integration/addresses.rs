//! The login address and the cluster address of hosts.

use std::net::Ipv4Addr;

use kubeon_plan::precheck::{connection_targets, precheck};
use kubeon_plan::{Intent, Observation, Remedy, Snapshot, plan, validate};
use kubeon_wire::{LinkFact, Op, PrecheckResult};

use crate::support::{address, bare_hosts, intent};

fn internal(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, 11 + u8::try_from(index).unwrap())
}

/// The hosts own these addresses, each on a link of its own, and not their login address.
fn own(snapshot: &mut Snapshot, addresses: impl Fn(usize) -> Vec<Ipv4Addr>) {
    for index in 0..snapshot.hosts.len() {
        let Some(Observation::Fresh(facts)) = snapshot.hosts.get_mut(&address(index)) else {
            panic!("{index}")
        };
        facts.addresses = addresses(index);
        let link = |(number, address): (usize, &Ipv4Addr)| LinkFact {
            address: *address,
            name: format!("eth{number}"),
            mtu: 1500,
        };
        facts.links = facts.addresses.iter().enumerate().map(link).collect();
    }
}

fn with_internal(mut intent: Intent, index: usize, internal: Ipv4Addr) -> Intent {
    let mut spec = (*intent.spec).clone();
    let host = spec.masters.iter_mut().chain(&mut spec.workers).nth(index).unwrap();
    host.internal_address = Some(internal.into());
    let version = spec.version;
    intent.spec = validate(spec, &[version]).unwrap().0;
    intent
}

fn result(intent: &Intent, snapshot: &Snapshot, index: usize) -> PrecheckResult {
    let report = precheck(intent, snapshot);
    let host = report.hosts.into_iter().find(|host| host.host == address(index)).unwrap();
    host.checks.into_iter().find(|result| result.check == "address").unwrap()
}

#[test]
fn behind_nat_everything_uses_the_detected_addresses() {
    let mut intent = intent(3, 2);
    let mut snapshot = bare_hosts(5);
    own(&mut snapshot, |index| vec![internal(index)]);
    let detected = intent.detect_internal_addresses(&snapshot);
    assert_eq!(detected.len(), 5);
    assert_eq!(detected[&address(4)], internal(4).into());
    intent.set_internal_addresses(&detected);
    assert!(intent.detect_internal_addresses(&snapshot).is_empty(), "only once");

    let targets = connection_targets(&intent, &[]);
    assert!(targets[&address(0)].contains(&(internal(1).to_string(), 2380)), "{targets:?}");
    let plan = plan(&intent, &snapshot).unwrap();
    // The declaration of the cluster names both addresses of a host.
    let declares = |step: &kubeon_plan::Step| step.id.to_string() == "control/declaration";
    for step in plan.steps.into_iter().filter(|step| !declares(step)) {
        let files = match &step.op {
            Op::Files { files } => files.clone(),
            op => {
                let text = serde_json::to_string(op).unwrap();
                assert!(!text.contains("172.30.0."), "{}: {text}", step.id);
                continue;
            }
        };
        for file in files {
            let text = serde_json::to_string(&file).unwrap();
            // A certificate is also valid for the address at which people reach the host.
            let is_certificate = text.contains("\"addresses\"");
            assert!(!text.contains("172.30.0.") || is_certificate, "{}: {text}", step.id);
        }
    }
}

#[test]
fn a_host_must_own_its_cluster_address() {
    let mut snapshot = bare_hosts(2);
    own(&mut snapshot, |index| vec![address(index).ip(), internal(index)]);
    assert!(result(&intent(1, 1), &snapshot, 1).ok, "it owns its login address");
    let declared = with_internal(intent(1, 1), 1, internal(1));
    assert!(result(&declared, &snapshot, 1).ok);
    let wrong = result(&with_internal(intent(1, 1), 1, Ipv4Addr::new(10, 9, 9, 9)), &snapshot, 1);
    assert_eq!(
        wrong.message,
        "does not have the cluster address 10.9.9.9; its own addresses are 172.30.0.12, 10.0.0.12"
    );
    assert!(wrong.prevents() && wrong.remedy == Some(Remedy::SetInternalAddress(address(1))));
}

#[test]
fn a_person_chooses_between_several_addresses() {
    let mut snapshot = bare_hosts(2);
    own(&mut snapshot, |index| vec![internal(index), Ipv4Addr::new(10, 1, 0, 1)]);
    assert!(intent(1, 1).detect_internal_addresses(&snapshot).is_empty());
    let several = result(&intent(1, 1), &snapshot, 1);
    assert!(several.prevents(), "{several:?}");
    assert!(several.message.ends_with("its own addresses are 10.0.0.12, 10.1.0.1"), "{several:?}");
}

#[test]
fn two_hosts_with_one_address_are_refused() {
    let mut intent = intent(1, 1);
    let mut snapshot = bare_hosts(2);
    own(&mut snapshot, |_| vec![internal(0)]);
    intent.set_internal_addresses(&intent.detect_internal_addresses(&snapshot));
    let same = result(&intent, &snapshot, 1);
    assert_eq!(
        same.message,
        "has the same cluster address 10.0.0.11 as 172.30.0.11; hosts need different ones"
    );
    let mut spec = (*with_internal(self::intent(1, 1), 0, internal(0)).spec).clone();
    spec.workers[0].internal_address = Some(internal(0).into());
    let version = spec.version;
    let refused = validate(spec, &[version]).unwrap_err();
    assert_eq!(
        refused.refusals[0].reason,
        "has the internal address 10.0.0.11, which is the address of 172.30.0.11"
    );
}
