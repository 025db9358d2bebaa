//! Checks the operators' logs: lines of JSON with time, level, target and fields.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::MINUTE;
use super::environment::{MetaCluster, OPERATOR, time};

/// Their pods.
const PODS: &str = "app.kubernetes.io/name=kubeon,app.kubernetes.io/component=operator";
const LEVELS: [&str; 4] = ["ERROR", "WARN", "INFO", "DEBUG"];

/// Checks every line of both operators since their start.
pub(crate) fn are_structured(meta: &MetaCluster) -> Result<()> {
    let words = ["-n", OPERATOR, "logs", "-l", PODS, "--tail=-1"];
    let said = meta.eventually("what they say can be read", MINUTE, || meta.kubectl(&words))?;
    let lines = said.lines().map(read).collect::<Result<Vec<Value>>>()?;
    let starts = lines.iter().map(|line| &line["fields"]);
    let starts = starts.filter(|it| it["message"] == "the operator starts" && it["namespace"] == OPERATOR);
    let count = starts.count();
    ensure!(count >= 2, "{count} operators say that they start: {said}");
    Ok(())
}

fn read(text: &str) -> Result<Value> {
    let line: Value = serde_json::from_str(text).with_context(|| format!("it is no JSON: {text}"))?;
    time(&line["timestamp"]).with_context(|| text.to_owned())?;
    let level = LEVELS.iter().any(|level| line["level"] == *level);
    ensure!(level && line["target"].is_string() && line["fields"].is_object(), "{text}");
    Ok(line)
}
