//! Fragments of CEL expressions.

/// An annotation of `object` or `oldObject`; empty when it is absent.
pub(crate) fn annotation(object: &str, name: &str) -> String {
    format!("{object}.metadata.?annotations[?{}].orValue('')", cel_text(name))
}

/// An annotation of the old object; empty when the object is new.
pub(super) fn annotation_before(name: &str) -> String {
    format!("oldObject == null ? '' : {}", annotation("oldObject", name))
}

/// A CEL list of texts.
pub(crate) fn cel_list<S: AsRef<str>>(texts: &[S]) -> String {
    format!("[{}]", texts.iter().map(|text| cel_text(text.as_ref())).collect::<Vec<_>>().join(", "))
}

/// A CEL text literal.
pub(super) fn cel_text(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}
