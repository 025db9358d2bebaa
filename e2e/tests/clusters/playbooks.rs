//! Runs the playbooks with ansible-playbook, as a Job does, on an ordinary inventory: `cluster.yml` creates a
//! cluster on master01, `scale.yml` adds worker01, `remove-node.yml` removes it, `reset.yml` leaves bare
//! hosts.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use kubeon_e2e::ansible;
use kubeon_e2e::lab::{NEXT, TestLab};
use kubeon_e2e::program::{Answer, eventually, folder, run};

const VARIABLES: &str = "\
kube_version: v1.36.3
kube_network_plugin: flannel
container_manager: containerd
kube_pods_subnet: 10.233.64.0/18
kube_service_addresses: 10.233.0.0/18
download_run_once: true
favourite_colour: blue
";

/// Ansible on one lab.
struct PlaybookRun {
    lab: TestLab,
    programs: PathBuf,
}

#[test]
#[ignore = "the meta cluster runs the same playbooks: ./test long"]
fn soak_playbooks_create_scale_and_reset_a_cluster() -> Result<()> {
    let run = PlaybookRun { lab: TestLab::up("e2e-books", 2)?, programs: ansible::programs()? };
    run.write_inventory(false, VARIABLES)?;
    run.succeeds("ping.yml", &[])?;
    refuse_invalid_variables(&run)?;
    create(&run)?;
    add_worker(&run)?;
    remove_worker(&run)?;
    reset(&run)
}

#[test]
#[ignore = "builds a second version of Kubernetes: ./test long"]
fn soak_a_playbook_upgrades_a_cluster() -> Result<()> {
    let run = PlaybookRun { lab: TestLab::up("e2e-books-next", 2)?, programs: ansible::programs()? };
    run.lab.must(&["bundle", "build", NEXT])?;
    run.write_inventory(true, VARIABLES)?;
    run.succeeds("cluster.yml", &[])?;
    run.lab.must(&["use", "books"])?;
    let version = format!("kube_version={NEXT}");
    let out = run.succeeds("upgrade-cluster.yml", &["-e", &version])?;
    ensure!(out.contains("changed=1") && run.version()? == NEXT, "{out}");
    run.wait_nodes_ready(&["master01", "worker01"])?;
    let versions = "jsonpath={.items[*].status.nodeInfo.kubeletVersion}";
    let versions = run.lab.kubectl("books", &["get", "nodes", "-o", versions])?;
    ensure!(versions == format!("{NEXT} {NEXT}"), "{versions}");
    let again = run.succeeds("upgrade-cluster.yml", &["-e", &version])?;
    ensure!(again.contains("changed=0"), "{again}");
    run.succeeds("reset.yml", &["-e", "reset_confirmation=yes"]).map(drop)
}

impl PlaybookRun {
    /// The version of the API server.
    fn version(&self) -> Result<String> {
        let text = self.lab.kubectl("books", &["version", "-o", "json"])?;
        let version: serde_json::Value = serde_json::from_str(&text)?;
        Ok(version["serverVersion"]["gitVersion"].as_str().unwrap_or_default().to_owned())
    }

    /// Writes `hosts.yml` in the format of kubespray, and `group_vars.yml`.
    fn write_inventory(&self, with_worker: bool, variables: &str) -> Result<()> {
        let host = |name: &str, address: &str| {
            format!(
                "    {name}: {{ip: {address}, access_ip: {address}, ansible_host: {address}, ansible_user: root}}\n"
            )
        };
        let mut hosts = format!("all:\n  hosts:\n{}", host("master01", &self.lab.addresses[0]));
        if with_worker {
            hosts.push_str(&host("worker01", &self.lab.addresses[1]));
        }
        let worker = if with_worker { "{worker01: }" } else { "{}" };
        hosts.push_str(&format!(
            "  children:\n    kube_control_plane: {{hosts: {{master01: }}}}\n    kube_node: {{hosts: {worker}}}\n    \
             etcd: {{hosts: {{master01: }}}}\n    k8s_cluster: {{children: {{kube_control_plane: , kube_node: }}}}\n    \
             calico_rr: {{hosts: {{}}}}\n"
        ));
        fs::write(self.lab.file("hosts.yml"), hosts)?;
        fs::write(self.lab.file("group_vars.yml"), variables)?;
        Ok(())
    }

    /// Runs a playbook with the arguments of a Job's entrypoint, and returns its result also after a failure.
    fn play(&self, playbook: &str, more: &[&str]) -> Result<Answer> {
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let (hosts, key) = (text(self.lab.file("hosts.yml")), text(self.lab.key()));
        let variables = format!("@{}", text(self.lab.file("group_vars.yml")));
        let playbook = text(ansible::playbooks().join(playbook));
        let mut arguments = vec!["-i", &hosts, "-b", "--become-user", "root", "-e", &variables];
        arguments.extend(["--private-key", &key, &playbook]);
        arguments.extend(more);
        let (program, config) =
            (text(folder().join("kubeon")), text(ansible::playbooks().join("ansible.cfg")));
        let environment = self.lab.environment();
        let mut environment: Vec<(&str, &str)> =
            environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        environment.extend([("KUBEON_PROGRAM", program.as_str()), ("ANSIBLE_CONFIG", &config)]);
        environment.extend([("CLUSTER_NAME", "books"), ("LC_ALL", "C.UTF-8"), ("ANSIBLE_NOCOLOR", "1")]);
        run(self.programs.join("ansible-playbook"), &arguments, &environment)
    }

    fn succeeds(&self, playbook: &str, more: &[&str]) -> Result<String> {
        let answer = self.play(playbook, more)?;
        ensure!(answer.code == 0, "{playbook} ended with {}\n{}{}", answer.code, answer.out, answer.err);
        Ok(answer.out)
    }

    fn nodes(&self) -> Result<Vec<String>> {
        let arguments = ["get", "nodes", "--no-headers"];
        Ok(self.lab.kubectl("books", &arguments)?.lines().map(str::to_owned).collect())
    }

    fn wait_nodes_ready(&self, names: &[&str]) -> Result<()> {
        eventually("the nodes are Ready", Duration::from_secs(30), || {
            let nodes = self.nodes()?;
            let ready = |node: &String, name: &str| node.starts_with(name) && node.contains(" Ready ");
            let all =
                nodes.len() == names.len() && nodes.iter().zip(names).all(|(node, name)| ready(node, name));
            ensure!(all, "{nodes:#?}");
            Ok(())
        })
    }
}

/// Components that no bundle contains and invalid values are refused with their names before a host is
/// changed.
fn refuse_invalid_variables(run: &PlaybookRun) -> Result<()> {
    run.write_inventory(false, "kube_network_plugin: calico\nkube_version: \"{{ nowhere }}\"\n")?;
    let answer = run.play("cluster.yml", &[])?;
    let names_component = answer.out.contains("cni[calico]") && answer.out.contains("use flannel");
    ensure!(answer.code == 2 && names_component && answer.out.contains("kube_version"), "{answer:?}");
    let answer = run.play("scale.yml", &[])?;
    ensure!(answer.code == 2, "{answer:?}");
    run.write_inventory(false, VARIABLES)?;
    let answer = run.play("scale.yml", &[])?;
    ensure!(answer.code == 2 && answer.out.contains("Cluster[books] not exist"), "{answer:?}");
    run.lab.on("h1", "test ! -e /var/lib/kubeon && test ! -e /etc/kubernetes").map(|_| ())
}

fn create(run: &PlaybookRun) -> Result<()> {
    run.succeeds("precheck.yml", &[])?;
    let out = run.succeeds("cluster.yml", &[])?;
    ensure!(
        out.contains("favourite_colour") && out.contains("download_run_once"),
        "unknown variables must be listed\n{out}"
    );
    ensure!(out.contains("changed=1"), "{out}");
    run.lab.must(&["use", "books"])?;
    run.wait_nodes_ready(&["master01"])?;
    let pinned = fs::read_to_string(run.lab.file("known_hosts/books"))?;
    let of_host = pinned.lines().filter(|line| line.starts_with(&run.lab.addresses[0])).count();
    ensure!(of_host == 1, "Ansible and kubeon must share one pinned key\n{pinned}");
    let again = run.succeeds("cluster.yml", &[])?;
    ensure!(again.contains("changed=0"), "a second run must change nothing\n{again}");
    Ok(())
}

fn add_worker(run: &PlaybookRun) -> Result<()> {
    run.write_inventory(true, VARIABLES)?;
    run.succeeds("scale.yml", &["--limit=worker01"])?;
    run.wait_nodes_ready(&["master01", "worker01"])
}

fn remove_worker(run: &PlaybookRun) -> Result<()> {
    run.succeeds("ping.yml", &[])?;
    let answer = run.play("remove-node.yml", &["-e", "node=worker01"])?;
    ensure!(answer.code == 2 && answer.out.contains("not confirmed"), "{answer:?}");
    run.succeeds("remove-node.yml", &["-e", "node=worker01", "-e", "skip_confirmation=true"])?;
    run.wait_nodes_ready(&["master01"])
}

fn reset(run: &PlaybookRun) -> Result<()> {
    let answer = run.play("reset.yml", &[])?;
    ensure!(answer.code == 2 && answer.out.contains("not confirmed"), "{answer:?}");
    run.succeeds("reset.yml", &["-e", "reset_confirmation=yes"])?;
    for host in ["h1", "h2"] {
        run.lab.on(
            host,
            "test ! -e /etc/kubernetes && test ! -e /var/lib/etcd && ! systemctl is-active -q kubelet",
        )?;
    }
    Ok(())
}
