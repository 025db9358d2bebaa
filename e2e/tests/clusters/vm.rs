//! Clusters of one master and one worker on virtual machines with their own kernels. Their processors may be
//! emulated, so each test takes ten minutes or more: `./test long` runs them.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::host_snapshot::HostSnapshot;
use kubeon_e2e::lab::{NEXT, TestLab};
use kubeon_e2e::program::again_after;
use kubeon_e2e::running::Running;
use serde_json::json;

/// For everything that a host does: an emulated processor is ten to twenty times slower.
const LIMIT: Duration = Duration::from_secs(45 * 60);
const HOSTS: [&str; 2] = ["h1", "h2"];
/// What the hosts make `create` need.
#[derive(Clone, Copy, PartialEq)]
enum Extra {
    /// Their firewall lets in SSH only: precheck names what is closed, and kubeon opens it when it is told to.
    ManagedFirewall,
    /// They have an address for the cluster beside the one for logins.
    ClusterAddresses,
    /// The program is killed in between and run again.
    Kill,
    /// Their kernel is older than what kube-proxy needs for nftables.
    OldKernel,
}

/// What happens to a cluster between `create` and `destroy`.
#[derive(Clone, Copy, PartialEq)]
enum Life {
    /// Its pods talk.
    Short,
    /// The same, then both hosts reboot.
    WithReboots,
    /// The same, then cloud-init writes the hosts files again, without the names of the cluster.
    HostsFileRewritten,
    /// The same, then it changes to the next minor version.
    Upgraded,
}

#[test]
#[ignore = "minutes: boots virtual machines"]
fn vm_cluster_on_debian_11() -> Result<()> {
    life_of_a_cluster("vm-debian-11", &["--os", "debian-11"], &[Extra::OldKernel], Life::WithReboots)
}

#[test]
#[ignore = "minutes: boots virtual machines"]
fn vm_cluster_on_debian_12_with_the_stub_resolver() -> Result<()> {
    let machines = ["--os", "debian-12", "--profile", "resolved"];
    life_of_a_cluster("vm-resolved", &machines, &[], Life::WithReboots)
}

#[test]
#[ignore = "minutes: boots virtual machines"]
fn vm_cluster_on_debian_13_with_firewalld() -> Result<()> {
    let machines = ["--os", "debian-13", "--profile", "firewalld"];
    life_of_a_cluster("vm-firewalld", &machines, &[Extra::ManagedFirewall], Life::WithReboots)
}

#[test]
#[ignore = "minutes: boots virtual machines"]
fn vm_cluster_on_debian_12_with_ufw_and_two_network_cards() -> Result<()> {
    let machines = ["--os", "debian-12", "--profile", "ufw,two-nics"];
    life_of_a_cluster("vm-ufw", &machines, &[Extra::ManagedFirewall, Extra::ClusterAddresses], Life::Short)
}

#[test]
#[ignore = "minutes: boots virtual machines"]
fn vm_cluster_on_debian_12_with_network_manager_and_cloud_init_behind_nat() -> Result<()> {
    let machines = ["--os", "debian-12", "--profile", "network-manager,cloud-init,nat"];
    life_of_a_cluster("vm-nat", &machines, &[Extra::Kill], Life::HostsFileRewritten)
}

#[test]
#[ignore = "minutes: boots virtual machines, builds a second version of Kubernetes"]
fn vm_cluster_on_debian_12_is_upgraded() -> Result<()> {
    life_of_a_cluster("vm-upgrade", &["--os", "debian-12"], &[], Life::Upgraded)
}

/// A closed firewall is refused, and the refusal names the ports of both hosts and what helps.
fn refuse_closed_firewall(lab: &TestLab) -> Result<()> {
    let refused = lab.kubeon(&lab.create(lab.name(), 1))?;
    ensure!(refused.code == 2, "{refused:?}");
    let closed =
        ["TCP 6443 and UDP 8472 from ", "TCP 10250 and UDP 8472 from ", "packets of the pod network"];
    for text in closed.into_iter().chain(["--firewall manage"]) {
        ensure!(refused.err.contains(text), "{text:?} is missing in {}", refused.err);
    }
    Ok(())
}

/// A host must own its cluster address.
fn refuse_foreign_address(lab: &TestLab, master: &str) -> Result<()> {
    let addresses = [
        "--firewall",
        "manage",
        "--master-internal-address",
        master,
        "--worker-internal-address",
        "192.0.2.9",
    ];
    let refused = lab.kubeon(&[&lab.create(lab.name(), 1)[..], &addresses].concat())?;
    ensure!(refused.code == 2 && refused.err.contains("192.0.2.9"), "{refused:?}");
    ensure!(refused.err.contains("does not have the cluster address"), "{refused:?}");
    Ok(())
}

/// A kernel without a module of the pod network is refused, and the refusal names the module.
fn refuse_missing_module(lab: &TestLab) -> Result<()> {
    // modprobe reads the index of modules, which depmod writes.
    let hide =
        r#"place=$(modinfo -n vxlan) && echo "$place" >/root/place && mv "$place" /root/vxlan && depmod"#;
    lab.on("h2", hide)?;
    let refused = lab.kubeon(&lab.create(lab.name(), 1))?;
    lab.on("h2", r#"mv /root/vxlan "$(cat /root/place)" && rm /root/place && depmod"#)?;
    ensure!(refused.code == 2 && refused.err.contains("lacks vxlan"), "{refused:?}");
    Ok(())
}

/// The plan says that kube-proxy and flannel use iptables.
fn plan_names_iptables(lab: &TestLab) -> Result<()> {
    let shown = lab.kubeon(&[&lab.create(lab.name(), 1)[..], &["--dry-run"]].concat())?;
    let said = shown.out.clone() + &shown.err;
    ensure!(shown.code == 0 && said.contains("kube-proxy and flannel use iptables here"), "{shown:?}");
    Ok(())
}

/// kube-proxy writes its rules with iptables, and neither it nor flannel has a table of nftables.
fn hosts_use_iptables(lab: &TestLab) -> Result<()> {
    for host in HOSTS {
        let rules = lab.on(host, "iptables-save")?;
        ensure!(rules.contains(":KUBE-SERVICES "), "{host}: {rules}");
        let tables = lab.on(host, "nft list tables")?;
        ensure!(!tables.contains("kube-proxy") && !tables.contains("flannel"), "{host}: {tables}");
    }
    Ok(())
}

/// The arguments of `create` for hosts with these extras.
fn create_arguments<'a>(lab: &'a TestLab, extras: &[Extra], internal: &'a [String]) -> Vec<&'a str> {
    let mut create = lab.create(lab.name(), 1);
    if extras.contains(&Extra::ManagedFirewall) {
        create.extend(["--firewall", "manage"]);
    }
    if extras.contains(&Extra::ClusterAddresses) {
        create.extend(["--master-internal-address", &internal[0], "--worker-internal-address", &internal[1]]);
    }
    create
}

/// Create, use, destroy. The hosts are as before afterwards.
fn life_of_a_cluster(name: &str, machines: &[&str], extras: &[Extra], life: Life) -> Result<()> {
    let lab = TestLab::up_with(name, HOSTS.len(), &[&["--kind", "vm"], machines].concat())?;
    if life == Life::Upgraded {
        // It may compile for half an hour, so not beside a cluster on emulated processors.
        lab.must(&["bundle", "build", NEXT])?;
    }
    // Services of the first boot write files.
    for host in HOSTS {
        lab.on(host, "systemctl is-system-running --wait || true")?;
    }
    if extras.contains(&Extra::OldKernel) {
        // Before the snapshots, because depmod writes the index of modules again.
        refuse_missing_module(&lab)?;
        plan_names_iptables(&lab)?;
    }
    let before = HOSTS.map(|host| HostSnapshot::of(&lab, host));
    let internal = lab.cluster_addresses()?;
    if extras.contains(&Extra::ManagedFirewall) {
        refuse_closed_firewall(&lab)?;
    }
    if extras.contains(&Extra::ClusterAddresses) {
        refuse_foreign_address(&lab, &internal[0])?;
    }
    let begin = Instant::now();
    let create = create_arguments(&lab, extras, &internal);
    if extras.contains(&Extra::Kill) {
        let mut killed = Running::start(&lab, &create)?;
        killed.until("many steps are complete", LIMIT, |killed| killed.completed_steps() >= 40)?;
        killed.kill()?;
    }
    lab.must(&create)?;
    print_time("create", begin);
    lab.must(&["use", name])?;
    nodes_are_ready(&lab)?;
    nodes_have_their_cluster_addresses(&lab)?;
    pods_reach_each_other(&lab)?;
    if extras.contains(&Extra::OldKernel) {
        hosts_use_iptables(&lab)?;
    }
    wait("the plan has no steps", || up_to_date(&lab))?;
    match life {
        Life::Short => {}
        Life::WithReboots => reboot(&lab)?,
        Life::HostsFileRewritten => rewrite_hosts_files(&lab)?,
        Life::Upgraded => upgrade(&lab)?,
    }
    lab.must(&["destroy", name, "--yes"])?;
    for (host, before) in HOSTS.into_iter().zip(before) {
        let different = before?.differences(&HostSnapshot::of(&lab, host)?);
        ensure!(different.is_empty(), "different on {host} after destroy:\n{}", different.join("\n"));
    }
    Ok(())
}

#[allow(clippy::print_stderr, reason = "prints measured times")]
fn print_time(what: &str, begin: Instant) {
    eprintln!("  {what}: {:.0} s", begin.elapsed().as_secs_f64());
}

fn wait(what: &str, attempt: impl FnMut() -> Result<()>) -> Result<()> {
    again_after(Duration::from_secs(2), what, LIMIT, attempt)
}

fn up_to_date(lab: &TestLab) -> Result<()> {
    let steps = lab.plan(lab.name())?;
    ensure!(steps.is_empty(), "{steps:?}");
    Ok(())
}

fn nodes_are_ready(lab: &TestLab) -> Result<()> {
    let ready =
        r#"jsonpath={range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status} {end}"#;
    let nodes = lab.kubectl(lab.name(), &["get", "nodes", "-o", ready])?;
    ensure!(nodes.trim() == "h1 True h2 True", "{nodes}");
    Ok(())
}

fn nodes_have_their_cluster_addresses(lab: &TestLab) -> Result<()> {
    let internal = r#"jsonpath={range .items[*]}{.status.addresses[?(@.type=="InternalIP")].address} {end}"#;
    let nodes = lab.kubectl(lab.name(), &["get", "nodes", "-o", internal])?;
    let found: Vec<&str> = nodes.split_whitespace().collect();
    ensure!(found == lab.cluster_addresses()?, "{nodes}");
    Ok(())
}

/// A pod on each host. Each asks the other, resolves a name of the cluster and one from outside of it.
fn pods_reach_each_other(lab: &TestLab) -> Result<()> {
    lab.load_client(lab.name())?;
    let pods = HOSTS.map(|host| kubeon_e2e::image::pod(host, Some(host)));
    lab.apply(lab.name(), &json!({ "apiVersion": "v1", "kind": "List", "items": pods }))?;
    wait("pods on both hosts talk", || pods_answer(lab))
}

fn pods_answer(lab: &TestLab) -> Result<()> {
    let run = |pod: &str, arguments: &[&str]| {
        lab.kubectl(lab.name(), &[&["exec", pod, "--", "/lab-client"], arguments].concat())
    };
    for (pod, other) in [("h1", "h2"), ("h2", "h1")] {
        let address = lab.kubectl(lab.name(), &["get", "pod", other, "-o", "jsonpath={.status.podIP}"])?;
        let answer = run(pod, &["get", &format!("http://{address}:8080/{pod}")])?;
        ensure!(answer.contains(&format!("you asked for /{pod}")), "{answer}");
        run(pod, &["resolve", "kubernetes.default.svc.cluster.local"])?;
        run(pod, &["resolve", "outside.test"]).context("a name from outside of the cluster")?;
    }
    Ok(())
}

/// Both hosts come back alone, and nothing is left to do.
fn reboot(lab: &TestLab) -> Result<()> {
    let boot_id = |host: &str| lab.on(host, "cat /proc/sys/kernel/random/boot_id");
    let before = HOSTS.map(boot_id);
    let begin = Instant::now();
    for host in HOSTS {
        lab.on(host, "systemd-run --quiet --on-active=1 systemctl reboot")?;
    }
    for (host, before) in HOSTS.into_iter().zip(before) {
        let before = before?;
        wait("the host boots again", || {
            ensure!(boot_id(host)? != before, "{host} has not rebooted yet");
            Ok(())
        })?;
    }
    wait("all nodes are Ready again", || nodes_are_ready(lab))?;
    wait("pods talk again", || pods_answer(lab))?;
    wait("the plan has no steps", || up_to_date(lab))?;
    print_time("both hosts rebooted, the cluster works again after", begin);
    Ok(())
}

/// Nodes reach the API without their hosts files: cloud-init writes them at every boot, as here.
fn rewrite_hosts_files(lab: &TestLab) -> Result<()> {
    // The time is taken after the restart: until then the old kubelet may renew the lease.
    let rewrite = "cloud-init single --name update_etc_hosts --frequency always >&2 && \
                   ! grep -q 'kubeon begin' /etc/hosts && systemctl restart kubelet kube-proxy && date -u +%FT%T";
    let mut restarted = Vec::new();
    for host in HOSTS {
        restarted.push((host, lab.on(host, rewrite)?));
    }
    wait("all nodes report after their restart", || {
        for (host, time) in &restarted {
            reports_after(lab, host, time)?;
        }
        nodes_are_ready(lab)
    })?;
    wait("pods talk again", || pods_answer(lab))?;
    new_services_answer(lab)?;
    lab.must(&["redo", "hosts", lab.name()])?;
    wait("the plan has no steps", || up_to_date(lab))
}

/// The kube-proxy of each host gets a Service that did not exist before, whose pod is on the other host.
fn new_services_answer(lab: &TestLab) -> Result<()> {
    for (pod, other) in [("h1", "h2"), ("h2", "h1")] {
        let service = format!("late-{other}");
        lab.kubectl(lab.name(), &["label", "pod", other, &format!("host={other}")])?;
        lab.apply(
            lab.name(),
            &json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": service },
                "spec": { "selector": { "host": other }, "ports": [{ "port": 80, "targetPort": 8080 }] } }),
        )?;
        let url = format!("http://{service}.default.svc.cluster.local/{pod}");
        wait("a new Service answers", || {
            let answer = lab.kubectl(lab.name(), &["exec", pod, "--", "/lab-client", "get", &url])?;
            ensure!(answer.contains(&format!("you asked for /{pod}")), "{answer}");
            Ok(())
        })?;
    }
    Ok(())
}

/// The lease of a node is newer than this time in UTC.
fn reports_after(lab: &TestLab, host: &str, time: &str) -> Result<()> {
    let path = "jsonpath={.spec.renewTime}";
    let renewed = lab.kubectl(lab.name(), &["-n", "kube-node-lease", "get", "lease", host, "-o", path])?;
    ensure!(renewed.as_str() > time.trim(), "{host} reported at {renewed}, restarted after {time}");
    Ok(())
}

/// Every node runs the next minor version, and pods talk.
fn upgrade(lab: &TestLab) -> Result<()> {
    let begin = Instant::now();
    lab.must(&["upgrade", lab.name(), NEXT, "--wait-time", "1800"])?;
    print_time("upgrade", begin);
    wait("all nodes are Ready", || nodes_are_ready(lab))?;
    let path = "jsonpath={.items[*].status.nodeInfo.kubeletVersion}";
    let versions = lab.kubectl(lab.name(), &["get", "nodes", "-o", path])?;
    ensure!(versions == format!("{NEXT} {NEXT}"), "{versions}");
    // Drains evicted the pods, which have no controller.
    lab.kubectl(lab.name(), &[&["delete", "pod", "--ignore-not-found"], &HOSTS[..]].concat())?;
    pods_reach_each_other(lab)?;
    wait("the plan has no steps", || up_to_date(lab))
}
