//! Clusters whose owner installs the network of the pods: they are made and changed without it, and prove it when it is there.

use std::time::Duration;

use anyhow::{Result, ensure};
use kubeon_e2e::lab::TestLab;
use kubeon_e2e::program::eventually;

const MINUTE: Duration = Duration::from_secs(60);
const HOSTS: [&str; 2] = ["h1", "h2"];
/// Packets that leave the pod network have the address of their host. The host has no nft of its own if the bundle brings one.
const MASQUERADE: &str = "export PATH=$PATH:/usr/local/sbin && nft add table ip own && \
    nft 'add chain ip own post { type nat hook postrouting priority 100; }' && \
    nft add rule ip own post ip saddr 10.96.0.0/12 ip daddr != 10.96.0.0/12 masquerade";

#[test]
#[ignore = "takes some minutes: ./test long"]
fn soak_a_network_of_the_owner_is_proved_when_it_is_there() -> Result<()> {
    let lab = TestLab::up("e2e-network", 2)?;
    let cluster = lab.name();
    create_without_network(&lab, "bpf")?;
    for host in HOSTS {
        lab.on(
            host,
            "for unit in kube-proxy flanneld; do ! systemctl cat $unit 2>/dev/null || exit 1; done",
        )?;
    }
    // Nodes that no network makes Ready change one after another, too.
    lab.must(&["config", "set", cluster, "network.maxPods=60"])?;
    ensure!(lab.plan(cluster)?.is_empty(), "the change is complete");
    lab.must(&["destroy", cluster, "--yes"])?;

    create_without_network(&lab, "none")?;
    for host in HOSTS {
        lab.on(host, "systemctl is-active -q kube-proxy && ! systemctl cat flanneld 2>/dev/null")?;
    }
    install_network(&lab)?;
    eventually("the nodes are Ready", MINUTE, || ready(&lab, "True"))?;
    let steps = lab.plan(cluster)?;
    let ids: Vec<&str> = steps.iter().filter_map(|step| step["id"].as_str()).collect();
    for id in ["join/ready-h2", "verify/dns", "verify/resolve@h1", "verify/resolve@h2"] {
        ensure!(ids.contains(&id), "{id} is missing in {ids:?}");
    }
    let proved = lab.must(&["create", cluster])?;
    ensure!(proved.contains(&format!("{cluster} is ready")), "{proved}");
    lab.wait_up_to_date(cluster, MINUTE)?;
    lab.must(&["config", "set", cluster, "network.maxPods=60"])?;
    ready(&lab, "True")?;
    lab.must(&["destroy", cluster, "--yes"]).map(drop)
}

fn create_without_network(lab: &TestLab, cni: &str) -> Result<()> {
    let cluster = lab.name();
    let made = lab.must(&[&lab.create(cluster, 1)[..], &["--cni", cni]].concat())?;
    ensure!(made.contains(&format!("{cluster} waits for a network of pods")), "{made}");
    lab.must(&["use", cluster])?;
    ready(lab, "False")?;
    ensure!(lab.plan(cluster)?.is_empty(), "there is nothing to do before the network");
    Ok(())
}

/// The condition `Ready` of all nodes has this status.
fn ready(lab: &TestLab, status: &str) -> Result<()> {
    let path = r#"jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}"#;
    let found = lab.kubectl(lab.name(), &["get", "nodes", "-o", path])?;
    ensure!(found.trim() == [status; HOSTS.len()].join(" "), "{found}");
    Ok(())
}

/// A bridge on every host, and a route to the pods of the other one.
fn install_network(lab: &TestLab) -> Result<()> {
    let mut shares = Vec::new();
    for host in HOSTS {
        let node = ["get", "node", host, "-o", "jsonpath={.spec.podCIDR}"];
        shares.push(lab.kubectl(lab.name(), &node)?.trim().to_owned());
    }
    for (index, host) in HOSTS.iter().enumerate() {
        let plugin = format!(
            r#"{{"type": "bridge", "bridge": "own0", "isDefaultGateway": true, "hairpinMode": true,
                "ipam": {{"type": "host-local", "ranges": [[{{"subnet": "{}"}}]]}}}}"#,
            shares[index]
        );
        let network = format!(r#"{{"cniVersion": "1.0.0", "name": "own", "plugins": [{plugin}]}}"#);
        let other = 1 - index;
        let route = format!("ip route replace {} via {}", shares[other], lab.addresses[other]);
        let write = "mkdir -p /etc/cni/net.d && cat >/etc/cni/net.d/10-own.conflist";
        lab.on(host, &format!("{route} && {MASQUERADE} && {write} <<'T'\n{network}\nT"))?;
    }
    Ok(())
}
