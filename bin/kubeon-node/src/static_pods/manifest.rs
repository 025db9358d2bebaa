//! The manifest of a static pod.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::time::{Instant, SystemTime};

use kubeon_process::ProgramRun;
use kubeon_wire::{StaticPod, StepFailure, program_of_unit};

use crate::command::step_failure;
use crate::durable::{lstat, make_folders, read_text, sha256, write_file};
use crate::failure::{Doing, failed};
use crate::paths;
use crate::root::Root;
use crate::units;

/// Folders with certificate authorities. kubeadm lets a pod see those that exist, because links in `/etc/ssl/certs` may point into
/// them.
const AUTHORITIES: [&str; 5] = [
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/ca-certificates",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
];
/// The configuration of kubeadm in the folder that is its root.
const CONFIGURATION: &str = "/kubeadm.yaml";
/// The line of a manifest after which the identity stands.
const METADATA: &str = "metadata:";
const UID_BEGIN: &str = "  uid: \"";
/// Digits of an identity: as many as in those that a kubelet computes.
const UID_DIGITS: usize = 32;

/// Makes the manifest of a unit. It has no identity yet.
///
/// # Errors
/// If the unit has no text, or kubeadm fails.
pub(super) fn make(root: &Root, unit: &str, deadline: Instant) -> Result<String, StepFailure> {
    let text = read_text(&units::file(root, unit))?;
    let text = text.ok_or_else(|| failed(format!("{unit} has no unit file")))?;
    let pod: StaticPod = serde_json::from_str(&text)
        .map_err(|error| failed(format!("the unit file of {unit} cannot be read: {error}")))?;
    match pod {
        StaticPod::Text { text, environment_file } => with_file(root, text, environment_file.as_deref()),
        StaticPod::Kubeadm { program, phase, configuration, environment_file } => {
            let configuration = with_file(root, configuration, environment_file.as_deref())?;
            let kubeadm = Kubeadm { program: &program, phase: &phase, configuration: &configuration };
            kubeadm.manifest(root, program_of_unit(unit), deadline)
        }
    }
}

/// The manifest with an identity that no other pod has.
///
/// # Errors
/// If the manifest has no metadata.
pub(super) fn with_new_uid(manifest: &str) -> Result<String, StepFailure> {
    with_uid(manifest, &new_uid(manifest))
        .ok_or_else(|| failed("the manifest of a static pod has no metadata"))
}

/// The manifest without its identity.
pub(super) fn without_uid(manifest: &str) -> String {
    manifest.lines().filter(|line| !line.starts_with(UID_BEGIN)).flat_map(|line| [line, "\n"]).collect()
}

/// The identity of the pod in a manifest that [`with_new_uid`] made.
pub(super) fn uid(manifest: &str) -> Option<&str> {
    manifest.lines().find_map(|line| line.strip_prefix(UID_BEGIN)?.strip_suffix('"'))
}

/// The text with the variables of the file, if there is one.
fn with_file(root: &Root, text: String, file: Option<&str>) -> Result<String, StepFailure> {
    let Some(path) = file else { return Ok(text) };
    let variables = read_text(&root.given(path)?)?;
    let variables = variables.ok_or_else(|| failed(format!("{path} is missing")))?;
    Ok(with_variables(text, &variables))
}

/// The text with the values of lines `NAME=VALUE` in place of `${NAME}`.
fn with_variables(text: String, variables: &str) -> String {
    let lines = variables.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_once('='))
        .fold(text, |text, (name, value)| text.replace(&format!("${{{name}}}"), value))
}

fn new_uid(manifest: &str) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut digest = sha256(format!("{} {manifest}", now.as_nanos()).as_bytes());
    digest.truncate(UID_DIGITS);
    digest
}

/// The manifest with an identity; `None` if it has no line `metadata:`.
fn with_uid(manifest: &str, uid: &str) -> Option<String> {
    let index = manifest.lines().position(|line| line == METADATA)?;
    let mut text = String::new();
    for (at, line) in manifest.lines().enumerate() {
        text.push_str(line);
        text.push('\n');
        if at == index {
            text.push_str(&format!("{UID_BEGIN}{uid}\"\n"));
        }
    }
    Some(text)
}

/// kubeadm, which makes a manifest. Its root is a folder that holds nothing but its configuration: it neither reads nor changes what
/// is on the host, so that the same configuration always gives the same manifest.
struct Kubeadm<'a> {
    program: &'a str,
    phase: &'a [String],
    configuration: &'a str,
}

impl Kubeadm<'_> {
    fn manifest(&self, root: &Root, pod: &str, deadline: Instant) -> Result<String, StepFailure> {
        let folder = root.at(&format!("{}/{pod}.root", paths::POD_UNITS));
        clear(&folder)?;
        let inside = Root::new(&folder);
        write_file(&inside.at(CONFIGURATION), self.configuration.as_bytes(), 0o600)?;
        for authorities in AUTHORITIES.iter().filter(|path| root.at(path).is_dir()) {
            make_folders(&inside.at(authorities))?;
        }
        self.run(root, &folder, deadline)?;
        let place = inside.at(&format!("{}/{pod}.yaml", kubeon_wire::MANIFESTS));
        let made = read_text(&place)?;
        make_data_folder(root, &inside)?;
        clear(&folder)?;
        made.ok_or_else(|| failed(format!("kubeadm made no manifest of {pod}")))
    }

    fn run(&self, root: &Root, folder: &Path, deadline: Instant) -> Result<(), StepFailure> {
        let program = root.given(self.program)?;
        let mut run = ProgramRun::new(&program, deadline.saturating_duration_since(Instant::now()));
        // A proxy of the environment would become one of the pod.
        let command = run.command().env_clear().args(["init", "phase"]).args(self.phase);
        command.args(["--config", CONFIGURATION, "--rootfs"]).arg(folder);
        let done = run.run().map_err(step_failure)?;
        if done.success() {
            return Ok(());
        }
        Err(failed(format!("kubeadm init phase {}: {}", self.phase.join(" "), done.last_line())))
    }
}

/// Makes the folder of etcd's data if kubeadm made it in its root: the kubelet would let every user read it.
fn make_data_folder(root: &Root, inside: &Root) -> Result<(), StepFailure> {
    let place = root.at(paths::ETCD_DATA);
    if !inside.at(paths::ETCD_DATA).is_dir() || lstat(&place)?.is_some() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(&place).doing("create the folder", &place)
}

fn clear(folder: &Path) -> Result<(), StepFailure> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).doing("remove", folder),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    use super::*;
    use crate::testing::Bench;

    const MANIFEST: &str = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: etcd\nspec:\n  containers: []\n";

    #[test]
    fn every_pod_has_an_identity_of_its_own() {
        let text = with_uid(MANIFEST, &new_uid(MANIFEST)).unwrap();
        let uid = uid(&text).unwrap().to_owned();
        assert_eq!(uid.len(), UID_DIGITS);
        assert!(text.contains(&format!("metadata:\n  uid: \"{uid}\"\n  name: etcd\n")), "{text}");
        assert_ne!(uid, new_uid(MANIFEST));
        assert_eq!(without_uid(&text), MANIFEST);
        assert_eq!(with_uid("kind: Pod\n", "a"), None);
    }

    #[test]
    fn kubeadm_runs_in_a_folder_of_its_own_with_the_variables_of_the_file() {
        let bench = Bench::new();
        let root = &bench.host.root;
        let script = [
            "#!/bin/sh",
            "here=${0%/*} folder=$8",
            "echo \"$@\" >$here/words",
            "cp $folder/kubeadm.yaml $here/read",
            "mkdir -p $folder/etc/kubernetes/manifests $folder/var/lib/etcd",
            "printf 'metadata:\\n  name: etcd\\n' >$folder/etc/kubernetes/manifests/etcd.yaml",
        ];
        bench.write("/k", &(script.join("\n") + "\n"));
        fs::set_permissions(root.at("/k"), fs::Permissions::from_mode(0o755)).unwrap();
        bench.write("/members.env", "# a comment\nETCD_INITIAL_CLUSTER=h1=https://10.0.0.1:2380\n");
        let pod = StaticPod::Kubeadm {
            program: "/k".to_owned(),
            phase: vec!["etcd".to_owned(), "local".to_owned()],
            configuration: "value: ${ETCD_INITIAL_CLUSTER}\n".to_owned(),
            environment_file: Some("/members.env".to_owned()),
        };
        bench.write(&format!("{}/etcd.pod", paths::POD_UNITS), &serde_json::to_string(&pod).unwrap());
        let made = make(root, "etcd.pod", Instant::now() + Duration::from_secs(10)).unwrap();
        assert_eq!(made, "metadata:\n  name: etcd\n");
        assert_eq!(bench.read("/read"), "value: h1=https://10.0.0.1:2380\n");
        let words = bench.read("/words");
        assert!(words.starts_with("init phase etcd local --config /kubeadm.yaml --rootfs "), "{words}");
        assert!(!root.at(&format!("{}/etcd.root", paths::POD_UNITS)).exists());
        let data = fs::metadata(root.at(paths::ETCD_DATA)).unwrap();
        assert_eq!(data.permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_manifest_has_the_variables_of_the_file() {
        let bench = Bench::new();
        let (soon, place) =
            (Instant::now() + Duration::from_secs(1), format!("{}/haproxy.pod", paths::POD_UNITS));
        let pod = StaticPod::Text {
            text: "image: \"${HAPROXY_IMAGE}\"\n".to_owned(),
            environment_file: Some("/haproxy.env".to_owned()),
        };
        bench.write(&place, &serde_json::to_string(&pod).unwrap());
        let failure = make(&bench.host.root, "haproxy.pod", soon).unwrap_err();
        assert_eq!(failure.cause, "/haproxy.env is missing");
        bench.write("/haproxy.env", "# a comment\nHAPROXY_IMAGE=registry/haproxy:v1\n");
        let made = make(&bench.host.root, "haproxy.pod", soon).unwrap();
        assert_eq!(made, "image: \"registry/haproxy:v1\"\n");
    }

    #[test]
    fn a_unit_without_its_file_or_variables_is_not_started() {
        let bench = Bench::new();
        let soon = Instant::now() + Duration::from_secs(1);
        let failure = make(&bench.host.root, "etcd.pod", soon).unwrap_err();
        assert_eq!(failure.cause, "etcd.pod has no unit file");
        bench.write(&format!("{}/etcd.pod", paths::POD_UNITS), "[Service]");
        assert!(make(&bench.host.root, "etcd.pod", soon).unwrap_err().cause.contains("cannot be read"));
    }
}
