//! What the switch does for virtual machines beyond its bridge: a second bridge, and the translation of login addresses. A route
//! keeps packets for the second subnet on the machine.

use std::fmt::Write as _;

use ipnet::Ipv4Net;

use super::{
    network::{INNER, inner_subnet},
    options::VmOptions,
    profile::VmProfile,
};
use crate::{LabName, Result, net, subnet};

/// Reserves the second subnet, if the lab has one: the machine's default route would send packets for it outside.
pub(crate) fn reserve(lab: &LabName, net: Ipv4Net, vm: &VmOptions) -> Result<()> {
    inner_subnet(net, vm).map_or(Ok(()), |inner| net::ensure_route(lab, inner))
}

/// Creates what is missing of it in the switch's namespace.
pub(crate) fn ensure(lab: &LabName, switch: i32, net: Ipv4Net, vm: &VmOptions, hosts: u8) -> Result<()> {
    if inner_subnet(net, vm).is_none() {
        return Ok(());
    }
    if !net::ports(lab, switch)?.contains_key(INNER) {
        let text = format!("link add {INNER} type bridge stp_state 0 forward_delay 0\nlink set {INNER} up\n");
        net::inside(lab, switch, "ip").args(["-batch", "-"]).input(text).run()?;
    }
    if vm.has(VmProfile::Nat) {
        net::inside(lab, switch, "ip").args(["-batch", "-"]).input(addresses(net, hosts)).run()?;
        net::inside(lab, switch, "nft").args(["-f", "-"]).input(translation(net, hosts)).run()?;
    }
    Ok(())
}

/// Input of `ip -batch`: the switch owns the login addresses and routes the hosts' subnet.
fn addresses(net: Ipv4Net, hosts: u8) -> String {
    let inner = subnet::inner(net);
    let mut text = format!("addr replace {}/{} dev {INNER}\n", subnet::gateway(inner), inner.prefix_len());
    for n in 1..=hosts {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "addr replace {}/32 dev br0", subnet::host(net, n));
    }
    text
}

/// Input of `nft`: replaces the table that translates each login address to the host's own one. Between two hosts it
/// translates the sender too, so that the answer comes back through the switch.
fn translation(net: Ipv4Net, hosts: u8) -> String {
    let inner = subnet::inner(net);
    let pairs = |there: Ipv4Net, here: Ipv4Net| {
        let pair = |n| format!("{} : {}", subnet::host(there, n), subnet::host(here, n));
        (1..=hosts).map(pair).collect::<Vec<_>>().join(", ")
    };
    format!(
        "table ip lab\ndelete table ip lab\ntable ip lab {{\n\
         chain incoming {{\n  type nat hook prerouting priority -100;\n  dnat to ip daddr map {{ {} }}\n }}\n\
         chain outgoing {{\n  type nat hook postrouting priority 100;\n  \
         ip saddr {inner} ip daddr {inner} snat to ip saddr map {{ {} }}\n }}\n}}\n",
        pairs(net, inner),
        pairs(inner, net),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_owns_every_login_address_and_translates_it() {
        let net: Ipv4Net = "172.30.7.0/24".parse().unwrap();
        assert_eq!(
            addresses(net, 2),
            "addr replace 172.27.7.1/24 dev br1\naddr replace 172.30.7.11/32 dev br0\naddr replace 172.30.7.12/32 dev br0\n"
        );
        let rules = translation(net, 2);
        assert!(
            rules.contains("dnat to ip daddr map { 172.30.7.11 : 172.27.7.11, 172.30.7.12 : 172.27.7.12 }"),
            "{rules}"
        );
        assert!(rules.contains("snat to ip saddr map { 172.27.7.11 : 172.30.7.11,"), "{rules}");
        // Loading it again replaces it.
        assert!(rules.starts_with("table ip lab\ndelete table ip lab\n"), "{rules}");
    }
}
