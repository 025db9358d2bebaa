//! Chooses the subnet of a lab. Everything is pure except [`used`], which reads the kernel's routes.

use std::{net::Ipv4Addr, path::Path};

use ipnet::Ipv4Net;
use serde::Deserialize;

use crate::{Error, LabName, Result, tool::Tool};

/// Hosts have the addresses .11 to .210, the bridge .1, the machine .2.
pub(crate) const MAX_HOSTS: u8 = 200;

/// Candidates: the /24s of these /16s, in this order.
const RANGES: [(u8, u8); 3] = [(172, 30), (172, 29), (172, 28)];
/// The /16 of the subnets that only hosts have.
const INNER: (u8, u8) = (172, 27);

/// A range of addresses that the machine already uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UsedRange {
    pub net: Ipv4Net,
    /// Its use, such as `route 172.30.0.0/16 dev docker0`.
    pub what: String,
}

/// Address of the bridge: gateway of the hosts, and their name server, which never answers.
pub(crate) fn gateway(net: Ipv4Net) -> Ipv4Addr {
    at(net, 1)
}

/// Address of the machine in the lab.
pub(crate) fn machine(net: Ipv4Net) -> Ipv4Addr {
    at(net, 2)
}

/// Address of the n-th host, counted from 1.
pub(crate) fn host(net: Ipv4Net, n: u8) -> Ipv4Addr {
    at(net, 10 + n)
}

/// The second subnet of a lab. Only the switch and its hosts have it; the machine does not reach it.
pub(crate) fn inner(net: Ipv4Net) -> Ipv4Net {
    let [_, _, c, _] = net.network().octets();
    Ipv4Net::new(Ipv4Addr::new(INNER.0, INNER.1, c, 0), net.prefix_len()).unwrap_or(net)
}

fn at(net: Ipv4Net, last: u8) -> Ipv4Addr {
    let [a, b, c, _] = net.network().octets();
    Ipv4Addr::new(a, b, c, last)
}

/// The first used range that overlaps `net`.
pub(crate) fn conflict(net: Ipv4Net, used: &[UsedRange]) -> Option<&UsedRange> {
    used.iter().find(|u| u.net.contains(&net) || net.contains(&u.net))
}

/// The first free /24 for a lab of this name; with `needs_inner` the lab's second subnet is free too.
pub(crate) fn choose(name: &LabName, used: &[UsedRange], needs_inner: bool) -> Result<Ipv4Net> {
    let first = name.preferred_subnet();
    RANGES
        .iter()
        .flat_map(|&(a, b)| (0..=254_u16).map(move |i| (a, b, ((u16::from(first) + i) % 255) as u8)))
        .filter_map(|(a, b, c)| Ipv4Net::new(Ipv4Addr::new(a, b, c, 0), 24).ok())
        .find(|net| conflict(*net, used).is_none() && (!needs_inner || conflict(inner(*net), used).is_none()))
        .ok_or(Error::NoSubnet)
}

/// A route in the output of `ip -json route`.
#[derive(Debug, Deserialize)]
struct Route {
    dst: String,
    dev: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    metric: Option<u32>,
}

/// Every range that the machine routes or owns, without those of this lab.
pub(crate) fn used(name: &LabName) -> Result<Vec<UsedRange>> {
    let text = Tool::new("ip").args(["-json", "-4", "route", "show", "table", "all"]).run()?;
    parse(&text, name, |link| Path::new("/sys/class/net").join(link).exists())
}

fn parse(text: &str, name: &LabName, link_exists: impl Fn(&str) -> bool) -> Result<Vec<UsedRange>> {
    let text = if text.trim().is_empty() { "[]" } else { text };
    let routes: Vec<Route> = serde_json::from_str(text)
        .map_err(|source| Error::Damaged { path: "ip -json route".into(), source })?;
    let own = |r: &Route| r.dev.as_deref() == Some(&name.link()) || r.metric == Some(name.metric());
    // The kernel removes the link of a lab whose switch has just ended. `ip` then lists its routes under its number.
    let vanishing =
        |r: &Route| r.dev.as_deref().is_some_and(|link| is_number_of_link(link) && !link_exists(link));
    Ok(routes.iter().filter(|r| !own(r) && !vanishing(r)).filter_map(describe).collect())
}

/// Whether the name has the form `if621`, which `ip` prints for a link that no longer exists.
fn is_number_of_link(name: &str) -> bool {
    name.strip_prefix("if").is_some_and(|number| number.parse::<u32>().is_ok())
}

fn describe(route: &Route) -> Option<UsedRange> {
    // The default route reserves no range.
    let net: Ipv4Net =
        route.dst.parse().or_else(|_| route.dst.parse::<Ipv4Addr>().map(Ipv4Net::from)).ok()?;
    let via = match (&route.dev, &route.kind) {
        (Some(dev), _) => format!(" dev {dev}"),
        (None, Some(kind)) => format!(" ({kind})"),
        (None, None) => String::new(),
    };
    (net.prefix_len() > 0).then(|| UsedRange { net, what: format!("route {}{via}", route.dst) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(nets: &[&str]) -> Vec<UsedRange> {
        nets.iter().map(|n| UsedRange { net: n.parse().unwrap(), what: (*n).into() }).collect()
    }

    fn lab(name: &str) -> LabName {
        name.parse().unwrap()
    }

    #[test]
    fn the_default_lab_gets_the_documented_subnet() {
        assert_eq!(choose(&LabName::default(), &[], false).unwrap().to_string(), "172.30.0.0/24");
    }

    #[test]
    fn other_labs_do_not_use_the_default_subnet() {
        for name in ["a", "b", "ci", "x1", "x2", "x3"] {
            assert_ne!(choose(&lab(name), &[], false).unwrap().to_string(), "172.30.0.0/24");
        }
    }

    #[test]
    fn avoids_a_smaller_and_a_larger_range_in_use() {
        let small = used(&["172.30.0.128/25"]);
        assert_eq!(choose(&LabName::default(), &small, false).unwrap().to_string(), "172.30.1.0/24");
        let large = used(&["172.30.0.0/16"]);
        assert_eq!(choose(&LabName::default(), &large, false).unwrap().to_string(), "172.29.0.0/24");
        let all = used(&["172.16.0.0/12"]);
        assert!(matches!(choose(&LabName::default(), &all, false), Err(Error::NoSubnet)));
    }

    #[test]
    fn routes_of_the_lab_itself_and_the_default_route_reserve_nothing() {
        let name = lab("a");
        let text = format!(
            r#"[{{"dst":"default","gateway":"192.0.2.1","dev":"eth0"}},
                {{"dst":"172.30.7.0/24","dev":"{}"}},
                {{"type":"unreachable","dst":"172.30.7.0/24","metric":{}}},
                {{"type":"unreachable","dst":"172.30.8.0/24","metric":5}},
                {{"type":"local","dst":"172.30.9.2","dev":"lo","table":"local"}}]"#,
            name.link(),
            name.metric()
        );
        let found: Vec<_> = parse(&text, &name, |_| true).unwrap().into_iter().map(|u| u.what).collect();
        assert_eq!(found, ["route 172.30.8.0/24 (unreachable)", "route 172.30.9.2 dev lo"]);
    }

    #[test]
    fn a_route_whose_link_vanishes_reserves_nothing() {
        let text = r#"[{"dst":"172.30.7.0/24","dev":"if621"},{"dst":"172.30.8.0/24","dev":"if7"}]"#;
        let found: Vec<_> = parse(text, &lab("a"), |link| link == "if7").unwrap();
        assert_eq!(found.into_iter().map(|u| u.what).collect::<Vec<_>>(), ["route 172.30.8.0/24 dev if7"]);
    }

    #[test]
    fn a_lab_with_a_second_subnet_avoids_what_the_machine_uses_of_it() {
        let other = used(&["172.27.0.0/24"]);
        assert_eq!(choose(&LabName::default(), &other, false).unwrap().to_string(), "172.30.0.0/24");
        assert_eq!(choose(&LabName::default(), &other, true).unwrap().to_string(), "172.30.1.0/24");
    }

    #[test]
    fn the_second_subnet_is_none_that_the_machine_is_connected_to() {
        let net: Ipv4Net = "172.29.4.0/24".parse().unwrap();
        assert_eq!(inner(net).to_string(), "172.27.4.0/24");
        assert!(RANGES.iter().all(|range| *range != INNER));
    }

    #[test]
    fn the_last_host_stays_inside_the_subnet() {
        let net: Ipv4Net = "172.30.4.0/24".parse().unwrap();
        assert_eq!(host(net, 1).to_string(), "172.30.4.11");
        assert_eq!(host(net, MAX_HOSTS).to_string(), "172.30.4.210");
    }
}
