//! What became of archives: for people, for programs, and as the end of the command.

use std::path::{Path, PathBuf};

use kubeon_api::ClusterName;
use kubeon_bundle::image::ImageArchive;
use serde::Serialize;

use crate::cli_error::CliError;
use crate::output::words;

/// What became of one archive.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Loaded {
    cluster: ClusterName,
    archive: PathBuf,
    /// Its images, by name.
    pub images: Vec<String>,
    bytes: u64,
    /// ClusterNodes that it was imported on; with `--dry-run`, would be.
    loaded: Vec<String>,
    /// ClusterNodes that had it.
    skipped: Vec<String>,
    /// ClusterNodes that it did not get to, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failed: Vec<LoadFailure>,
}

/// A node that an archive did not get to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LoadFailure {
    /// The node.
    pub node: String,
    /// What failed on it.
    pub step: LoadStep,
    /// Why, in its own words.
    pub cause: String,
}

/// What is done on a node, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum LoadStep {
    /// What have you?
    Ask,
    /// The archive is brought.
    Copy,
    /// The runtime takes it.
    Import,
}

impl LoadFailure {
    /// For people: the node, and what could not be done.
    fn row(&self, archive: &Path) -> (String, String) {
        let archive = archive.display();
        let step = match self.step {
            LoadStep::Ask => "asking what it has".to_owned(),
            LoadStep::Copy => format!("copying {archive}"),
            LoadStep::Import => format!("importing {archive}"),
        };
        (self.node.clone(), format!("{step}: {}", self.cause))
    }
}

impl Loaded {
    /// An archive that some nodes had and others lacked. It got to those that no failure names.
    pub(super) fn of(
        cluster: &ClusterName,
        (file, archive): (&Path, &ImageArchive),
        had: Vec<String>,
        mut lacked: Vec<String>,
        failed: Vec<LoadFailure>,
    ) -> Self {
        lacked.retain(|name| !failed.iter().any(|failure| failure.node == *name));
        Self {
            cluster: cluster.clone(),
            archive: file.to_owned(),
            images: archive.names.clone(),
            bytes: archive.size,
            loaded: lacked,
            skipped: had,
            failed,
        }
    }

    /// Whether every node has it now.
    pub(super) fn is_everywhere(&self) -> bool {
        self.failed.is_empty()
    }

    /// In one line.
    pub(super) fn text(&self, dry_run: bool) -> String {
        let done = self.done(dry_run);
        if self.is_everywhere() {
            return done;
        }
        let failed: Vec<String> = self.failed.iter().map(|failure| failure.node.clone()).collect();
        let failed = words::list(&failed);
        if dry_run { format!("{done}; {failed} cannot be asked") } else { format!("{done}; not on {failed}") }
    }

    fn done(&self, dry_run: bool) -> String {
        let names = match self.images.as_slice() {
            [] => "an image without a name".to_owned(),
            names => names.join(", "),
        };
        let (cluster, size) = (&self.cluster, words::size(self.bytes));
        let nodes = self.loaded.len() + self.skipped.len();
        let had = words::list(&self.skipped);
        match (self.loaded.is_empty(), self.skipped.is_empty(), dry_run) {
            (true, true, _) => format!("{names} ({size}) to no node of {cluster}"),
            (true, ..) => format!("{names} is on {} of {cluster} already", words::count(nodes, "node")),
            (_, true, true) => format!("{names} ({size}) to {} of {cluster}", words::count(nodes, "node")),
            (_, false, true) => {
                format!("{names} ({size}) to {}; not to {had}, which had it", words::list(&self.loaded))
            }
            (_, true, false) => {
                format!("{names} is on {} of {cluster} ({size})", words::count(nodes, "node"))
            }
            (_, false, false) => format!(
                "{names} is on {} of {cluster} ({size}); {had} had it already",
                words::count(nodes, "node")
            ),
        }
    }
}

/// How the command ends: with every node that an archive did not get to, and what to type then.
///
/// # Errors
/// When there is such a node.
pub(super) fn end(told: &[Loaded], dry_run: bool, again: &str) -> Result<(), CliError> {
    let missed: Vec<&Loaded> = told.iter().filter(|loaded| !loaded.is_everywhere()).collect();
    let (what, cluster) = match missed.as_slice() {
        [] => return Ok(()),
        [one] => (one.archive.display().to_string(), &one.cluster),
        [first, ..] => {
            (format!("{} of {}", missed.len(), words::count(told.len(), "archive")), &first.cluster)
        }
    };
    let did = if dry_run { "would not" } else { "did not" };
    let mut stop = CliError::failed(format!("{what} {did} get to every node of {cluster}"));
    for loaded in missed {
        for failure in &loaded.failed {
            let row = failure.row(&loaded.archive);
            // A node that cannot be asked misses every archive for the same reason.
            if !stop.rows.contains(&row) {
                stop.rows.push(row);
            }
        }
    }
    Err(stop.hint(format!("continue with: {again}")))
}

#[cfg(test)]
mod tests {
    use kubeon_bundle::image::ArchiveFormat;

    use super::*;
    use kubeon_engine::error::ErrorCategory;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn failure(node: &str, step: LoadStep, cause: &str) -> LoadFailure {
        LoadFailure { node: node.to_owned(), step, cause: cause.to_owned() }
    }

    fn loaded(file: &str, lacked: &[&str], had: &[&str], failed: &[LoadFailure]) -> Loaded {
        let archive = ImageArchive {
            format: ArchiveFormat::Oci,
            names: vec!["docker.io/a/b:1".to_owned()],
            images: Vec::new(),
            digest: "0".repeat(64).parse().unwrap(),
            size: 2 << 20,
        };
        let cluster = "demo".parse().unwrap();
        Loaded::of(&cluster, (Path::new(file), &archive), names(had), names(lacked), failed.to_vec())
    }

    fn said(lacked: &[&str], had: &[&str], dry_run: bool) -> String {
        loaded("app.tar", lacked, had, &[]).text(dry_run)
    }

    #[test]
    fn says_who_was_skipped() {
        let all = ["h1", "h2", "h3"];
        assert_eq!(said(&all, &[], false), "docker.io/a/b:1 is on 3 nodes of demo (2.0 MiB)");
        assert_eq!(said(&[], &all, false), "docker.io/a/b:1 is on 3 nodes of demo already");
        assert_eq!(
            said(&all[2..], &all[..2], false),
            "docker.io/a/b:1 is on 3 nodes of demo (2.0 MiB); h1 and h2 had it already"
        );
        assert_eq!(said(&all, &[], true), "docker.io/a/b:1 (2.0 MiB) to 3 nodes of demo");
        assert_eq!(
            said(&all[1..], &all[..1], true),
            "docker.io/a/b:1 (2.0 MiB) to h2 and h3; not to h1, which had it"
        );
    }

    #[test]
    fn says_which_nodes_it_did_not_get_to() {
        let full = failure("h3", LoadStep::Import, "exit code 1: no space left on device");
        let some = loaded("app.tar", &["h1", "h3"], &["h2"], std::slice::from_ref(&full));
        assert_eq!(
            some.text(false),
            "docker.io/a/b:1 is on 2 nodes of demo (2.0 MiB); h2 had it already; not on h3"
        );
        let none = loaded("app.tar", &["h3"], &[], &[full]);
        assert_eq!(none.text(false), "docker.io/a/b:1 (2.0 MiB) to no node of demo; not on h3");
        let unasked = loaded("app.tar", &["h1"], &[], &[failure("h3", LoadStep::Ask, "connection refused")]);
        assert_eq!(unasked.text(true), "docker.io/a/b:1 (2.0 MiB) to 1 node of demo; h3 cannot be asked");
    }

    #[test]
    fn programs_are_told_archive_by_archive_where_it_is_and_where_not() {
        let lost = failure("h2", LoadStep::Copy, "connection lost");
        let told = loaded("app.tar", &["h1", "h2"], &["h3"], &[lost]);
        let wanted = serde_json::json!({
            "cluster": "demo",
            "archive": "app.tar",
            "images": ["docker.io/a/b:1"],
            "bytes": 2 << 20,
            "loaded": ["h1"],
            "skipped": ["h3"],
            "failed": [{"node": "h2", "step": "copy", "cause": "connection lost"}],
        });
        assert_eq!(serde_json::to_value(&told).unwrap(), wanted);
        let whole = serde_json::to_value(loaded("app.tar", &["h1"], &[], &[])).unwrap();
        assert_eq!(whole.get("failed"), None, "{whole}");
    }

    #[test]
    fn ends_with_every_node_step_and_cause_and_the_command_that_goes_on() {
        let unasked = failure("h4", LoadStep::Ask, "connection refused");
        let told = [
            loaded("a.tar", &["h1", "h2"], &[], &[unasked.clone(), failure("h2", LoadStep::Copy, "lost")]),
            loaded(
                "b.tar",
                &["h1", "h2"],
                &["h3"],
                &[unasked.clone(), failure("h1", LoadStep::Import, "full")],
            ),
            loaded("c.tar", &["h1"], &["h4"], &[]),
        ];
        let stop = end(&told, false, "kubeon image load a.tar b.tar c.tar demo").unwrap_err();
        assert_eq!(stop.category, ErrorCategory::Failed);
        assert_eq!(
            stop.to_string(),
            "error: 2 of 3 archives did not get to every node of demo\n\
             \x20 h4  asking what it has: connection refused\n\
             \x20 h2  copying a.tar: lost\n\
             \x20 h1  importing b.tar: full\n\
             continue with: kubeon image load a.tar b.tar c.tar demo\n"
        );
        let one = end(&[loaded("a.tar", &["h1"], &[], &[unasked])], true, "kubeon image load a.tar");
        assert_eq!(one.unwrap_err().title, "a.tar would not get to every node of demo");
        assert_eq!(end(&told[2..], false, ""), Ok(()));
    }
}
