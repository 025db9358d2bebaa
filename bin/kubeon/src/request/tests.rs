//! Tests of flags: from the command line to the plan of each host.

mod files;

use clap::Parser as _;
use kubeon_pki::ClusterPki;
use kubeon_plan::sim::{artifacts, bare};
use kubeon_plan::{Intent, Observation, Plan, Snapshot};
use kubeon_ports::Secrets as _;
use kubeon_wire::{Check, Content, Op, SecretRef};
use serde_json::{Value, json};

use super::*;
use crate::args::{CliCommand, CommandLine};

fn requested(flags: &[&str]) -> Result<ClusterRequest, CliError> {
    let words = ["kubeon", "create", "demo", "v1.36.3", "-m", "10.0.0.1", "-w", "10.0.0.2"];
    match CommandLine::parse_from([&words, flags].concat()).command {
        Some(CliCommand::Create(args)) => {
            from_flags(&args.cluster, "demo", "v1.36.3", &["v1.36.3".parse().unwrap()])
        }
        other => panic!("{other:?}"),
    }
}

/// The plan of `create` with these flags for bare hosts.
fn plan(flags: &[&str]) -> Plan {
    let intent = Intent::new(requested(flags).unwrap().spec, "u", 0, artifacts("v1.36.3"));
    let seen = |host: &str, name| (host.parse().unwrap(), Observation::Fresh(bare(name)));
    let hosts = [seen("10.0.0.1", "h1"), seen("10.0.0.2", "h2")].into();
    kubeon_plan::plan(&intent, &Snapshot { taken_at: 1_700_000_000, hosts }).unwrap()
}

/// The texts of a unit on all hosts.
fn units<'a>(plan: &'a Plan, wanted: &str) -> Vec<&'a str> {
    let unit = |step: &'a kubeon_plan::Step| match &step.op {
        Op::Service { name, unit, .. } if name == wanted => Some(unit.as_str()),
        _ => None,
    };
    plan.steps.iter().filter_map(unit).collect()
}

/// The texts of a file on all hosts.
fn files<'a>(plan: &'a Plan, wanted: &str) -> Vec<&'a str> {
    let files = plan.steps.iter().filter_map(|step| match &step.op {
        Op::Files { files } => Some(files),
        _ => None,
    });
    let text = |file: &'a kubeon_wire::File| match &file.content {
        Content::Text(text) if file.path == wanted => Some(text.as_str()),
        _ => None,
    };
    files.flatten().filter_map(text).collect()
}

#[test]
fn feature_gates_reach_every_program_that_has_them() {
    let plan = plan(&["--feature-gates", "InPlacePodVerticalScaling=true,AllAlpha=false"]);
    let flag = "--feature-gates=InPlacePodVerticalScaling=true,AllAlpha=false";
    for unit in ["kube-apiserver.service", "kube-controller-manager.service", "kube-scheduler.service"] {
        let texts = units(&plan, unit);
        assert_eq!(texts.len(), 1, "{unit}");
        assert!(texts[0].contains(flag), "{}", texts[0]);
    }
    let kubelets = files(&plan, "/var/lib/kubelet/config.yaml");
    assert_eq!(kubelets.len(), 2, "one per host");
    for text in kubelets {
        let config: serde_json::Value = serde_json::from_str(text).unwrap();
        let gates = serde_json::json!({ "InPlacePodVerticalScaling": true, "AllAlpha": false });
        assert_eq!(config["featureGates"], gates, "{text}");
    }
}

#[test]
fn without_feature_gates_no_program_gets_the_flag() {
    for flags in [&[][..], &["--feature-gates", ""]] {
        let plan = plan(flags);
        assert!(!units(&plan, "kube-apiserver.service")[0].contains("feature-gates"));
        assert!(!files(&plan, "/var/lib/kubelet/config.yaml")[0].contains("featureGates"));
    }
}

#[test]
fn invalid_feature_gates_are_refused_pair_by_pair() {
    let error = requested(&["--feature-gates", "A=true,B,C=yes,=true,a b=true,A=false,"]).unwrap_err();
    let found: Vec<_> = error.rows.iter().map(|(pair, why)| (pair.as_str(), why.as_str())).collect();
    let no_name = "is not the name of a feature gate, such as InPlacePodVerticalScaling";
    assert_eq!(
        found,
        [
            ("--feature-gates B", "is not Name=true or Name=false"),
            ("--feature-gates C=yes", "must be =true or =false"),
            ("--feature-gates =true", no_name),
            ("--feature-gates a b=true", no_name),
            ("--feature-gates A=false", "is named twice"),
            ("--feature-gates ", "is not Name=true or Name=false"),
        ]
    );
}

#[test]
fn kernel_parameters_and_taints_are_flags() {
    let flags =
        ["--kernel-parameter", "vm.max_map_count=262144", "--kernel-parameter", "kernel.msgmax=65536"];
    let tainted = ["--worker-taints", "dedicated=gpu:NoSchedule,example.com/a:NoExecute"];
    let spec = requested(&[&flags[..], &tainted].concat()).unwrap().spec;
    let parameters: Vec<_> =
        spec.settings.kernel_parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(parameters, ["kernel.msgmax=65536", "vm.max_map_count=262144"]);
    let taints: Vec<_> = spec.workers[0].taints.iter().map(ToString::to_string).collect();
    assert_eq!(taints, ["dedicated=gpu:NoSchedule", "example.com/a:NoExecute"]);
    assert!(spec.masters[0].taints.is_empty());
    for (flag, value, reason) in [
        ("--kernel-parameter", "vm.swappiness", "is not NAME=VALUE"),
        ("--worker-taints", "dedicated", "is not KEY=VALUE:EFFECT or KEY:EFFECT"),
        ("--worker-taints", "a=b:Never", "one of: NoSchedule PreferNoSchedule NoExecute"),
        ("--master-taints", "-a:NoSchedule", "is not a label key"),
    ] {
        let rows = requested(&[&format!("{flag}={value}")]).unwrap_err().rows;
        assert_eq!(rows[0].0, format!("{flag} {value}"));
        assert!(rows[0].1.contains(reason), "{rows:?}");
    }
    let twice = requested(&["--kernel-parameter", "a.b=1", "--kernel-parameter", "a.b=2"]).unwrap_err();
    assert_eq!(twice.rows, [("--kernel-parameter a.b=2".to_owned(), "is named twice".to_owned())]);
}

#[test]
fn the_lifetime_of_authorities_has_the_limits_of_a_file() {
    assert_eq!(requested(&[]).unwrap().spec.settings.ca_years, 100);
    for years in ["1", "10", "100"] {
        let spec = requested(&["--cert-years", years]).unwrap().spec;
        assert_eq!(spec.settings.ca_years.to_string(), years);
    }
    for years in ["0", "101", "1000"] {
        let error = requested(&["--cert-years", years]).unwrap_err();
        let row = (format!("--cert-years {years}"), "must lie between 1 and 100".to_owned());
        assert_eq!(error.rows, [row]);
    }
}

/// Settings that differ from every default and from each other.
const CUSTOM_FLAGS: &str = "--lb-domain api.shop.test --dns-domain shop.internal --svc-cidr 10.200.0.0/16 \
    --pod-cidr 10.100.0.0/16 --node-mask-size 25 --max-pods 77 --port-range 31000-31999 \
    --cert-san shop.example.com,203.0.113.9 --master-labels tier=control,example.com/rack=r1 \
    --worker-labels disk=ssd";

fn custom_plan() -> Plan {
    plan(&CUSTOM_FLAGS.split_whitespace().collect::<Vec<_>>())
}

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The secrets in a plan, with the path of their files.
fn secrets<'a>(plan: &'a Plan) -> Vec<(&'a str, &'a SecretRef)> {
    let files = plan.steps.iter().filter_map(|step| match &step.op {
        Op::Files { files } => Some(files),
        _ => None,
    });
    let secret = |file: &'a kubeon_wire::File| match &file.content {
        Content::Secret(secret) => Some((file.path.as_str(), secret)),
        _ => None,
    };
    files.flatten().filter_map(secret).collect()
}

/// The object that is applied at a path of the API server.
fn object<'a>(plan: &'a Plan, path: &str) -> &'a Value {
    let objects = plan.steps.iter().filter_map(|step| match &step.op {
        Op::Objects { objects } => Some(objects),
        _ => None,
    });
    let found = objects.flatten().find(|object| object.path == path);
    &found.unwrap_or_else(|| panic!("nothing is applied at {path}")).body
}

#[test]
fn settings_reach_the_arguments_of_the_control_plane() {
    let plan = custom_plan();
    for (unit, arguments) in [
        (
            "kube-apiserver.service",
            &[
                "--service-node-port-range=31000-31999",
                "--service-cluster-ip-range=10.200.0.0/16",
                "--service-account-issuer=https://kubernetes.default.svc.shop.internal",
            ][..],
        ),
        (
            "kube-controller-manager.service",
            &[
                "--node-cidr-mask-size=25",
                "--cluster-cidr=10.100.0.0/16",
                "--service-cluster-ip-range=10.200.0.0/16",
            ],
        ),
    ] {
        let texts = units(&plan, unit);
        assert_eq!(texts.len(), 1, "{unit}");
        for argument in arguments {
            assert!(texts[0].split_whitespace().any(|word| word == *argument), "{argument}: {}", texts[0]);
        }
    }
}

#[test]
fn settings_reach_the_kubelet_and_the_agents_of_every_host() {
    let plan = custom_plan();
    for (file, field, wanted) in [
        ("/var/lib/kubelet/config.yaml", "clusterDomain", json!("shop.internal")),
        ("/var/lib/kubelet/config.yaml", "clusterDNS", json!(["10.200.0.10"])),
        ("/var/lib/kubelet/config.yaml", "maxPods", json!(77)),
        ("/etc/kubernetes/kube-proxy.yaml", "clusterCIDR", json!("10.100.0.0/16")),
        ("/etc/kubernetes/flannel.json", "Network", json!("10.100.0.0/16")),
    ] {
        let texts = files(&plan, file);
        assert_eq!(texts.len(), 2, "{file}: one per host");
        for text in texts {
            assert_eq!(read(text)[field], wanted, "{file}: {text}");
        }
    }
}

#[test]
fn the_domain_of_the_api_reaches_every_host_and_the_certificate() {
    let plan = custom_plan();
    let mut found = Vec::new();
    for step in &plan.steps {
        if let Op::Hosts { entries } = &step.op {
            let here = entries.iter().filter(|entry| entry.names == ["api.shop.test"]);
            found.extend(here.map(|entry| (step.host.to_string(), entry.address.to_string())));
        }
    }
    let wanted = [("10.0.0.1", "10.0.0.1"), ("10.0.0.2", "127.0.0.1")];
    assert_eq!(found, wanted.map(|(host, address)| (host.to_owned(), address.to_owned())));
    let secrets = secrets(&plan);
    let certificate = secrets.iter().find(|(path, _)| *path == "/etc/kubernetes/pki/apiserver.crt").unwrap();
    let SecretRef::LeafCertificate(leaf) = certificate.1 else { panic!("{certificate:?}") };
    for name in
        ["api.shop.test", "demo.api.shop.test", "kubernetes.default.svc.shop.internal", "shop.example.com"]
    {
        assert!(leaf.dns_names.iter().any(|dns_name| dns_name == name), "{name}: {leaf:?}");
    }
    for address in ["10.200.0.1", "203.0.113.9"] {
        assert!(leaf.addresses.iter().any(|known| known.to_string() == address), "{address}: {leaf:?}");
    }
}

#[test]
fn the_dns_domain_reaches_coredns_and_the_checks_of_every_host() {
    let plan = custom_plan();
    let corefile = object(&plan, "/api/v1/namespaces/kube-system/configmaps/coredns");
    let corefile = corefile["data"]["Corefile"].as_str().unwrap();
    assert!(corefile.contains("kubernetes shop.internal in-addr.arpa"), "{corefile}");
    let service = object(&plan, "/api/v1/namespaces/kube-system/services/kube-dns");
    assert_eq!(service["spec"]["clusterIP"], "10.200.0.10", "{service}");
    let mut queries = Vec::new();
    for step in &plan.steps {
        let Op::Await { checks } = &step.op else { continue };
        queries.extend(checks.iter().filter_map(|check| match check {
            Check::Dns { server, name } => Some((server.to_string(), name.clone())),
            _ => None,
        }));
    }
    let once = ("10.200.0.10".to_owned(), "kubernetes.default.svc.shop.internal.".to_owned());
    assert_eq!(queries, [once.clone(), once]);
}

#[test]
fn labels_reach_the_nodes_of_their_own_hosts() {
    let plan = custom_plan();
    for (node, labels) in [
        (
            "h1",
            json!({
                "tier": "control", "example.com/rack": "r1", "node-role.kubernetes.io/control-plane": "",
            }),
        ),
        ("h2", json!({ "disk": "ssd", "node-role.kubernetes.io/worker": "" })),
    ] {
        assert_eq!(object(&plan, &format!("/api/v1/nodes/{node}"))["metadata"]["labels"], labels, "{node}");
    }
}

#[test]
fn case_20_a_network_of_the_user_replaces_flannel_and_with_bpf_also_kube_proxy() {
    for (flags, proxies) in
        [(&["--cni", "none"][..], 2), (&["--cni", "bpf"], 0), (&["--cni", "none", "--proxy", "bpf"], 0)]
    {
        let plan = plan(flags);
        let running = ["kube-proxy.service", "flanneld.service"].map(|unit| units(&plan, unit).len());
        assert_eq!(running, [proxies, 0], "{flags:?}");
        assert!(plan.awaits_network, "{flags:?}");
        let waits = plan.steps.iter().filter_map(|step| match &step.op {
            Op::Await { checks } => Some(checks),
            _ => None,
        });
        let strict = |check: &&Check| matches!(check, Check::NodesReady { may_lack_network: false, .. });
        assert_eq!(waits.flatten().filter(strict).count(), 0, "no step waits for Ready nodes: {flags:?}");
    }
}

#[test]
fn the_proxy_mode_reaches_every_host() {
    for (flags, mode) in [
        (&[][..], "nftables"),
        (&["--proxy", "nftables"], "nftables"),
        (&["--proxy", "iptables"], "iptables"),
    ] {
        let plan = plan(flags);
        for (file, field, wanted) in [
            ("/etc/kubernetes/kube-proxy.yaml", "mode", json!(mode)),
            ("/etc/kubernetes/flannel.json", "EnableNFTables", json!(mode == "nftables")),
        ] {
            let texts = files(&plan, file);
            assert_eq!(texts.len(), 2, "{file}: one per host");
            for text in texts {
                assert_eq!(read(text)[field], wanted, "{flags:?} {file}: {text}");
            }
        }
    }
}

/// The inputs of a plan, including its UID, must not determine a key.
#[test]
fn the_same_request_has_different_keys_in_every_folder() {
    let plan = plan(&[]);
    let secrets = secrets(&plan);
    assert!(secrets.len() > 20, "only {} secrets", secrets.len());
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let texts = |folder: &tempfile::TempDir| -> Vec<String> {
        let keys = ClusterPki::load_or_create(&folder.path().join("pki"), 10).unwrap();
        secrets.iter().map(|(_, secret)| keys.resolve(secret).unwrap()).collect()
    };
    let [first, second, again] = [&folders[0], &folders[1], &folders[0]].map(texts);
    for (i, (path, secret)) in secrets.iter().enumerate() {
        assert!(first[i] != second[i], "{path} is the same in both");
        let kept = !matches!(secret, SecretRef::LeafCertificate(_) | SecretRef::LeafKey(_));
        assert_eq!(
            first[i] == again[i],
            kept,
            "{path}: authorities persist, leaf certificates are issued again"
        );
    }
}
