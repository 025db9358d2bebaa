//! The results of loading archives: as text, and as the error of the command.

use std::path::Path;

use kubeon_engine::image_load::{LoadFailure, LoadStep, LoadedArchive};

use crate::cli_error::CliError;
use crate::output::words;

/// The result of an archive in one line.
pub(super) fn text(loaded: &LoadedArchive, dry_run: bool) -> String {
    let done = done(loaded, dry_run);
    if loaded.is_everywhere() {
        return done;
    }
    let failed: Vec<String> = loaded.failed.iter().map(|failure| failure.node.clone()).collect();
    let failed = words::list(&failed);
    if dry_run { format!("{done}; {failed} cannot be reached") } else { format!("{done}; not on {failed}") }
}

fn done(archive: &LoadedArchive, dry_run: bool) -> String {
    let names = match archive.images.as_slice() {
        [] => "an image without a name".to_owned(),
        names => names.join(", "),
    };
    let LoadedArchive { cluster, bytes, loaded, skipped, .. } = archive;
    let (size, had) = (words::size(*bytes), words::list(skipped));
    let nodes = words::count(loaded.len() + skipped.len(), "node");
    match (loaded.is_empty(), skipped.is_empty(), dry_run) {
        (true, true, _) => format!("{names} ({size}) to no node of {cluster}"),
        (true, ..) => format!("{names} is on {nodes} of {cluster} already"),
        (_, true, true) => format!("{names} ({size}) to {nodes} of {cluster}"),
        (_, false, true) => {
            format!("{names} ({size}) to {}; not to {had}, which has it already", words::list(loaded))
        }
        (_, true, false) => format!("{names} is on {nodes} of {cluster} ({size})"),
        (_, false, false) => format!("{names} is on {nodes} of {cluster} ({size}); {had} had it already"),
    }
}

/// A row of an error: the node, and the failed step with its cause.
fn row(failure: &LoadFailure, archive: &Path) -> (String, String) {
    let archive = archive.display();
    let step = match failure.step {
        LoadStep::Query => "listing its images".to_owned(),
        LoadStep::Copy => format!("copying {archive}"),
        LoadStep::Import => format!("importing {archive}"),
    };
    (failure.node.clone(), format!("{step}: {}", failure.cause))
}

/// Ends the command.
///
/// # Errors
/// When an archive failed on a node. The error lists the nodes and the next command.
pub(super) fn end(outcomes: &[LoadedArchive], dry_run: bool, next_command: &str) -> Result<(), CliError> {
    let incomplete: Vec<&LoadedArchive> = outcomes.iter().filter(|loaded| !loaded.is_everywhere()).collect();
    let (what, cluster) = match incomplete.as_slice() {
        [] => return Ok(()),
        [loaded] => (loaded.archive.display().to_string(), &loaded.cluster),
        [first, ..] => {
            (format!("{} of {}", incomplete.len(), words::count(outcomes.len(), "archive")), &first.cluster)
        }
    };
    let verb = if dry_run { "would not" } else { "could not" };
    let mut error = CliError::failed(format!("{what} {verb} be loaded on every node of {cluster}"));
    for loaded in incomplete {
        for failure in &loaded.failed {
            let row = row(failure, &loaded.archive);
            // A node that cannot be reached has the same failure for every archive.
            if !error.rows.contains(&row) {
                error.rows.push(row);
            }
        }
    }
    Err(error.next_command("continue with", next_command))
}

#[cfg(test)]
mod tests {
    use kubeon_engine::error::ErrorCategory;

    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn failure(node: &str, step: LoadStep, cause: &str) -> LoadFailure {
        LoadFailure { node: node.to_owned(), step, cause: cause.to_owned() }
    }

    fn loaded(file: &str, loaded: &[&str], skipped: &[&str], failed: &[LoadFailure]) -> LoadedArchive {
        LoadedArchive {
            cluster: "demo".parse().unwrap(),
            archive: file.into(),
            images: vec!["docker.io/a/b:1".to_owned()],
            bytes: 2 << 20,
            loaded: names(loaded),
            skipped: names(skipped),
            failed: failed.to_vec(),
        }
    }

    fn shown(new: &[&str], had: &[&str], dry_run: bool) -> String {
        text(&loaded("app.tar", new, had, &[]), dry_run)
    }

    #[test]
    fn names_the_skipped_nodes() {
        let all = ["h1", "h2", "h3"];
        assert_eq!(shown(&all, &[], false), "docker.io/a/b:1 is on 3 nodes of demo (2.0 MiB)");
        assert_eq!(shown(&[], &all, false), "docker.io/a/b:1 is on 3 nodes of demo already");
        assert_eq!(
            shown(&all[2..], &all[..2], false),
            "docker.io/a/b:1 is on 3 nodes of demo (2.0 MiB); h1 and h2 had it already"
        );
        assert_eq!(shown(&all, &[], true), "docker.io/a/b:1 (2.0 MiB) to 3 nodes of demo");
        assert_eq!(
            shown(&all[1..], &all[..1], true),
            "docker.io/a/b:1 (2.0 MiB) to h2 and h3; not to h1, which has it already"
        );
    }

    #[test]
    fn names_the_nodes_that_failed() {
        let full = failure("h3", LoadStep::Import, "exit code 1: no space left on device");
        let some = loaded("app.tar", &["h1"], &["h2"], std::slice::from_ref(&full));
        assert_eq!(
            text(&some, false),
            "docker.io/a/b:1 is on 2 nodes of demo (2.0 MiB); h2 had it already; not on h3"
        );
        let none = loaded("app.tar", &[], &[], &[full]);
        assert_eq!(text(&none, false), "docker.io/a/b:1 (2.0 MiB) to no node of demo; not on h3");
        let unreachable =
            loaded("app.tar", &["h1"], &[], &[failure("h3", LoadStep::Query, "connection refused")]);
        assert_eq!(
            text(&unreachable, true),
            "docker.io/a/b:1 (2.0 MiB) to 1 node of demo; h3 cannot be reached"
        );
    }

    #[test]
    fn data_lists_loaded_skipped_and_failed_nodes() {
        let lost = failure("h2", LoadStep::Copy, "connection lost");
        let outcome = loaded("app.tar", &["h1"], &["h3"], &[lost]);
        let wanted = serde_json::json!({
            "cluster": "demo",
            "archive": "app.tar",
            "images": ["docker.io/a/b:1"],
            "bytes": 2 << 20,
            "loaded": ["h1"],
            "skipped": ["h3"],
            "failed": [{"node": "h2", "step": "copy", "cause": "connection lost"}],
        });
        assert_eq!(serde_json::to_value(&outcome).unwrap(), wanted);
        let whole = serde_json::to_value(loaded("app.tar", &["h1"], &[], &[])).unwrap();
        assert_eq!(whole.get("failed"), None, "{whole}");
    }

    #[test]
    fn the_error_lists_node_step_cause_and_next_command() {
        let unreachable = failure("h4", LoadStep::Query, "connection refused");
        let outcomes = [
            loaded(
                "a.tar",
                &["h1", "h2"],
                &[],
                &[unreachable.clone(), failure("h2", LoadStep::Copy, "lost")],
            ),
            loaded(
                "b.tar",
                &["h1", "h2"],
                &["h3"],
                &[unreachable.clone(), failure("h1", LoadStep::Import, "full")],
            ),
            loaded("c.tar", &["h1"], &["h4"], &[]),
        ];
        let error = end(&outcomes, false, "kubeon image load a.tar b.tar c.tar demo").unwrap_err();
        assert_eq!(error.category, ErrorCategory::Failed);
        assert_eq!(
            error.to_string(),
            "error: 2 of 3 archives could not be loaded on every node of demo\n\
             \x20 h4  listing its images: connection refused\n\
             \x20 h2  copying a.tar: lost\n\
             \x20 h1  importing b.tar: full\n\
             continue with: kubeon image load a.tar b.tar c.tar demo\n"
        );
        let one = end(&[loaded("a.tar", &["h1"], &[], &[unreachable])], true, "kubeon image load a.tar");
        assert_eq!(one.unwrap_err().title, "a.tar would not be loaded on every node of demo");
        assert_eq!(end(&outcomes[2..], false, ""), Ok(()));
    }
}
