//! What a caller may read, asked of the meta cluster and remembered for seconds.

use std::time::Duration;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Client;
use kube::api::{Api, PostParams};
use moka::future::Cache;

use crate::caller::CallerIdentity;
use crate::request_error::RequestError;

/// How long an answer is used.
const LIFETIME: Duration = Duration::from_secs(10);
/// The most answers that are kept.
const CAPACITY: u64 = 50_000;

/// A read of one object or of many.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ReadAccess {
    /// `get`, `list` or `watch`.
    pub verb: &'static str,
    /// The kind.
    pub kind: ReadKind,
    /// The namespace; empty for all of them.
    pub namespace: String,
    /// The object; empty for all of them.
    pub name: String,
}

/// The kinds that the gateway reads from its own watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ReadKind {
    KubernetesClusters,
    ClusterOperations,
}

impl ReadKind {
    fn group_and_resource(self) -> (&'static str, &'static str) {
        match self {
            Self::KubernetesClusters => ("ecs.yun.com", "kubernetesclusters"),
            Self::ClusterOperations => ("kubeonkube.clay.io", "clusteroperations"),
        }
    }
}

impl ReadAccess {
    /// A read of the clusters in a namespace, or of all clusters.
    pub(crate) fn clusters(verb: &'static str, namespace: &str, name: &str) -> Self {
        Self {
            verb,
            kind: ReadKind::KubernetesClusters,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// A read of operations of every cluster.
    pub(crate) fn operations(verb: &'static str, name: &str) -> Self {
        Self { verb, kind: ReadKind::ClusterOperations, namespace: String::new(), name: name.to_owned() }
    }

    fn attributes(&self) -> ResourceAttributes {
        let (group, resource) = self.kind.group_and_resource();
        let unless_empty = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        ResourceAttributes {
            group: Some(group.to_owned()),
            resource: Some(resource.to_owned()),
            verb: Some(self.verb.to_owned()),
            namespace: unless_empty(&self.namespace),
            name: unless_empty(&self.name),
            ..ResourceAttributes::default()
        }
    }

    fn refusal(&self, caller: &CallerIdentity) -> RequestError {
        let (group, resource) = self.kind.group_and_resource();
        let place = if self.namespace.is_empty() {
            "in all namespaces".to_owned()
        } else {
            format!("in namespace {}", self.namespace)
        };
        RequestError::forbidden(format!(
            "user {} may not {} {resource}.{group} {place}; an administrator of the meta cluster grants it with a role",
            caller.name, self.verb
        ))
    }
}

/// Reviews what callers may read.
#[derive(Clone)]
pub(crate) struct AccessReviews {
    client: Client,
    known: Cache<(CallerIdentity, ReadAccess), bool>,
}

impl AccessReviews {
    /// Reviews with the gateway's own client.
    pub(crate) fn new(client: Client) -> Self {
        Self { client, known: Cache::builder().max_capacity(CAPACITY).time_to_live(LIFETIME).build() }
    }

    /// Whether the caller has the right. Parallel questions about one right are one request.
    pub(crate) async fn allows(
        &self,
        caller: &CallerIdentity,
        access: &ReadAccess,
    ) -> Result<bool, RequestError> {
        let review = async {
            let review = SubjectAccessReview {
                spec: SubjectAccessReviewSpec {
                    user: Some(caller.name.clone()),
                    uid: caller.uid.clone(),
                    groups: Some(caller.groups.clone()),
                    extra: Some(caller.extra.clone()),
                    resource_attributes: Some(access.attributes()),
                    ..SubjectAccessReviewSpec::default()
                },
                ..SubjectAccessReview::default()
            };
            let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
            let answer = reviews.create(&PostParams::default(), &review).await?;
            Ok::<_, RequestError>(answer.status.is_some_and(|status| status.allowed))
        };
        let known = self.known.try_get_with((caller.clone(), access.clone()), review).await;
        known.map_err(|error| (*error).clone())
    }

    /// An error unless the caller has the right.
    pub(crate) async fn require(
        &self,
        caller: &CallerIdentity,
        access: &ReadAccess,
    ) -> Result<(), RequestError> {
        if self.allows(caller, access).await? { Ok(()) } else { Err(access.refusal(caller)) }
    }
}
