//! CEL rules that an API server, the CLI and the tests evaluate.
//!
//! A field may be under `spec.cluster` or, in the older flat form, directly under `spec`, and may have an older name.
//! [`effective`] finds it in any of these places and falls back to the default. The functions `cidr` and `isCIDR` need a
//! meta cluster of Kubernetes 1.31 or newer.

use schemars::Schema;
use serde_json::{Value, json};

use super::defaults;

/// A rule and the message when it is violated.
pub(super) struct Rule {
    rule: String,
    message: &'static str,
    field: Option<&'static str>,
}

/// Rules for the fields of a cluster, in both forms of the spec.
pub(super) fn cluster() -> Vec<Rule> {
    let pods = effective(&["self"], &["podCIDR", "containerCIDR"], defaults::POD_CIDR);
    let services = effective(&["self"], &["serviceCIDR"], defaults::SERVICE_CIDR);
    vec![
        Rule {
            rule: "!has(self.masterList) || !has(self.nodeList) || \
                   [self.masterList.map(m, m.ip)].all(ips, self.nodeList.all(n, !(n.ip in ips)))"
                .to_owned(),
            message: "a host is in masterList and in nodeList; a host has one role",
            field: Some(".nodeList"),
        },
        Rule {
            rule: format!("[{pods}].all(p, !isCIDR(p) || cidr(p) == cidr(p).masked())"),
            message: "podCIDR has host bits set; write the network's first address",
            field: None,
        },
        Rule {
            rule: format!("[{services}].all(s, !isCIDR(s) || cidr(s) == cidr(s).masked())"),
            message: "serviceCIDR has host bits set; write the network's first address",
            field: None,
        },
        Rule {
            rule: format!(
                "[{pods}].all(p, [{services}].all(s, !isCIDR(p) || !isCIDR(s) || \
                 !(cidr(p).containsIP(cidr(s).ip()) || cidr(s).containsIP(cidr(p).ip()))))"
            ),
            message: "podCIDR and serviceCIDR overlap (defaults: 10.96.0.0/12 and 10.64.0.0/12)",
            field: None,
        },
        Rule {
            rule: "!has(self.loadBalancer) || !has(self.loadBalancer.mode) || self.loadBalancer.mode != 'external' || \
                   has(self.loadBalancer.address) || has(self.externalLoadBalancer) || has(self.masterVIP)"
                .to_owned(),
            message: "loadBalancer.mode external needs loadBalancer.address or externalLoadBalancer",
            field: Some(".loadBalancer"),
        },
    ]
}

/// Rules for the whole spec: only one form is used, and some fields cannot be changed.
pub(super) fn spec(flat: &[&str]) -> Vec<Rule> {
    let any_flat = flat.iter().map(|name| format!("has(self.{name})")).collect::<Vec<_>>().join(" || ");
    let mut rules = vec![
        Rule {
            rule: format!("!has(self.cluster) || !({any_flat})"),
            message: "fields are set under spec.cluster and directly under spec; put all of them under spec.cluster",
            field: None,
        },
        Rule {
            rule: "(has(self.cluster) && has(self.cluster.masterList) && self.cluster.masterList.size() > 0) || \
                   (has(self.masterList) && self.masterList.size() > 0)"
                .to_owned(),
            message: "spec.cluster.masterList is empty; name at least one master",
            field: None,
        },
    ];
    rules.extend(cluster().into_iter().filter(|rule| !rule.rule.contains("loadBalancer.mode")));
    rules.extend(fixed());
    rules
}

fn fixed() -> Vec<Rule> {
    let fixed = |names: &[&str], default: &str, message: &'static str| {
        let now = effective(&["self.cluster", "self"], names, default);
        let before = effective(&["oldSelf.cluster", "oldSelf"], names, default);
        Rule { rule: format!("{now} == {before}"), message, field: None }
    };
    let region = |root: &str, spec: &str| effective(&[root, spec], &["region"], "");
    let user = |spec: &str| {
        let at = |root: String| {
            let parts = if root == spec { String::new() } else { format!("has({root}) && ") };
            format!(
                "{parts}has({root}.authConfig) && has({root}.authConfig.username) ? {root}.authConfig.username"
            )
        };
        format!("({} : ({} : ''))", at(format!("{spec}.cluster")), at(spec.to_owned()))
    };
    vec![
        fixed(
            &["clusterType"],
            defaults::CLUSTER_TYPE.as_str(),
            "clusterType cannot be changed; make a new cluster",
        ),
        fixed(
            &["deployMode"],
            defaults::DEPLOY_MODE.as_str(),
            "deployMode cannot be changed; make a new cluster",
        ),
        fixed(
            &["podCIDR", "containerCIDR"],
            defaults::POD_CIDR,
            "podCIDR cannot be changed; make a new cluster",
        ),
        fixed(&["serviceCIDR"], defaults::SERVICE_CIDR, "serviceCIDR cannot be changed; make a new cluster"),
        Rule {
            rule: format!(
                "{before} == '' || {now} == {before}",
                before = region("oldSelf.cluster", "oldSelf"),
                now = region("self.cluster", "self")
            ),
            message: "region cannot be changed; make a new cluster",
            field: None,
        },
        Rule {
            rule: format!(
                "{before} == '' || {now} == {before}",
                before = user("oldSelf"),
                now = user("self")
            ),
            message: "authConfig.username cannot be changed: the cluster was created with that account",
            field: None,
        },
    ]
}

/// A CEL expression for the value of a field: the first of `names` that is set under the first of `roots`, else `default`. It
/// uses `has`, because not every evaluator of these rules supports `.?`.
fn effective(roots: &[&str], names: &[&str], default: &str) -> String {
    let places =
        roots.iter().flat_map(|root| names.iter().map(move |name| (*root, format!("{root}.{name}"))));
    let places: Vec<(&str, String)> = places.collect();
    places.iter().rev().fold(format!("'{default}'"), |otherwise, (root, place)| {
        let reachable = if root.contains('.') { format!("has({root}) && ") } else { String::new() };
        format!("({reachable}has({place}) && {place} != '' ? {place} : {otherwise})")
    })
}

/// Sets the rules of a schema.
pub(super) fn add(schema: &mut Schema, rules: &[Rule]) {
    let rules: Vec<Value> = rules
        .iter()
        .map(|rule| {
            let mut value = json!({"rule": rule.rule, "message": rule.message});
            if let Some(field) = rule.field {
                value["fieldPath"] = json!(field);
            }
            value
        })
        .collect();
    schema.insert("x-kubernetes-validations".to_owned(), rules.into());
}
