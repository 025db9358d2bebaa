//! The installation as a Helm chart.
//!
//! The chart's templates are the objects themselves, made from options that hold marks; the marks are then replaced by
//! template actions. What nobody can set is therefore the same text as in `deploy/kubeon.yaml`.
//!
//! ```text
//!   «replicas»                →  {{ .Values.replicas }}
//!   key: «block resources»    →  key: {{- toYaml .Values.resources | nindent N }}
//!   - F=«each watchNamespaces»→  {{- range .Values.watchNamespaces }} - F={{ . }} {{- end }}
//!   - F=«if callback.url»     →  {{- with .Values.callback.url }} - F={{ . }} {{- end }}
//! ```

use std::collections::BTreeMap;

use serde_json::json;

use crate::manifest::{HEADER, documents};
use crate::objects::{Part, rbac};
use crate::{InstallError, InstallOptions};

/// Marks are what no object holds.
const OPEN: char = '«';
const CLOSE: char = '»';
/// The mark of a watched namespace within a loop over them.
const EACH_NAMESPACE: &str = "«dot»";

/// Files below `deploy/chart/`: their path there and their text.
///
/// # Errors
/// When the types do not become definitions, an object does not become YAML, or a mark is left.
pub fn files() -> Result<Vec<(String, String)>, InstallError> {
    let options = marked();
    let mut files = vec![
        ("Chart.yaml".to_owned(), about()),
        ("values.yaml".to_owned(), values()),
        ("templates/NOTES.txt".to_owned(), NOTES.to_owned()),
        (".helmignore".to_owned(), "*.tgz\n".to_owned()),
    ];
    for part in Part::ALL {
        let text = match part {
            Part::Definitions => definitions(&options)?,
            Part::Rbac => accounts(&options)?,
            Part::Deployment | Part::Admission => documents(&part.objects(&options)?)?,
        };
        let file = format!("templates/{}.yaml", part.folder());
        files.push((file.clone(), format!("{HEADER}{}", templated(&file, &text)?)));
    }
    Ok(files)
}

/// Options with a mark wherever the chart has a value.
fn marked() -> InstallOptions {
    let block = |name: &str| format!("«block {name}»");
    InstallOptions {
        namespace: "«namespace»".to_owned(),
        watch_namespaces: vec!["«each watchNamespaces»".to_owned()],
        image: "«image»".to_owned(),
        replicas: json!("«replicas»"),
        runner_images: vec!["«each runnerImages»".to_owned()],
        operators: vec!["«operators»".to_owned()],
        resources: json!(block("resources")),
        node_selector: BTreeMap::from([("«with nodeSelector»".to_owned(), String::new())]),
        tolerations: vec![json!("«with tolerations»")],
        leader_election: "«leaderElection»".to_owned(),
        bundle_image: "«bundleImage»".to_owned(),
        history_limit: "«historyLimit»".to_owned(),
        callback_url: "«if callback.url»".to_owned(),
        callback_ca: "«if callback.caConfigMap»".to_owned(),
        otlp_endpoint: "«if traces.endpoint»".to_owned(),
    }
}

/// The kinds stay when the release goes: with a kind, every cluster's record would go.
fn definitions(options: &InstallOptions) -> Result<String, InstallError> {
    let mut objects = Part::Definitions.objects(options)?;
    for object in &mut objects {
        object["metadata"]["annotations"]["helm.sh/resource-policy"] = json!("keep");
    }
    Ok(format!("{{{{- if .Values.crds.install }}}}\n{}{{{{- end }}}}\n", documents(&objects)?))
}

/// Roles: those of one namespace once for each.
fn accounts(options: &InstallOptions) -> Result<String, InstallError> {
    let each = InstallOptions { watch_namespaces: Vec::new(), ..options.clone() };
    let own = rbac::objects(&each);
    let watched = rbac::watched_namespace(&each, EACH_NAMESPACE);
    Ok(format!(
        "{}{{{{- range without .Values.watchNamespaces .Release.Namespace }}}}\n{}{{{{- end }}}}\n",
        documents(&own)?,
        documents(&watched)?
    ))
}

/// The text with every mark replaced.
fn templated(file: &str, text: &str) -> Result<String, InstallError> {
    let mut lines = Vec::new();
    let mut skip_next = false;
    let mut block: Option<usize> = None;
    for line in text.lines() {
        if std::mem::take(&mut skip_next) {
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        if let Some(outer) = block.filter(|outer| indent <= *outer && !line.trim_start().starts_with("- ")) {
            lines.push(format!("{}{{{{- end }}}}", " ".repeat(outer)));
            block = None;
        }
        match line.trim_start() {
            item if item.starts_with("- ") && item.contains("«each ") => {
                lines.push(repeated(item, indent, ("each", "range")));
            }
            item if is_flag(item) && item.contains("«if ") => {
                lines.push(repeated(item, indent, ("if", "with")));
            }
            // The only files of the operator are those that vouch for the listener.
            key @ ("volumes:" | "volumeMounts:") => {
                let pad = " ".repeat(indent);
                lines.push(format!("{pad}{{{{- with .Values.callback.caConfigMap }}}}\n{pad}{key}"));
                block = Some(indent);
            }
            "nodeSelector:" => {
                lines.push(optional("nodeSelector", indent));
                skip_next = true;
            }
            "tolerations:" => {
                lines.push(optional("tolerations", indent));
                skip_next = true;
            }
            _ => lines.push(filled(line, indent)),
        }
    }
    let text = lines.join("\n") + "\n";
    match text.split_once(OPEN).and_then(|(_, rest)| rest.split_once(CLOSE)) {
        Some((mark, _)) => Err(InstallError::Mark { file: file.to_owned(), mark: mark.to_owned() }),
        None => Ok(text),
    }
}

/// Whether a list's item is a flag of a program.
fn is_flag(item: &str) -> bool {
    item.strip_prefix("- ").is_some_and(|text| unquoted(text).starts_with("--"))
}

/// A list's item, once for each of a value's, or once if there is a value.
fn repeated(item: &str, indent: usize, (word, action): (&str, &str)) -> String {
    let pad = " ".repeat(indent);
    let plain = unquoted(item.strip_prefix("- ").unwrap_or(item));
    let (before, rest) = plain.split_once(&format!("{OPEN}{word} ")).unwrap_or((plain, ""));
    let (value, after) = rest.split_once(CLOSE).unwrap_or((rest, ""));
    format!(
        "{pad}{{{{- {action} .Values.{value} }}}}\n{pad}- {{{{ printf \"{before}%s{after}\" . | quote }}}}\n{pad}{{{{- end }}}}"
    )
}

/// A key that is only there when its value is.
fn optional(key: &str, indent: usize) -> String {
    let pad = " ".repeat(indent);
    let inner = indent + 2;
    format!(
        "{pad}{{{{- with .Values.{key} }}}}\n{pad}{key}:\n{{{{ toYaml . | indent {inner} }}}}\n{pad}{{{{- end }}}}"
    )
}

fn filled(line: &str, indent: usize) -> String {
    if let Some((key, mark)) = line.split_once(": ").filter(|(_, rest)| rest.contains("«block ")) {
        let value = unquoted(mark).trim_start_matches("«block ").trim_end_matches(CLOSE);
        return format!("{key}:\n{{{{ toYaml .Values.{value} | indent {} }}}}", indent + 2);
    }
    let mut text = line.to_owned();
    for quoted in ["'«replicas»'", "\"«replicas»\"", "«replicas»"] {
        text = text.replace(quoted, "{{ .Values.replicas }}");
    }
    text.replace("«namespace»", "{{ $.Release.Namespace }}")
        .replace("«image»", "{{ .Values.image.repository }}:{{ .Values.image.tag | default (printf \"v%s\" .Chart.AppVersion) }}")
        .replace("«leaderElection»", "{{ .Values.leaderElection }}")
        .replace("«bundleImage»", "{{ .Values.bundleImage }}")
        .replace("«historyLimit»", "{{ .Values.historyLimit | quote }}")
        .replace(", '«operators»'", "{{ range .Values.operators }}, '{{ . }}'{{ end }}")
        .replace("«if callback.caConfigMap»", "{{ . }}")
        .replace(EACH_NAMESPACE, "{{ . }}")
}

fn unquoted(text: &str) -> &str {
    text.trim_matches(|c| c == '\'' || c == '"')
}

fn about() -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "{HEADER}apiVersion: v2\nname: kubeon\ntype: application\nversion: {version}\nappVersion: \"{version}\"\n\
         kubeVersion: \">=1.31.0-0\"\n\
         description: Kubernetes that raises Kubernetes. The operator of a meta cluster.\n"
    )
}

fn values() -> String {
    let options = InstallOptions::default();
    let (repository, _) = options.image.rsplit_once(':').unwrap_or((&options.image, ""));
    let list = |items: &[String]| items.iter().map(|item| format!("- {item}\n")).collect::<String>();
    format!(
        "{HEADER}\
         # Images whose process 1 is kubeon-runner; only their Jobs get a service account. The last one runs what a\n\
         # KubernetesCluster asks for.\n\
         runnerImages:\n{runners}\
         # Copies a bundle to where a Job finds it.\n\
         bundleImage: \"{bundle}\"\n\
         image:\n  repository: {repository}\n  # Default: the version of the chart.\n  tag: \"\"\n\
         # One replica works, all of them answer admission.\n\
         replicas: {replicas}\n\
         leaderElection: true\n\
         # Namespaces beside the release's own whose clusters, Secrets and Jobs are looked after. They must exist.\n\
         watchNamespaces:\n{watched}\
         # Who is told what came of operations of a KubernetesCluster, at https://…, and the ConfigMap beside the operator\n\
         # whose key ca.crt vouches for it. Default: nobody; the authorities of the runner's image.\n\
         callback:\n  url: \"\"\n  caConfigMap: \"\"\n\
         # The OpenTelemetry collector that traces are sent to, such as http://collector:4318. Default: none.\n\
         traces:\n  endpoint: \"\"\n\
         # Users beside the service account that may write what is the operator's.\n\
         operators: []\n\
         # Operations of a cluster that are kept, 1 to 200.\n\
         historyLimit: {limit}\n\
         resources:\n  requests:\n    cpu: 50m\n    memory: 64Mi\n  limits:\n    memory: 256Mi\n\
         nodeSelector: {{}}\n\
         tolerations: []\n\
         # The kinds stay when the release is uninstalled.\n\
         crds:\n  install: true\n",
        runners = list(&options.runner_images),
        bundle = options.bundle_image,
        replicas = options.replicas,
        watched = list(&options.watch_namespaces),
        limit = options.history_limit,
    )
}

const NOTES: &str = "\
kubeon looks after namespace {{ .Release.Namespace }}{{ range .Values.watchNamespaces }}, {{ . }}{{ end }}.

  kubectl -n {{ .Release.Namespace }} rollout status deployment/kubeon-operator
  kubectl get ecs -A -w
";
