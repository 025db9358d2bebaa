//! A real Prometheus reads the operator's metrics, loads the shipped alerts, and answers all queries of the
//! dashboard. `scripts/setup test` downloads it.

#![allow(clippy::print_stdout, reason = "the output of Prometheus helps to debug the test")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use kubeon_api::kubeonkube::OperationResult;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Duration, sleep, timeout};

use crate::http::{body, free_port};
use crate::lab::{Lab, TIMEOUT};

fn shipped(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/monitoring").join(file).canonicalize().unwrap()
}

fn on_path(name: &str) -> bool {
    Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// A program of Prometheus: from the PATH, or from `scripts/setup test`.
fn program(name: &str) -> PathBuf {
    if on_path("prometheus") && on_path("promtool") {
        return name.into();
    }
    let path =
        |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    let default = || path("XDG_CACHE_HOME").or_else(|| Some(path("HOME")?.join(".cache")));
    let cache = path("KUBEON_CACHE").or_else(|| Some(default()?.join("kubeon"))).expect("no cache folder");
    let found = cache.join("tools/prometheus").join(name);
    assert!(found.exists(), "there is no {name}: run scripts/setup test");
    found
}

/// Checks a file with promtool.
fn promtool(what: &str, file: &Path) {
    let output = Command::new(program("promtool")).args(["check", what]).arg(file).output().unwrap();
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}");
    println!("{}", text.trim());
}

/// A Prometheus that reads one operator every second, with the shipped alerts.
struct Prometheus {
    port: u16,
    process: Child,
    _folder: TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Prometheus {
    fn start(target: &str, rules: &Path) -> Self {
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        let file = folder.path().join("prometheus.yml");
        let config = json!({
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [rules],
            "scrape_configs": [{"job_name": "kubeon", "static_configs": [{"targets": [target]}]}],
        });
        std::fs::write(&file, config.to_string()).unwrap();
        promtool("config", &file);
        // The kernel kills it with the test's thread.
        let process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program("prometheus"))
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg("--log.level=error")
            .current_dir(folder.path())
            .spawn()
            .unwrap();
        Self { port, process, _folder: folder }
    }

    /// Polls until the condition is true for the data of the answer; returns the data.
    async fn until(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = String::new();
        let polls = async {
            loop {
                last = body(self.port, path).await;
                // During its start it does not answer with JSON.
                if let Ok(mut answer) = serde_json::from_str::<Value>(&last) {
                    assert_eq!(answer["status"], "success", "{path}: {answer:#}");
                    let data = answer["data"].take();
                    if wanted(&data) {
                        return data;
                    }
                }
                sleep(Duration::from_millis(200)).await;
            }
        };
        let in_time = timeout(TIMEOUT, polls).await;
        in_time.unwrap_or_else(|_| panic!("the last answer of Prometheus for {path}: {last}"))
    }

    /// The samples of a query, once the condition is true for them.
    async fn until_query(&self, query: &str, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let path = format!("/api/v1/query?query={}", encoded(query));
        let samples = |data: &Value| data["result"].as_array().cloned().expect("a vector");
        samples(&self.until(&path, |data| wanted(&samples(data))).await)
    }

    async fn query(&self, query: &str) -> Vec<Value> {
        self.until_query(query, |_| true).await
    }

    /// Waits until Prometheus has read this number of events with this reason.
    async fn until_read(&self, reason: &str, number: usize) {
        let query = format!("kubeon_operator_events_total{{word={reason:?}}} >= {number}");
        self.until_query(&query, |samples| !samples.is_empty()).await;
    }

    /// The rules, after all of them were evaluated with the samples that were read so far.
    async fn evaluated_rules(&self) -> Vec<Value> {
        let group = |data: &Value| data["groups"][0].clone();
        let mut last = Value::Null;
        // The next reported evaluation may have started earlier.
        for _ in 0..2 {
            let other = |data: &Value| {
                let rules = group(data)["rules"].as_array().cloned().unwrap_or_default();
                let all = rules.iter().all(|rule| rule["health"] != "unknown");
                all && !rules.is_empty() && group(data)["lastEvaluation"] != last["lastEvaluation"]
            };
            last = group(&self.until("/api/v1/rules", other).await);
        }
        last["rules"].as_array().cloned().unwrap()
    }

    /// Waits until exactly these alerts are pending or fire.
    async fn until_alerts(&self, wanted: &[&str]) {
        let state =
            |alert: &Value| format!("{} {}", text(&alert["labels"]["alertname"]), text(&alert["state"]));
        let now = |data: &Value| {
            let found: BTreeSet<_> = data["alerts"].as_array().unwrap().iter().map(state).collect();
            found == wanted.iter().map(|&one| one.to_owned()).collect()
        };
        self.until("/api/v1/alerts", now).await;
        println!("alerts: {wanted:?}");
    }

    /// The labels of every series that the operator serves.
    async fn series(&self) -> BTreeSet<String> {
        let all = r#"{__name__=~"kubeon_.*"}"#;
        let samples = self.until_query(all, |samples| !samples.is_empty()).await;
        samples.iter().map(|sample| sample["metric"].to_string()).collect()
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Percent-encodes ASCII text for a URL.
fn encoded(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.chars().map(|c| if plain(c) { c.to_string() } else { format!("%{:02X}", u32::from(c)) }).collect()
}

/// The queries of the panels, as Grafana sends them.
fn panel_queries() -> Vec<String> {
    let dashboard = std::fs::read_to_string(shipped("dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let queries = targets.map(|target| {
        let query = text(&target["expr"]).replace("$__rate_interval", "1m").replace("$__interval", "1m");
        assert!(!query.is_empty() && !query.contains('$'), "{target}");
        query
    });
    queries.collect()
}

/// Creates a cluster with an operation that succeeds.
async fn succeed(lab: &Lab, name: &str) {
    lab.cluster(name).await;
    lab.create_shell_operation(name, name).await;
    lab.finish(name).await;
}

/// Creates a cluster with an operation that fails.
async fn fail(lab: &Lab, name: &str) {
    lab.cluster(name).await;
    lab.create_shell_operation(name, name).await;
    let running = lab.wait_result(name, OperationResult::Running).await;
    lab.end_job(&lab.job_names(&running).await[0], false).await;
    lab.wait_result(name, OperationResult::Failed).await;
}

async fn check_target(prometheus: &Prometheus) {
    let up = |data: &Value| {
        let targets = data["activeTargets"].as_array().unwrap();
        targets.len() == 1 && targets[0]["health"] == "up" && targets[0]["lastError"] == ""
    };
    prometheus.until("/api/v1/targets", up).await;
}

async fn check_rules(prometheus: &Prometheus) {
    let rules = prometheus.evaluated_rules().await;
    let shipped = std::fs::read_to_string(shipped("alerts.yaml")).unwrap();
    assert_eq!(rules.len(), shipped.matches("- alert: ").count());
    for rule in &rules {
        assert!(rule["health"] == "ok" && text(&rule["lastError"]).is_empty(), "{rule:#}");
    }
    println!("rules: {} are healthy", rules.len());
}

/// No answer is empty, because counters of events that did not happen start at zero.
async fn check_panels(prometheus: &Prometheus) {
    let queries = panel_queries();
    for query in &queries {
        let number = |sample: &Value| text(&sample["value"][1]).parse::<f64>().is_ok_and(f64::is_finite);
        let samples =
            prometheus.until_query(query, |samples| !samples.is_empty() && samples.iter().all(number)).await;
        println!("panel: {} samples of {query}", samples.len());
    }
    assert!(!queries.is_empty());
}

/// Labels with names of objects would add series in every round. A new result of a request may appear once.
async fn check_series_are_bounded(lab: &Lab, prometheus: &Prometheus) {
    let mut before = prometheus.series().await;
    for round in 1..6 {
        succeed(lab, &format!("round-{round}-good")).await;
        fail(lab, &format!("round-{round}-bad")).await;
        prometheus.until_read("Succeeded", 2 + round).await;
        prometheus.until_read("Failed", 1 + round).await;
        let after = prometheus.series().await;
        let added: Vec<_> = after.difference(&before).collect();
        println!("series: {} after round {round}, new: {added:?}", after.len());
        assert!(!after.iter().any(|labels| labels.contains("round-")), "{after:#?}");
        if added.is_empty() {
            return;
        }
        before = after;
    }
    panic!("every round added series");
}

#[tokio::test]
async fn prometheus_loads_the_alerts_and_answers_the_queries_of_the_dashboard() {
    let rules = shipped("alerts.yaml");
    promtool("rules", &rules);
    let lab = Lab::open().await;
    lab.start();
    lab.metrics().await;
    let prometheus = Prometheus::start(&lab.metrics_address(), &rules);
    check_target(&prometheus).await;
    // A counter that does not start at zero increases only with its second event.
    succeed(&lab, "first").await;
    prometheus.until_read("Succeeded", 1).await;
    succeed(&lab, "second").await;
    prometheus.until_read("Succeeded", 2).await;
    check_rules(&prometheus).await;
    prometheus.until_alerts(&[]).await;
    let alerts = prometheus.query(r#"count_over_time(ALERTS{alertname="KubeonOperationsFail"}[1h])"#).await;
    assert!(alerts.is_empty(), "an alert was active before the first failure: {alerts:#?}");
    fail(&lab, "third").await;
    prometheus.until_alerts(&["KubeonOperationsFail firing"]).await;
    check_panels(&prometheus).await;
    check_series_are_bounded(&lab, &prometheus).await;
    check_rules(&prometheus).await;
    // A target that does not answer has no series.
    lab.kill().await;
    prometheus.until_alerts(&["KubeonOperationsFail firing", "KubeonOperatorAbsent pending"]).await;
}
