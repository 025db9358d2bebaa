//! What flags say, down to what hosts are told.

use clap::Parser as _;
use kubeon_plan::sim::{artifacts, bare};
use kubeon_plan::{Intent, Plan, Seen, Snapshot};
use kubeon_wire::{Content, Op};

use super::*;
use crate::args::{Cli, Command};

fn wished(flags: &[&str]) -> Result<Wish, Stop> {
    let words = ["kubeon", "create", "demo", "v1.36.3", "-m", "10.0.0.1", "-w", "10.0.0.2"];
    match Cli::parse_from([&words, flags].concat()).command {
        Some(Command::Create(args)) => {
            from_flags(&args.wish, "demo", "v1.36.3", &["v1.36.3".parse().unwrap()])
        }
        other => panic!("{other:?}"),
    }
}

/// What `create` with these flags would do to bare hosts.
fn plan(flags: &[&str]) -> Plan {
    let intent = Intent::new(wished(flags).unwrap().spec, "u", 0, artifacts("v1.36.3"));
    let seen = |host: &str, name| (host.parse().unwrap(), Seen::Fresh(bare(name)));
    let hosts = [seen("10.0.0.1", "h1"), seen("10.0.0.2", "h2")].into();
    kubeon_plan::plan(&intent, &Snapshot { taken_at: 1_700_000_000, hosts }).unwrap()
}

/// The text of a unit on every host that has it.
fn units<'a>(plan: &'a Plan, wanted: &str) -> Vec<&'a str> {
    let unit = |step: &'a kubeon_plan::Step| match &step.op {
        Op::Service { name, unit, .. } if name == wanted => Some(unit.as_str()),
        _ => None,
    };
    plan.steps.iter().filter_map(unit).collect()
}

/// The texts of a file on every host that has it.
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
    assert_eq!(kubelets.len(), 2, "one a host");
    for text in kubelets {
        let config: serde_json::Value = serde_json::from_str(text).unwrap();
        let gates = serde_json::json!({ "InPlacePodVerticalScaling": true, "AllAlpha": false });
        assert_eq!(config["featureGates"], gates, "{text}");
    }
}

#[test]
fn without_feature_gates_no_program_is_told_of_any() {
    for flags in [&[][..], &["--feature-gates", ""]] {
        let plan = plan(flags);
        assert!(!units(&plan, "kube-apiserver.service")[0].contains("feature-gates"));
        assert!(!files(&plan, "/var/lib/kubelet/config.yaml")[0].contains("featureGates"));
    }
}

#[test]
fn what_is_no_feature_gate_is_refused_pair_by_pair() {
    let stop = wished(&["--feature-gates", "A=true,B,C=yes,=true,a b=true,A=false,"]).unwrap_err();
    let told: Vec<_> = stop.rows.iter().map(|(pair, why)| (pair.as_str(), why.as_str())).collect();
    let no_name = "is not the name of a feature gate, such as InPlacePodVerticalScaling";
    assert_eq!(
        told,
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
fn authorities_live_as_long_as_asked_for_within_the_bounds_of_a_file() {
    assert_eq!(wished(&[]).unwrap().spec.ca_years, 100);
    for years in ["1", "10", "100"] {
        let spec = wished(&["--cert-years", years]).unwrap().spec;
        assert_eq!(spec.ca_years.to_string(), years);
    }
    for years in ["0", "101", "1000"] {
        let stop = wished(&["--cert-years", years]).unwrap_err();
        let row = (format!("--cert-years {years}"), "must lie between 1 and 100".to_owned());
        assert_eq!(stop.rows, [row]);
    }
}
