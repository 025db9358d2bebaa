//! The playbooks, run by the real ansible-playbook as a Job runs them, on an ordinary inventory: `cluster.yml` makes
//! master01 a cluster, `scale.yml` adds worker01, `remove-node.yml` takes it out, `reset.yml` leaves bare hosts.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use kubeon_e2e::ansible;
use kubeon_e2e::lab::TestLab;
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
fn an_inventory_becomes_a_cluster_grows_shrinks_and_goes() -> Result<()> {
    let run = PlaybookRun { lab: TestLab::up("e2e-books", 2)?, programs: ansible::programs()? };
    run.inventory(false, VARIABLES)?;
    run.works("ping.yml", &[])?;
    refused(&run)?;
    made(&run)?;
    grown(&run)?;
    shrunk(&run)?;
    gone(&run)
}

impl PlaybookRun {
    /// Writes `hosts.yml` as kubespray's users do, and `group_vars.yml`.
    fn inventory(&self, with_worker: bool, variables: &str) -> Result<()> {
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

    /// Runs a playbook with the words of a Job's entrypoint, whatever comes of it.
    fn play(&self, playbook: &str, more: &[&str]) -> Result<Answer> {
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let (hosts, key) = (text(self.lab.file("hosts.yml")), text(self.lab.key()));
        let variables = format!("@{}", text(self.lab.file("group_vars.yml")));
        let book = text(ansible::playbooks().join(playbook));
        let mut words = vec!["-i", &hosts, "-b", "--become-user", "root", "-e", &variables];
        words.extend(["--private-key", &key, &book]);
        words.extend(more);
        let (program, config) =
            (text(folder().join("kubeon")), text(ansible::playbooks().join("ansible.cfg")));
        let environment = self.lab.environment();
        let mut environment: Vec<(&str, &str)> =
            environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        environment.extend([("KUBEON_PROGRAM", program.as_str()), ("ANSIBLE_CONFIG", &config)]);
        environment.extend([("CLUSTER_NAME", "books"), ("LC_ALL", "C.UTF-8"), ("ANSIBLE_NOCOLOR", "1")]);
        run(self.programs.join("ansible-playbook"), &words, &environment)
    }

    fn works(&self, playbook: &str, more: &[&str]) -> Result<String> {
        let answer = self.play(playbook, more)?;
        ensure!(answer.code == 0, "{playbook} ended with {}\n{}{}", answer.code, answer.out, answer.err);
        Ok(answer.out)
    }

    fn nodes(&self) -> Result<Vec<String>> {
        let words = ["get", "nodes", "--no-headers"];
        Ok(self.lab.kubectl("books", &words)?.lines().map(str::to_owned).collect())
    }

    fn are_ready(&self, names: &[&str]) -> Result<()> {
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

/// What no bundle carries is refused by name before a host is touched; so is nonsense.
fn refused(run: &PlaybookRun) -> Result<()> {
    run.inventory(false, "kube_network_plugin: calico\nkube_version: \"{{ nowhere }}\"\n")?;
    let answer = run.play("cluster.yml", &[])?;
    let said = answer.out.contains("cni[calico]") && answer.out.contains("use flannel");
    ensure!(answer.code == 2 && said && answer.out.contains("kube_version"), "{answer:?}");
    let answer = run.play("scale.yml", &[])?;
    ensure!(answer.code == 2, "{answer:?}");
    run.inventory(false, VARIABLES)?;
    let answer = run.play("scale.yml", &[])?;
    ensure!(answer.code == 2 && answer.out.contains("Cluster[books] not exist"), "{answer:?}");
    run.lab.on("h1", "test ! -e /var/lib/kubeon && test ! -e /etc/kubernetes").map(|_| ())
}

fn made(run: &PlaybookRun) -> Result<()> {
    run.works("precheck.yml", &[])?;
    let out = run.works("cluster.yml", &[])?;
    ensure!(
        out.contains("favourite_colour") && out.contains("download_run_once"),
        "what is unknown is told\n{out}"
    );
    ensure!(out.contains("changed=1"), "{out}");
    run.lab.must(&["use", "books"])?;
    run.are_ready(&["master01"])?;
    let pinned = fs::read_to_string(run.lab.file("known_hosts/books"))?;
    let of_host = pinned.lines().filter(|line| line.starts_with(&run.lab.addresses[0])).count();
    ensure!(of_host == 1, "Ansible and kubeon share one pin\n{pinned}");
    let again = run.works("cluster.yml", &[])?;
    ensure!(again.contains("changed=0"), "a second run changes nothing\n{again}");
    Ok(())
}

fn grown(run: &PlaybookRun) -> Result<()> {
    run.inventory(true, VARIABLES)?;
    run.works("scale.yml", &["--limit=worker01"])?;
    run.are_ready(&["master01", "worker01"])
}

fn shrunk(run: &PlaybookRun) -> Result<()> {
    run.works("ping.yml", &[])?;
    let answer = run.play("remove-node.yml", &["-e", "node=worker01"])?;
    ensure!(answer.code == 2 && answer.out.contains("nobody agreed"), "{answer:?}");
    run.works("remove-node.yml", &["-e", "node=worker01", "-e", "skip_confirmation=true"])?;
    run.are_ready(&["master01"])
}

fn gone(run: &PlaybookRun) -> Result<()> {
    let answer = run.play("reset.yml", &[])?;
    ensure!(answer.code == 2 && answer.out.contains("nobody agreed"), "{answer:?}");
    run.works("reset.yml", &["-e", "reset_confirmation=yes"])?;
    for host in ["h1", "h2"] {
        run.lab.on(
            host,
            "test ! -e /etc/kubernetes && test ! -e /var/lib/etcd && ! systemctl is-active -q kubelet",
        )?;
    }
    Ok(())
}
