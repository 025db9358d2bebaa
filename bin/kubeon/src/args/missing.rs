//! Flags of parts that no bundle carries. They are refused by name, never ignored.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, parser::ValueSource};
use kubeon_plan::Refusal;

/// The argument of a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    /// `--flag`, `--flag=true`, `--flag=false`.
    Nothing,
    /// `--flag VALUE`.
    Value,
}

/// A flag of a part that no bundle carries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MissingFlag {
    /// The name without dashes.
    pub flag: &'static str,
    /// The argument.
    pub takes: Takes,
    /// Values that request nothing and are therefore accepted.
    pub harmless: &'static [&'static str],
    /// The reason of the refusal.
    pub missing: &'static str,
}

const CALICO: &str = "no bundle carries calico: leave it out, the pod network is flannel";
const CILIUM: &str = "no bundle carries cilium: leave it out, the pod network is flannel";
const CONTOUR: &str =
    "no bundle carries contour: leave it out, install an ingress controller with its own chart";
const ISTIO: &str = "no bundle carries istio: leave it out, install it with its own chart";
const NVIDIA: &str = "no bundle carries the nvidia device plugin: leave it out";
const KATA: &str = "no bundle carries kata: leave it out";
const KRUISE: &str = "no bundle carries kruise: leave it out";
const IPVS: &str = "belongs to proxy mode ipvs, which no bundle carries: use --proxy nftables or iptables";
const DUAL: &str = "IPv6 is not supported yet: leave it out";

const fn boolean(flag: &'static str, missing: &'static str) -> MissingFlag {
    MissingFlag { flag, takes: Takes::Nothing, harmless: &["false"], missing }
}

const fn value(flag: &'static str, harmless: &'static [&'static str], missing: &'static str) -> MissingFlag {
    MissingFlag { flag, takes: Takes::Value, harmless, missing }
}

/// All flags of the contract whose parts no bundle carries.
pub(crate) const MISSING: &[MissingFlag] = &[
    boolean("enable-ipv6", DUAL),
    value("node-mask-size-ipv6", &["64"], DUAL),
    value("svc-cidr-ipv6", &[""], DUAL),
    value("pod-cidr-ipv6", &[""], DUAL),
    value(
        "interface",
        &[""],
        "only calico and cilium choose an interface, and no bundle carries them: leave it out",
    ),
    value("ipvs-scheduler", &[], IPVS),
    boolean("strict-arp", IPVS),
    boolean("with-nvidia", NVIDIA),
    boolean("with-kata", KATA),
    boolean("with-kruise", KRUISE),
    value("calico-mtu", &["0"], CALICO),
    boolean("calico-enable-vxlan", CALICO),
    boolean("calico-enable-bpf", CALICO),
    boolean("calico-enable-bgp", CALICO),
    boolean("calico-enable-dsr", CALICO),
    boolean("calico-enable-wireguard", CALICO),
    boolean("calico-enable-cross-subnet", CALICO),
    boolean("calico-enable-pass-conntrack", CALICO),
    value("cilium-mtu", &["0"], CILIUM),
    boolean("cilium-enable-geneve", CILIUM),
    boolean("cilium-enable-nr", CILIUM),
    boolean("cilium-enable-bgp", CILIUM),
    boolean("cilium-enable-dsr", CILIUM),
    boolean("cilium-enable-bm", CILIUM),
    boolean("cilium-enable-bbr", CILIUM),
    boolean("cilium-enable-wireguard", CILIUM),
    boolean("cilium-disable-ip-masq", CILIUM),
    boolean("cilium-disable-ipv6-masq", CILIUM),
    boolean("cilium-disable-endpoint-routes", CILIUM),
    boolean("cilium-disable-local-redirect", CILIUM),
    boolean("cilium-disable-hostns-only", CILIUM),
    boolean("cilium-disable-auto-direct-node-routes", CILIUM),
    boolean("cilium-disable-endpoint-slice", CILIUM),
    boolean("cilium-disable-external-clusterip", CILIUM),
    boolean("cilium-disable-auto-protect-node-port-range", CILIUM),
    value("cilium-nr-cidr", &[""], CILIUM),
    value("cilium-nr-ipv6-cidr", &[""], CILIUM),
    value("cilium-policy", &[], CILIUM),
    value("cilium-config", &[""], CILIUM),
    boolean("contour-disable-insecure", CONTOUR),
    boolean("contour-disable-merge-slashes", CONTOUR),
    boolean("istio-disable-auto-inject", ISTIO),
    value("istio-service-entry-export-to", &[""], ISTIO),
    value("istio-virtual-service-export-to", &[""], ISTIO),
    value("istio-destination-rule-export-to", &[""], ISTIO),
    value("istio-ingress-gateway-type", &[], ISTIO),
    boolean("istio-enable-egress", ISTIO),
    value("istio-egress-gateway-type", &[], ISTIO),
    value("istio-config", &[""], ISTIO),
    boolean("nvidia-elevated", NVIDIA),
    value("nvidia-driver-root", &[], NVIDIA),
    value("kruise-feature-gates", &[""], KRUISE),
];

/// The refusals of the given flags of [`MISSING`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MissingFlags {
    /// One refusal per flag.
    pub refusals: Vec<Refusal>,
}

impl MissingFlag {
    fn arg(&self) -> Arg {
        let arg = Arg::new(self.flag)
            .long(self.flag)
            .hide(true)
            .action(ArgAction::Append)
            .allow_hyphen_values(true);
        match self.takes {
            Takes::Nothing => {
                arg.num_args(0..=1).require_equals(true).default_missing_value("true").value_parser([
                    "true", "false", "1", "0", "t", "f", "T", "F", "TRUE", "FALSE", "True", "False",
                ])
            }
            Takes::Value => arg.num_args(1),
        }
    }

    fn refusal(&self, matches: &ArgMatches) -> Option<Refusal> {
        if matches.value_source(self.flag) != Some(ValueSource::CommandLine) {
            return None;
        }
        let last = matches.get_many::<String>(self.flag)?.next_back()?;
        let off = self.takes == Takes::Nothing
            && ["false", "0", "f", "F", "FALSE", "False"].contains(&last.as_str());
        if off || self.harmless.contains(&last.as_str()) {
            return None;
        }
        let subject = match self.takes {
            Takes::Nothing => format!("--{}", self.flag),
            Takes::Value => format!("--{} {last}", self.flag),
        };
        Some(Refusal::argument(subject, self.missing))
    }
}

impl Args for MissingFlags {
    fn augment_args(command: Command) -> Command {
        command.args(MISSING.iter().map(MissingFlag::arg))
    }
    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for MissingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        Ok(Self { refusals: MISSING.iter().filter_map(|flag| flag.refusal(matches)).collect() })
    }
    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
