//! Parses the output of the probe script. The output is not trusted: it may be incomplete, repeated or invalid.

use std::net::Ipv4Addr;

use kubeon_api::{Cidr, Digest};
use kubeon_wire::{Cgroup, Facts, LinkFact, Reach, ReachFact};
use serde_json::{Map, Value};

use crate::firewall::FirewallOutput;

/// Ports on which a cluster's programs listen.
const CLUSTER_PORTS: [u16; 7] = [2379, 2380, 6443, 10250, 10256, 10257, 10259];

/// Maximum number of accepted entries of one kind.
const MAX_ENTRIES: usize = 4096;

/// Maximum number of accepted files that list name servers, and of name servers in one file.
const MAX_RESOLVER_FILES: usize = 8;
const MAX_NAME_SERVERS: usize = 8;

/// Bit of `CAP_SYS_RESOURCE` in a capability set.
const CAP_SYS_RESOURCE: u64 = 1 << 24;

/// Time when the script was sent and when its output started, in seconds since 1970 on the control machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Round {
    pub(crate) sent: f64,
    pub(crate) answered: f64,
}

/// Reads the lines of `probe.sh`. Unknown keys are ignored; the last value of a repeated key counts.
///
/// # Errors
/// The reason why the output cannot be parsed, without the host's name.
pub(crate) fn parse(output: &str, round: Round) -> Result<Facts, String> {
    let mut facts = Facts { cgroup: Cgroup::V1, ..Facts::default() };
    let (mut complete, mut node, mut claim) = (false, None, None);
    let (mut plain, mut firewall) = (Map::new(), FirewallOutput::default());
    for (key, value) in output.lines().filter_map(|line| line.split_once('=')) {
        match key {
            "clock" => set_clock(&mut facts, value, round)?,
            "system" => facts.system = text(value),
            "architecture" => facts.architecture = text(value),
            "kernel" => facts.kernel = text(value),
            "hostname" => facts.hostname = text(value),
            "os" => facts.os = text(value),
            "machine_id" => facts.machine_id = text(value),
            "cpus" => facts.cpus = number(key, value)?,
            "memory_kib" => facts.memory_bytes = kib(key, value)?,
            "swap_kib" => facts.swap_bytes = kib(key, value)?,
            "disk_free_kib" => facts.disk_free_bytes = kib(key, value)?,
            "disk_total_kib" => facts.disk_total_bytes = kib(key, value)?,
            "selinux" => facts.selinux_enforces = Some(value.trim() == "1"),
            "uid" => facts.is_root = value.trim() == "0",
            "package_manager" => facts.package_manager = Some(text(value)),
            "cgroup" => facts.cgroup = if value == "v2" { Cgroup::V2 } else { Cgroup::V1 },
            "cap_eff" => facts.can_sys_resource = capabilities(value)? & CAP_SYS_RESOURCE != 0,
            "fact" => add_pair(value, |name, json| {
                plain.extend(scalar(json).map(|value| (name, value)));
            }),
            "address" => add_address(&mut facts.addresses, value),
            "listen" => add_port(&mut facts, value),
            "inodes_free" => facts.inodes_free = value.trim().parse().ok(),
            "product_uuid" => facts.product_uuid = text(value),
            "module" => add_pair(value, |name, available| {
                facts.modules.insert(name, available == "1");
            }),
            "program" => add_pair(value, |name, available| {
                facts.programs.insert(name, available == "1");
            }),
            "nft_version" => facts.nft_version = nft_version(value),
            "parameter" => add_pair(value, |name, value| {
                facts.parameters.insert(name, text(value));
            }),
            "fixed_parameter" if facts.fixed_parameters.len() < MAX_ENTRIES => {
                facts.fixed_parameters.push(text(value));
            }
            "name_servers" => add_name_servers(&mut facts, value),
            "name_server" => add_pair(value, |server, answers| {
                facts.name_server_answers.insert(server, answers == "1");
            }),
            "link" => facts.links.extend(link(value)),
            "route" => facts.routes.extend(route(value)),
            "reached" => facts.reached.extend(reached(value)),
            "firewalld_default" | "firewalld" | "ufw" | "nft" | "iptables" => firewall.add(key, value),
            "foreign" => facts.foreign.push(text(value)),
            "own_service" => add_service(&mut facts.own_services, text(value)),
            "own_program" => facts.own_programs.push(text(value)),
            "node_link" => facts.node_program = program(value),
            "claim" => claim = Some(value),
            "node_facts" => node = Some(value),
            "end" => complete = true,
            _ => {}
        }
    }
    if !complete {
        return Err("the output of the probe is incomplete".to_owned());
    }
    let mut facts = with_plain(facts, plain)?;
    facts.firewall = firewall.read(&facts.links);
    if let Some(text) = claim {
        let read =
            serde_json::from_str(text).map_err(|e| format!("/var/lib/kubeon/claim.json is damaged: {e}"))?;
        facts.claim = Some(read);
    }
    if let Some(text) = node {
        merge(&mut facts, text)?;
    }
    facts.busy_ports.sort_unstable();
    facts.listening.sort_unstable();
    Ok(facts)
}

/// A number, `true` or `false`.
fn scalar(json: &str) -> Option<Value> {
    serde_json::from_str(json).ok().filter(|value: &Value| value.is_number() || value.is_boolean())
}

/// Adds the facts that have the same name in the script and in the JSON of [`Facts`]. A new fact of this kind needs no
/// change here.
fn with_plain(facts: Facts, plain: Map<String, Value>) -> Result<Facts, String> {
    if plain.is_empty() {
        return Ok(facts);
    }
    let unreadable = |error: serde_json::Error| format!("the facts cannot be parsed: {error}");
    let mut all = serde_json::to_value(facts).map_err(unreadable)?;
    if let Some(fields) = all.as_object_mut() {
        fields.extend(plain);
    }
    serde_json::from_value(all).map_err(unreadable)
}

/// Adds the facts that only the node program knows.
fn merge(facts: &mut Facts, text: &str) -> Result<(), String> {
    let reported: Facts = serde_json::from_str(text).map_err(|e| {
        format!(
            "the node program cannot report the state of the host ({e}); see the output of `/var/lib/kubeon/node/current \
             facts`; to check everything again, remove that link"
        )
    })?;
    facts.claim = reported.claim.or(facts.claim.take());
    facts.parts = reported.parts;
    facts.journal = reported.journal;
    facts.certificates = reported.certificates;
    facts.kubelet = reported.kubelet;
    facts.cluster = reported.cluster;
    facts.cluster_steps = reported.cluster_steps;
    facts.unchecked = reported.unchecked;
    Ok(())
}

fn set_clock(facts: &mut Facts, value: &str, round: Round) -> Result<(), String> {
    // Some `date` programs do not know `%N` and print it unchanged.
    let (seconds, fraction) = value.split_once('.').unwrap_or((value, ""));
    let seconds: i64 = number("clock", seconds)?;
    let fraction: f64 = format!("0.{fraction}").parse().unwrap_or(0.5);
    let middle = f64::midpoint(round.sent, round.answered);
    facts.clock_seconds = seconds;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "seconds since 1970 fit"
    )]
    {
        facts.clock_offset_seconds = (seconds as f64 + fraction - middle).round() as i64;
    }
    Ok(())
}

/// The value without control characters, at most 200 characters.
fn text(value: &str) -> String {
    value.chars().filter(|c| !c.is_control()).take(200).collect::<String>().trim().to_owned()
}

fn number<T: std::str::FromStr>(key: &str, value: &str) -> Result<T, String> {
    value.trim().parse().map_err(|_| format!("the value of {key} is not a number: {:?}", text(value)))
}

fn kib(key: &str, value: &str) -> Result<u64, String> {
    number::<u64>(key, value).map(|kib| kib.saturating_mul(1024))
}

fn capabilities(value: &str) -> Result<u64, String> {
    u64::from_str_radix(value.trim(), 16).map_err(|_| "the value of cap_eff is not a number".to_owned())
}

fn add_address(addresses: &mut Vec<Ipv4Addr>, value: &str) {
    if let Ok(address) = value.trim().parse::<Ipv4Addr>()
        && !address.is_loopback()
        && !addresses.contains(&address)
    {
        addresses.push(address);
    }
}

fn add_port(facts: &mut Facts, value: &str) {
    let Ok(port) = u16::from_str_radix(value.trim(), 16) else { return };
    for (ports, wanted) in
        [(&mut facts.listening, true), (&mut facts.busy_ports, CLUSTER_PORTS.contains(&port))]
    {
        if wanted && !ports.contains(&port) && ports.len() < MAX_ENTRIES {
            ports.push(port);
        }
    }
}

/// Adds a service once: the script prints it for its unit and for each of its processes.
fn add_service(services: &mut Vec<String>, name: String) {
    if !services.contains(&name) {
        services.push(name);
    }
}

/// The path of a file and the name servers in it.
fn add_name_servers(facts: &mut Facts, value: &str) {
    let mut words = value.split_whitespace().map(text);
    let Some(path) = words.next() else { return };
    if facts.name_servers.len() < MAX_RESOLVER_FILES {
        facts.name_servers.insert(path, words.take(MAX_NAME_SERVERS).collect());
    }
}

/// A name and a value, separated by a space.
fn add_pair(value: &str, mut add: impl FnMut(String, &str)) {
    if let Some((name, rest)) = value.split_once(' ') {
        add(text(name), rest.trim());
    }
}

/// The number in `nftables v1.0.6 (Lester Gooch #5)`.
fn nft_version(value: &str) -> Option<String> {
    let word = value.split_whitespace().find(|word| word.starts_with('v'))?;
    Some(text(word.trim_start_matches('v')))
}

/// `ADDRESS NAME MTU`.
fn link(value: &str) -> Option<LinkFact> {
    let mut words = value.split_whitespace();
    let (address, name, mtu) =
        (words.next()?.parse().ok()?, text(words.next()?), words.next()?.parse().ok()?);
    Some(LinkFact { address, name, mtu })
}

/// A network or a single address.
fn route(value: &str) -> Option<Cidr> {
    let value = value.trim();
    if value.contains('/') { value.parse().ok() } else { format!("{value}/32").parse().ok() }
}

/// `TARGET PORT OUTCOME`.
fn reached(value: &str) -> Option<ReachFact> {
    let mut words = value.split_whitespace();
    let (target, port) = (text(words.next()?), words.next()?.parse().ok()?);
    let outcome = match words.next()? {
        "open" => Reach::Open,
        "refused" => Reach::Refused,
        "silent" => Reach::Silent,
        _ => Reach::Failed,
    };
    Some(ReachFact { target, port, outcome })
}

/// The digest in `kubeon-node-<sha256>`, the target of the link.
fn program(link: &str) -> Option<Digest> {
    let name = link.trim().rsplit('/').next()?;
    name.strip_prefix("kubeon-node-")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: Round = Round { sent: 1000.0, answered: 1002.0 };

    fn parsed(lines: &str) -> Result<Facts, String> {
        parse(&format!("{lines}\nend=1\n"), ROUND)
    }

    #[test]
    fn reads_the_base_facts() {
        let facts = parsed(
            "motd of the host\nsystem=Linux\nos=Debian GNU/Linux 12 (bookworm)\ncpus=2\nmemory_kib=2048\nswap_kib=0\n\
             disk_free_kib=10\nuid=0\ncgroup=v2\ncap_eff=000001ffffffffff\nfact=hasNftables true\npackage_manager=apt\n\
             address=172.30.0.11\naddress=127.0.0.1\nlisten=192B\nlisten=0016\nlisten=094B\nlisten=192B\n\
             foreign=/var/lib/etcd/member\nmachine_id=abc\nselinux=1\nown_service=docker\nown_service=haproxy\n\
             own_service=docker\nown_program=kubectl",
        )
        .unwrap();
        assert_eq!((facts.cpus, facts.memory_bytes, facts.disk_free_bytes), (2, 2 << 20, 10 << 10));
        assert!(facts.is_root && facts.can_sys_resource && facts.has_nftables && !facts.has_ipvs);
        assert_eq!(facts.cgroup, Cgroup::V2);
        assert_eq!(facts.addresses, ["172.30.0.11".parse::<Ipv4Addr>().unwrap()]);
        assert_eq!(facts.busy_ports, [2379, 6443]);
        assert_eq!(facts.foreign, ["/var/lib/etcd/member"]);
        assert_eq!(facts.own_services, ["docker", "haproxy"]);
        assert_eq!(facts.own_programs, ["kubectl"]);
        assert_eq!(facts.selinux_enforces, Some(true));
        assert_eq!(facts.package_manager.as_deref(), Some("apt"));
        assert_eq!(facts.os, "Debian GNU/Linux 12 (bookworm)");
    }

    #[test]
    fn reads_the_facts_for_the_prechecks() {
        let facts = parsed(
            "inodes_free=1000\nproduct_uuid=4c4c\nprogram=nft 0\nnft_version=nftables v1.0.6 (Lester Gooch #5)\nprogram=iptables 1\nmodule=overlay 1\nmodule=ip_vs 0\nparameter=net.ipv4.ip_forward 0\n\
             fixed_parameter=kernel.panic\n\
             fact=canSetParameters true\nname_servers=/etc/resolv.conf 10.0.0.2 10.0.0.3\nname_server=10.0.0.2 1\nname_server=10.0.0.3 0\nname_servers=/run/x\nfact=resolvesItself false\nlink=172.30.0.11 eth0 1500\n\
             link=nonsense\nroute=172.30.0.0/24\nroute=10.1.2.3\nroute=default\nlisten=2AF8\n\
             reached=172.30.0.12 6443 refused\nreached=172.30.0.13 10250 silent\nreached=x 1 ?",
        )
        .unwrap();
        assert_eq!((facts.inodes_free, facts.product_uuid.as_str()), (Some(1000), "4c4c"));
        assert_eq!((facts.programs["nft"], facts.programs["iptables"]), (false, true));
        assert_eq!((facts.modules["overlay"], facts.modules["ip_vs"]), (true, false));
        assert_eq!(facts.nft_version.as_deref(), Some("1.0.6"));
        assert_eq!(facts.parameters["net.ipv4.ip_forward"], "0");
        assert_eq!(facts.fixed_parameters, ["kernel.panic"]);
        assert_eq!((facts.can_set_parameters, facts.resolves_itself), (Some(true), Some(false)));
        assert_eq!(facts.name_servers["/etc/resolv.conf"], ["10.0.0.2", "10.0.0.3"]);
        assert!(facts.name_servers["/run/x"].is_empty(), "a file without name servers is reported");
        assert_eq!(
            (facts.name_server_answers["10.0.0.2"], facts.name_server_answers["10.0.0.3"]),
            (true, false)
        );
        assert_eq!((facts.links.len(), facts.links[0].mtu), (1, 1500));
        let routes: Vec<_> = facts.routes.iter().map(ToString::to_string).collect();
        assert_eq!(routes, ["172.30.0.0/24", "10.1.2.3/32"]);
        assert_eq!((facts.listening, facts.busy_ports), (vec![11000], vec![]));
        let outcomes: Vec<_> = facts.reached.iter().map(|fact| fact.outcome).collect();
        assert_eq!(outcomes, [Reach::Refused, Reach::Silent, Reach::Failed]);
        assert_eq!(parsed("selinux=0").unwrap().selinux_enforces, Some(false));
        let unreported = parsed("cpus=2").unwrap();
        assert_eq!(unreported.selinux_enforces, None);
        assert_eq!(
            (unreported.inodes_free, unreported.name_servers.len(), unreported.resolves_itself),
            (None, 0, None)
        );
    }

    #[test]
    fn the_clock_is_compared_with_the_middle_of_the_round() {
        let offset = |clock: &str| parsed(&format!("clock={clock}")).unwrap().clock_offset_seconds;
        assert_eq!(offset("1001.000000001"), 0);
        assert_eq!(offset("1301.2"), 300);
        assert_eq!(offset("701.000"), -300);
        assert_eq!(offset("1001.%N"), 1, "half a second is assumed when the host prints no fraction");
    }

    #[test]
    fn root_in_a_container_lacks_capabilities() {
        let facts = parsed("cap_eff=00000000a80425fb\nuid=1000").unwrap();
        assert!(!facts.can_sys_resource && !facts.is_root && !facts.can_set_conntrack);
    }

    #[test]
    fn an_incomplete_output_is_refused() {
        assert!(parse("system=Linux\ncpus=2\n", ROUND).unwrap_err().contains("incomplete"));
        assert!(parse("", ROUND).is_err());
    }

    #[test]
    fn invalid_values_are_refused_by_name_without_control_characters() {
        assert!(parsed("cpus=two").unwrap_err().contains("cpus"));
        assert!(parsed("fact=hasNftables 7").unwrap_err().contains("facts cannot be parsed"));
        for invalid in
            ["fact=hasNftables yes", "fact=hostname \"\\u001b[2J\"", "fact=unheardOf 1", "fact=hasNftables"]
        {
            assert!(!parsed(invalid).unwrap().has_nftables, "{invalid}");
            assert_eq!(parsed(invalid).unwrap().hostname, "", "{invalid}");
        }
        assert!(parsed("memory_kib=-1").is_err());
        let error = parsed("cpus=\x1b[31mred").unwrap_err();
        assert!(!error.contains('\x1b'), "{error}");
        assert_eq!(parsed(&format!("hostname=\x1b[0m{}", "x".repeat(9999))).unwrap().hostname.len(), 200);
        assert_eq!(parsed("memory_kib=18446744073709551615").unwrap().memory_bytes, u64::MAX);
    }

    #[test]
    fn the_node_program_adds_its_facts() {
        let facts = parsed(
            "cpus=2\nnode_link=kubeon-node-00000000000000000000000000000000000000000000000000000000000000aa\n\
             node_facts={\"cpus\":99,\"claim\":{\"cluster\":\"demo\",\"uid\":\"u\",\"generation\":3,\"version\":\"v1.36.3\",\
             \"role\":\"master\"},\"journal\":[{\"id\":\"a\",\"digest\":\"d\",\"standing\":\"stands\"}]}",
        )
        .unwrap();
        assert_eq!(facts.cpus, 2, "the value of the script is kept");
        assert_eq!(facts.claim.unwrap().generation, 3);
        assert_eq!(facts.journal.len(), 1);
        assert!(facts.node_program.unwrap().as_str().ends_with("aa"));
    }

    #[test]
    fn a_claim_is_known_without_the_node_program() {
        let claim = "{\"cluster\":\"demo\",\"uid\":\"u\",\"generation\":3,\"version\":\"v1.36.3\",\"role\":\"worker\"}";
        let facts = parsed(&format!("claim={claim}")).unwrap();
        assert_eq!(facts.claim.as_ref().unwrap().cluster.as_str(), "demo");
        let facts = parsed(&format!("claim={claim}\nnode_facts={{}}")).unwrap();
        assert!(facts.claim.is_some(), "an empty answer does not free the host");
    }

    #[test]
    fn an_unreadable_claim_or_journal_is_an_error() {
        assert!(parsed("claim={\"cluster\":").unwrap_err().contains("claim.json"));
        assert!(parsed("node_facts=").unwrap_err().contains("node/current"));
        assert!(parsed("node_facts={\"journal\":7}").is_err());
    }

    #[test]
    fn a_link_to_another_file_is_not_a_node_program() {
        assert_eq!(parsed("node_link=/bin/sh").unwrap().node_program, None);
        assert_eq!(parsed("node_link=kubeon-node-xyz").unwrap().node_program, None);
    }
}
