//! Custom resources with objects that may be stored in a version that their definition does not serve.

/// The columns of each definition: its name, the versions that it serves, and those in which objects may be stored.
pub(crate) const COLUMNS: &str = r#"-o jsonpath='{range .items[*]}{.metadata.name}{"\t"}{.spec.versions[?(@.served==true)].name}{"\t"}{.status.storedVersions[*]}{"\n"}{end}'"#;

/// The definitions with such versions, as sentences, from lines of [`COLUMNS`].
pub(crate) fn not_served(lines: &str) -> Vec<String> {
    lines.lines().filter_map(of_definition).collect()
}

fn of_definition(line: &str) -> Option<String> {
    let mut columns = line.split('\t');
    let (name, served, stored) = (columns.next()?, columns.next()?, columns.next()?);
    let served: Vec<&str> = served.split_whitespace().collect();
    let lost: Vec<&str> = stored.split_whitespace().filter(|version| !served.contains(version)).collect();
    let versions = lost.join(", ");
    (!lost.is_empty()).then(|| {
        format!(
            "CustomResourceDefinition {name} does not serve {versions}, in which objects may be stored: write them with a version that it \
             serves, then take {versions} out of its status.storedVersions"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_with_a_stored_version_that_they_do_not_serve_are_named() {
        let lines = "shops.example.com\tv1\tv1alpha1 v1\ncarts.example.com\tv1beta1 v1\tv1beta1 v1\n\
                     old.example.com\t\tv1\nnew.example.com\tv1\t\n\n";
        let found = not_served(lines);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("shops.example.com does not serve v1alpha1, in which"), "{found:?}");
        assert!(found[1].contains("old.example.com does not serve v1, in which"), "{found:?}");
    }
}
