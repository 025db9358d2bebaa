//! Programs of the bundle that come from a distribution: they bring their own C library and are started by their own
//! loader, so that they run whatever the host has.

use kubeon_api::Arch;

use crate::paths::{TOOLS, current};

/// What the hosts' network programs are called, the file behind each, and what tells that file which one it is.
const NETWORK: [(&str, &str, &str); 8] = [
    ("nft", "nft", ""),
    ("conntrack", "conntrack", ""),
    ("iptables", "xtables", "iptables "),
    ("iptables-save", "xtables", "iptables-save "),
    ("iptables-restore", "xtables", "iptables-restore "),
    ("ip6tables", "xtables", "ip6tables "),
    ("ip6tables-save", "xtables", "ip6tables-save "),
    ("ip6tables-restore", "xtables", "ip6tables-restore "),
];

/// The command that runs a program of a part, given by its path in the part: the part's loader, with its libraries.
#[must_use]
pub fn command(part: &str, path: &str, arch: Arch) -> String {
    let (root, triplet) = (current(part), arch.triplet());
    format!(
        "{root}/{} --library-path {root}/lib/{triplet}:{root}/usr/lib/{triplet} {root}/{path}",
        arch.loader()
    )
}

/// Scripts, by path, that make nft and iptables callable by their names. iptables works on the rules of nftables
/// where the kernel has those, else on its own.
#[must_use]
pub fn network(arch: Arch, has_nftables: bool) -> Vec<(String, String)> {
    let xtables = if has_nftables { "xtables-nft-multi" } else { "xtables-legacy-multi" };
    let script = |(name, file, first): (&str, &str, &str)| {
        let file = if file == "xtables" { xtables } else { file };
        let extensions = format!("{}/usr/lib/{}/xtables", current("net-tools"), arch.triplet());
        let run = command("net-tools", &format!("usr/sbin/{file}"), arch);
        let text = format!("#!/bin/sh\nexport XTABLES_LIBDIR={extensions}\nexec {run} {first}\"$@\"\n");
        (format!("{TOOLS}/{name}"), text)
    };
    NETWORK.into_iter().map(script).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_started_by_the_loader_of_its_own_part() {
        let line = command("haproxy", "usr/sbin/haproxy", Arch::Arm64);
        let root = "/var/lib/kubeon/current/haproxy";
        assert_eq!(
            line,
            format!(
                "{root}/lib/aarch64-linux-gnu/ld-linux-aarch64.so.1 --library-path \
                 {root}/lib/aarch64-linux-gnu:{root}/usr/lib/aarch64-linux-gnu {root}/usr/sbin/haproxy"
            )
        );
    }

    #[test]
    fn iptables_follows_the_kernel() {
        let text = |has_nftables| {
            let all = network(Arch::Amd64, has_nftables);
            all.into_iter().find(|(path, _)| path == "/var/lib/kubeon/tools/iptables-save").unwrap().1
        };
        assert!(text(true).ends_with("/usr/sbin/xtables-nft-multi iptables-save \"$@\"\n"), "{}", text(true));
        assert!(text(false).contains("xtables-legacy-multi"));
        let nft = &network(Arch::Amd64, true)[0];
        assert_eq!(nft.0, "/var/lib/kubeon/tools/nft");
        assert!(nft.1.ends_with("/usr/sbin/nft \"$@\"\n"), "{}", nft.1);
    }
}
