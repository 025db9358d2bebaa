//! A user who refers to an object that the operator reads must be allowed to read it. Otherwise a user who may declare a
//! cluster could make the operator copy any Secret onto a host of that user.

use super::policy::{AdmissionPolicy, Validation, not_the_operator};
use crate::InstallOptions;

/// The path of a reference and the resource that it refers to.
const REFERENCES: &[(&[&str], &str)] = &[
    (&["spec", "hostsConfRef"], "configmaps"),
    (&["spec", "varsConfRef"], "configmaps"),
    (&["spec", "kubeConfRef"], "secrets"),
    (&["spec", "sshAuthRef"], "secrets"),
    (&["spec", "preCheckRef"], "configmaps"),
    (&["spec", "entrypointSHRef"], "configmaps"),
    (&["spec", "actionSourceRef"], "configmaps"),
    (&["spec", "cluster", "authConfig", "credentialsRef"], "secrets"),
    (&["spec", "authConfig", "credentialsRef"], "secrets"),
];

/// The most hooks that may refer to a ConfigMap: each needs an authorization check, and the API server limits their number
/// per request.
const MOST_SOURCES: usize = 16;

/// References of the three kinds. An unchanged reference is not checked again.
pub(super) fn references(options: &InstallOptions) -> AdmissionPolicy {
    AdmissionPolicy {
        name: "kubeon-references",
        resource_rules: vec![
            ("ecs.yun.com", "v1", &["kubernetesclusters"]),
            ("kubeonkube.clay.io", "v1alpha1", &["clusters", "clusteroperations"]),
        ],
        operations: &["CREATE", "UPDATE"],
        match_conditions: vec![not_the_operator(options)],
        // The meaning of a path depends on the kind: `spec.cluster` is an object in one kind and text in another.
        variables: vec![
            ("own", "request.resource.group == 'ecs.yun.com'".to_owned()),
            ("sources", sources("object")),
            ("sourcesBefore", format!("oldObject == null ? [] : {}", sources("oldObject"))),
        ],
        validations: REFERENCES
            .iter()
            .map(|(path, resource)| may_read(path, resource))
            .chain([not_too_many()])
            .chain((0..MOST_SOURCES).map(may_read_source))
            .collect(),
    }
}

/// The ConfigMaps from which the hooks of an operation take their actions, in order.
fn sources(root: &str) -> String {
    let hooks = |list: &str| format!("dyn({root}).?spec.?{list}.orValue([])");
    format!(
        "({} + {}).filter(hook, hook.?actionSourceRef.?name.orValue('') != '').map(hook, hook.actionSourceRef)",
        hooks("preHook"),
        hooks("postHook")
    )
}

fn not_too_many() -> Validation {
    Validation {
        expression: format!("size(variables.sources) <= {MOST_SOURCES}"),
        message: format!(
            "'spec.preHook, spec.postHook: at most {MOST_SOURCES} of them take their action from a ConfigMap, not ' + \
             string(size(variables.sources))"
        ),
        reason: "Invalid",
    }
}

/// One authorization check for each new source; a repeated source is checked once.
fn may_read_source(index: usize) -> Validation {
    let this = format!("variables.sources[{index}]");
    let (namespace, name) = (format!("{this}.?namespace.orValue('')"), format!("{this}.name"));
    Validation {
        expression: format!(
            "size(variables.sources) <= {index} || variables.sources.indexOf({this}) < {index} || \
             {this} in variables.sourcesBefore || \
             authorizer.group('').resource('configmaps').namespace({namespace}).name({name}).check('get').allowed()"
        ),
        message: format!(
            "'spec.preHook, spec.postHook: who refers to configmaps ' + {namespace} + '/' + {name} + \
             ' must be allowed to read it; ' + request.userInfo.username + ' is not'"
        ),
        reason: "Forbidden",
    }
}

fn may_read(path: &[&str], resource: &str) -> Validation {
    let of_a_cluster = path.contains(&"authConfig");
    let applies = if of_a_cluster { "variables.own" } else { "!variables.own" };
    let chain = |root: &str| path.iter().fold(format!("dyn({root})"), |text, name| format!("{text}.?{name}"));
    let (now, before) = (chain("object"), chain("oldObject"));
    // The default namespace of a reference is that of the cluster.
    let place = if of_a_cluster { "request.namespace" } else { "''" };
    let namespace = format!("({now}.?namespace.orValue('') == '' ? {place} : {now}.?namespace.orValue(''))");
    let name = format!("{now}.?name.orValue('')");
    Validation {
        expression: format!(
            "!({applies}) || {name} == '' || (oldObject != null && {now} == {before}) || \
             authorizer.group('').resource('{resource}').namespace({namespace}).name({name}).check('get').allowed()"
        ),
        message: format!(
            "'{}: who refers to {resource} ' + {namespace} + '/' + {name} + ' must be allowed to read it; ' + \
             request.userInfo.username + ' is not'",
            path.join(".")
        ),
        reason: "Forbidden",
    }
}
