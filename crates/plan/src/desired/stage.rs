//! What a stage is.

use super::step::DesiredStep;
use crate::context::PlanContext;
use crate::stage_name::StageName;

/// One stage on the way from bare hosts to a cluster.
#[derive(Debug, Clone, Copy)]
pub struct Stage {
    /// Its name in plans and displays.
    pub name: StageName,
    /// What it does, in a few words.
    pub title: &'static str,
    /// Adds the steps of the stage.
    pub(crate) steps: fn(&PlanContext<'_>, &mut Vec<DesiredStep>),
}
