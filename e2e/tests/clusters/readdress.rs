//! A master and a worker get other addresses while their cluster serves. Both keep their data and their names.

#![allow(clippy::print_stdout, reason = "prints measured times")]

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kubeon_e2e::lab::{TestLab, VERSION};
use kubeon_e2e::program::eventually;
use kubeon_e2e::writer;
use serde_json::Value;

const MINUTE: Duration = Duration::from_secs(60);

/// Gives the only link of a host another address in its network.
const CHANGE: &str = r#"
    link=$(ip -4 -o addr show to OLD | awk '{print $2; exit}')
    routes=$(ip -4 route show dev "$link" proto static; ip -4 route show default)
    ip addr del OLD/24 dev "$link"
    ip addr add NEW/24 dev "$link"
    [ -z "$routes" ] || printf '%s\n' "$routes" | sort -u | while read -r route; do ip route replace $route; done
"#;

#[test]
fn hosts_change_their_addresses() -> Result<()> {
    let lab = TestLab::up("e2e-readdress", 4)?;
    let (cluster, hosts) = (lab.name(), &lab.addresses);
    lab.must(&["create", cluster, VERSION, "-m", &hosts[..3].join(","), "-w", &hosts[3]])?;
    lab.must(&["use", cluster])?;
    writer::start(&lab, "addresses", 100)?;

    let new = other(&hosts[0])?;
    let silent = readdress(&lab, "h1", &new)?;
    ensure!(silent.0 == 2 && silent.1.contains("must answer at its new address first"), "{silent:?}");
    change(&lab, "h1", &hosts[0], &new)?;
    let start = Instant::now();
    let done = readdress(&lab, "h1", &new)?;
    ensure!(done.0 == 0, "{}", done.1);
    println!("  the address of a master changed in {:.1} s", start.elapsed().as_secs_f64());
    ensure!(peer(&lab, "h1")? == format!("https://{new}:2380"), "{}", peer(&lab, "h1")?);
    works(&lab, "h1", &new)?;

    let new = other(&hosts[3])?;
    change(&lab, "h4", &hosts[3], &new)?;
    let start = Instant::now();
    let done = readdress(&lab, &hosts[3], &new)?;
    ensure!(done.0 == 0, "{}", done.1);
    println!("  the address of a worker changed in {:.1} s", start.elapsed().as_secs_f64());
    works(&lab, "h4", &new)?;
    let again = readdress(&lab, &hosts[3], &new)?;
    ensure!(again.0 == 0, "the same command again: {}", again.1);
    println!("  {}", writer::report(&lab)?);
    lab.must(&["destroy", cluster, "--yes"]).map(drop)
}

/// An address of the same network that no host has.
pub(crate) fn other(address: &str) -> Result<String> {
    let [a, b, c, d] = address.parse::<Ipv4Addr>()?.octets();
    Ok(Ipv4Addr::new(a, b, c, d + 100).to_string())
}

pub(crate) fn change(lab: &TestLab, host: &str, old: &str, new: &str) -> Result<()> {
    let script = CHANGE.replace("OLD", old).replace("NEW", new);
    // The connection ends with the old address.
    let later = "systemd-run --quiet --on-active=1 bash /run/change-address";
    lab.on(host, &format!("cat >/run/change-address <<'END'\n{script}\nEND\n{later}"))?;
    let sshd = SocketAddr::new(new.parse()?, 22);
    eventually("the host answers at its new address", MINUTE, || {
        Ok(TcpStream::connect_timeout(&sshd, Duration::from_secs(1)).map(drop)?)
    })
}

/// The exit code and the messages of the command.
fn readdress(lab: &TestLab, host: &str, new: &str) -> Result<(i32, String)> {
    // The lab's own key is found by the address of a host.
    let key = lab.key().display().to_string();
    let done = lab.kubeon(&["readdress", lab.name(), host, new, "--default-pk-file", &key])?;
    Ok((done.code, done.err))
}

/// The URL at which the members of etcd reach the member of a host.
fn peer(lab: &TestLab, name: &str) -> Result<String> {
    let list = lab.must(&["etcd", lab.name(), "member", "list", "-w", "json"])?;
    let list: Value = serde_json::from_str(&list)?;
    let members = list["members"].as_array().into_iter().flatten();
    let mut urls = members.filter(|member| member["name"] == name).map(|member| &member["peerURLs"][0]);
    Ok(urls.next().and_then(Value::as_str).unwrap_or_default().to_owned())
}

/// The node has its new address, all nodes are Ready, and nothing is left to do.
pub(crate) fn works(lab: &TestLab, node: &str, address: &str) -> Result<()> {
    let internal = r#"jsonpath={.status.addresses[?(@.type=="InternalIP")].address}"#;
    let found = lab.kubectl(lab.name(), &["get", "node", node, "-o", internal])?;
    ensure!(found == address, "{node} has the address {found}");
    lab.wait_up_to_date(lab.name(), MINUTE)
}
