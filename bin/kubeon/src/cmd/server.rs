//! Commands that a REST server answers: `kubeon --server URL …`.

use std::path::Path;

use kubeon_engine::error::ErrorCategory;
use kubeon_rest::{ClusterDetail, ClusterView, HostView, OperationView};
use kubeon_rest_client::{OperationFilter, RestClient, RestError, RestOptions};
use serde_json::Value;

use crate::args::Format;
use crate::args::cluster::CreateArgs;
use crate::args::server::{LogsArgs, OperationsArgs, ServerFlags};
use crate::args::{CliCommand, CommandLine};
use crate::cli_error::CliError;
use crate::context::Context;
use crate::output::{CommandResult, TextTable};

/// The namespace unless a flag names one.
const DEFAULT_NAMESPACE: &str = "default";

impl From<RestError> for CliError {
    fn from(error: RestError) -> Self {
        let refused = matches!(
            error,
            RestError::NotHttps(_) | RestError::NoCertificate | RestError::Refused { status: 400..=499, .. }
        );
        let category = if refused { ErrorCategory::Refused } else { ErrorCategory::Failed };
        Self::new(category, error.to_string())
    }
}

/// Whether a command is about clusters, so that a server answers or refuses it. Others, such as `version` and `lab`, need none.
pub(super) fn is_asked(command: &CliCommand) -> bool {
    !matches!(
        command,
        CliCommand::View(_)
            | CliCommand::Bundle(_)
            | CliCommand::Lab(_)
            | CliCommand::Meta(_)
            | CliCommand::Completion(_)
            | CliCommand::ManPages(_)
            | CliCommand::State(_)
            | CliCommand::Version(_)
    )
}

/// Runs a command at the server.
///
/// # Errors
/// Refuses commands that need hosts. Otherwise the error of the server.
pub(super) async fn run(context: &Context<'_>, url: &str, cli: &CommandLine) -> Result<(), CliError> {
    let server =
        ServerCommands { client: client(url, &cli.server)?, namespace: cli.server.server_namespace.clone() };
    // The client waits for answers, and nothing else runs in this program.
    tokio::task::block_in_place(|| match &cli.command {
        Some(CliCommand::Ls(args)) => server.list(context, args.format.output),
        Some(CliCommand::Display(args)) => server.display(context, args.name.as_deref(), args.format.output),
        Some(CliCommand::Create(args)) => server.create(context, args),
        Some(CliCommand::Plan(args)) => server.plan(context, args),
        Some(CliCommand::Approve(args)) => server.approve(context, args),
        Some(CliCommand::Operations(args)) => server.operations(context, args),
        Some(CliCommand::Logs(args)) => server.logs(context, args),
        _ => Err(CliError::refused(
            "this command needs the hosts: it does not work with --server; ls, display, create -f, plan -f, approve, operations and logs do",
        )),
    })
}

/// The error of a command that only a server answers.
pub(super) fn needs_server(command: &str) -> CliError {
    CliError::refused(format!("kubeon {command} asks the REST server of a meta cluster: add --server URL"))
        .row("--token-file", "a file with a token: kubectl create token NAME > token")
        .row("--server-ca", "the authorities of the server, unless this machine trusts them")
}

fn client(url: &str, flags: &ServerFlags) -> Result<RestClient, CliError> {
    let read = |flag: &str, path: &Path| {
        std::fs::read(path).map_err(|error| CliError::refused(format!("{flag} {}: {error}", path.display())))
    };
    let token = flags.token_file.as_deref().ok_or_else(|| {
        CliError::refused("--server needs --token-file: a file with a token of the meta cluster")
            .next_command("get one with", "kubectl create token NAME > token")
    })?;
    let token = String::from_utf8_lossy(&read("--token-file", token)?).trim().to_owned();
    let authorities = flags.server_ca.as_deref().map(|path| read("--server-ca", path)).transpose()?;
    Ok(RestClient::new(RestOptions { url: url.to_owned(), token, authorities })?)
}

/// A server and the chosen namespace.
pub(super) struct ServerCommands {
    pub(super) client: RestClient,
    namespace: Option<String>,
}

/// A declaration from a file.
pub(super) struct Declaration {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) object: Value,
}

impl ServerCommands {
    fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE)
    }

    fn list(&self, context: &Context<'_>, format: Format) -> Result<(), CliError> {
        let clusters = self.client.clusters(self.namespace.as_deref())?;
        let mut table = TextTable::new(&["NAMESPACE", "NAME", "PHASE", "VERSION", "READY", "STEP", "REASON"])
            .wide(&["API", "REGION", "UID"]);
        clusters.iter().for_each(|cluster| table.row(columns(cluster)));
        let names =
            clusters.iter().map(|cluster| format!("{}/{}", cluster.namespace, cluster.name)).collect();
        context.output.result(&CommandResult::new(&clusters, table, names)?.text(format)?)
    }

    fn display(&self, context: &Context<'_>, name: Option<&str>, format: Format) -> Result<(), CliError> {
        let name =
            name.ok_or_else(|| CliError::refused("name the cluster: kubeon --server URL display NAME"))?;
        let cluster = self.client.cluster(self.namespace(), name)?;
        let hosts = self.client.hosts(self.namespace(), name)?;
        let mut table = TextTable::new(&["ADDRESS", "NAME", "ROLE", "READY", "VERSION"]);
        hosts.iter().for_each(|host| table.row(host_columns(host)));
        if matches!(format, Format::Table | Format::Wide) {
            let mut head = TextTable::new(&["", ""]);
            head_rows(&cluster.summary).into_iter().for_each(|row| head.row(row));
            for condition in &cluster.conditions {
                head.row([
                    condition.kind.clone(),
                    format!("{} {} {}", condition.status, condition.reason, condition.message),
                ]);
            }
            return context.output.result(&format!("{}\n{}", head.text(false), table.text(false)));
        }
        let names = vec![format!("{}/{name}", self.namespace())];
        let value = serde_json::json!({"cluster": cluster, "hosts": hosts});
        context.output.result(&CommandResult::new(&value, table, names)?.text(format)?)
    }

    /// The declaration in the file of a command.
    pub(super) fn declaration(&self, command: &str, file: Option<&Path>) -> Result<Declaration, CliError> {
        let file = file.ok_or_else(|| {
            CliError::refused(format!(
                "with --server, a cluster is declared by a file: kubeon --server URL {command} -f FILE"
            ))
        })?;
        let text = if file.as_os_str() == "-" {
            std::io::read_to_string(std::io::stdin())?
        } else {
            std::fs::read_to_string(file)
                .map_err(|error| CliError::refused(format!("-f {}: {error}", file.display())))?
        };
        let object: Value = serde_saphyr::from_str(&text)
            .map_err(|error| CliError::refused(format!("-f {}: {error}", file.display())))?;
        let given = object.pointer("/metadata/namespace").and_then(Value::as_str);
        let namespace = self.namespace.as_deref().or(given).unwrap_or(DEFAULT_NAMESPACE).to_owned();
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(Declaration { namespace, name, object })
    }

    /// Declares a cluster. The same file again changes it, as it does without a server.
    pub(super) fn declare(&self, declared: &Declaration) -> Result<ClusterDetail, CliError> {
        let Declaration { namespace, name, object } = declared;
        match self.client.create(namespace, object) {
            Err(RestError::Refused { status: 409, .. }) => {
                let patch = serde_json::json!({"spec": object.get("spec").cloned().unwrap_or_default()});
                Ok(self.client.patch(namespace, name, &patch)?)
            }
            done => Ok(done?),
        }
    }

    fn create(&self, context: &Context<'_>, args: &CreateArgs) -> Result<(), CliError> {
        let declared = self.declaration("create", args.cluster.file.as_deref())?;
        let created = self.declare(&declared)?;
        let name = &declared.name;
        let shown = &created.summary;
        if matches!(args.format.output, Format::Table | Format::Wide) {
            context.output.result(&format!("{}/{} is declared\n", shown.namespace, shown.name))?;
        } else {
            let names = vec![format!("{}/{}", shown.namespace, shown.name)];
            let result = CommandResult::new(&created, TextTable::new(&[]), names)?;
            context.output.result(&result.text(args.format.output)?)?;
        }
        context
            .output
            .info(&format!("next: kubeon --server URL display {name} · kubeon --server URL logs -f {name}"));
        Ok(())
    }

    fn operations(&self, context: &Context<'_>, args: &OperationsArgs) -> Result<(), CliError> {
        let mut operations = self.operations_of(self.namespace.as_deref(), args.cluster.as_deref())?;
        operations.reverse();
        let mut table = TextTable::new(&[
            "NAME", "CLUSTER", "ACTION", "STATUS", "STEPS", "STARTED", "REASON",
        ])
        .wide(&["ENDED", "REQUESTED BY", "UID"]);
        for operation in &operations {
            let steps = operation.steps.as_ref().map(|steps| format!("{}/{}", steps.done, steps.total));
            let text = |value: &Option<String>| value.clone().unwrap_or_default();
            table.row([
                operation.name.clone(),
                operation.cluster.clone(),
                operation.action.clone(),
                operation.status.clone(),
                steps.unwrap_or_default(),
                text(&operation.started),
                first_line(operation.reason.as_ref()),
                text(&operation.ended),
                text(&operation.requested_by),
                operation.uid.clone(),
            ]);
        }
        let names = operations.iter().map(|operation| operation.name.clone()).collect();
        context.output.result(&CommandResult::new(&operations, table, names)?.text(args.format.output)?)
    }

    /// Operations, the oldest first.
    pub(super) fn operations_of(
        &self,
        namespace: Option<&str>,
        cluster: Option<&str>,
    ) -> Result<Vec<OperationView>, CliError> {
        let (namespace, cluster) = (namespace.map(str::to_owned), cluster.map(str::to_owned));
        let filter = OperationFilter { namespace, cluster };
        let mut operations = self.client.operations(&filter)?;
        operations.sort_by(|a, b| (&a.created, &a.name).cmp(&(&b.created, &b.name)));
        Ok(operations)
    }

    fn logs(&self, context: &Context<'_>, args: &LogsArgs) -> Result<(), CliError> {
        let latest = self.operations_of(self.namespace.as_deref(), Some(&args.name))?.pop();
        let name = latest.map_or_else(|| args.name.clone(), |operation| operation.name);
        if args.steps {
            return self.steps(context, &name, args.output);
        }
        for line in self.client.log(&name, args.follow, args.tail)? {
            context.output.result(&format!("{}\n", line?))?;
        }
        Ok(())
    }
}

impl ServerCommands {
    fn steps(&self, context: &Context<'_>, operation: &str, format: Format) -> Result<(), CliError> {
        let steps = self.client.steps(operation)?;
        let mut table = TextTable::new(&["STARTED", "HOST", "STEP", "RESULT", "CAUSE"])
            .wide(&["ENDED", "ADDRESS", "WHY"]);
        for step in &steps.items {
            table.row([
                step.started.clone(),
                step.name.clone(),
                step.step.clone(),
                step.result.clone(),
                step.cause.clone().unwrap_or_default(),
                step.ended.clone().unwrap_or_default(),
                step.host.clone(),
                step.why.clone(),
            ]);
        }
        let names = steps.items.iter().map(|step| format!("{}: {}", step.name, step.step)).collect();
        context.output.result(&CommandResult::new(&steps, table, names)?.text(format)?)?;
        if !steps.complete {
            context
                .output
                .info(&format!("operation {operation} has not ended: its steps are recorded at its end"));
        }
        Ok(())
    }
}

fn first_line(text: Option<&String>) -> String {
    text.and_then(|text| text.lines().next()).unwrap_or_default().to_owned()
}

fn columns(cluster: &ClusterView) -> [String; 10] {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    [
        cluster.namespace.clone(),
        cluster.name.clone(),
        cluster.phase.clone().unwrap_or_else(|| "?".to_owned()),
        text(&cluster.version),
        text(&cluster.ready),
        text(&cluster.step),
        first_line(cluster.reason.as_ref()),
        text(&cluster.api_endpoint),
        text(&cluster.region),
        cluster.uid.clone(),
    ]
}

fn head_rows(cluster: &ClusterView) -> Vec<[String; 2]> {
    let rows = [
        ("cluster", Some(format!("{}/{}", cluster.namespace, cluster.name))),
        ("phase", cluster.phase.clone()),
        ("reason", cluster.reason.clone()),
        ("operation", cluster.operation.clone()),
        ("step", cluster.step.clone()),
        ("version", cluster.version.clone()),
        ("ready", cluster.ready.clone()),
        ("API", cluster.api_endpoint.clone()),
    ];
    rows.into_iter().filter_map(|(title, text)| Some([title.to_owned(), text?])).collect()
}

fn host_columns(host: &HostView) -> [String; 5] {
    let ready = host.ready.map_or("?", |ready| if ready { "yes" } else { "no" });
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    [host.ip.clone(), text(&host.name), text(&host.role), ready.to_owned(), text(&host.version)]
}
