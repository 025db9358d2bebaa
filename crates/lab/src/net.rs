//! Network of a lab: the switch (a namespace with the bridge), the machine's link to it, and an unreachable route that
//! keeps packets for the lab on the machine while that link is missing.

use std::{
    collections::BTreeMap,
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use ipnet::Ipv4Net;
use serde::Deserialize;

use crate::{
    Error, LabName, Result,
    cgroup::Cgroups,
    process,
    subnet::{gateway, machine},
    tool::Tool,
};

/// Member name of the switch among the lab's cgroups.
pub(crate) const SWITCH: &str = "switch";
/// Argument zero of the process that keeps the namespace alive; boot.sh sets it when the bridge is up.
const SWITCH_PROCESS: &str = "kubeon-lab-switch";
/// Time limit for the switch to start.
const SWITCH_TIMEOUT: Duration = Duration::from_secs(10);

/// The process that keeps the switch alive, if it runs.
pub(crate) fn switch(lab: &LabName, cgroups: &Cgroups) -> Result<Option<i32>> {
    let pids = cgroups.processes(lab, SWITCH, "payload")?;
    let is_switch = |pid: &i32| {
        process::argument_zero(*pid).as_deref() == Some(SWITCH_PROCESS) && !process::is_ending(*pid)
    };
    Ok(pids.into_iter().find(is_switch))
}

/// Path of the switch's network namespace.
pub(crate) fn namespace(switch: i32) -> String {
    format!("/proc/{switch}/ns/net")
}

/// Creates the switch unless it exists, and returns its process.
pub(crate) fn ensure_switch(lab: &LabName, net: Ipv4Net, cgroups: &Cgroups, script: &Path) -> Result<i32> {
    if let Some(pid) = switch(lab, cgroups)? {
        return Ok(pid);
    }
    // A killed command may have left an incomplete switch.
    let unfinished =
        || Ok([cgroups.processes(lab, SWITCH, "")?, process::marked(lab, Some(SWITCH))?].concat());
    process::kill_all("the switch", unfinished)?;
    cgroups.create(lab, SWITCH)?;
    Tool::of_lab(lab, "setsid")
        .args(["--fork", "bash"])
        .args([script])
        .args(["switch"])
        .env("LAB_HOST", SWITCH)
        .env("LAB_CGROUPS", cgroups.lines(lab, SWITCH))
        .env("LAB_GATEWAY", gateway(net).to_string())
        .detach(&script.with_file_name("switch.log"))?;
    let begin = Instant::now();
    while begin.elapsed() < SWITCH_TIMEOUT {
        if let Some(pid) = switch(lab, cgroups)? {
            return Ok(pid);
        }
        thread::sleep(Duration::from_millis(3));
    }
    let log = fs::read_to_string(script.with_file_name("switch.log")).unwrap_or_default();
    Err(Error::Wait { what: format!("the switch of lab {lab} did not start"), waited: begin.elapsed(), log })
}

/// Connects the machine to the switch. The link's alias records the lab's folder.
pub(crate) fn ensure_uplink(lab: &LabName, net: Ipv4Net, switch: i32, dir: &Path) -> Result<()> {
    let link = lab.link();
    if ports(lab, switch)?.contains_key("machine") && is_up(&link) {
        return Ok(());
    }
    remove_link(lab)?;
    let text = format!(
        "link add {link} type veth peer name machine netns {}\nlink set {link} alias {}\n",
        namespace(switch),
        alias(dir)
    );
    Tool::of_lab(lab, "ip").args(["-batch", "-"]).input(text).run()?;
    inside(lab, switch, "ip").args(["link", "set", "machine", "master", "br0", "up"]).run()?;
    // The machine forwards no packet of this link. A short neighbour timeout: hosts appear and disappear often.
    set(&format!("ipv4/conf/{link}/forwarding"), "0")?;
    set(&format!("ipv6/conf/{link}/disable_ipv6"), "1")?;
    set(&format!("ipv4/neigh/{link}/retrans_time_ms"), "50")?;
    let text = format!("addr add {}/24 dev {link}\nlink set {link} up\n", machine(net));
    Tool::of_lab(lab, "ip").args(["-batch", "-"]).input(text).run().map(drop)
}

/// Reserves the subnet by an unreachable route with a high metric.
pub(crate) fn ensure_route(lab: &LabName, net: Ipv4Net) -> Result<()> {
    if routes(lab)?.contains(&net.to_string()) {
        return Ok(());
    }
    let metric = lab.metric().to_string();
    Tool::of_lab(lab, "ip")
        .args(["route", "add", "unreachable", &net.to_string(), "metric", &metric])
        .run()
        .map(drop)
}

/// Ports of the switch by name, and whether each is up.
pub(crate) fn ports(lab: &LabName, switch: i32) -> Result<BTreeMap<String, bool>> {
    #[derive(Deserialize)]
    struct Link {
        ifname: String,
        flags: Vec<String>,
    }
    let text = inside(lab, switch, "ip").args(["-json", "link", "show"]).run()?;
    let links: Vec<Link> = serde_json::from_str(&text)
        .map_err(|source| Error::Damaged { path: "ip -json link".into(), source })?;
    Ok(links.into_iter().map(|link| (link.ifname, link.flags.iter().any(|f| f == "UP"))).collect())
}

/// Sets all ports of a host up or down; a dead host has none.
pub(crate) fn set_ports(lab: &LabName, switch: i32, host: &str, up: bool) -> Result<()> {
    for port in ports_of(lab, switch, host)? {
        inside(lab, switch, "ip").args(["link", "set", &port, if up { "up" } else { "down" }]).run()?;
    }
    Ok(())
}

/// Removes the ports of a dead host unless the kernel has already removed them.
pub(crate) fn remove_ports(lab: &LabName, switch: i32, host: &str) -> Result<()> {
    for port in ports_of(lab, switch, host)? {
        match inside(lab, switch, "ip").args(["link", "delete", &port]).run() {
            Err(error) if ports(lab, switch)?.contains_key(&port) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The port named as the host, and those of further network cards: `h1.2`.
fn ports_of(lab: &LabName, switch: i32, host: &str) -> Result<Vec<String>> {
    let further = format!("{host}.");
    let of_host = |port: &String| port == host || port.starts_with(&further);
    Ok(ports(lab, switch)?.into_keys().filter(of_host).collect())
}

/// Destinations of the unreachable routes of this lab.
pub(crate) fn routes(lab: &LabName) -> Result<Vec<String>> {
    #[derive(Deserialize)]
    struct Route {
        dst: String,
        metric: Option<u32>,
    }
    let text = Tool::of_lab(lab, "ip").args(["-json", "-4", "route", "show", "type", "unreachable"]).run()?;
    let text = if text.trim().is_empty() { "[]".to_owned() } else { text };
    let routes: Vec<Route> = serde_json::from_str(&text)
        .map_err(|source| Error::Damaged { path: "ip -json route".into(), source })?;
    Ok(routes.into_iter().filter(|r| r.metric == Some(lab.metric())).map(|r| r.dst).collect())
}

/// Removes the route, if any.
pub(crate) fn remove_routes(lab: &LabName) -> Result<()> {
    let metric = lab.metric().to_string();
    for net in routes(lab)? {
        Tool::of_lab(lab, "ip").args(["route", "delete", "unreachable", &net, "metric", &metric]).run()?;
    }
    Ok(())
}

/// Whether the machine's link to the lab exists.
pub(crate) fn link_exists(lab: &LabName) -> bool {
    Path::new("/sys/class/net").join(lab.link()).exists()
}

/// Removes the machine's link, if any.
pub(crate) fn remove_link(lab: &LabName) -> Result<()> {
    if !link_exists(lab) {
        return Ok(());
    }
    match Tool::of_lab(lab, "ip").args(["link", "delete", &lab.link()]).run() {
        // The kernel removes it too when the switch ends.
        Err(error) if link_exists(lab) => Err(error),
        _ => Ok(()),
    }
}

/// The folder of the lab that the link belongs to.
pub(crate) fn owner(lab: &LabName) -> Result<Option<PathBuf>> {
    let path = Path::new("/sys/class/net").join(lab.link()).join("ifalias");
    let text = process::read_vanishing(&path)?.unwrap_or_default();
    Ok((!text.trim().is_empty()).then(|| text.trim_end_matches('\n').into()))
}

/// The alias of the link of a lab: its folder, at most 255 bytes, which is the kernel's limit.
pub(crate) fn alias(dir: &Path) -> String {
    let mut text = dir.display().to_string();
    while text.len() > 255 {
        text.pop();
    }
    text
}

/// A program in the switch's network namespace.
pub(crate) fn inside(lab: &LabName, switch: i32, program: &str) -> Tool {
    Tool::of_lab(lab, "nsenter").args([&format!("--net={}", namespace(switch)), program])
}

fn is_up(link: &str) -> bool {
    let flags = fs::read_to_string(format!("/sys/class/net/{link}/flags")).unwrap_or_default();
    u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).is_ok_and(|flags| flags & 1 == 1)
}

fn set(parameter: &str, value: &str) -> Result<()> {
    let path = Path::new("/proc/sys/net").join(parameter);
    match fs::write(&path, value) {
        // A kernel without IPv6 has no such setting.
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::file("set", path)(error)),
        _ => Ok(()),
    }
}
