use std::net::Ipv4Addr;

use kubeon_wire::firewall::lets_pass;
use kubeon_wire::{PacketMatch, Transport};

use super::matches::network;
use super::*;

const FIREWALLD: &str = "\
kube
  target: ACCEPT
  icmp-block-inversion: no
  interfaces: 
  sources: 10.244.0.0/16
  services: 
  ports: 
  rich rules: 

public (default, active)
  target: default
  ingress-priority: 0
  egress-priority: 0
  icmp-block-inversion: no
  interfaces: eth1
  sources: 
  services: dhcpv6-client etcd-client ssh
  ports: 6443/tcp 8472/udp
  protocols: 
  forward: no
  masquerade: no
  forward-ports: 
  source-ports: 
  icmp-blocks: 
  rich rules: 
\trule family=\"ipv4\" source address=\"10.0.0.2\" port port=\"10250\" protocol=\"tcp\" accept
\trule family=\"ipv4\" source address=\"10.0.0.9\" drop

work (active)
  target: default
  interfaces: eth2
  sources: 192.168.7.0/24
  ports: 9090/tcp
";

const UFW: &str = "\
Status: active
Logging: on (low)
Default: deny (incoming), allow (outgoing), deny (routed)
New profiles: skip

To                         Action      From
--                         ------      ----
22/tcp                     ALLOW IN    Anywhere                  
80,443/tcp (WWW Full)      ALLOW IN    Anywhere                   (log)
Anywhere/udp               ALLOW IN    10.0.0.6/udp              
6443/tcp                   ALLOW IN    10.0.0.0/24                # api
2379:2380/tcp              ALLOW IN    10.0.0.2                  
8472/udp on eth0           ALLOW IN    Anywhere                  
10.0.0.1 10250,10256/tcp   LIMIT IN    10.0.0.3                  
Anywhere on cni0           ALLOW IN    Anywhere                  
9100                       DENY IN     Anywhere                  
22/tcp (v6)                ALLOW IN    Anywhere (v6)             

Anywhere                   ALLOW FWD   10.244.0.0/16             
10.244.0.0/16              ALLOW FWD   Anywhere                  
Anywhere on flannel.1      ALLOW FWD   Anywhere on cni0          
";

/// Recorded with nft 1.0.6.
const NFTABLES: &str = "\
table inet filter {
\tchain input {
\t\ttype filter hook input priority filter; policy drop;
\t\tct state vmap { invalid : drop, established : accept, related : accept }
\t\tiifname \"lo\" accept
\t\tip protocol icmp accept
\t\ttcp dport 22 counter packets 0 bytes 0 accept comment \"ssh\"
\t\tip saddr { 10.0.0.2, 10.0.0.3 } tcp dport { 2379-2380, 6443 } accept
\t\tip saddr 10.0.0.0/24 udp dport 8472 ct state new accept
\t\ticmpv6 type { nd-router-advert, nd-neighbor-solicit } accept
\t}
}
table inet filter {
\tchain forward {
\t\ttype filter hook forward priority filter; policy drop;
\t}
}
table ip6 six {
\tchain input {
\t\ttype filter hook input priority filter + 5; policy drop;
\t}
}
";

const IPTABLES: &str = "\
-P INPUT ACCEPT
-A INPUT -m state --state RELATED,ESTABLISHED -j ACCEPT
-A INPUT -p icmp -j ACCEPT
-A INPUT -i lo -j ACCEPT
-A INPUT -p tcp -m state --state NEW -m tcp --dport 22 -j ACCEPT
-A INPUT -s 10.0.0.0/24 -p tcp -m multiport --dports 6443,2379:2380 -j ACCEPT
-A INPUT -j REJECT --reject-with icmp-host-prohibited
-A INPUT -p udp -m udp --dport 8472 -j ACCEPT
-P FORWARD DROP
";

fn fact(key: &str, text: &str) -> Option<FirewallFact> {
    let mut output = FirewallOutput::default();
    output.add("firewalld_default", "DefaultZone=public");
    text.lines().for_each(|line| output.add(key, line));
    let eth0 = LinkFact { address: Ipv4Addr::new(10, 0, 0, 1), name: "eth0".to_owned(), mtu: 1500 };
    output.read(&[eth0])
}

fn passes(rules: &[PacketMatch], source: &str, link: &str, transport: Transport, port: u16) -> bool {
    let source = network(source).unwrap();
    lets_pass(rules, source, &[link], transport, port)
}

#[test]
fn the_zone_of_a_link_or_of_a_source_decides_in_firewalld() {
    let fact = fact("firewalld", FIREWALLD).unwrap();
    let tcp = |source, link, port| passes(&fact.lets_in, source, link, Transport::Tcp, port);
    assert!(tcp("10.0.0.7", "eth0", 6443), "a link without a zone belongs to the default zone");
    assert!(tcp("10.0.0.7", "eth1", 2379) && !tcp("10.0.0.7", "eth1", 2380), "a service has ports");
    assert!(tcp("10.0.0.2", "eth0", 10250) && !tcp("10.0.0.3", "eth0", 10250), "a rich rule has a source");
    assert!(!tcp("10.0.0.7", "eth2", 6443) && tcp("10.0.0.7", "eth2", 9090), "the link of another zone");
    assert!(tcp("192.168.7.4", "eth0", 9090), "the source of another zone");
    assert!(passes(&fact.lets_in, "10.0.0.7", "eth0", Transport::Udp, 8472));
    assert!(tcp("10.244.3.0/24", "cni0", 10250), "a zone that accepts everything");
    assert!(fact.forwards.iter().any(|rule| rule.covers(network("10.244.3.0/24").unwrap(), &["cni0"])));
    assert!(!fact.forwards.iter().any(|rule| rule.covers(network("10.0.0.7").unwrap(), &["eth0"])));
    assert_eq!((fact.program, fact.understood), (FirewallProgram::Firewalld, true));
}

#[test]
fn an_ipset_of_firewalld_is_not_understood_and_an_older_version_names_the_default_zone_in_its_file() {
    let older = FIREWALLD.replace("(default, active)", "(active)");
    assert_eq!(fact("firewalld", &older), fact("firewalld", FIREWALLD));
    let sets = FIREWALLD.replace("192.168.7.0/24", "ipset:friends");
    assert!(!fact("firewalld", &sets).unwrap().understood);
}

#[test]
fn rules_of_ufw_are_read_with_their_sources_ports_and_links() {
    let fact = fact("ufw", UFW).unwrap();
    let tcp = |source, port| passes(&fact.lets_in, source, "eth0", Transport::Tcp, port);
    assert!(tcp("10.9.9.9", 22) && tcp("10.0.0.7", 6443) && !tcp("10.9.9.9", 6443));
    assert!(tcp("10.0.0.2", 2380) && !tcp("10.0.0.3", 2380));
    assert!(tcp("10.0.0.3", 10256) && !tcp("10.0.0.7", 10250) && !tcp("10.0.0.7", 9100));
    assert!(passes(&fact.lets_in, "10.0.0.7", "eth0", Transport::Udp, 8472));
    assert!(!passes(&fact.lets_in, "10.0.0.7", "eth1", Transport::Udp, 8472));
    assert!(passes(&fact.lets_in, "10.244.1.0/24", "cni0", Transport::Tcp, 10250));
    let forwards = |source: &str, link| {
        fact.forwards.iter().any(|rule| rule.covers(network(source).unwrap(), &[link]) && rule.opens_all())
    };
    assert!(forwards("10.244.0.0/16", "flannel.1") && forwards("10.9.0.0/16", "cni0"));
    assert!(!forwards("10.9.0.0/16", "eth0"));
    assert!(tcp("10.9.9.9", 443), "the name of an application is a remark");
    assert!(passes(&fact.lets_in, "10.0.0.6", "eth0", Transport::Udp, 53) && !tcp("10.0.0.6", 53));
    assert_eq!((fact.lets_in.len(), fact.forwards.len()), (11, 2));
}

#[test]
fn the_policies_of_ufw_count_and_an_inactive_ufw_restricts_nothing() {
    let open = UFW.replace("deny (incoming)", "allow (incoming)").replace("deny (routed)", "allow (routed)");
    let fact = fact("ufw", &open).unwrap();
    assert!(passes(&fact.lets_in, "10.9.9.9", "eth9", Transport::Tcp, 10250));
    assert!(fact.forwards.contains(&PacketMatch::default()));
    assert_eq!(super::ufw::read(&["Status: inactive"]), None);
}

#[test]
fn a_chain_of_nftables_that_drops_is_a_firewall() {
    let fact = fact("nft", NFTABLES).unwrap();
    let tcp = |source, port| passes(&fact.lets_in, source, "eth0", Transport::Tcp, port);
    assert!(tcp("10.9.9.9", 22) && tcp("10.0.0.3", 2380) && tcp("10.0.0.2", 6443));
    assert!(!tcp("10.0.0.4", 6443) && !tcp("10.0.0.2", 10250));
    assert!(passes(&fact.lets_in, "10.0.0.4", "eth0", Transport::Udp, 8472));
    assert!(fact.understood && fact.forwards.is_empty(), "the table for IPv6 does not count: {fact:?}");
    let only_input =
        NFTABLES.replace("forward priority filter; policy drop", "forward priority filter; policy accept");
    let forwards = super::tests::fact("nft", &only_input).unwrap().forwards;
    assert_eq!(forwards, [PacketMatch::default()], "forwarding is not restricted");
}

#[test]
fn a_rule_of_nftables_that_is_not_understood_is_reported() {
    for rule in ["jump mine", "ip saddr @friends accept", "tcp dport vmap @verdicts", "meta mark 0x1 accept"]
    {
        let text = NFTABLES.replace("iifname \"lo\" accept", rule);
        assert!(!fact("nft", &text).unwrap().understood, "{rule}");
    }
    let open = NFTABLES.replace("policy drop", "policy accept");
    assert_eq!(fact("nft", &open), None, "no chain drops");
    let last = open.replace("icmpv6 type { nd-router-advert, nd-neighbor-solicit } accept", "counter drop");
    assert!(fact("nft", &last).is_some(), "the last rule drops");
    let ipv6 = NFTABLES.replace("table inet", "table ip6");
    assert_eq!(fact("nft", &ipv6), None, "rules for IPv6");
    let second =
        "table ip more {\n\tchain input {\n\t\ttype filter hook input priority 5; policy drop;\n\t}\n}\n";
    assert!(!fact("nft", &format!("{NFTABLES}{second}")).unwrap().understood, "a packet must pass both");
}

#[test]
fn rules_of_iptables_end_with_the_one_that_refuses() {
    let fact = fact("iptables", IPTABLES).unwrap();
    let tcp = |source, port| passes(&fact.lets_in, source, "eth0", Transport::Tcp, port);
    assert!(tcp("10.9.9.9", 22) && tcp("10.0.0.3", 2380) && !tcp("10.9.9.9", 6443));
    assert!(!passes(&fact.lets_in, "10.0.0.3", "eth0", Transport::Udp, 8472), "after the rule that refuses");
    assert!(fact.forwards.is_empty() && fact.understood, "{fact:?}");
    let jump = IPTABLES.replace("-i lo -j ACCEPT", "-j MINE");
    assert!(!super::tests::fact("iptables", &jump).unwrap().understood);
    assert_eq!(super::tests::fact("iptables", "-P INPUT ACCEPT\n-P FORWARD ACCEPT"), None);
}

/// Whether hosts reach UDP 8472 and TCP 6443 of the host, and whether h2 reaches UDP 8472.
fn reached(fact: &FirewallFact) -> [bool; 3] {
    let passes = |source, transport, port| passes(&fact.lets_in, source, "eth0", transport, port);
    [
        passes("10.0.0.7", Transport::Udp, 8472),
        passes("10.0.0.7", Transport::Tcp, 6443),
        passes("10.0.0.2", Transport::Udp, 8472),
    ]
}

/// A chain of nftables that accepts what its rules do not refuse.
fn open_chain(rules: &str) -> String {
    let head = "type filter hook input priority -10; policy accept;";
    format!("table inet dead {{\n\tchain input {{\n\t\t{head}\n\t\t{rules}\n\t}}\n}}\n")
}

#[test]
fn a_rule_of_nftables_that_refuses_udp_is_found() {
    for rule in [
        "udp dport 8472 drop",
        "meta l4proto udp counter packets 0 bytes 0 reject with icmp port-unreachable",
    ] {
        let fact = fact("nft", &open_chain(rule)).unwrap();
        assert_eq!(reached(&fact), [false, true, false], "{rule}");
        assert!(fact.understood && fact.forwards == [PacketMatch::default()], "{fact:?}");
    }
    let first = "ip saddr 10.0.0.2 udp dport 8472 accept\n\t\tudp dport 8472 drop";
    assert_eq!(reached(&fact("nft", &open_chain(first)).unwrap()), [false, true, true]);
    let other = "ct state invalid drop\n\t\tiifname != \"lo\" ip daddr 127.0.0.0/8 drop";
    assert_eq!(fact("nft", &open_chain(other)), None);
    let both = fact("nft", &(NFTABLES.to_owned() + &open_chain("udp dport 8472 drop"))).unwrap();
    assert!(both.understood && !passes(&both.lets_in, "10.0.0.4", "eth0", Transport::Udp, 8472), "{both:?}");
    let both = fact("nft", &(NFTABLES.to_owned() + &open_chain(first))).unwrap();
    assert!(!both.understood, "it depends on both chains");
}

#[test]
fn a_rule_of_iptables_that_refuses_udp_is_found() {
    let refuse = "-A INPUT -p udp -m udp --dport 8472 -j DROP\n-P FORWARD ACCEPT";
    let last = fact("iptables", &format!("-P INPUT ACCEPT\n{refuse}")).unwrap();
    assert_eq!((reached(&last), last.understood), ([false, true, false], true));
    let text = format!("-P INPUT ACCEPT\n-A INPUT -s 10.0.0.2/32 -p udp -j ACCEPT\n{refuse}");
    assert_eq!(reached(&fact("iptables", &text).unwrap()), [false, true, true]);
    let other = "-P INPUT ACCEPT\n-A INPUT -m state --state INVALID -j DROP\n-A INPUT -d 10.9.9.9/32 -j DROP";
    assert_eq!(fact("iptables", other), None);
}

#[test]
fn a_rule_of_ufw_that_refuses_udp_is_found() {
    let rules = "Status: active\nDefault: allow (incoming), allow (outgoing), disabled (routed)\n\n\
                 Anywhere                   ALLOW IN    10.0.0.2\n8472/udp                   DENY IN     Anywhere\n\
                 10.0.0.1 6443/tcp          REJECT IN   Anywhere\n";
    assert_eq!(reached(&fact("ufw", rules).unwrap()), [false, true, true]);
}

#[test]
fn a_rich_rule_of_firewalld_that_refuses_udp_comes_before_the_ports() {
    for refuse in ["port port=\"8472\" protocol=\"udp\" drop", "protocol value=\"udp\" reject"] {
        let text = FIREWALLD.replace("source address=\"10.0.0.9\" drop", refuse);
        assert_eq!(reached(&fact("firewalld", &text).unwrap()), [false, true, false], "{refuse}");
        let first =
            "\trule priority=\"-1\" family=\"ipv4\" source address=\"10.0.0.2\" accept\n\nwork (active)";
        let text = text.replace("\nwork (active)", first);
        assert_eq!(reached(&fact("firewalld", &text).unwrap()), [false, true, true], "{refuse}");
    }
}

#[test]
fn rules_of_nft_and_of_iptables_count_together_and_are_not_managed() {
    let both = |nft: &str, iptables: &str| {
        let mut output = FirewallOutput::default();
        nft.lines().for_each(|line| output.add("nft", line));
        iptables.lines().for_each(|line| output.add("iptables", line));
        output.read(&[]).unwrap()
    };
    let refused = both(&open_chain("udp dport 8472 drop"), IPTABLES);
    assert_eq!((refused.program, refused.understood), (FirewallProgram::Iptables, true));
    assert!(!passes(&refused.lets_in, "10.0.0.3", "eth0", Transport::Udp, 8472), "{refused:?}");
    assert!(passes(&refused.lets_in, "10.0.0.3", "eth0", Transport::Tcp, 6443), "{refused:?}");
    assert!(!both(NFTABLES, IPTABLES).understood, "a packet must pass both");
    let open = both(NFTABLES, "-P INPUT ACCEPT\n-P FORWARD ACCEPT\n");
    assert_eq!((open.program, open.understood), (FirewallProgram::Nftables, true));
    let variants = both(&open_chain(""), &format!("{IPTABLES}-P INPUT ACCEPT\n-P FORWARD ACCEPT\n"));
    assert_eq!((variants.program, variants.understood), (FirewallProgram::Iptables, true));
    let named = fact("nft", &NFTABLES.replace("chain input {", "chain INPUT {")).unwrap();
    assert_eq!(named.program, FirewallProgram::Iptables);
}

#[test]
fn a_firewall_whose_rules_cannot_be_read_is_known() {
    for (key, program) in [("firewalld", FirewallProgram::Firewalld), ("ufw", FirewallProgram::Ufw)] {
        let mut output = FirewallOutput::default();
        output.add("firewalld_default", "DefaultZone=public");
        output.add(key, UNREAD);
        let fact = output.read(&[]).unwrap();
        assert_eq!((fact.program, fact.understood, fact.lets_in.len()), (program, false, 0));
    }
}
