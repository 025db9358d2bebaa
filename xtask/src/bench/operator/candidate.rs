//! An operator to measure, described by a folder.
//!
//! ```text
//!   DIR/peer.toml                the fields of `Description`
//!   DIR/operator                 the program, or a script that ends in `exec program "$@"`
//!   DIR/crds/*.yaml              applied before it starts
//!   DIR/templates/{cluster,hosts,vars,key,operation}.yaml
//! ```
//!
//! Templates may contain `{{name}}`, `{{namespace}}`, `{{key}}` (a private key, in base64) and, in an
//! operation, `{{cluster}}`. Arguments and environment may contain `{{kubeconfig}}` (a file),
//! `{{serviceaccount}}` (a folder with token, ca.crt and namespace, as in a Pod), `{{host}}`, `{{port}}` and
//! `{{namespace}}`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::api::DynamicObject;
use serde::Deserialize;

/// `peer.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    /// Its name in the tables.
    name: String,
    /// The program, relative to the folder.
    #[serde(default = "operator")]
    operator: PathBuf,
    /// The custom resource definitions, relative to the folder.
    #[serde(default = "crds")]
    crds: PathBuf,
    /// The namespace of the operator and its Jobs.
    namespace: String,
    /// Its command-line arguments.
    #[serde(default)]
    arguments: Vec<String>,
    /// Additional environment variables.
    #[serde(default)]
    environment: BTreeMap<String, String>,
    /// The name of an operation's Job.
    job: String,
    /// JSON pointer to a field that a Cluster has after it was reconciled.
    reconciled: Option<String>,
    /// Whether the objects that a Cluster refers to get owner references. It is reconciled when they have them.
    #[serde(default = "yes")]
    owns_references: bool,
    /// JSON pointer to an operation's status.
    #[serde(default = "status")]
    status: String,
    /// The status of a successful operation.
    #[serde(default = "succeeded")]
    succeeded: String,
}

fn operator() -> PathBuf {
    "operator".into()
}

fn yes() -> bool {
    true
}

fn crds() -> PathBuf {
    "crds".into()
}

fn status() -> String {
    "/status/status".into()
}

fn succeeded() -> String {
    "Succeeded".into()
}

/// An operator to measure.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) name: String,
    pub(super) program: PathBuf,
    pub(super) crds: PathBuf,
    pub(super) namespace: String,
    pub(super) arguments: Vec<String>,
    pub(super) environment: BTreeMap<String, String>,
    job: (String, String),
    pub(super) reconciled: Option<String>,
    pub(super) owns_references: bool,
    pub(super) status: String,
    pub(super) succeeded: String,
    cluster: String,
    references: [String; 3],
    operation: String,
    key: String,
}

impl Candidate {
    /// Reads a folder.
    pub(super) fn load(folder: &Path) -> Result<Self> {
        Self::load_with(folder, None)
    }

    /// Reads a folder. `program` replaces the program that the folder names.
    pub(super) fn load_with(folder: &Path, program: Option<&Path>) -> Result<Self> {
        let path = folder.join("peer.toml");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let description: Description = toml::from_str(&text).with_context(|| path.display().to_string())?;
        let template = |name: &str| {
            let path = folder.join("templates").join(format!("{name}.yaml"));
            fs::read_to_string(&path).with_context(|| path.display().to_string())
        };
        let program = program.map_or_else(|| folder.join(&description.operator), Path::to_owned);
        ensure!(program.is_file(), "{} is missing: build it first", program.display());
        let job = description.job.split_once("{{name}}").context("job: {{name}} is missing")?;
        Ok(Self {
            job: (job.0.to_owned(), job.1.to_owned()),
            program: program.canonicalize()?,
            crds: folder.join(&description.crds),
            cluster: template("cluster")?,
            references: [template("hosts")?, template("vars")?, template("key")?],
            operation: template("operation")?,
            key: STANDARD.encode(private_key()?),
            name: description.name,
            namespace: description.namespace,
            arguments: description.arguments,
            environment: description.environment,
            reconciled: description.reconciled,
            owns_references: description.owns_references,
            status: description.status,
            succeeded: description.succeeded,
        })
    }

    /// A Cluster.
    pub(super) fn cluster(&self, name: &str) -> Result<DynamicObject> {
        self.render(&self.cluster, name, "")
    }

    /// The three objects that a Cluster refers to.
    pub(super) fn references(&self, name: &str) -> Result<Vec<DynamicObject>> {
        self.references.iter().map(|template| self.render(template, name, "")).collect()
    }

    /// An operation of a cluster.
    pub(super) fn operation(&self, name: &str, cluster: &str) -> Result<DynamicObject> {
        self.render(&self.operation, name, cluster)
    }

    /// The operation that a Job with this name belongs to.
    pub(super) fn operation_of(&self, job: &str) -> Option<String> {
        let name = job.strip_prefix(&self.job.0)?.strip_suffix(&self.job.1)?;
        (!name.is_empty()).then(|| name.to_owned())
    }

    fn render(&self, template: &str, name: &str, cluster: &str) -> Result<DynamicObject> {
        let values = [
            ("name", name),
            ("namespace", self.namespace.as_str()),
            ("cluster", cluster),
            ("key", &self.key),
        ];
        let text = fill(template, &values);
        serde_saphyr::from_str(&text).with_context(|| format!("a template of {}: {text}", self.name))
    }
}

/// An unused SSH key, because operators may check that it is valid.
fn private_key() -> Result<Vec<u8>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("key");
    let mut keygen = Command::new("ssh-keygen");
    keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", "bench", "-f"]).arg(&file);
    ensure!(keygen.status().context("cannot start ssh-keygen")?.success(), "ssh-keygen failed");
    Ok(fs::read(file)?)
}

/// Replaces each `{{key}}` by its value.
pub(super) fn fill(template: &str, values: &[(&str, &str)]) -> String {
    values
        .iter()
        .fold(template.to_owned(), |text, (key, value)| text.replace(&format!("{{{{{key}}}}}"), value))
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt as _;

    use super::*;

    fn peer() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        fs::create_dir(folder.path().join("templates")).unwrap();
        write("operator", "");
        write("peer.toml", "name = 'a'\nnamespace = 'ns'\njob = 'x-{{name}}-job'\n");
        for name in ["cluster", "hosts", "vars", "key", "operation"] {
            let text = format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: '{{{{name}}}}-{name}', namespace: '{{{{namespace}}}}' }}\n"
            );
            write(&format!("templates/{name}.yaml"), &text);
        }
        folder
    }

    #[test]
    fn is_read_from_a_folder() {
        let folder = peer();
        let candidate = Candidate::load(folder.path()).unwrap();
        let hosts = &candidate.references("c1").unwrap()[0];
        assert_eq!((hosts.name_any().as_str(), hosts.namespace().as_deref()), ("c1-hosts", Some("ns")));
        assert_eq!(candidate.operation_of("x-op-1-job").as_deref(), Some("op-1"));
        assert_eq!(candidate.operation_of("y-op-1-job"), None);
    }

    #[test]
    fn reports_a_missing_program() {
        let folder = peer();
        fs::remove_file(folder.path().join("operator")).unwrap();
        assert!(Candidate::load(folder.path()).unwrap_err().to_string().contains("build it first"));
    }

    #[test]
    fn the_description_of_kubeons_operator_is_valid() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("bench/operator/kubeon");
        let text = fs::read_to_string(folder.join("peer.toml")).unwrap();
        let own: Description = toml::from_str(&text).unwrap();
        assert!(folder.join(own.crds).is_dir());
    }
}
