//! Alert rules, a scrape definition and a dashboard, as files. Tests compare [`METRICS`] with the queries here and with the
//! metrics of an operator.

use serde_json::{Value, json};

use crate::manifest::{HEADER, document};
use crate::objects::metadata::metadata;
use crate::{InstallError, names};

/// A metric of the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Metric {
    /// Its name; for a histogram without `_bucket`, `_sum` and `_count`.
    pub name: &'static str,
    /// Its labels, without the labels that Prometheus adds.
    pub labels: &'static [&'static str],
}

/// All of the operator's metrics, by name.
pub const METRICS: [Metric; 14] = [
    Metric { name: "kubeon_operator_drifted_clusters", labels: &[] },
    Metric { name: "kubeon_operator_events_dropped", labels: &[] },
    Metric { name: "kubeon_operator_events_total", labels: &["word"] },
    Metric { name: "kubeon_operator_first_certificate_end_seconds", labels: &[] },
    Metric { name: "kubeon_operator_leader", labels: &[] },
    Metric { name: "kubeon_operator_objects", labels: &["word"] },
    Metric { name: "kubeon_operator_observed_clusters", labels: &["word"] },
    Metric { name: "kubeon_operator_operations", labels: &["word"] },
    Metric { name: "kubeon_operator_queue_keys", labels: &["word"] },
    Metric { name: "kubeon_operator_reconcile_seconds", labels: &["le"] },
    Metric { name: "kubeon_operator_reconciles_total", labels: &["word"] },
    Metric { name: "kubeon_operator_requests_at_once", labels: &[] },
    Metric { name: "kubeon_operator_requests_total", labels: &["kind", "result", "verb"] },
    Metric { name: "kubeon_operator_watch_failures_total", labels: &["word"] },
];

/// Files below `deploy/monitoring/`: their path there and their text.
///
/// # Errors
/// When an object cannot be written as YAML.
pub fn files() -> Result<Vec<(String, String)>, InstallError> {
    let groups = json!({"groups": [{"name": "kubeon", "rules": alerts()}]});
    let rule = json!({
        "apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule",
        "metadata": metadata(names::NAMESPACE, names::OPERATOR), "spec": groups,
    });
    let scrape = json!({
        "apiVersion": "monitoring.coreos.com/v1", "kind": "PodMonitor",
        "metadata": metadata(names::NAMESPACE, names::OPERATOR),
        "spec": {
            "selector": {"matchLabels": {"app.kubernetes.io/component": "operator", "app.kubernetes.io/name": "kubeon"}},
            "podMetricsEndpoints": [{"port": "metrics", "interval": "30s"}],
        },
    });
    Ok(vec![
        ("alerts.yaml".to_owned(), format!("{HEADER}{}", document(&groups)?)),
        ("prometheus-rule.yaml".to_owned(), format!("{HEADER}{}", document(&rule)?)),
        ("pod-monitor.yaml".to_owned(), format!("{HEADER}{}", document(&scrape)?)),
        ("dashboard.json".to_owned(), format!("{:#}\n", dashboard())),
    ])
}

struct Alert {
    name: &'static str,
    expr: &'static str,
    /// How long the query must be true.
    duration: &'static str,
    severity: &'static str,
    summary: &'static str,
    description: &'static str,
}

fn alerts() -> Vec<Value> {
    ALERTS
        .iter()
        .map(|alert| {
            json!({
                "alert": alert.name, "expr": alert.expr, "for": alert.duration,
                "labels": {"severity": alert.severity},
                "annotations": {"summary": alert.summary, "description": alert.description},
            })
        })
        .collect()
}

const ALERTS: [Alert; 10] = [
    Alert {
        name: "KubeonOperatorAbsent",
        expr: "absent(kubeon_operator_leader)",
        duration: "5m",
        severity: "critical",
        summary: "No operator is running.",
        description: "Running clusters keep running. No operation starts, and the API server refuses changes of \
                      KubernetesClusters. kubectl -n kubeon-system get pods",
    },
    Alert {
        name: "KubeonNoLeader",
        expr: "sum(kubeon_operator_leader) == 0",
        duration: "2m",
        severity: "critical",
        summary: "Operators run, but none is the leader.",
        description: "kubectl -n kubeon-system get lease kubeon-operator -o yaml",
    },
    Alert {
        name: "KubeonTwoLeaders",
        expr: "sum(kubeon_operator_leader) > 1",
        duration: "1m",
        severity: "warning",
        summary: "More than one operator reports that it is the leader.",
        description: "A clock jumped or a process was suspended. The API server still decides about conflicting \
                      writes.",
    },
    Alert {
        name: "KubeonReconcilesFail",
        expr: "sum(rate(kubeon_operator_reconciles_total{word=\"failed\"}[10m])) > 0.1",
        duration: "15m",
        severity: "warning",
        summary: "Reconciles fail repeatedly.",
        description: "The operator cannot write its changes. Its log contains the request and the response.",
    },
    Alert {
        name: "KubeonQueueKeysWait",
        expr: "sum(kubeon_operator_queue_keys{word=\"ready\"}) > 100",
        duration: "10m",
        severity: "warning",
        summary: "More than 100 queue keys wait for a reconcile.",
        description: "The API server is slow, or --workers is too small for this many clusters.",
    },
    Alert {
        name: "KubeonClustersUnreachable",
        expr: "sum(kubeon_operator_observed_clusters{word=\"unreachable\"}) > 0",
        duration: "2m",
        severity: "critical",
        summary: "The API server of a business cluster does not answer.",
        description: "kubectl get kubernetesclusters --all-namespaces; the condition Ready contains the cause.",
    },
    Alert {
        name: "KubeonCertificatesEnd",
        expr: "min(kubeon_operator_first_certificate_end_seconds > 0) - time() < 14 * 86400",
        duration: "30m",
        severity: "warning",
        summary: "A certificate of a business cluster ends within 14 days.",
        description: "Masters renew their certificates after two thirds of their life. kubectl get kubernetesclusters \
                      --all-namespaces -o yaml; the condition CertificatesRenewed names the master and the file.",
    },
    Alert {
        name: "KubeonMastersDrifted",
        expr: "sum(kubeon_operator_drifted_clusters) > 0",
        duration: "30m",
        severity: "warning",
        summary: "Files or units of masters of a business cluster were changed by something else than kubeon.",
        description: "kubectl get kubernetesclusters --all-namespaces -o yaml; the condition Drifted names the master and the file. \
                      The operation repairing restores them.",
    },
    Alert {
        name: "KubeonOperationsFail",
        expr: "sum(increase(kubeon_operator_events_total{word=~\".*Failed\",word!=\"StepFailed\"}[15m])) > 0",
        duration: "0m",
        severity: "warning",
        summary: "An operation failed.",
        description: "kubectl get clusteroperations; its status contains the reason, its ConfigMap the log.",
    },
    Alert {
        name: "KubeonWatchesBreak",
        expr: "sum(rate(kubeon_operator_watch_failures_total[10m])) > 0.2",
        duration: "15m",
        severity: "warning",
        summary: "Watches of the API server fail repeatedly.",
        description: "The API server or the connection to it is unreliable. The data of the operator may be \
                      outdated.",
    },
];

fn dashboard() -> Value {
    let panels: Vec<Value> = PANELS.iter().enumerate().map(|(index, panel)| panel.json(index)).collect();
    json!({
        "title": "kubeon", "uid": "kubeon-operator", "schemaVersion": 39, "version": 1, "editable": true,
        "tags": ["kubernetes", "kubeon"], "timezone": "", "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [{
            "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
        }]},
        "panels": panels,
    })
}

struct Panel {
    title: &'static str,
    kind: &'static str,
    unit: &'static str,
    queries: &'static [(&'static str, &'static str)],
}

const PANELS: [Panel; 13] = [
    Panel {
        title: "Clusters and operations",
        kind: "stat",
        unit: "short",
        queries: &[("max by (word) (kubeon_operator_objects)", "{{word}}")],
    },
    Panel {
        title: "Business clusters by health",
        kind: "timeseries",
        unit: "short",
        queries: &[("sum by (word) (kubeon_operator_observed_clusters)", "{{word}}")],
    },
    Panel {
        title: "End of the first certificate",
        kind: "stat",
        unit: "dateTimeFromNow",
        // Only the leader knows it.
        queries: &[("max(kubeon_operator_first_certificate_end_seconds) * 1000", "first certificate")],
    },
    Panel {
        title: "Clusters whose masters were changed",
        kind: "stat",
        unit: "short",
        // Only the leader knows them.
        queries: &[("max(kubeon_operator_drifted_clusters)", "clusters")],
    },
    Panel {
        title: "Leader",
        kind: "stat",
        unit: "short",
        queries: &[("sum(kubeon_operator_leader)", "leaders")],
    },
    Panel {
        title: "Events by reason",
        kind: "timeseries",
        unit: "short",
        queries: &[("sum by (word) (increase(kubeon_operator_events_total[5m]))", "{{word}}")],
    },
    Panel {
        title: "Operations that run and that wait",
        kind: "timeseries",
        unit: "short",
        queries: &[("max by (word) (kubeon_operator_operations)", "{{word}}")],
    },
    Panel {
        title: "Queue keys",
        kind: "timeseries",
        unit: "short",
        queries: &[("sum by (word) (kubeon_operator_queue_keys)", "{{word}}")],
    },
    Panel {
        title: "Reconciles per second",
        kind: "timeseries",
        unit: "ops",
        queries: &[("sum by (word) (rate(kubeon_operator_reconciles_total[5m]))", "{{word}}")],
    },
    Panel {
        title: "Reconcile duration",
        kind: "timeseries",
        unit: "s",
        queries: &[
            (
                "histogram_quantile(0.5, sum by (le) (rate(kubeon_operator_reconcile_seconds_bucket[5m])))",
                "median",
            ),
            (
                "histogram_quantile(0.99, sum by (le) (rate(kubeon_operator_reconcile_seconds_bucket[5m])))",
                "99th percentile",
            ),
        ],
    },
    Panel {
        title: "Requests to the API server",
        kind: "timeseries",
        unit: "reqps",
        queries: &[("sum by (verb, kind) (rate(kubeon_operator_requests_total[5m]))", "{{verb}} {{kind}}")],
    },
    Panel {
        title: "Failed watches",
        kind: "timeseries",
        unit: "short",
        queries: &[("sum by (word) (increase(kubeon_operator_watch_failures_total[5m]))", "{{word}}")],
    },
    Panel {
        title: "Events dropped since the start",
        kind: "stat",
        unit: "short",
        queries: &[("sum(kubeon_operator_events_dropped)", "dropped")],
    },
];

impl Panel {
    fn json(&self, index: usize) -> Value {
        let source = json!({"type": "prometheus", "uid": "${datasource}"});
        let targets: Vec<Value> = self
            .queries
            .iter()
            .zip(["A", "B"])
            .map(|((query, legend), name)| {
                json!({"refId": name, "expr": query, "legendFormat": legend, "datasource": source})
            })
            .collect();
        json!({
            "id": index + 1, "title": self.title, "type": self.kind, "datasource": source, "targets": targets,
            "gridPos": {"x": index % 2 * 12, "y": index / 2 * 8, "w": 12, "h": 8},
            "fieldConfig": {"defaults": {"unit": self.unit}, "overrides": []},
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queries() -> impl Iterator<Item = &'static str> {
        ALERTS.iter().map(|alert| alert.expr).chain(PANELS.iter().flat_map(|p| p.queries).map(|q| q.0))
    }

    /// The metrics that a query names.
    fn metrics(query: &str) -> impl Iterator<Item = &'static Metric> {
        let words = query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        words.filter(|word| word.starts_with("kubeon_")).map(move |word| {
            let name = word.trim_end_matches("_bucket");
            let found = METRICS.iter().find(|metric| metric.name == name);
            found.unwrap_or_else(|| panic!("{name} in {query}"))
        })
    }

    /// The labels that a query selects or groups by.
    fn labels(query: &str) -> Vec<&str> {
        let within = |open: &'static str, close: char| {
            query.split(open).skip(1).filter_map(move |rest| Some(rest.split_once(close)?.0))
        };
        let chosen = within("{", '}').flat_map(|list| list.split(','));
        let chosen = chosen.filter_map(|condition| condition.split(['=', '!']).next());
        let grouped = within("by (", ')').flat_map(|list| list.split(','));
        chosen.chain(grouped).map(str::trim).collect()
    }

    #[test]
    fn queries_use_only_existing_metrics_and_labels() {
        for query in queries() {
            let metrics: Vec<_> = metrics(query).collect();
            assert!(!metrics.is_empty(), "{query}");
            for label in labels(query) {
                assert!(metrics.iter().all(|metric| metric.labels.contains(&label)), "{label} in {query}");
            }
        }
        assert!(METRICS.is_sorted());
    }

    #[test]
    fn legends_name_the_labels_that_their_query_groups_by() {
        for (query, legend) in PANELS.iter().flat_map(|panel| panel.queries) {
            for rest in legend.split("{{").skip(1) {
                let label = rest.split("}}").next().unwrap();
                assert!(labels(query).contains(&label), "{label} of {legend} in {query}");
            }
        }
    }
}
