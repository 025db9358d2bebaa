//! CEL rules that an API server evaluates before it accepts an object, as for a `KubernetesCluster`.
//!
//! They refuse objects that would wait for ever and fields without a meaning. An unknown `actionType`, playbook or image is
//! accepted: by contract A (cases 9, 10 and 19) such an operation ends as `Failed`, with the reason in its status.

use schemars::Schema;
use serde_json::{Value, json};

/// The schema field with the rules.
const VALIDATIONS: &str = "x-kubernetes-validations";

/// A rule, the field that it checks, and the message when it is violated.
struct Rule {
    rule: &'static str,
    field: &'static str,
    message: &'static str,
}

/// Contract A, case 35, for the action of an operation and of a hook. Keys of a ConfigMap are file names, so another key
/// cannot exist.
pub(super) fn of_action(schema: &mut Schema) {
    const FROM_A_MAP: [Rule; 2] = [
        Rule {
            rule: "!has(self.actionSource) || self.actionSource != 'configmap' || \
                    (has(self.actionSourceRef) && self.actionSourceRef.name != '')",
            field: ".actionSourceRef",
            message: "actionSourceRef must be specified if actionSource set as configmap",
        },
        Rule {
            // The cost of the rule is the length of the pattern times the maximum length of the text: keep the pattern short.
            rule: "!has(self.actionSource) || self.actionSource != 'configmap' || \
                    self.action.matches('^\\\\s*[-.\\\\w]+\\\\s*$')",
            field: ".action",
            message: "the action from a ConfigMap must be a file name: letters, digits, '.', '_' and '-' only",
        },
    ];
    add(schema, &FROM_A_MAP);
}

/// A hook is a playbook or a shell command; it cannot be an operation of kubeon.
pub(super) fn of_hook(schema: &mut Schema) {
    let known_type = Rule {
        rule: "self.actionType in ['playbook', 'shell']",
        field: ".actionType",
        message: "unknown action type of a hook, the currently supported ranges include: [playbook shell]",
    };
    add(schema, &[known_type]);
}

/// Rules for the fields of an operation beside its action.
pub(super) fn of_operation(schema: &mut Schema) {
    const RULES: [Rule; 3] = [
        Rule {
            rule: "self.actionType == 'kubeon' || !(has(self.plan) && self.plan) && !has(self.approves)",
            field: ".plan",
            message: "only the operations of a KubernetesCluster are planned and approved; a playbook takes extraArgs: --check",
        },
        Rule {
            // The admission webhook refuses an empty name: contract A, case 43.
            rule: "self.cluster == '' || self.cluster.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",
            field: ".cluster",
            message: "is not a valid name of a Cluster: use lower-case letters, digits, '-' and '.' only",
        },
        Rule {
            rule: "!has(self.preHook) || self.preHook.all(hook, !has(hook.when) || hook.when != 'Always')",
            field: ".preHook",
            message: "when: Always is for postHook only: hooks in preHook run while nothing has failed",
        },
    ];
    add(schema, &RULES);
}

/// A reference without a name is empty; older clients write empty references.
pub(super) fn of_reference(schema: &mut Schema) {
    let needs_namespace = Rule {
        // `namespace` is a reserved word of CEL and is escaped with underscores.
        rule: "self.name == '' || self.__namespace__ != ''",
        field: ".namespace",
        message: "a reference with a name needs a namespace",
    };
    add(schema, &[needs_namespace]);
}

/// Adds the rules to the rules of the schema: a flattened schema brings its own.
fn add(schema: &mut Schema, rules: &[Rule]) {
    let mut all = match schema.remove(VALIDATIONS) {
        Some(Value::Array(all)) => all,
        _ => Vec::new(),
    };
    all.extend(
        rules.iter().map(|rule| json!({"rule": rule.rule, "message": rule.message, "fieldPath": rule.field})),
    );
    schema.insert(VALIDATIONS.to_owned(), all.into());
}
