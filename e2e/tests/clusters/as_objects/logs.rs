//! Checks the operators' logs: lines of JSON with time, level, target and fields.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::MINUTE;
use super::environment::{MetaCluster, OPERATOR, time};

/// The label selector of the operators' pods.
const PODS: &str = "app.kubernetes.io/name=kubeon,app.kubernetes.io/component=operator";
const LEVELS: [&str; 4] = ["ERROR", "WARN", "INFO", "DEBUG"];

/// Checks every line of both operators since their start.
pub(crate) fn are_structured(meta: &MetaCluster) -> Result<()> {
    let arguments = ["-n", OPERATOR, "logs", "-l", PODS, "--tail=-1"];
    let log = meta.eventually("the logs can be read", MINUTE, || meta.kubectl(&arguments))?;
    let lines = log.lines().map(parse).collect::<Result<Vec<Value>>>()?;
    let starts = lines.iter().map(|line| &line["fields"]);
    let starts =
        starts.filter(|fields| fields["message"] == "the operator starts" && fields["namespace"] == OPERATOR);
    let count = starts.count();
    ensure!(count >= 2, "the logs contain the start of {count} operators: {log}");
    Ok(())
}

fn parse(text: &str) -> Result<Value> {
    let line: Value = serde_json::from_str(text).with_context(|| format!("not JSON: {text}"))?;
    time(&line["timestamp"]).with_context(|| text.to_owned())?;
    let level = LEVELS.iter().any(|level| line["level"] == *level);
    ensure!(level && line["target"].is_string() && line["fields"].is_object(), "{text}");
    Ok(line)
}
