//! The service account of runners: who may get it, and the objects that it may write. Roles limit the kinds, these policies
//! limit the objects.
//!
//! A runner proves its Job by its token, which is bound to its pod: the API server adds the name and the UID of the pod to the
//! user, and accepts the token only while the pod with that UID exists. The operator records the UID of the pod that its Job
//! controls, and only that pod writes the status of the operation. Before, and for Secrets and ConfigMaps, the name counts: the Job
//! controller names a pod after its Job, no one else can make a pod with this account, and only the operator makes a Job with it,
//! none while a pod of an earlier one runs (decision 25).

use kubeon_api::labels::{CLUSTER, JOB, JOB_LOG_SUFFIX, JOB_PLAN_SUFFIX, OPERATION_UID, POD, STORED_BYTES};

use super::cel::{annotation, by_the_operator, cel_list, cel_text};
use super::policy::{AdmissionPolicy, Validation};
use crate::InstallOptions;
use crate::names::RUNNER;

/// The users of the Job controller: with an account of its own, as in kubeadm's and kubeon's clusters, and without.
const JOB_CONTROLLER: [&str; 2] =
    ["system:serviceaccount:kube-system:job-controller", "system:kube-controller-manager"];

/// The account of runners is for the pods of the operator's Jobs alone. A user who may make pods in a watched namespace, or
/// tokens, would otherwise act as the runner of any Job.
pub(super) fn account(options: &InstallOptions) -> AdmissionPolicy {
    // In another namespace the account has no rights, so it does no harm to refuse it there too.
    let place = if options.is_movable {
        String::new()
    } else {
        format!("request.namespace in {} && ", cel_list(&options.namespaces().collect::<Vec<_>>()))
    };
    let used = format!(
        "{place}{} == (request.?subResource.orValue('') == 'token' ? request.name : \
         request.resource.resource == 'jobs' ? dyn(object).spec.template.spec.?serviceAccountName.orValue('') : \
         dyn(object).spec.?serviceAccountName.orValue(''))",
        cel_text(RUNNER)
    );
    let only = |resource: &str, user: String, message: &str| Validation {
        expression: format!("variables.kind != {} || {user}", cel_text(resource)),
        message: format!("{} + request.userInfo.username", cel_text(&format!("{message}, not by "))),
        reason: "Forbidden",
    };
    let one_of = |users: &[String]| format!("request.userInfo.username in {}", cel_list(users));
    AdmissionPolicy {
        name: "kubeon-runner-account",
        resource_rules: vec![("", "v1", &["pods", "serviceaccounts/token"]), ("batch", "v1", &["jobs"])],
        operations: &["CREATE"],
        parameters: None,
        match_conditions: vec![("with-the-account-of-runners", used)],
        variables: vec![("kind", "request.resource.resource".to_owned())],
        validations: vec![
            only(
                "jobs",
                by_the_operator(options),
                &format!(
                    "spec.template.spec.serviceAccountName: Jobs with {RUNNER} are made by the operator alone"
                ),
            ),
            only(
                "pods",
                one_of(&JOB_CONTROLLER.map(str::to_owned)),
                &format!("spec.serviceAccountName: pods with {RUNNER} are made by the Job controller alone"),
            ),
            only(
                "serviceaccounts",
                "request.userInfo.username.startsWith('system:node:')".to_owned(),
                &format!("a token of {RUNNER} is made for its pods by kubelets alone"),
            ),
        ],
    }
}

/// Fields of the status that only the operator writes.
const OPERATOR_FIELDS: [&str; 15] = [
    "status",
    "reason",
    "jobRef",
    "inputs",
    "digest",
    "specDigest",
    "action",
    "hasModified",
    "startTime",
    "endTime",
    "took",
    "waitsFor",
    "lostPods",
    "runnerPod",
    "observedGeneration",
];

fn by_a_runner() -> (&'static str, String) {
    (
        "by-a-runner",
        format!(
            "request.userInfo.username.startsWith('system:serviceaccount:') && \
             request.userInfo.username.endsWith(':{RUNNER}')"
        ),
    )
}

/// CEL variables: the Job, the runner's pod and namespace, and the prefix of the Job's pod names. The prefix is the Job's name
/// and `-`, cut to 58 characters; the API server appends five characters.
fn identity(job: String) -> Vec<(&'static str, String)> {
    let pod = "request.userInfo.?extra[?'authentication.kubernetes.io/pod-name'].orValue([''])[0]";
    vec![
        ("job", job),
        ("pod", pod.to_owned()),
        ("home", "request.userInfo.username.split(':')[2]".to_owned()),
        (
            "stem",
            "variables.job.size() < 58 ? variables.job + '-' : variables.job.substring(0, 58)".to_owned(),
        ),
        (
            "mine",
            "variables.job != '' && variables.pod.size() > 5 && \
             variables.pod.substring(0, variables.pod.size() - 5) == variables.stem"
                .to_owned(),
        ),
    ]
}

/// The status of an operation is written by its own Job, and by the pod that the operator recorded.
pub(super) fn status() -> AdmissionPolicy {
    let job = "oldObject.?status.?jobRef.?name.orValue('')".to_owned();
    let unchanged = |field: &&str| format!("object.?status.?{field} == oldObject.?status.?{field}");
    let uid = "request.userInfo.?extra[?'authentication.kubernetes.io/pod-uid'].orValue([''])[0]";
    let mut variables = identity(job);
    variables.push(("uid", uid.to_owned()));
    variables.push(("recorded", "oldObject.?status.?runnerPod.orValue('')".to_owned()));
    AdmissionPolicy {
        name: "kubeon-runner-status",
        resource_rules: vec![("kubeonkube.clay.io", "v1alpha1", &["clusteroperations/status"])],
        operations: &["UPDATE"],
        parameters: None,
        match_conditions: vec![by_a_runner()],
        variables,
        validations: vec![
            Validation {
                expression: "variables.mine && \
                             oldObject.?status.?jobRef.?namespace.orValue('') == variables.home"
                    .to_owned(),
                message: "'status: an operation\\'s status is written by its own Job, ' + \
                     (variables.job == '' ? 'of which none is recorded yet' : variables.job) + \
                     '; this is pod ' + variables.home + '/' + variables.pod"
                    .to_owned(),
                reason: "Forbidden",
            },
            Validation {
                expression: "variables.recorded == '' || variables.recorded == variables.uid".to_owned(),
                message: "'status: an operation\\'s status is written by the pod of its Job with UID ' + variables.recorded + \
                     '; this is pod ' + variables.home + '/' + variables.pod + ' with UID ' + variables.uid"
                    .to_owned(),
                reason: "Forbidden",
            },
            Validation {
                expression: OPERATOR_FIELDS.iter().map(unchanged).collect::<Vec<_>>().join(" && "),
                message: cel_text(&format!(
                    "status: {} are written by the operator alone",
                    OPERATOR_FIELDS.join(", ")
                )),
                reason: "Forbidden",
            },
        ],
    }
}

/// CEL: whether the metadata is that of a Job's log or plan. It belongs to an operation, so it is deleted with one.
fn output_metadata() -> String {
    let owners = "object.metadata.?ownerReferences.orValue([])";
    [
        format!("{owners}.size() == 1 && {owners}[0].kind == 'ClusterOperation'"),
        format!("!{owners}[0].?blockOwnerDeletion.orValue(false)"),
        format!("object.metadata.?labels.orValue({{}}) == {{{}: {owners}[0].uid}}", cel_text(OPERATION_UID)),
        // Runners of older versions name neither their pod nor the size.
        format!(
            "object.metadata.?annotations.orValue({{}}).all(key, \
             key == {} ? {own} == variables.job : key == {} ? {own} == variables.pod : \
             key == {} && {own}.matches('^[0-9]{{1,7}}$'))",
            cel_text(JOB),
            cel_text(POD),
            cel_text(STORED_BYTES),
            own = "object.metadata.annotations[key]"
        ),
        "object.metadata.?finalizers.orValue([]).size() == 0 && object.?immutable.orValue(false)".to_owned(),
    ]
    .join(" && ")
}

/// A Secret or ConfigMap is written by the Job that it was created for. A Job makes the ConfigMap of its plan, and
/// when it is stopped, that of its log.
pub(super) fn secrets() -> AdmissionPolicy {
    let label = format!(
        "variables.output || oldObject != null && has(oldObject.metadata.labels) && {} in oldObject.metadata.labels",
        cel_text(CLUSTER)
    );
    let subject =
        format!("oldObject == null ? {} : {}", annotation("object", JOB), annotation("oldObject", JOB));
    let is_output = format!(
        "request.operation == 'CREATE' && request.resource.resource == 'configmaps' && variables.job != '' && \
         object.metadata.?name.orValue('') in [variables.job + {}, variables.job + {}]",
        cel_text(JOB_LOG_SUFFIX),
        cel_text(JOB_PLAN_SUFFIX)
    );
    let mut variables = identity(subject);
    variables.push(("output", is_output));
    let unchanged = ["labels", "annotations", "ownerReferences", "finalizers"]
        .map(|field| format!("object.metadata.?{field} == oldObject.metadata.?{field}"))
        .join(" && ");
    AdmissionPolicy {
        name: "kubeon-runner-secrets",
        resource_rules: vec![("", "v1", &["configmaps", "secrets"])],
        operations: &["CREATE", "UPDATE", "DELETE"],
        parameters: None,
        match_conditions: vec![by_a_runner()],
        variables,
        validations: vec![
            Validation {
                expression: "request.operation == 'UPDATE' || variables.output".to_owned(),
                message: cel_text(
                    "a runner neither makes nor removes Secrets and ConfigMaps, except for the log and the plan of its Job",
                ),
                reason: "Forbidden",
            },
            Validation {
                expression: label,
                message: format!(
                    "'metadata.labels[{CLUSTER}]: this ' + request.kind.kind + ' was not made for a cluster'"
                ),
                reason: "Forbidden",
            },
            Validation {
                expression: "variables.mine && request.namespace == variables.home".to_owned(),
                message: format!(
                    "'metadata.annotations[{JOB}]: this ' + request.kind.kind + ' was made for ' + \
                     (variables.job == '' ? 'no Job' : 'Job ' + variables.job) + '; this is pod ' + \
                     variables.home + '/' + variables.pod"
                ),
                reason: "Forbidden",
            },
            Validation {
                expression: format!("variables.output ? {} : {unchanged}", output_metadata()),
                message:
                    "'metadata: a runner writes the data of a ' + request.kind.kind + ' and nothing else'"
                        .to_owned(),
                reason: "Forbidden",
            },
        ],
    }
}
