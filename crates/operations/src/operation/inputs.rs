//! What an operation reads: which objects, whether they are there, their content.

use std::collections::BTreeMap;

use kubeon_api::kubeonkube::{Action, ActionSource, ActionType, ClusterOperationSpec};
use kubeon_api::{Cluster, ClusterOperation, DataRef, PrivateKey};

use super::wait::Wait;
use crate::view::{Data, View};
use crate::write::{NeedsReads, ObjectKind, ObjectRef};

/// Bytes of script, inventory and variables together; a ConfigMap takes 1 MiB with its metadata.
const MOST: usize = 1_000_000;
/// The Secret's key that is an SSH key.
pub(crate) const KEY: &str = "ssh-privatekey";

/// What an operation refers to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct References {
    pub hosts: DataRef,
    pub vars: DataRef,
    pub ssh: Option<DataRef>,
    pub script: Option<DataRef>,
    /// ConfigMap, key and the path where its content is wanted.
    pub sources: Vec<(DataRef, String, String)>,
}

/// Why an operation does not start now.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Obstacle {
    /// It waits for this.
    Wait(Wait),
    /// It can never start: one word in CamelCase, and a text for a person.
    Refuse(&'static str, String),
    /// These objects must be read first.
    Read(NeedsReads),
}

impl From<NeedsReads> for Obstacle {
    fn from(reads: NeedsReads) -> Self {
        Self::Read(reads)
    }
}

/// The content of what it refers to.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Inputs {
    /// `hosts.yml`, `group_vars.yml`, `entrypoint.sh` and what actions bring along.
    pub files: BTreeMap<String, String>,
    /// The key's Secret: values and type.
    pub key: Option<(BTreeMap<String, Vec<u8>>, String)>,
}

fn given<'r>(own: Option<&'r DataRef>, other: Option<&'r DataRef>) -> Option<&'r DataRef> {
    own.filter(|own| !own.is_empty()).or(other.filter(|other| !other.is_empty()))
}

/// The action and those of the hooks.
pub(crate) fn actions(spec: &ClusterOperationSpec) -> impl Iterator<Item = &Action> {
    let hooks = spec.pre_hook.iter().chain(&spec.post_hook).map(|hook| &hook.what);
    std::iter::once(&spec.main).chain(hooks)
}

/// What the operation refers to, with the Cluster's references where it has none of its own. Contract A, cases 23 and 24.
pub(crate) fn references(operation: &ClusterOperation, cluster: &Cluster) -> Result<References, Obstacle> {
    let (spec, theirs) = (&operation.spec, &cluster.spec);
    let missing = |what: &str| Obstacle::Wait(Wait::Missing(format!("{what} is empty")));
    let hosts = given(spec.hosts_conf_ref.as_ref(), Some(&theirs.hosts_conf_ref))
        .ok_or_else(|| missing("hostsConfRef"))?;
    let vars = given(spec.vars_conf_ref.as_ref(), Some(&theirs.vars_conf_ref))
        .ok_or_else(|| missing("varsConfRef"))?;
    let ssh = given(spec.ssh_auth_ref.as_ref(), theirs.ssh_auth_ref.as_ref());
    if [Some(vars), ssh].into_iter().flatten().any(|other| other.namespace != hosts.namespace) {
        let text = "hostsConfRef varsConfRef or sshAuthRef not in the same namespace";
        return Err(Obstacle::Refuse("DifferentNamespaces", text.to_owned()));
    }
    let mut sources: Vec<(DataRef, String, String)> = Vec::new();
    for action in
        actions(&operation.spec).filter(|action| action.action_source == Some(ActionSource::Configmap))
    {
        let Some(reference) = action.action_source_ref.clone() else { continue };
        let file = action.action.trim().to_owned();
        let folder = if action.action_type == ActionType::Shell { "/bin" } else { "/kubespray" };
        let path = format!("{folder}/{file}");
        match sources.iter().find(|(_, _, other)| *other == path) {
            Some((same, _, _)) if *same == reference => {}
            Some((other, _, _)) => {
                let text = format!("{path} would come from both {other} and {reference}");
                return Err(Obstacle::Refuse("TwoSources", text));
            }
            None => sources.push((reference, file, path)),
        }
    }
    Ok(References {
        hosts: hosts.clone(),
        vars: vars.clone(),
        ssh: ssh.cloned(),
        script: spec.entrypoint_sh_ref.clone().filter(|reference| !reference.is_empty()),
        sources,
    })
}

impl References {
    fn named(&self) -> Vec<(&'static str, ObjectKind, &DataRef)> {
        let mut all = vec![
            ("hostsConfRef", ObjectKind::ConfigMap, &self.hosts),
            ("varsConfRef", ObjectKind::ConfigMap, &self.vars),
        ];
        all.extend(self.ssh.iter().map(|ssh| ("sshAuthRef", ObjectKind::Secret, ssh)));
        all.extend(self.script.iter().map(|script| ("entrypointSHRef", ObjectKind::ConfigMap, script)));
        all.extend(
            self.sources.iter().map(|(source, _, _)| ("actionSourceRef", ObjectKind::ConfigMap, source)),
        );
        all
    }

    /// The objects themselves.
    pub(crate) fn targets(&self) -> Vec<ObjectRef> {
        let mut targets: Vec<ObjectRef> = self
            .named()
            .into_iter()
            .map(|(_, kind, at)| ObjectRef::new(kind, &at.namespace, &at.name))
            .collect();
        targets.sort();
        targets.dedup();
        targets
    }

    /// Their content, or why it cannot be used yet.
    pub(crate) fn read(&self, s: &View<'_>) -> Result<Inputs, Obstacle> {
        let missing = |text: String| Obstacle::Wait(Wait::Missing(text));
        for (what, kind, at) in self.named() {
            if let Some(text) = s.settings.unwatched(at) {
                return Err(missing(format!("{what} {text}")));
            }
            if s.objects.meta(&ObjectRef::new(kind, &at.namespace, &at.name)).is_none() {
                return Err(missing(format!("{what} {at} not found")));
            }
        }
        s.all_read(self.targets())?;
        let mut inputs = Inputs::default();
        let mut take = |what, at: &DataRef, key: &str, name: String| {
            text(s, what, at, key).map(|text| inputs.files.insert(name, text))
        };
        take("hostsConfRef", &self.hosts, "hosts.yml", "hosts.yml".to_owned())?;
        take("varsConfRef", &self.vars, "group_vars.yml", "group_vars.yml".to_owned())?;
        if let Some(script) = &self.script {
            take("entrypointSHRef", script, "entrypoint.sh", "entrypoint.sh".to_owned())?;
        }
        for (source, key, path) in &self.sources {
            take("actionSourceRef", source, key, kept_as(path))?;
        }
        let bytes: usize = inputs.files.values().map(String::len).sum();
        if bytes > MOST {
            let text = format!(
                "inventory, variables and scripts together have {bytes} bytes; {MOST} fit into their copy"
            );
            return Err(Obstacle::Refuse("TooLarge", text));
        }
        inputs.key = self.ssh.as_ref().map(|ssh| key(s, ssh)).transpose()?;
        Ok(inputs)
    }
}

/// The key in the copy under which a file for `path` is kept.
pub(crate) fn kept_as(path: &str) -> String {
    path.trim_start_matches('/').replace('/', ".")
}

fn values<'d>(
    s: &'d View<'_>,
    what: &str,
    kind: ObjectKind,
    at: &DataRef,
) -> Result<(&'d BTreeMap<String, Vec<u8>>, &'d str), Obstacle> {
    let missing = |text: String| Obstacle::Wait(Wait::Missing(text));
    match s.data_of(&ObjectRef::new(kind, &at.namespace, &at.name))? {
        Data::Values { values, kind } => Ok((values, kind)),
        Data::Denied(why) => Err(missing(format!("{what} {at} cannot be read: {why}"))),
        _ => Err(missing(format!("{what} {at} not found"))),
    }
}

fn text(s: &View<'_>, what: &str, at: &DataRef, key: &str) -> Result<String, Obstacle> {
    let (values, _) = values(s, what, ObjectKind::ConfigMap, at)?;
    let found = values
        .get(key)
        .ok_or_else(|| Obstacle::Wait(Wait::Missing(format!("{what} {at} has no key {key}"))))?;
    String::from_utf8(found.clone())
        .map_err(|_| Obstacle::Refuse("NoText", format!("{key} of {what} {at} is not text")))
}

fn key(s: &View<'_>, at: &DataRef) -> Result<(BTreeMap<String, Vec<u8>>, String), Obstacle> {
    let (values, kind) = values(s, "sshAuthRef", ObjectKind::Secret, at)?;
    let found = values
        .get(KEY)
        .ok_or_else(|| Obstacle::Wait(Wait::Missing(format!("sshAuthRef {at} has no key {KEY}"))))?;
    let parsed = std::str::from_utf8(found).ok().map(str::parse::<PrivateKey>);
    match parsed {
        Some(Ok(_)) => Ok((values.clone(), kind.to_owned())),
        Some(Err(error)) => Err(Obstacle::Refuse("NoKey", format!("{KEY} of sshAuthRef {at}: {error}"))),
        None => Err(Obstacle::Refuse("NoKey", format!("{KEY} of sshAuthRef {at} is not text"))),
    }
}
