//! A desired step, and the kinds of steps that several stages share.

use kubeon_api::{HostAddress, HostName};
use kubeon_wire::{Check, Link, Op, program_of_unit};

use crate::context::{ObservedHost, PlanContext};
use crate::membership;
use crate::stage_name::StageName;
use crate::step_id::StepId;

/// A desired step. [`crate::diff`] decides whether it is needed.
#[derive(Debug, Clone)]
pub(crate) struct DesiredStep {
    pub(crate) id: StepId,
    pub(crate) host: HostAddress,
    pub(crate) title: String,
    /// The reason for the step on a host that never executed it.
    pub(crate) because: &'static str,
    /// Steps that come before.
    pub(crate) needs: Vec<StepId>,
    /// The needs whose content this step reads: if one of them changes, the step is repeated.
    pub(crate) reads: Vec<StepId>,
    /// The needs that stop what this step runs: if one of them runs, this step is repeated.
    pub(crate) stopped_by: Vec<StepId>,
    pub(crate) timeout_seconds: u32,
    pub(crate) tries: u8,
    /// Whether it is a check, not a change. A check is repeated when a step that it reads is executed, or, if
    /// it reads none, when a step that it needs is executed.
    pub(crate) check: bool,
    /// The reason, from the snapshot, why the condition of a check is not met now.
    pub(crate) unmet: Option<String>,
    /// Whether it is recorded.
    pub(crate) journal: bool,
    /// The API object in which the cluster records it; `None` for the journal of the host.
    pub(crate) record_in: Option<String>,
    /// Why it must not run now, although it may be needed.
    pub(crate) waits: Option<WaitReason>,
    /// Whether it destroys something that cannot be restored.
    pub(crate) destructive: bool,
    pub(crate) op: Op,
}

/// Why a step must wait for unreachable hosts.
#[derive(Debug, Clone)]
pub(crate) struct WaitReason {
    pub(crate) hosts: Vec<HostAddress>,
    pub(crate) risk: String,
}

/// The object in which the cluster records steps that concern no single node.
const CLUSTER_OBJECT: &str = "/api/v1/namespaces/kube-system";

impl DesiredStep {
    /// A step about the whole cluster. Any master may execute it; the cluster records it.
    pub(crate) fn of_cluster(context: &PlanContext<'_>, id: StepId, op: Op) -> Self {
        let record_in = Some(CLUSTER_OBJECT.to_owned());
        Self { record_in, ..Self::on(context.executor().address(), id, op) }
    }

    /// A step about the members of etcd. Any host of a member may execute it. The cluster records it if masters hold etcd: other
    /// hosts have no access to the API.
    pub(crate) fn of_members(context: &PlanContext<'_>, id: StepId, op: Op) -> Self {
        if context.has_external_etcd() {
            return Self::on(membership::executor(context).address(), id, op);
        }
        Self::of_cluster(context, id, op)
    }

    /// A step about a node, through the API. Its record ends with the node.
    pub(crate) fn of_node(context: &PlanContext<'_>, node: &HostName, id: StepId, op: Op) -> Self {
        let record_in = Some(format!("/api/v1/nodes/{node}"));
        Self { record_in, ..Self::on(context.executor().address(), id, op) }
    }

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
            stopped_by: Vec::new(),
            timeout_seconds: 60,
            tries: 3,
            check: false,
            unmet: None,
            journal: true,
            record_in: None,
            waits: None,
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

    /// The steps that stop what this step runs.
    pub(crate) fn stopped_by(mut self, steps: impl IntoIterator<Item = StepId>) -> Self {
        for id in steps {
            self.needs.push(id.clone());
            self.stopped_by.push(id);
        }
        self
    }

    pub(crate) fn within(mut self, seconds: u32) -> Self {
        self.timeout_seconds = seconds;
        self
    }

    /// Makes the step a check: it is tried once, and is due until it succeeded after all steps that it needs.
    pub(crate) fn check(mut self, unmet: Option<String>) -> Self {
        self.check = true;
        self.tries = 1;
        self.unmet = unmet;
        self
    }

    /// Makes the step due now for this reason, regardless of the journal, and does not record it.
    pub(crate) fn once(mut self, why: String) -> Self {
        self.unmet = Some(why);
        self.journal = false;
        self
    }

    /// Makes the step wait, if there is a reason.
    pub(crate) fn waits(mut self, reason: Option<WaitReason>) -> Self {
        self.waits = reason;
        self
    }

    /// Marks the step as destructive and sets the maximum number of attempts.
    pub(crate) fn destroys(mut self, tries: u8) -> Self {
        self.destructive = true;
        self.tries = tries;
        self
    }
}

/// The stage that prepares hosts.
pub(crate) const PREPARE: StageName = StageName::new("prepare");
/// The stage that copies the parts of the bundle.
pub(crate) const ARTIFACTS: StageName = StageName::new("artifacts");

/// The step that unpacks a part on a host.
pub(crate) fn part_id(part: &'static str, host: &ObservedHost<'_>) -> StepId {
    host.id(ARTIFACTS, part)
}

/// The step that unpacks the image of the role on a host.
pub(crate) fn image_part_id(role: &str, host: &ObservedHost<'_>) -> StepId {
    host.id(ARTIFACTS, format!("image-{role}"))
}

/// Links that select the version of parts and put programs into `/usr/local/bin`. Files of the owner are kept
/// there, so nothing that runs may depend on these programs.
pub(crate) fn choose(
    context: &PlanContext<'_>,
    host: &ObservedHost<'_>,
    id: StepId,
    parts: &[&'static str],
    programs: &[(&str, &str)],
) -> DesiredStep {
    use kubeon_render::paths::{PARTS, current, program};
    let selected = parts.iter().map(|part| Link {
        path: current(part),
        target: format!("{PARTS}/{}", context.part(host, part).digest),
    });
    let commands = programs
        .iter()
        .map(|(part, name)| Link { path: format!("/usr/local/bin/{name}"), target: program(part, name) });
    DesiredStep::new(host, id, Op::Links { links: selected.chain(commands).collect() })
        .title(format!("choose {}", parts.join(", ")))
        .because("no version is chosen")
        .needs(parts.iter().map(|part| part_id(part, host)))
}

/// One service of a host: of systemd, or a static pod.
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
            .title(format!("start {}", program_of_unit(unit_name)))
            .because("its unit is not running")
            .within(180)
    }
}
