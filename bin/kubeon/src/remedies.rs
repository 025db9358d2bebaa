//! Renders remedies as flags and commands of this program.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use kubeon_api::{ClusterName, HostAddress, HostName, HostRole};
use kubeon_bundle::BundleRemedy;
use kubeon_engine::login_request::LoginPart;
use kubeon_engine::remedy::{EngineRemedy, RefusedInput};
use kubeon_install::names::OPERATOR;
use kubeon_lab::LabRemedy;
use kubeon_store::StoreRemedy;

use crate::next_step::NextStep;

/// A remedy as rows of an error, and its last line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RenderedRemedy {
    /// Alternatives: subject and text.
    pub rows: Vec<(String, String)>,
    /// The next step.
    pub next: Option<NextStep>,
}

impl RenderedRemedy {
    /// The remedy as a phrase for a message of one line.
    pub(crate) fn phrase(&self) -> String {
        let rows = self.rows.iter().map(|(_, text)| text.clone());
        rows.chain(self.next.iter().map(ToString::to_string)).collect::<Vec<_>>().join(", or ")
    }
}

impl From<NextStep> for RenderedRemedy {
    fn from(next: NextStep) -> Self {
        Self { rows: Vec::new(), next: Some(next) }
    }
}

/// One alternative.
fn row(subject: &str, text: impl Into<String>) -> RenderedRemedy {
    rows([(subject, text.into())])
}

fn rows<const N: usize>(rows: [(&str, String); N]) -> RenderedRemedy {
    RenderedRemedy { rows: rows.map(|(subject, text)| (subject.to_owned(), text)).into(), next: None }
}

const CANCEL_OPERATION: &str =
    r#"kubectl patch clusteroperation NAME --type merge -p '{"spec":{"cancelled":true}}'"#;

/// How a change of version goes on without a master or a host of etcd.
fn with_member(
    cluster: &ClusterName,
    lost: Option<&(HostName, HostAddress)>,
    begun: bool,
    can_go_back: bool,
) -> RenderedRemedy {
    let mut rows = Vec::new();
    if let Some((name, address)) = lost {
        rows.push(("if it is lost".to_owned(), format!("kubeon replace {cluster} {name} NEW_ADDRESS")));
        rows.push(("or remove it".to_owned(), format!("kubeon delon {cluster} {name} --without {address}")));
    }
    if can_go_back {
        rows.push(("or back".to_owned(), format!("kubeon abort {cluster}")));
    }
    let go_on = || NextStep::command("when it is back, continue with", format!("kubeon resume {cluster}"));
    RenderedRemedy { rows, next: begun.then(go_on) }
}

/// A remedy that is another change of the cluster.
fn change(remedy: &EngineRemedy) -> RenderedRemedy {
    use EngineRemedy as R;
    match remedy {
        R::ImportState { cluster, file } => {
            let command = format!("kubeon state import {cluster} <{}", file.display());
            NextStep::command("use the state of the snapshot with", command).into()
        }
        R::ImportExport(cluster) => rows([
            ("instead", format!("kubeon state import {cluster} FILE, with the file of kubeon state export")),
            ("or", "the file beside a snapshot of etcd, FILE.state".to_owned()),
        ]),
        R::Upgrade { cluster, version } => {
            NextStep::command("upgrade it with", format!("kubeon upgrade {cluster} {version}")).into()
        }
        R::CompleteOrAbort(cluster) => rows([
            ("go on", format!("kubeon resume {cluster}")),
            ("or back", format!("kubeon abort {cluster}")),
        ]),
        R::CompleteWithMember { cluster, lost, begun, can_go_back } => {
            with_member(cluster, lost.as_ref(), *begun, *can_go_back)
        }
        R::CompleteOrRestore { cluster, version } => rows([
            ("go on", format!("kubeon create {cluster}")),
            (
                "or",
                format!(
                    "kubeon rollback {cluster} returns to the snapshot of {version} and loses what came after it"
                ),
            ),
        ]),
        R::RestoreAfterDestroy { cluster, snapshot } => {
            row("instead", format!("kubeon destroy {cluster}, then kubeon etcd restore {cluster} {snapshot}"))
        }
        R::KeepOrDestroy(cluster) => {
            row("fix", format!("kubeon create {cluster} (unchanged), or kubeon destroy {cluster} first"))
        }
        R::CompleteDestroy(cluster) => {
            let back = "makes it again out of its snapshot, if that removed it";
            let next = NextStep::command("complete that with", format!("kubeon destroy {cluster}"));
            RenderedRemedy { next: Some(next), ..row("or", format!("kubeon rollback {cluster} {back}")) }
        }
        R::CompleteOrDestroy(cluster) => {
            row("fix", format!("kubeon create {cluster} completes it, kubeon destroy {cluster} removes it"))
        }
        R::ReplaceWorker(cluster) => {
            row("worker", format!("kubeon addon {cluster} -w NEW, then kubeon delon {cluster} OLD"))
        }
        _ => RenderedRemedy::default(),
    }
}

/// A remedy of the engine.
pub(crate) fn engine(remedy: &EngineRemedy) -> RenderedRemedy {
    use EngineRemedy as R;
    match remedy {
        R::ChooseCluster => NextStep::command("choose one with", "kubeon use NAME").into(),
        R::ChooseReadyMaster(cluster) => {
            NextStep::command("choose a master that answers with", format!("kubeon use {cluster}")).into()
        }
        R::CompleteChange(cluster) => {
            NextStep::command("continue with", format!("kubeon create {cluster}")).into()
        }
        R::CompleteOrTakeBack(cluster) => rows([
            ("finish", format!("kubeon create {cluster}, then add the worker again")),
            ("or keep it", "kubeon create … --take-back".to_owned()),
        ]),
        R::CreateFromInventory(cluster) => {
            row("first", format!("kubeon create {cluster} --inventory …, or the playbook cluster.yml"))
        }
        R::CompleteOrDestroy(_)
        | R::CompleteDestroy(_)
        | R::KeepOrDestroy(_)
        | R::CompleteOrAbort(_)
        | R::CompleteWithMember { .. }
        | R::CompleteOrRestore { .. }
        | R::RestoreAfterDestroy { .. }
        | R::ImportState { .. }
        | R::ImportExport(_)
        | R::Upgrade { .. }
        | R::ReplaceWorker(_) => change(remedy),
        R::PlanAgain => {
            NextStep::Advice("plan again with kubeon plan … --out FILE, and read it".to_owned()).into()
        }
        R::ConfirmRemoval { command } => row("confirm", format!("{command} … --yes")),
        R::ConfirmDestroy { command, cluster } => row("confirm", format!("{command} {cluster} --yes")),
        R::ConfirmUninstall
        | R::EndOperations
        | R::DeleteOrHandOverClusters
        | R::StopOperator { .. }
        | R::ReplaceRestored => meta(remedy),
        R::ConfirmRotation(cluster) => row("confirm", format!("kubeon certs rotate {cluster} --yes")),
        R::ContinueRotation(cluster) => RenderedRemedy {
            next: Some(NextStep::command("continue with", format!("kubeon certs rotate {cluster}"))),
            ..row("lost host", format!("kubeon delon {cluster} NODE --without ADDRESS"))
        },
        R::SignBundle(version) => rows([
            ("sign", format!("kubeon bundle sign {version} --key PRIVATE_KEY")),
            ("or trust", "kubeon bundle trust PUBLIC_KEY".to_owned()),
        ]),
        R::TrustHostKeys => rows([
            ("compare", "on the host: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub".to_owned()),
            ("instead", TRUST_KEYS.to_owned()),
        ]),
        R::GiveLogin { role } => {
            let flag = role.as_ref().map_or_else(|| "default".to_owned(), |role| format!("default-{role}"));
            NextStep::Advice(format!("use --{flag}-pk-file or --{flag}-passwd @FILE")).into()
        }
        R::GiveSecretInFile => row("instead", "give it in a file: @FILE"),
        R::UseSelector => NextStep::command("try", "kubeon exec CLUSTER@all uptime").into(),
        R::RestoreKeys { cluster, folder } => rows([
            (
                "fix",
                format!(
                    "restore {} from a backup, or copy it from the machine where {cluster} was created",
                    folder.display()
                ),
            ),
            ("otherwise", format!("kubeon destroy {cluster}, then create it again")),
        ]),
        R::InspectMasters { cluster, static_pods } => masters(cluster, *static_pods).into(),
        R::UpdateRoutes(_) | R::ForgetRoutes(_) | R::GiveCloudKeys => routes(remedy),
        R::LinkKubectl => NextStep::command("link the kubectl of the bundle with", "kubeon use NAME").into(),
        R::CheckConnection { .. }
        | R::CheckPermissions { .. }
        | R::InspectOperatorPods { .. }
        | R::ReadOperatorLog { .. } => kubectl(remedy).map(RenderedRemedy::from).unwrap_or_default(),
        R::Bundle(remedy) => bundle(remedy).into(),
        R::Store(remedy) => store(remedy).into(),
    }
}

/// A look at the programs of the masters: at services, or at the logs of static pods.
fn masters(cluster: &ClusterName, static_pods: bool) -> NextStep {
    let command = if static_pods {
        "'cd /var/log/pods && tail -n 20 kube-system_kube-apiserver-*/*/*.log kube-system_etcd-*/*/*.log'"
    } else {
        "'systemctl status kube-apiserver etcd --no-pager'"
    };
    NextStep::command("investigate with", format!("kubeon exec {cluster}@cp* {command}"))
}

/// The remedies of the commands `kubeon meta`.
fn meta(remedy: &EngineRemedy) -> RenderedRemedy {
    use EngineRemedy as R;
    match remedy {
        R::ConfirmUninstall => row("confirm", "kubeon meta uninstall --yes".to_owned()),
        R::EndOperations => rows([
            ("wait", "kubectl get clusteroperations -w".to_owned()),
            ("or cancel", CANCEL_OPERATION.to_owned()),
        ]),
        R::DeleteOrHandOverClusters => rows([
            ("delete them", "kubectl delete KIND NAME -n NAMESPACE".to_owned()),
            ("or keep them", "kubeon meta uninstall --hand-over, then install again".to_owned()),
        ]),
        R::StopOperator { namespace } => NextStep::command(
            "stop it with",
            format!("kubectl -n {namespace} scale deployment {OPERATOR} --replicas=0"),
        )
        .into(),
        R::ReplaceRestored => row("replace them", "kubeon meta restore … --replace"),
        _ => RenderedRemedy::default(),
    }
}

/// The remedies about routes of a cloud provider.
fn routes(remedy: &EngineRemedy) -> RenderedRemedy {
    use EngineRemedy as R;
    match remedy {
        R::UpdateRoutes(cluster) => {
            NextStep::command("update them with", format!("kubeon cloud modify-router {cluster}")).into()
        }
        R::ForgetRoutes(cluster) => row(
            "or keep them",
            format!("kubeon cloud delete-router {cluster} --forget, then kubeon destroy {cluster}"),
        ),
        _ => row("fix", "set CLOUD_SECRET_ID and CLOUD_SECRET_KEY".to_owned()),
    }
}

/// The flags that make a host key known.
pub(crate) const TRUST_KEYS: &str =
    "--known-hosts FILE, or --accept-new with a private key instead of a password";

/// The command that shows the cause of a failed installation of the operator.
fn kubectl(remedy: &EngineRemedy) -> Option<NextStep> {
    Some(match remedy {
        EngineRemedy::CheckConnection { kubeconfig } => NextStep::command(
            "check the connection with",
            format!("kubectl --kubeconfig {} get --raw /version", kubeconfig.display()),
        ),
        EngineRemedy::CheckPermissions { kubeconfig } => NextStep::command(
            "check the permissions with",
            format!("kubectl --kubeconfig {} auth can-i --list", kubeconfig.display()),
        ),
        EngineRemedy::InspectOperatorPods { namespace, selector } => NextStep::command(
            "look at the pods with",
            format!("kubectl -n {namespace} describe pods -l {selector}"),
        ),
        EngineRemedy::ReadOperatorLog { namespace } => NextStep::command(
            "read the log of the operator with",
            format!("kubectl -n {namespace} logs deployment/{OPERATOR}"),
        ),
        _ => return None,
    })
}

/// A remedy of a bundle or of its build.
pub(crate) fn bundle(remedy: &BundleRemedy) -> NextStep {
    let advice = |text: &str| NextStep::Advice(text.to_owned());
    match remedy {
        BundleRemedy::Build(version) => {
            NextStep::command("build it with", format!("kubeon bundle build {version}"))
        }
        BundleRemedy::BuildAgain(version) => {
            NextStep::command("build it again with", format!("kubeon bundle build {version}"))
        }
        BundleRemedy::ChooseSource => advice(
            "use --from official, --from https://MIRROR, --from go-modules, or --from DIR with the parts as files",
        ),
        BundleRemedy::UseAnotherSource => advice(
            "run it again, or use another source: --from go-modules, --from https://MIRROR or --from DIR",
        ),
        BundleRemedy::ProvideParts => advice("or provide the parts as files with --from DIR"),
        BundleRemedy::InstallPackage(package) => install(package),
        BundleRemedy::InstallNewerGo => advice(
            "the installed Go is too old for this component; install a newer one (backports, or go.dev)",
        ),
        BundleRemedy::UseAnotherProxy => advice(
            "the module proxy does not answer; set GOPROXY to another proxy, or provide the parts with --from DIR",
        ),
        BundleRemedy::RenewPackageLists => {
            NextStep::command("the package lists are missing or old; renew them with", "apt-get update")
        }
        BundleRemedy::MoveCache => {
            advice("the cache folder needs about 5 GiB while building; set KUBEON_CACHE to a larger disk")
        }
        BundleRemedy::ReportBug => advice("run again with -v and report it"),
    }
}

/// A remedy of the state on this machine.
fn store(remedy: &StoreRemedy) -> NextStep {
    match remedy {
        StoreRemedy::RestorePrevious { backup, path, saved_at } => NextStep::command(
            format!(
                "the previous state, of {}, is in {}; check it and restore it with",
                local_time(*saved_at),
                backup.display()
            ),
            format!("cp {} {}", backup.display(), path.display()),
        ),
        StoreRemedy::RestoreFile => {
            NextStep::Advice("there is no previous state here; restore the file from a backup".to_owned())
        }
        StoreRemedy::ChooseCluster => NextStep::command("choose again with", "kubeon use NAME"),
    }
}

fn local_time(time: Timestamp) -> String {
    time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// A remedy of a lab.
pub(crate) fn lab(remedy: &LabRemedy) -> NextStep {
    match remedy {
        LabRemedy::InstallPackages(packages) => install(&packages.join(" ")),
        LabRemedy::UseAnotherName => NextStep::Advice("use another --lab NAME".to_owned()),
        LabRemedy::UseAnotherNameOrRemove { lab } => NextStep::command(
            "use another --lab NAME, or remove the lab with",
            format!("kubeon lab down --lab {lab}"),
        ),
        LabRemedy::Create { lab } => {
            NextStep::command("create it with", format!("kubeon lab up --hosts N --lab {lab}"))
        }
        LabRemedy::Start { lab, host } => {
            NextStep::command("boot it with", format!("kubeon lab start {host} --lab {lab}"))
        }
        LabRemedy::Remove { lab } => {
            NextStep::command("remove the lab with", format!("kubeon lab down --lab {lab}"))
        }
    }
}

fn install(packages: &str) -> NextStep {
    NextStep::command("install it with", format!("apt-get install {packages}"))
}

/// A refused input as a flag with its value.
pub(crate) fn input(input: &RefusedInput) -> String {
    match input {
        RefusedInput::SkippedHost(text) => format!("--without {text}"),
        RefusedInput::IgnoredCheck(text) => format!("--ignore {text}"),
        RefusedInput::KnownHosts(path) => format!("--known-hosts {}", path.display()),
        RefusedInput::LimitedHost(text) => format!("--limit {text}"),
        RefusedInput::RoleLogin { role, part } => login_flag(role, *part),
    }
}

fn login_flag(role: &HostRole, part: LoginPart) -> String {
    let suffix = match part {
        LoginPart::Port => "port",
        LoginPart::User => "user",
        LoginPart::Password => "passwd",
        LoginPart::KeyFile => "pk-file",
        LoginPart::KeyPassword => "pk-password",
    };
    format!("--default-{role}-{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_with_one_command_is_the_last_line() {
        let remedy = engine(&EngineRemedy::Bundle(BundleRemedy::Build("v1.36.3".parse().unwrap())));
        assert!(remedy.rows.is_empty());
        assert_eq!(remedy.next.unwrap().to_string(), "build it with: kubeon bundle build v1.36.3");
        let kubeconfig = "/k".into();
        let check = engine(&EngineRemedy::CheckConnection { kubeconfig }).next.unwrap().to_string();
        assert_eq!(check, "check the connection with: kubectl --kubeconfig /k get --raw /version");
    }

    #[test]
    fn alternatives_are_rows() {
        let remedy = engine(&EngineRemedy::TrustHostKeys);
        assert_eq!(remedy.rows[1], ("instead".to_owned(), TRUST_KEYS.to_owned()));
        assert_eq!(remedy.next, None);
        let phrase = engine(&EngineRemedy::GiveSecretInFile).phrase();
        assert_eq!(phrase, "give it in a file: @FILE");
    }

    #[test]
    fn a_change_of_version_goes_on_without_a_lost_master() {
        let lost = |can_go_back| EngineRemedy::CompleteWithMember {
            cluster: "demo".parse().unwrap(),
            lost: Some(("h1".parse().unwrap(), "10.0.0.1".parse().unwrap())),
            begun: true,
            can_go_back,
        };
        let commands = |remedy| engine(&remedy).rows.into_iter().map(|(_, text)| text).collect::<Vec<_>>();
        let wanted = [
            "kubeon replace demo h1 NEW_ADDRESS",
            "kubeon delon demo h1 --without 10.0.0.1",
            "kubeon abort demo",
        ];
        assert_eq!(commands(lost(true)), wanted);
        assert_eq!(commands(lost(false)), wanted[..2]);
        let next = engine(&lost(false)).next.unwrap().to_string();
        assert_eq!(next, "when it is back, continue with: kubeon resume demo");
    }

    #[test]
    fn a_refused_input_is_a_flag_that_exists() {
        let role = HostRole::Worker;
        assert_eq!(
            input(&RefusedInput::RoleLogin { role, part: LoginPart::Password }),
            "--default-worker-passwd"
        );
        assert_eq!(input(&RefusedInput::SkippedHost("10.0.0.9".to_owned())), "--without 10.0.0.9");
    }
}
