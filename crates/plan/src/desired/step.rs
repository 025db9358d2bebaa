//! A step as it should be, and the kinds of steps that several stages have.

use kubeon_api::HostAddress;
use kubeon_wire::{Check, Link, Op};

use crate::context::{ObservedHost, PlanContext};
use crate::stage_name::StageName;
use crate::step_id::StepId;

/// A step as it should be. [`crate::diff`] decides whether it is needed.
#[derive(Debug, Clone)]
pub(crate) struct DesiredStep {
    pub(crate) id: StepId,
    pub(crate) host: HostAddress,
    pub(crate) title: String,
    /// Why it is needed on a host that never did it.
    pub(crate) because: &'static str,
    /// Steps that come before.
    pub(crate) needs: Vec<StepId>,
    /// Those of the needs whose content this step reads: when they change, it is done again.
    pub(crate) reads: Vec<StepId>,
    pub(crate) timeout_seconds: u32,
    pub(crate) tries: u8,
    /// Whether it is a look, not a change: done again whenever something that it reads is, or, where it names
    /// nothing that it reads, something that it comes after.
    pub(crate) check: bool,
    /// What the snapshot shows when that which a check waits for is not so now.
    pub(crate) unmet: Option<String>,
    /// Whether the host's journal remembers it.
    pub(crate) journal: bool,
    /// Whether it destroys something that cannot be had back.
    pub(crate) destructive: bool,
    pub(crate) op: Op,
}

impl DesiredStep {
    pub(crate) fn new(host: &ObservedHost<'_>, id: StepId, op: Op) -> Self {
        Self::on(host.address(), id, op)
    }

    pub(crate) fn on(host: HostAddress, id: StepId, op: Op) -> Self {
        Self {
            id,
            host,
            title: String::new(),
            because: "it was not done yet",
            needs: Vec::new(),
            reads: Vec::new(),
            timeout_seconds: 60,
            tries: 3,
            check: false,
            unmet: None,
            journal: true,
            destructive: false,
            op,
        }
    }

    pub(crate) fn title(mut self, title: impl Into<String>) -> Self {
        self.title = title.into();
        self
    }

    pub(crate) fn because(mut self, because: &'static str) -> Self {
        self.because = because;
        self
    }

    pub(crate) fn needs(mut self, needs: impl IntoIterator<Item = StepId>) -> Self {
        self.needs.extend(needs);
        self
    }

    pub(crate) fn reads(mut self, reads: impl IntoIterator<Item = StepId>) -> Self {
        for id in reads {
            self.needs.push(id.clone());
            self.reads.push(id);
        }
        self
    }

    pub(crate) fn within(mut self, seconds: u32) -> Self {
        self.timeout_seconds = seconds;
        self
    }

    /// A look, not a change: tried once, and due until it held for all that it comes after.
    pub(crate) fn check(mut self, unmet: Option<String>) -> Self {
        self.check = true;
        self.tries = 1;
        self.unmet = unmet;
        self
    }

    /// Needed now, for this reason, whatever was done before; no journal remembers it.
    pub(crate) fn once(mut self, why: String) -> Self {
        self.unmet = Some(why);
        self.journal = false;
        self
    }

    /// Destroys something that cannot be had back; may be tried so often in all.
    pub(crate) fn destroys(mut self, tries: u8) -> Self {
        self.destructive = true;
        self.tries = tries;
        self
    }
}

/// The name of the stage of the parts.
pub(crate) const ARTIFACTS: StageName = StageName::Artifacts;

/// The step that unpacks a part on a host.
pub(crate) fn part_id(part: &str, host: &ObservedHost<'_>) -> StepId {
    host.id(ARTIFACTS, part)
}

/// Links that choose the bundle's version of parts, and put programs where people look for them.
pub(crate) fn choose(
    site: &PlanContext<'_>,
    host: &ObservedHost<'_>,
    id: StepId,
    parts: &[&str],
    programs: &[(&str, &str)],
) -> DesiredStep {
    use kubeon_render::paths::{PARTS, current, program};
    let chosen = parts
        .iter()
        .map(|part| Link { path: current(part), target: format!("{PARTS}/{}", site.part(part).digest) });
    let visible = programs
        .iter()
        .map(|(part, name)| Link { path: format!("/usr/local/bin/{name}"), target: program(part, name) });
    DesiredStep::new(host, id, Op::Links { links: chosen.chain(visible).collect() })
        .title(format!("choose {}", parts.join(", ")))
        .because("no version is chosen")
        .needs(parts.iter().map(|part| part_id(part, host)))
}

/// One systemd service of a host.
pub(crate) struct Daemon<'a> {
    pub(crate) id: StepId,
    pub(crate) unit_name: &'a str,
    pub(crate) unit: String,
    pub(crate) watches: Vec<String>,
    pub(crate) ready: Vec<Check>,
}

impl Daemon<'_> {
    pub(crate) fn into_step(self, host: &ObservedHost<'_>) -> DesiredStep {
        let Self { id, unit_name, unit, watches, ready } = self;
        DesiredStep::new(host, id, Op::Service { name: unit_name.to_owned(), unit, watches, ready })
            .title(format!("start {}", unit_name.trim_end_matches(".service")))
            .because("its unit is not running")
            .within(180)
    }
}
