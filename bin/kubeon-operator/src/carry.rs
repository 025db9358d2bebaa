//! Carries a plan's writes out, and takes the answers into the world.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kubeon_api::{Cluster, ClusterOperation, KubernetesCluster, labels};
use kubeon_link_kube::{Again, Leave, LinkError, Pace, Verb};
use kubeon_operations::operation::left_behind;
use kubeon_operations::{Change, Data, Kind, Notice, Target, Trouble, Write, names};
use serde_json::Value;

use crate::place::path;
use crate::shared::Shared;
use crate::tempo::Tempo;

/// Why a plan was not carried out to its end.
pub(crate) enum Failure {
    /// The lane is planned again at once: the world is another one now.
    Again,
    /// Nothing was written: somebody waits for another turn of this lane.
    Overtaken,
    /// The lane comes back later.
    Link(LinkError),
    /// The API server refused a write of an operation.
    Trouble {
        /// The operation, if the write was one's.
        operation: Option<String>,
        /// What should have been done, to which object.
        what: (&'static str, Target),
        /// What it said.
        trouble: Trouble,
    },
}

impl Failure {
    /// For a trace.
    pub fn text(&self) -> String {
        match self {
            Self::Again => "it is planned again: something changed in between".to_owned(),
            Self::Overtaken => "it is planned again: somebody waits for it".to_owned(),
            Self::Link(error) => error.to_string(),
            Self::Trouble { trouble, .. } => trouble.text.clone(),
        }
    }
}

/// Writes what one stage has, side by side, and tells with each write what belongs to it.
pub(crate) async fn carry(
    shared: &Shared,
    stage: Vec<(Write, Vec<Notice>)>,
    tempo: &Tempo,
) -> Result<(), Failure> {
    let sent = stage.into_iter().map(|(write, told)| async move {
        let sent = async |write| {
            let leave = tempo.leave(&shared.hands).await.ok_or(Failure::Overtaken)?;
            tempo.begin();
            send(shared, leave, write).await
        };
        if write.makes_a_job() {
            shared.starts.turn().await.during(sent(write)).await?;
        } else {
            sent(write).await?;
        }
        shared.say(told);
        Ok(())
    });
    let answers = futures::future::join_all(sent).await;
    // All of a stage is waited for; the first failure decides.
    answers.into_iter().collect()
}

async fn send(shared: &Shared, leave: Leave<'_>, write: Write) -> Result<(), Failure> {
    let Write { target, change, operation, .. } = write;
    let verb = match change {
        Change::Create(value) => Verb::Create(value),
        Change::Merge(value) => Verb::Merge(value),
        Change::Strategic(value) => Verb::Strategic(value),
        Change::Status(value) => Verb::Status(value),
        Change::Delete { uid } => Verb::Delete(uid),
    };
    let answer = shared.hands.send_now(leave, path(&target), &verb).await;
    let result = answer.as_ref().map_or_else(|error| error.category(), |_| "done");
    shared.metrics.request(verb.word(), target.kind.as_str(), result);
    match answer {
        Ok(value) => {
            if matches!(verb, Verb::Delete(_)) {
                // The watch tells when it is gone; a ConfigMap or Secret is gone at once.
                if matches!(target.kind, Kind::ConfigMap | Kind::Secret) {
                    shared.world.remove_meta(&target, None);
                }
            } else {
                take(shared, &target, value);
            }
            Ok(())
        }
        Err(error) => refused(shared, &target, &verb, operation, error).await,
    }
}

async fn refused(
    shared: &Shared,
    target: &Target,
    verb: &Verb,
    operation: Option<String>,
    error: LinkError,
) -> Result<(), Failure> {
    let trouble = |text: String, lasting| Failure::Trouble {
        operation: operation.clone(),
        what: (verb.word(), target.clone()),
        trouble: Trouble { text, lasting },
    };
    match (error.again(), verb) {
        (_, Verb::Delete(_)) if error.is_absent() => Ok(()),
        (Again::Exists, Verb::Create(wanted)) => match reread(shared, target).await? {
            Some(found) if is_same(target, wanted, &found) => {
                take(shared, target, found);
                Ok(())
            }
            // One that is kept changes hands: the plan is made again with what is there.
            Some(found) if kept(wanted).is_some() => {
                take(shared, target, found);
                Err(Failure::Again)
            }
            Some(found) => {
                let Trouble { text, lasting } = in_the_way(target, wanted, &found);
                Err(trouble(text, lasting))
            }
            None => Err(Failure::Link(error)),
        },
        (Again::Reread | Again::Exists, _) => {
            if let Some(found) = reread(shared, target).await? {
                take(shared, target, found);
            }
            Err(Failure::Again)
        }
        (Again::WhenChanged, _) if error.is_absent() && !matches!(verb, Verb::Create(_)) => {
            forget(shared, target);
            Err(Failure::Again)
        }
        (Again::Never, _) => Err(trouble(error.said(), true)),
        (Again::WhenChanged, _) => Err(trouble(error.said(), false)),
        (Again::Later, _) => Err(Failure::Link(error)),
    }
}

async fn reread(shared: &Shared, target: &Target) -> Result<Option<Value>, Failure> {
    shared.metrics.request("get", target.kind.as_str(), "sent");
    match shared.hands.send(path(target), &Verb::Get, Pace::Hurried).await {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_absent() => {
            forget(shared, target);
            Ok(None)
        }
        Err(error) => Err(Failure::Link(error)),
    }
}

/// Whether what is there is what should be made: a Job by its operation, a copy by its content.
fn is_same(target: &Target, wanted: &Value, found: &Value) -> bool {
    let label = |value: &Value| value["metadata"]["labels"][names::OPERATION_LABEL].clone();
    match target.kind {
        Kind::Job => label(wanted) == label(found) && !label(found).is_null(),
        Kind::ConfigMap if target.name.ends_with("-log") => label(wanted) == label(found),
        Kind::ConfigMap | Kind::Secret if kept(wanted).is_some() => kept(wanted) == kept(found),
        Kind::ConfigMap | Kind::Secret => {
            let stays = left(target, wanted, found).is_none();
            wanted["data"] == found["data"] && found["immutable"] == true && stays
        }
        Kind::Operation => {
            wanted["metadata"]["labels"][names::DERIVED_UID_LABEL]
                == found["metadata"]["labels"][names::DERIVED_UID_LABEL]
        }
        Kind::Cluster | Kind::Business | Kind::Log => true,
    }
}

/// Why what is there is not what should be made. What is about to go is waited for.
fn in_the_way(target: &Target, wanted: &Value, found: &Value) -> Trouble {
    if let Some(text) = left(target, wanted, found) {
        return Trouble { text, lasting: false };
    }
    let (kind, at) = (target.kind.as_str(), format!("{}/{}", target.namespace, target.name));
    let text = format!("{kind} {at} is there and is not this operation's");
    Trouble { text, lasting: found["metadata"]["deletionTimestamp"].is_null() }
}

/// What is waited for, when an operation of the same name that was deleted has left behind what is there.
fn left(target: &Target, wanted: &Value, found: &Value) -> Option<String> {
    let owners = |object: &Value| -> Vec<OwnerReference> {
        serde_json::from_value(object["metadata"]["ownerReferences"].clone()).unwrap_or_default()
    };
    let (its, mut ours) = (owners(found), owners(wanted));
    ours.retain(|owner| owner.kind == Kind::Operation.as_str());
    ours.iter().find_map(|owner| left_behind(target, &its, &owner.name, &owner.uid))
}

/// For which cluster and into whose hands something is made that outlives operations.
fn kept(object: &Value) -> Option<(&str, &str)> {
    let meta = &object["metadata"];
    Some((meta["labels"][labels::CLUSTER].as_str()?, meta["annotations"][labels::JOB].as_str()?))
}

/// Takes an answer into the world. The lane that is being planned sees it at once; others are woken by the watch.
fn take(shared: &Shared, target: &Target, value: Value) {
    fn read<K: serde::de::DeserializeOwned + kube::Resource<DynamicType = ()>>(value: Value) -> Option<K> {
        let mut object: K = serde_json::from_value(value).ok()?;
        kubeon_link_kube::slim(&mut object);
        Some(object)
    }
    // An answer that cannot be read is left to the watch, which tells why.
    match target.kind {
        Kind::Cluster => read::<Cluster>(value).map(|object| shared.world.apply(object)),
        Kind::Operation => read::<ClusterOperation>(value).map(|object| shared.world.apply(object)),
        Kind::Business => read::<KubernetesCluster>(value).map(|object| shared.world.apply(object)),
        Kind::Job => read::<Job>(value).map(|object| shared.world.apply(object)),
        Kind::ConfigMap | Kind::Secret => serde_json::from_value::<ObjectMeta>(value["metadata"].clone())
            .ok()
            .map(|meta| shared.world.apply_meta(target.clone(), &meta)),
        Kind::Log => None,
    };
}

fn forget(shared: &Shared, target: &Target) {
    let meta = ObjectMeta {
        name: Some(target.name.clone()),
        namespace: Some(target.namespace.clone()).filter(|namespace| !namespace.is_empty()),
        ..ObjectMeta::default()
    };
    match target.kind {
        Kind::Cluster => shared.world.remove::<Cluster>(&meta),
        Kind::Operation => shared.world.remove::<ClusterOperation>(&meta),
        Kind::Business => shared.world.remove::<KubernetesCluster>(&meta),
        Kind::Job => shared.world.remove::<Job>(&meta),
        Kind::ConfigMap | Kind::Secret => shared.world.remove_meta(target, None),
        Kind::Log => Vec::new(),
    };
}

/// What was read, as a plan wants it.
pub(crate) fn data(shared: &Shared, target: &Target, value: Value) -> Data {
    match target.kind {
        Kind::ConfigMap => {
            let texts: BTreeMap<String, String> =
                serde_json::from_value(value["data"].clone()).unwrap_or_default();
            let values = texts.into_iter().map(|(key, text)| (key, text.into_bytes())).collect();
            Data::Values { values, kind: String::new() }
        }
        Kind::Secret => {
            let bytes: BTreeMap<String, ByteString> =
                serde_json::from_value(value["data"].clone()).unwrap_or_default();
            let values = bytes.into_iter().map(|(key, bytes)| (key, bytes.0)).collect();
            Data::Values { values, kind: value["type"].as_str().unwrap_or_default().to_owned() }
        }
        _ => {
            take(shared, target, value);
            Data::There
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn owned(kind: &str, name: &str, uid: &str) -> Value {
        let owner = json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": uid});
        json!({"metadata": {"ownerReferences": [owner]}, "data": {"a": "b"}, "immutable": true})
    }

    #[test]
    fn what_a_deleted_operation_of_the_same_name_left_is_waited_for_and_nothing_else() {
        let job = Target::new(Kind::Job, "ns", "kubeonkube-o-job");
        let wanted = owned("ClusterOperation", "o", "new");
        let met = in_the_way(&job, &wanted, &owned("ClusterOperation", "o", "old"));
        let said = "Job ns/kubeonkube-o-job of an operation of this name that was deleted is still there";
        assert_eq!((met.text.as_str(), met.lasting), (said, false));
        for foreign in
            [owned("ClusterOperation", "p", "old"), owned("CronJob", "o", "old"), json!({"metadata": {}})]
        {
            let met = in_the_way(&job, &wanted, &foreign);
            assert!(met.lasting && met.text.ends_with("is not this operation's"), "{}", met.text);
        }
    }

    #[test]
    fn a_copy_that_is_about_to_be_collected_is_not_taken_for_the_one_that_should_be_made() {
        let map = Target::new(Kind::ConfigMap, "ns", "copy");
        let wanted = owned("ClusterOperation", "o", "new");
        assert!(is_same(&map, &wanted, &wanted));
        assert!(!is_same(&map, &wanted, &owned("ClusterOperation", "o", "old")));
    }
}
