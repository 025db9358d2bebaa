//! The result of a run, from ginkgo's JSON report.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Deserialize;

/// The tests that ran.
pub(super) struct TestReport {
    results: Vec<TestResult>,
}

struct TestResult {
    name: String,
    /// Why it failed.
    failure: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SuiteReport {
    #[serde(default)]
    spec_reports: Option<Vec<SpecReport>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SpecReport {
    #[serde(default)]
    container_hierarchy_texts: Option<Vec<String>>,
    leaf_node_type: String,
    leaf_node_text: String,
    state: String,
    #[serde(default)]
    failure: SpecFailure,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct SpecFailure {
    message: String,
}

impl TestReport {
    /// Reads the report of all suites.
    pub(super) fn load(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("{} is not a report of ginkgo", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let suites: Vec<SuiteReport> = serde_json::from_str(text)?;
        let reports = suites.into_iter().filter_map(|suite| suite.spec_reports).flatten();
        // A skipped test did not run. A failure before or after all tests belongs to no test, but must be seen.
        let ran = reports.filter(|report| match report.state.as_str() {
            "skipped" | "pending" => false,
            "passed" => report.leaf_node_type == "It",
            _ => true,
        });
        Ok(Self { results: ran.map(TestResult::from).collect() })
    }

    /// The number of tests that ran.
    pub(super) fn run(&self) -> usize {
        self.results.len()
    }

    /// The number of tests that passed.
    pub(super) fn passed(&self) -> usize {
        self.results.iter().filter(|result| result.failure.is_none()).count()
    }

    /// For people: failed tests, images that could not be made, the numbers.
    pub(super) fn text(&self, without_recipe: &[String]) -> String {
        let failed = self.results.iter().filter_map(|result| Some((&result.name, result.failure.as_ref()?)));
        let mut lines: Vec<String> =
            failed.map(|(name, why)| format!("failed: {name}\n        {}", first_line(why))).collect();
        lines.extend(without_recipe.iter().map(|image| format!("no image: {image}")));
        lines.push(format!("{} of {} tests passed", self.passed(), self.run()));
        lines.join("\n")
    }
}

impl From<SpecReport> for TestResult {
    fn from(report: SpecReport) -> Self {
        let mut words = report.container_hierarchy_texts.unwrap_or_default();
        words.push(if report.leaf_node_text.is_empty() {
            report.leaf_node_type
        } else {
            report.leaf_node_text
        });
        let why = |message: String| if message.is_empty() { report.state.clone() } else { message };
        let failure = (report.state != "passed").then(|| why(report.failure.message));
        Self { name: words.join(" "), failure }
    }
}

fn first_line(text: &str) -> &str {
    text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_the_tests_that_ran_and_names_those_that_failed() {
        let text = r#"[{"SpecReports": [
            {"ContainerHierarchyTexts": null, "LeafNodeType": "SynchronizedBeforeSuite", "LeafNodeText": "", "State": "passed"},
            {"ContainerHierarchyTexts": ["[sig-node] Pods"], "LeafNodeType": "It", "LeafNodeText": "run", "State": "passed"},
            {"ContainerHierarchyTexts": ["[sig-node] Pods"], "LeafNodeType": "It", "LeafNodeText": "skip", "State": "skipped"},
            {"ContainerHierarchyTexts": ["[sig-node] Pods"], "LeafNodeType": "It", "LeafNodeText": "break", "State": "failed",
             "Failure": {"Message": "\n  no such pod\nmore"}},
            {"ContainerHierarchyTexts": null, "LeafNodeType": "SynchronizedAfterSuite", "LeafNodeText": "", "State": "timedout"}
        ]}, {"SpecReports": null}]"#;
        let report = TestReport::parse(text).unwrap();
        assert_eq!((report.passed(), report.run()), (1, 3));
        assert_eq!(
            report.text(&["example.org/x:1".to_owned()]),
            "failed: [sig-node] Pods break\n        no such pod\nfailed: SynchronizedAfterSuite\n        timedout\n\
             no image: example.org/x:1\n1 of 3 tests passed"
        );
    }
}
