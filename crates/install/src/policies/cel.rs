//! Fragments of CEL expressions.

use crate::{InstallOptions, names};

/// An annotation of `object` or `oldObject`; empty when it is absent.
pub(crate) fn annotation(object: &str, name: &str) -> String {
    format!("{object}.metadata.?annotations[?{}].orValue('')", cel_text(name))
}

/// An annotation of the old object; empty when the object is new.
pub(super) fn annotation_before(name: &str) -> String {
    format!("oldObject == null ? '' : {}", annotation("oldObject", name))
}

/// Whether these parts of an object are as before its change; each with the value that stands for an absent one.
pub(super) fn same_as_before(parts: &[(&str, &str)]) -> String {
    let same = |(path, none): &(&str, &str)| {
        format!("object.{path}.orValue({none}) == oldObject.{path}.orValue({none})")
    };
    parts.iter().map(same).collect::<Vec<_>>().join(" && ")
}

/// A CEL list of texts.
pub(crate) fn cel_list<S: AsRef<str>>(texts: &[S]) -> String {
    format!("[{}]", texts.iter().map(|text| cel_text(text.as_ref())).collect::<Vec<_>>().join(", "))
}

/// Whether a request is by the operator, or by another user with its rights. Nobody can give the verb of its role to another
/// service account without having it.
pub(crate) fn by_the_operator(options: &InstallOptions) -> String {
    if !options.is_movable {
        return format!("request.userInfo.username in {}", cel_list(&options.operator_users()));
    }
    let own = format!(
        "request.userInfo.username.startsWith('system:serviceaccount:') && \
         request.userInfo.username.endsWith(':{}') && \
         authorizer.group('kubeonkube.clay.io').resource('clusters').check('{}').allowed()",
        names::OPERATOR,
        names::OPERATE
    );
    if options.operators.is_empty() {
        return format!("({own})");
    }
    format!("({own} || request.userInfo.username in {})", cel_list(&options.operators))
}

/// A CEL text literal.
pub(super) fn cel_text(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}
