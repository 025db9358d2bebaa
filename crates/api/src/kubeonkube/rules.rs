//! The rules that an API server evaluates before it takes an object: CEL, as for a `KubernetesCluster`.
//!
//! They refuse what could only wait for ever, or what would mean nothing. What contract A takes in and lets end as `Failed`
//! (an `actionType`, a playbook or an image that nobody knows: its cases 9, 10 and 19) is no rule: the operator says that, in
//! the status.

use schemars::Schema;
use serde_json::{Value, json};

/// Where an API server looks for rules.
const VALIDATIONS: &str = "x-kubernetes-validations";

/// A rule, the field that it is about, and what it says when it is broken.
struct Rule {
    holds: &'static str,
    field: &'static str,
    message: &'static str,
}

/// Contract A, case 35, for the action of an operation and of a hook. Keys of a ConfigMap are file names, so any other one
/// would never be found.
pub(super) fn of_action(schema: &mut Schema) {
    const FROM_A_MAP: [Rule; 2] = [
        Rule {
            holds: "!has(self.actionSource) || self.actionSource != 'configmap' || \
                    (has(self.actionSourceRef) && self.actionSourceRef.name != '')",
            field: ".actionSourceRef",
            message: "actionSourceRef must be specified if actionSource set as configmap",
        },
        Rule {
            // An API server multiplies the length of the pattern by that of all that it might be held against.
            holds: "!has(self.actionSource) || self.actionSource != 'configmap' || \
                    self.action.matches('^\\\\s*[-.\\\\w]+\\\\s*$')",
            field: ".action",
            message: "what comes from a configmap is a file name: letters, digits, '.', '_' and '-' only",
        },
    ];
    add(schema, &FROM_A_MAP);
}

/// A hook is no operation: kubeon itself is not run as one.
pub(super) fn of_hook(schema: &mut Schema) {
    let what = Rule {
        holds: "self.actionType in ['playbook', 'shell']",
        field: ".actionType",
        message: "unknown action type of a hook, the currently supported ranges include: [playbook shell]",
    };
    add(schema, &[what]);
}

/// What is true of an operation beyond its action.
pub(super) fn of_operation(schema: &mut Schema) {
    const RULES: [Rule; 2] = [
        Rule {
            // That it is empty is for admission to say: contract A, case 43.
            holds: "self.cluster == '' || self.cluster.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",
            field: ".cluster",
            message: "no Cluster can be called so: lower-case letters, digits, '-' and '.' only",
        },
        Rule {
            holds: "!has(self.preHook) || self.preHook.all(hook, !has(hook.when) || hook.when != 'Always')",
            field: ".preHook",
            message: "when: Always is for postHook: what runs before the action runs while nothing has failed",
        },
    ];
    add(schema, &RULES);
}

/// Without a name it refers to nothing, as older clients write it.
pub(super) fn of_reference(schema: &mut Schema) {
    let whole = Rule {
        // A word of CEL itself is written so.
        holds: "self.name == '' || self.__namespace__ != ''",
        field: ".namespace",
        message: "a reference with a name needs a namespace",
    };
    add(schema, &[whole]);
}

/// Puts the rules beside those that are there already: a schema that takes another one in has that one's too.
fn add(schema: &mut Schema, rules: &[Rule]) {
    let mut all = match schema.remove(VALIDATIONS) {
        Some(Value::Array(all)) => all,
        _ => Vec::new(),
    };
    all.extend(
        rules
            .iter()
            .map(|rule| json!({"rule": rule.holds, "message": rule.message, "fieldPath": rule.field})),
    );
    schema.insert(VALIDATIONS.to_owned(), all.into());
}
