//! The type of a stage.

use super::step::DesiredStep;
use crate::context::PlanContext;
use crate::stage_name::StageName;

/// One stage of a plan.
#[derive(Debug, Clone, Copy)]
pub struct Stage {
    /// Its name in plans and displays.
    pub name: StageName,
    /// Its action in a few words.
    pub title: &'static str,
    /// Adds the steps of the stage.
    pub(crate) steps: fn(&PlanContext<'_>, &mut Vec<DesiredStep>),
}
