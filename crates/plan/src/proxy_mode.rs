//! The proxy mode that a host supports, and the program that it lacks for this mode.

use kubeon_api::kubernetes_cluster::ProxyMode;
use kubeon_wire::Facts;

/// The oldest kernel on which kube-proxy uses nftables.
const NFTABLES_KERNEL: (u32, u32) = (5, 13);
/// The oldest nft that kube-proxy and flannel can use.
const NFT_VERSION: [u32; 3] = [1, 0, 1];

/// A program that the host needs for packet filter rules but does not have, or has in a version that is too
/// old.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MissingTool<'a> {
    pub(crate) name: &'static str,
    /// The version of the host's own program, which is too old.
    pub(crate) old: Option<&'a str>,
}

impl MissingTool<'_> {
    /// What the host has, for a sentence about the host: `has no nft`.
    pub(crate) fn lack(&self) -> String {
        match self.old {
            Some(version) => format!("has {} {version}, older than 1.0.1", self.name),
            None => format!("has no {}", self.name),
        }
    }
}

/// The program that the host lacks, as far as it was observed.
pub(crate) fn missing_tool(facts: &Facts, wanted: ProxyMode) -> Option<MissingTool<'_>> {
    let name = match supported(facts, wanted) {
        ProxyMode::Nftables => "nft",
        // kube-proxy writes some rules with it in this mode too.
        ProxyMode::Iptables | ProxyMode::Ipvs => "iptables",
        // No kube-proxy calls any.
        ProxyMode::Bpf => return None,
    };
    if facts.programs.get(name) == Some(&false) {
        return Some(MissingTool { name, old: None });
    }
    let old = facts.nft_version.as_deref().filter(|version| name == "nft" && is_old(version))?;
    Some(MissingTool { name, old: Some(old) })
}

/// The proxy mode of a host: the requested mode, but iptables if the kernel does not support nftables.
pub(crate) fn supported(facts: &Facts, wanted: ProxyMode) -> ProxyMode {
    match wanted {
        ProxyMode::Nftables if obstacle(facts).is_some() => ProxyMode::Iptables,
        ProxyMode::Nftables | ProxyMode::Iptables | ProxyMode::Ipvs | ProxyMode::Bpf => wanted,
    }
}

/// Why kube-proxy cannot use nftables on the host, for a sentence about the host.
pub(crate) fn obstacle(facts: &Facts) -> Option<String> {
    if !facts.has_nftables {
        return Some("its kernel has no nftables".to_owned());
    }
    let old = kernel_version(&facts.kernel).is_some_and(|version| version < NFTABLES_KERNEL);
    old.then(|| {
        format!("its kernel {} is older than 5.13, which kube-proxy requires for nftables", facts.kernel)
    })
}

/// The first two numbers of a kernel release; `None` if it does not start with them.
pub(crate) fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Whether the version is known to be too old.
fn is_old(version: &str) -> bool {
    let numbers: Option<Vec<u32>> = version.split('.').map(|number| number.parse().ok()).collect();
    numbers.is_some_and(|numbers| numbers.as_slice() < &NFT_VERSION[..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(kernel: &str, nft: Option<&str>) -> Facts {
        Facts {
            kernel: kernel.to_owned(),
            has_nftables: true,
            nft_version: nft.map(str::to_owned),
            programs: [("nft", nft.is_some()), ("iptables", true)]
                .map(|(name, has)| (name.to_owned(), has))
                .into(),
            ..Facts::default()
        }
    }

    #[test]
    fn nftables_needs_kernel_5_13() {
        let mode = |kernel| supported(&host(kernel, Some("1.0.6")), ProxyMode::Nftables);
        assert_eq!(mode("5.10.0-33-amd64"), ProxyMode::Iptables);
        assert_eq!(mode("5.13.0"), ProxyMode::Nftables);
        assert_eq!(mode("6.1.0-27-amd64"), ProxyMode::Nftables);
        assert_eq!(mode("unknown"), ProxyMode::Nftables, "what is not known is no obstacle");
        let without = Facts { has_nftables: false, ..host("6.1.0", Some("1.0.6")) };
        assert_eq!(supported(&without, ProxyMode::Nftables), ProxyMode::Iptables);
    }

    #[test]
    fn an_old_nft_is_replaced_by_the_one_of_the_bundle() {
        let missing =
            |kernel, nft| missing_tool(&host(kernel, nft), ProxyMode::Nftables).map(|tool| tool.lack());
        assert_eq!(missing("6.1.0", Some("0.9.8")).as_deref(), Some("has nft 0.9.8, older than 1.0.1"));
        assert_eq!(missing("6.1.0", Some("1.0.0")).as_deref(), Some("has nft 1.0.0, older than 1.0.1"));
        assert_eq!(missing("6.1.0", None).as_deref(), Some("has no nft"));
        for new in ["1.0.1", "1.0.6", "1.1", "2.0.0", "odd"] {
            assert_eq!(missing("6.1.0", Some(new)), None, "{new}");
        }
        assert_eq!(missing("5.10.0", Some("0.9.8")), None, "iptables does not use it");
    }
}
