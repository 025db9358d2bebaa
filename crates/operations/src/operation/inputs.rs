//! The inputs of an operation: its references, whether they exist, and their content.

use std::collections::BTreeMap;

use kubeon_api::kubeonkube::{Action, ActionSource, ActionType, ClusterOperationSpec};
use kubeon_api::{Cluster, ClusterOperation, DataRef, PrivateKey};

use super::wait::Wait;
use crate::view::{Data, StartPermission, View};
use crate::write::{NeedsReads, ObjectKind, ObjectRef};

/// The most bytes of script, inventory and variables together. A ConfigMap holds 1 MiB with its metadata.
const MOST: usize = 1_000_000;
/// The key of the SSH key in the Secret.
pub(crate) const KEY: &str = "ssh-privatekey";

/// The references of an operation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct References {
    pub hosts: DataRef,
    pub vars: DataRef,
    pub ssh: Option<DataRef>,
    pub script: Option<DataRef>,
    /// ConfigMap, key, and the path of the file in the Job's pod.
    pub sources: Vec<(DataRef, String, String)>,
}

/// Why an operation does not start now.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Obstacle {
    /// It waits for this condition.
    Wait(Wait),
    /// It can never start: a reason in CamelCase, and a message for the user.
    Refuse(&'static str, String),
    /// These objects must be read first.
    Read(NeedsReads),
}

impl From<NeedsReads> for Obstacle {
    fn from(reads: NeedsReads) -> Self {
        Self::Read(reads)
    }
}

/// The content of the referenced objects.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Inputs {
    /// `hosts.yml`, `group_vars.yml`, `entrypoint.sh` and the files of actions.
    pub files: BTreeMap<String, String>,
    /// The key's Secret: values and type.
    pub key: Option<(BTreeMap<String, Vec<u8>>, String)>,
}

/// Waits while as many operations as the limit allows run.
pub(crate) fn check_place(s: &View<'_>) -> Result<(), Obstacle> {
    match &s.start {
        StartPermission::Now => Ok(()),
        StartPermission::Later { limit, before, region } => {
            Err(Obstacle::Wait(Wait::Place { limit: *limit, before: *before, region: region.clone() }))
        }
    }
}

fn own_or_default<'r>(own: Option<&'r DataRef>, other: Option<&'r DataRef>) -> Option<&'r DataRef> {
    own.filter(|own| !own.is_empty()).or(other.filter(|other| !other.is_empty()))
}

/// The main action and the actions of the hooks.
pub(crate) fn actions(spec: &ClusterOperationSpec) -> impl Iterator<Item = &Action> {
    let hooks = spec.pre_hook.iter().chain(&spec.post_hook).map(|hook| &hook.what);
    std::iter::once(&spec.main).chain(hooks)
}

/// The references of the operation; a missing reference is taken from the Cluster. Contract A, cases 23 and
/// 24.
pub(crate) fn references(operation: &ClusterOperation, cluster: &Cluster) -> Result<References, Obstacle> {
    let (spec, cluster_spec) = (&operation.spec, &cluster.spec);
    let missing = |what: &str| Obstacle::Wait(Wait::Missing(format!("{what} is empty")));
    let hosts = own_or_default(spec.hosts_conf_ref.as_ref(), Some(&cluster_spec.hosts_conf_ref))
        .ok_or_else(|| missing("hostsConfRef"))?;
    let vars = own_or_default(spec.vars_conf_ref.as_ref(), Some(&cluster_spec.vars_conf_ref))
        .ok_or_else(|| missing("varsConfRef"))?;
    let ssh = own_or_default(spec.ssh_auth_ref.as_ref(), cluster_spec.ssh_auth_ref.as_ref());
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

    /// The referenced objects.
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

    /// Reads the content, or returns why it cannot be used yet.
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
            take("actionSourceRef", source, key, copy_key(path))?;
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

/// The key of the file `path` in the copied ConfigMap.
pub(crate) fn copy_key(path: &str) -> String {
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
