//! The script that the Job of an operation runs: hooks, action, hooks (contract A).

use std::fmt::Write as _;

use kubeon_api::kubeonkube::{
    Action, ActionSource, ActionType, ClusterOperationSpec, HookAction, HookMoment,
};

use crate::frame::{Commands, WORK_SECONDS};

/// Playbooks that an image may have under `/kubespray`.
const PLAYBOOKS: &[&str] = &[
    "cluster-info.yml",
    "cluster.yml",
    "config-docker-cgroup-driver-for-kylinSP2.yml",
    "config-for-kube-vip.yml",
    "config-insecure-registry.yml",
    "disable-firewalld.yml",
    "disable-kernel-unattended-upgrade.yml",
    "enable-nf-conntrack.yml",
    "enable-repo.yml",
    "ensure-kube-resolv-conf.yml",
    "facts.yml",
    "kubeconfig.yml",
    "mount-xfs-pquota.yml",
    "ping.yml",
    "precheck.yml",
    "remove-node.yml",
    "remove-pkgs.yml",
    "renew-certs.yml",
    "reset.yml",
    "rh8-compat.yml",
    "scale.yml",
    "set-containerd-registry-mirror.yml",
    "strip-kylin-version.yml",
    "update-hosts.yml",
    "upgrade-cluster.yml",
];

/// Why no script can be generated for an operation. Retrying does not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArgsError {
    /// The `actionType` is unknown.
    #[error("unknown action type {0:?}, the currently supported ranges include: [playbook shell kubeon]")]
    ActionType(String),
    /// A hook is neither a playbook nor a shell command.
    #[error("unknown action type {0:?} of a hook, the currently supported ranges include: [playbook shell]")]
    HookType(String),
    /// The image does not have this playbook.
    #[error("unknown builtin playbook {0:?}; name one of: {list}", list = PLAYBOOKS.join(" "))]
    Playbook(String),
    /// The name of a playbook is not a file name.
    #[error("{0:?} is not a file name: use letters, digits, '.', '_' and '-' only")]
    FileName(String),
    /// The source is a ConfigMap, but `actionSourceRef` is empty.
    #[error("actionSourceRef must be specified if actionSource set as configmap")]
    NoSource,
}

/// The script of an operation whose action is a playbook or a shell command. `with_key` is true when an SSH key is mounted.
///
/// # Errors
/// When the operation names an action or hook that cannot be run.
pub fn entrypoint(spec: &ClusterOperationSpec, with_key: bool) -> Result<String, ArgsError> {
    let always = |hook: &&HookAction| hook.when == Some(HookMoment::Always);
    let commands = Commands {
        before: hooks(spec.pre_hook.iter(), with_key)?,
        action: command(&spec.main, with_key)?,
        after: hooks(spec.post_hook.iter().filter(|hook| !always(hook)), with_key)?,
        always: hooks(spec.post_hook.iter().filter(always), with_key)?,
    };
    Ok(commands.script(WORK_SECONDS))
}

fn hooks<'h>(hooks: impl Iterator<Item = &'h HookAction>, with_key: bool) -> Result<Vec<String>, ArgsError> {
    hooks.map(|hook| command(&hook.what, with_key).map_err(of_hook)).collect()
}

fn of_hook(error: ArgsError) -> ArgsError {
    match error {
        ArgsError::ActionType(word) => ArgsError::HookType(word),
        other => other,
    }
}

fn command(action: &Action, with_key: bool) -> Result<String, ArgsError> {
    if action.action_source == Some(ActionSource::Configmap)
        && action.action_source_ref.as_ref().is_none_or(kubeon_api::DataRef::is_empty)
    {
        return Err(ArgsError::NoSource);
    }
    match &action.action_type {
        ActionType::Shell => Ok(action.action.clone()),
        ActionType::Playbook => playbook(action, with_key),
        other => Err(ArgsError::ActionType(other.to_string())),
    }
}

fn playbook(action: &Action, with_key: bool) -> Result<String, ArgsError> {
    let name = action.action.trim();
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.starts_with(['.', '-']) || !name.chars().all(plain) {
        return Err(ArgsError::FileName(name.to_owned()));
    }
    if action.action_source != Some(ActionSource::Configmap) && !PLAYBOOKS.contains(&name) {
        return Err(ArgsError::Playbook(name.to_owned()));
    }
    let mut line =
        "ansible-playbook -i /conf/hosts.yml -b --become-user root -e \"@/conf/group_vars.yml\"".to_owned();
    if with_key {
        line.push_str(" --private-key /auth/ssh-privatekey");
    }
    // These playbooks ask for a confirmation.
    match name {
        "reset.yml" => line.push_str(" -e \"reset_confirmation=yes\""),
        "remove-node.yml" => line.push_str(" -e \"skip_confirmation=true\""),
        _ => {}
    }
    let _ = write!(line, " /kubespray/{name}");
    // Join the lines: the shell would run each line as a command.
    for argument in action.extra_args.iter().flat_map(|text| text.lines()).map(str::trim) {
        if !argument.is_empty() {
            let _ = write!(line, " {}", argument.trim_end_matches('\\').trim_end());
        }
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use kubeon_api::DataRef;

    use super::*;

    fn action(action_type: &str, action: &str) -> Action {
        Action { action_type: action_type.into(), action: action.into(), ..Action::default() }
    }

    fn operation(action_type: &str, text: &str) -> ClusterOperationSpec {
        ClusterOperationSpec { main: action(action_type, text), ..ClusterOperationSpec::default() }
    }

    fn playbook_with(text: &str, extra_args: &str) -> ClusterOperationSpec {
        let mut spec = operation("playbook", text);
        spec.main.extra_args = Some(extra_args.into());
        spec
    }

    fn hook(text: &str, when: Option<HookMoment>) -> HookAction {
        HookAction { what: action("shell", text), when }
    }

    /// Contract A, cases 1 and 2.
    #[test]
    fn a_playbook_runs_as_root_on_the_inventory() {
        let script = entrypoint(&operation("playbook", "scale.yml"), false).unwrap();
        let line = "ansible-playbook -i /conf/hosts.yml -b --become-user root -e \"@/conf/group_vars.yml\" /kubespray/scale.yml";
        assert!(script.lines().any(|found| found == line), "{script}");
        let script = entrypoint(&operation("playbook", "scale.yml"), true).unwrap();
        assert!(
            script.contains("group_vars.yml\" --private-key /auth/ssh-privatekey /kubespray/scale.yml"),
            "{script}"
        );
    }

    /// Cases 3 to 7.
    #[test]
    fn arguments_come_last_and_playbooks_ask_nothing() {
        let script = |spec: &ClusterOperationSpec, key| entrypoint(spec, key).unwrap();
        assert!(
            script(&playbook_with("scale.yml", "--limit=node3,node4"), false)
                .contains("/kubespray/scale.yml --limit=node3,node4")
        );
        assert!(
            script(&playbook_with("remove-node.yml", "-e node=node3"), false)
                .contains("-e \"skip_confirmation=true\" /kubespray/remove-node.yml -e node=node3")
        );
        assert!(script(&operation("playbook", "reset.yml"), false).contains("-e \"reset_confirmation=yes\""));
        let undo = playbook_with("kubeconfig.yml", "-e undo=true");
        assert!(
            script(&undo, true)
                .contains("--private-key /auth/ssh-privatekey /kubespray/kubeconfig.yml -e undo=true")
        );
        let lines = playbook_with("scale.yml", "--limit=node3 \\\n  -e a=1\n\n");
        assert!(script(&lines, false).contains("/kubespray/scale.yml --limit=node3 -e a=1\n"), "one command");
    }

    /// Cases 8, 11 and 12.
    #[test]
    fn hooks_run_before_and_after_the_action_in_order() {
        let spec = ClusterOperationSpec {
            pre_hook: vec![hook("ansible -i host.yml -m ping", None), hook("echo \"test\"", None)],
            post_hook: vec![hook("echo done", None), hook("echo always", Some(HookMoment::Always))],
            main: playbook_with("sleep 10", "--ignored").main,
            ..ClusterOperationSpec::default()
        };
        let spec = ClusterOperationSpec { main: Action { action_type: "shell".into(), ..spec.main }, ..spec };
        let script = entrypoint(&spec, false).unwrap();
        assert!(script.starts_with("#!/bin/bash\n\nset -o errexit\nset -o nounset\nset -o pipefail\n"));
        let place =
            |words: &str| script.find(words).unwrap_or_else(|| panic!("{words} is missing in\n{script}"));
        let order =
            ["echo always", "ansible -i host.yml -m ping\necho \"test\"\n", "sleep 10\n", "echo done"]
                .map(place);
        assert!(order.is_sorted(), "{script}");
        assert!(!script.contains("--ignored"));
    }

    #[test]
    fn always_hooks_run_after_a_failure_and_keep_its_exit_code() {
        let spec = ClusterOperationSpec {
            post_hook: vec![hook("echo never", None), hook("echo always", Some(HookMoment::Always))],
            ..operation("shell", "echo one; exit 3")
        };
        let script = entrypoint(&spec, false).unwrap();
        let output = std::process::Command::new("bash").arg("-c").arg(&script).output().unwrap();
        assert_eq!(
            (output.status.code(), String::from_utf8_lossy(&output.stdout).as_ref()),
            (Some(3), "one\nalways\n")
        );
        let spec = ClusterOperationSpec {
            pre_hook: vec![hook("false", None)],
            ..operation("shell", "echo reached")
        };
        let output = std::process::Command::new("bash")
            .arg("-c")
            .arg(entrypoint(&spec, false).unwrap())
            .output()
            .unwrap();
        assert!(!output.status.success() && output.stdout.is_empty(), "a failed hook prevents the action");
    }

    /// As the runner sends it: a signal to the process group of the script. The work has its own group.
    #[test]
    fn always_hooks_run_after_a_signal() {
        use std::io::{BufRead as _, BufReader, Read as _};
        use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
        let spec = ClusterOperationSpec {
            post_hook: vec![
                hook("echo never", None),
                hook("sleep 0.1; echo always", Some(HookMoment::Always)),
            ],
            // The process that waits prints the line, so it exists when the signal is sent.
            ..operation("shell", "sh -c 'echo at work; exec sleep 60'")
        };
        let mut bash = std::process::Command::new("bash");
        bash.arg("-c").arg(entrypoint(&spec, false).unwrap()).process_group(0);
        let mut running = bash.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(running.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, "at work\n");
        let group = format!("-{}", running.id());
        let status = std::process::Command::new("kill").args(["-TERM", "--", &group]).status().unwrap();
        assert!(status.success());
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).unwrap();
        let ended = running.wait().unwrap();
        assert_eq!(rest, "always\n");
        assert!(!ended.success() && (ended.code() == Some(143) || ended.signal() == Some(15)), "{ended}");
    }

    /// Cases 9, 10 and 35.
    #[test]
    fn an_operation_that_cannot_run_is_refused_by_name() {
        let refused = |spec: &ClusterOperationSpec| entrypoint(spec, false).unwrap_err().to_string();
        assert!(refused(&operation("playbook", "abc.yml")).contains("\"abc.yml\""));
        assert!(refused(&operation("OtherAction", "x")).contains("[playbook shell"));
        assert!(refused(&operation("playbook", "x;rm -rf /")).contains("is not a file name"));
        assert!(refused(&operation("playbook", "../x.yml")).contains("is not a file name"));
        let mut from_map = operation("playbook", "my.yml");
        from_map.main.action_source = Some(ActionSource::Configmap);
        assert_eq!(refused(&from_map), "actionSourceRef must be specified if actionSource set as configmap");
        from_map.main.action_source_ref = Some(DataRef::new("a", "b"));
        assert!(entrypoint(&from_map, false).unwrap().contains("/kubespray/my.yml"));
        let odd = HookAction { what: action("kubeon", ""), when: None };
        let spec = ClusterOperationSpec { pre_hook: vec![odd], ..operation("shell", "true") };
        assert!(refused(&spec).contains("of a hook"));
    }
}
