//! Programs of the bundle that come from a Linux distribution. They include their own C library and are started by their own
//! loader, so that they do not depend on the libraries of the host.

use kubeon_api::Arch;

use crate::paths::{HAPROXY_COMMAND, TOOLS, current};

/// Network programs: the name, the file that implements it, and the argument that selects the program in that file.
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

/// The command that runs the program at `path` of a part with the loader and the libraries of the part.
#[must_use]
pub fn command(part: &str, path: &str, arch: Arch) -> String {
    loaded(part, path, arch, "")
}

/// The same with arguments of the loader.
fn loaded(part: &str, path: &str, arch: Arch, arguments: &str) -> String {
    let (root, triplet) = (current(part), arch.triplet());
    format!(
        "{root}/{} {arguments}--library-path {root}/lib/{triplet}:{root}/usr/lib/{triplet} {root}/{path}",
        arch.loader()
    )
}

/// The script that runs haproxy. haproxy runs it again to read its configuration: it starts itself by its own name, which
/// would be that of a program without its loader.
#[must_use]
pub fn haproxy(arch: Arch) -> String {
    let run = loaded("haproxy", "usr/sbin/haproxy", arch, &format!("--argv0 {HAPROXY_COMMAND} "));
    format!("#!/bin/sh\nexec {run} \"$@\"\n")
}

/// Scripts, as path and text, that run nft and iptables by their usual names. iptables uses nftables when the kernel supports
/// it, else its legacy rules.
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
    fn a_program_is_started_by_the_loader_of_its_part() {
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
    fn iptables_uses_nftables_when_the_kernel_supports_it() {
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
