//! `kubeon display`: five looks at a cluster, through a master that lives.

use std::time::Duration;

use futures::future::join_all;
use kubeon_api::HostAddress;
use kubeon_link_host::SshHosts;
use kubeon_ports::ProbeHost as _;
use kubeon_wire::Facts;
use serde::Serialize;
use serde_json::{Value, json};

use super::nodes::{ClusterNodes, output};
use crate::args::Format;
use crate::args::day::DisplayArgs;
use crate::cli_error::CliError;
use crate::context::Context;
use crate::output::{CommandResult, TextTable};
use kubeon_engine::engine::members;
use kubeon_engine::selector::Member;

/// Longest that one look may take.
const LIMIT: Duration = Duration::from_secs(30);
const KUBECTL: &str = "/usr/local/bin/kubectl --request-timeout=15s --kubeconfig /etc/kubernetes/admin.conf";
const IMAGES: &str = r#"-o jsonpath='{range .items[*]}{"\n"}{.metadata.name}{":\t"}{range .spec.containers[*]}{.image}{", "}{end}{end}'"#;
const ETCDCTL: &str = "/usr/local/bin/etcdctl --endpoints=https://127.0.0.1:2379 --dial-timeout=5s --command-timeout=10s \
    --cacert=/etc/kubernetes/pki/etcd/ca.crt --cert=/etc/kubernetes/pki/etcd/healthcheck-client.crt \
    --key=/etc/kubernetes/pki/etcd/healthcheck-client.key";

/// A certificate as it is shown.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Certificate {
    path: String,
    expires: String,
    residual_days: i64,
}

/// Shows a cluster.
pub(super) async fn run(context: &Context<'_>, args: &DisplayArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    let state = engine.find(args.name.as_deref())?;
    let masters: Vec<Member> = members(&state.spec).into_iter().filter(|member| member.master).collect();
    let nodes = ClusterNodes::of(&engine, &state, masters, &args.login, &args.contact).await?;
    let (master, facts) = living(&nodes, state.name.as_str()).await?;
    facts.unchecked.iter().for_each(|text| context.output.warn(&format!("{} {text}", master.name)));
    let look = Look { hosts: &nodes.contact.hosts, host: HostAddress::from(master.address) };
    match args.format.output {
        Format::Table | Format::Wide => look.text(context, &facts).await,
        Format::Name => {
            let names = look.run(&format!("{KUBECTL} get nodes -o name")).await?;
            context.output.result(&names)
        }
        Format::Json | Format::Yaml => {
            let value = look.value(&state.name.to_string(), &facts).await?;
            context.output.result(
                &CommandResult::new(&value, TextTable::new(&[]), Vec::new())?.text(args.format.output)?,
            )
        }
    }
}

/// The first master in order whose API server is ready; all are asked at once.
async fn living(nodes: &ClusterNodes, cluster: &str) -> Result<(Member, Facts), CliError> {
    let hosts = &nodes.contact.hosts;
    let asked = nodes
        .members
        .iter()
        .map(|member| async move { hosts.facts(HostAddress::from(member.address)).await });
    let mut stop = CliError::failed(format!("no master of {cluster} answers"));
    for (member, answer) in nodes.members.iter().zip(join_all(asked).await) {
        match answer {
            Ok(facts) if facts.cluster.as_ref().is_some_and(|cluster| cluster.api_ready) => {
                return Ok((member.clone(), facts));
            }
            Ok(_) => stop = stop.row(&member.name, "the API server is not ready"),
            Err(failure) => stop = stop.row(&member.name, failure.cause),
        }
    }
    Err(stop.hint(format!(
        "look closer with: kubeon exec {cluster}@cp* 'systemctl status kube-apiserver etcd --no-pager'"
    )))
}

struct Look<'a> {
    hosts: &'a SshHosts,
    host: HostAddress,
}

impl Look<'_> {
    async fn run(&self, line: &str) -> Result<String, CliError> {
        output(self.hosts, self.host, line, LIMIT).await.map_err(|why| {
            let program = line.split(' ').next().unwrap_or(line);
            CliError::failed(format!("{program} on {}: {why}", self.host))
        })
    }

    async fn text(&self, context: &Context<'_>, facts: &Facts) -> Result<(), CliError> {
        let output = context.output;
        let head = |words: &str| format!("===================={words}====================\n");
        let end = |text: String| if text.is_empty() || text.ends_with('\n') { text } else { text + "\n" };
        output.result(&head("cert info"))?;
        output.result(&certificate_table(&certificates(facts)).text(false))?;
        output.result(&head("node info"))?;
        output.result(&end(self.run(&format!("{KUBECTL} get nodes -o=wide")).await?))?;
        output.result(&head("pod info"))?;
        output.result(&end(self.run(&format!("{KUBECTL} get pods --all-namespaces -o=wide")).await?))?;
        output.result(&head("container info"))?;
        output.result(&end(self.containers().await?))?;
        output.result(&head("etcd info"))?;
        output.result(&format!("using etcdctl version: {}\n", self.etcdctl_version().await?))?;
        output.result(&end(self.run(&format!("{ETCDCTL} member list --write-out=table")).await?))
    }

    /// One line for each pod: its name and its images.
    async fn containers(&self) -> Result<String, CliError> {
        let text = self.run(&format!("{KUBECTL} get pods --all-namespaces {IMAGES}")).await?;
        let lines = text.lines().filter(|line| !line.is_empty());
        Ok(lines.map(|line| format!("{}\n", line.trim_end_matches(", "))).collect())
    }

    async fn etcdctl_version(&self) -> Result<String, CliError> {
        let text = self.run("/usr/local/bin/etcdctl version").await?;
        let word = text.lines().find_map(|line| line.strip_prefix("etcdctl version:"));
        Ok(word.map_or_else(|| "unknown".to_owned(), |word| word.trim().to_owned()))
    }

    async fn value(&self, cluster: &str, facts: &Facts) -> Result<Value, CliError> {
        let containers: serde_json::Map<String, Value> = self
            .containers()
            .await?
            .lines()
            .filter_map(|line| {
                let (pod, images) = line.split_once(":\t")?;
                Some((pod.to_owned(), images.split(", ").collect::<Vec<_>>().into()))
            })
            .collect();
        let etcd = json!({
            "etcdctl": self.etcdctl_version().await?,
            "members": self.json(&format!("{ETCDCTL} member list --write-out=json")).await?["members"],
        });
        Ok(json!({
            "cluster": cluster,
            "certificates": certificates(facts),
            "untold": facts.unchecked,
            "nodes": self.json(&format!("{KUBECTL} get nodes -o=json")).await?["items"],
            "pods": self.json(&format!("{KUBECTL} get pods --all-namespaces -o=json")).await?["items"],
            "containers": containers,
            "etcd": etcd,
        }))
    }

    async fn json(&self, line: &str) -> Result<Value, CliError> {
        let text = self.run(line).await?;
        serde_json::from_str(&text)
            .map_err(|error| CliError::failed(format!("{line} answered what is no JSON: {error}")))
    }
}

fn certificates(facts: &Facts) -> Vec<Certificate> {
    let time = |seconds: i64| {
        jiff::Timestamp::from_second(seconds)
            .map_or_else(|_| "?".to_owned(), |time| time.strftime("%Y-%m-%d %H:%M UTC").to_string())
    };
    let show = |fact: &kubeon_wire::CertificateFact| Certificate {
        path: fact.path.clone(),
        expires: time(fact.not_after),
        residual_days: (fact.not_after - facts.clock_seconds) / 86_400,
    };
    facts.certificates.iter().map(show).collect()
}

fn certificate_table(certificates: &[Certificate]) -> TextTable {
    let mut table = TextTable::new(&["CERTIFICATE", "EXPIRES", "RESIDUAL TIME"]);
    for certificate in certificates {
        let days = certificate.residual_days;
        let left = if days >= 730 { format!("{}y", days / 365) } else { format!("{days}d") };
        let left = if days < 0 { "expired".to_owned() } else { left };
        table.row([certificate.path.clone(), certificate.expires.clone(), left]);
    }
    table
}
