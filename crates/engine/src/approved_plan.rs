//! A plan that a person approved: a change applies it, and nothing else.

use std::io::Read as _;
use std::path::Path;

use kubeon_api::ClusterName;
use kubeon_plan::{Plan, UnapprovedStep};

use crate::cluster_target::ClusterTarget;
use crate::error::EngineError;
use crate::remedy::EngineRemedy;

/// The number of steps that an error names.
const NAMED_STEPS: usize = 8;

/// The first bytes of a file that Zstandard compressed.
const COMPRESSED: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The level of compression: plans are repetitive, so a low one suffices.
const LEVEL: i32 = 3;
/// The largest plan that is read, in bytes.
const LARGEST: u64 = 1 << 30;

/// Writes a plan to a file, for [`ApprovedPlan::read`]: JSON, compressed when the name of the file ends in `.zst`.
///
/// # Errors
/// When the file cannot be written.
pub fn write(plan: &Plan, file: &Path) -> Result<(), EngineError> {
    let failed = |error: &dyn std::fmt::Display| EngineError::failed(format!("{}: {error}", file.display()));
    let json = serde_json::to_vec(plan).map_err(|error| failed(&error))?;
    let is_compressed = file.extension().is_some_and(|extension| extension == "zst");
    let content = if is_compressed { zstd::encode_all(&json[..], LEVEL) } else { Ok(json) };
    let written = content.and_then(|content| kubeon_atomic_file::write_atomically(file, &content, 0o600));
    written.map_err(|error| failed(&error))
}

/// The text of a plan, which may be compressed.
fn text_of(file: &Path) -> std::io::Result<Vec<u8>> {
    let content = std::fs::read(file)?;
    if !content.starts_with(&COMPRESSED) {
        return Ok(content);
    }
    let mut text = Vec::new();
    zstd::Decoder::new(&content[..])?.take(LARGEST).read_to_end(&mut text)?;
    Ok(text)
}

/// A plan from an earlier dry run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovedPlan(Plan);

impl ApprovedPlan {
    /// Reads a plan that a dry run wrote.
    ///
    /// # Errors
    /// Refuses a file that cannot be read, or that is not a plan.
    pub fn read(file: &Path) -> Result<Self, EngineError> {
        let refused = |why: String| {
            EngineError::refused(format!("{}: {why}", file.display())).remedy(EngineRemedy::PlanAgain)
        };
        let text = text_of(file).map_err(|error| refused(error.to_string()))?;
        let plan =
            serde_json::from_slice(&text).map_err(|error| refused(format!("is not a plan: {error}")))?;
        Ok(Self(plan))
    }

    /// Checks that the plan is one of this target. A new cluster gets the identity that it has in the plan.
    ///
    /// # Errors
    /// Refuses the plan of another cluster.
    pub(crate) fn identify(&self, target: &mut ClusterTarget) -> Result<(), EngineError> {
        let planned = identity(&self.0);
        if let (false, Some(planned)) = (target.known, planned) {
            target.state.uid.clone_from(planned);
        }
        self.is_about(&target.spec.name, planned.map(|_| &target.state.uid))
    }

    /// Checks name and identity of a cluster; an identity that is not known is not compared.
    fn is_about(&self, name: &ClusterName, uid: Option<&String>) -> Result<(), EngineError> {
        let planned = &self.0;
        let title = if planned.cluster != *name {
            format!("the approved plan is about {}, not about {name}", planned.cluster)
        } else if uid.is_some() && identity(planned).is_some() && uid != identity(planned) {
            format!("the approved plan is about an earlier cluster with the name {name}")
        } else {
            return Ok(());
        };
        Err(EngineError::refused(title).remedy(EngineRemedy::PlanAgain))
    }

    /// Checks the plan that would be made now.
    ///
    /// # Errors
    /// Refuses the plan of another cluster, and steps that the approved plan does not contain with the same content.
    pub fn check(&self, now: &Plan) -> Result<(), EngineError> {
        self.is_about(&now.cluster, identity(now))?;
        let unapproved = now.unapproved(&self.0);
        if unapproved.is_empty() {
            return Ok(());
        }
        let count = match unapproved.len() {
            1 => "1 step is".to_owned(),
            more => format!("{more} steps are"),
        };
        let title = format!("the approved plan of {} is out of date: {count} not part of it", now.cluster);
        let named = unapproved.iter().take(NAMED_STEPS).map(row);
        let error = named.fold(EngineError::refused(title), |error, (step, text)| error.row(step, text));
        let more = unapproved.len().saturating_sub(NAMED_STEPS);
        let error = if more == 0 { error } else { error.row("…", format!("and {more} more")) };
        Err(error.remedy(EngineRemedy::PlanAgain))
    }
}

/// The identity of the cluster of a plan; none for a plan without hosts.
fn identity(plan: &Plan) -> Option<&String> {
    plan.hosts.values().next().map(|host| &host.fence.uid)
}

fn row(unapproved: &UnapprovedStep<'_>) -> (String, String) {
    match unapproved {
        UnapprovedStep::New(step) => (step.id.to_string(), format!("{}, because {}", step.title, step.why)),
        UnapprovedStep::Changed(step) => {
            (step.id.to_string(), format!("{}: its content differs from the approved one", step.title))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::planned;

    #[test]
    fn a_file_that_is_not_a_plan_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("plan.json");
        let missing = ApprovedPlan::read(&file).unwrap_err();
        assert!(missing.title.contains("plan.json: No such file"), "{missing}");
        let text = serde_json::to_string(&planned()).unwrap();
        for content in ["", "{}", &text[..text.len() / 2]] {
            std::fs::write(&file, content).unwrap();
            let error = ApprovedPlan::read(&file).unwrap_err();
            assert!(error.title.contains("plan.json: is not a plan: "), "{error}");
            assert_eq!(error.remedy.as_deref(), Some(&EngineRemedy::PlanAgain));
        }
        std::fs::write(&file, text).unwrap();
        assert_eq!(ApprovedPlan::read(&file).unwrap(), ApprovedPlan(planned()));
        let compressed = folder.path().join("plan.json.zst");
        write(&planned(), &compressed).unwrap();
        assert!(std::fs::metadata(&compressed).unwrap().len() < std::fs::metadata(&file).unwrap().len() / 4);
        assert_eq!(ApprovedPlan::read(&compressed).unwrap(), ApprovedPlan(planned()));
    }

    #[test]
    fn the_plan_of_another_cluster_is_refused() {
        let now = planned();
        let mut approved = ApprovedPlan(now.clone());
        for host in approved.0.hosts.values_mut() {
            host.fence.uid = "earlier".to_owned();
        }
        let error = approved.check(&now).unwrap_err();
        assert_eq!(error.title, "the approved plan is about an earlier cluster with the name demo");
        approved.0.cluster = "other".parse().unwrap();
        let error = approved.check(&now).unwrap_err();
        assert_eq!(error.title, "the approved plan is about other, not about demo");
    }

    #[test]
    fn steps_that_were_not_approved_are_named() {
        let now = planned();
        let mut approved = ApprovedPlan(now.clone());
        approved.check(&now).unwrap();
        let step = approved.0.steps.pop().unwrap();
        let error = approved.check(&now).unwrap_err();
        assert_eq!(error.title, "the approved plan of demo is out of date: 1 step is not part of it");
        assert_eq!(error.rows, [(step.id.to_string(), format!("{}, because {}", step.title, step.why))]);
        approved.0.steps.clear();
        let error = approved.check(&now).unwrap_err();
        assert_eq!(error.rows.len(), NAMED_STEPS + 1);
        assert_eq!(error.rows[NAMED_STEPS].1, format!("and {} more", now.steps.len() - NAMED_STEPS));
    }
}
