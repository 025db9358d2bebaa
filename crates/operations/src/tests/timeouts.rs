//! The declared timeout becomes the deadline of the Job. Contract B, case 29.

use serde_json::json;

use super::kubernetes_cluster::{NAME, job, object, world};
use crate::write::ObjectKind;

#[test]
fn b29_the_minutes_that_are_declared_are_the_seconds_of_the_job() {
    for (declared, seconds) in [
        (json!("30"), 1800),
        (json!("1"), 60),
        (json!(45), 2700),
        (json!("1440"), 86_400),
        (json!(null), 600),
    ] {
        let mut world = world(&["10.0.0.2"]);
        let patch = json!({"spec": {"cluster": {"timeoutMins": declared}}});
        world.change(ObjectKind::KubernetesCluster, "default", NAME, &patch);
        world.settle();
        let operation = object(&world)["status"]["operation"].as_str().unwrap().to_owned();
        let derived = &world.get(ObjectKind::Operation, "", &operation)["spec"]["activeDeadlineSeconds"];
        assert_eq!(*derived, seconds, "the operation of {declared}");
        assert_eq!(job(&world)["spec"]["activeDeadlineSeconds"], seconds, "the Job of {declared}");
        let name = job(&world)["metadata"]["name"].as_str().unwrap().to_owned();
        let condition = json!([{"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "",
            "lastTransitionTime": world.now.to_string()}]);
        world.change(ObjectKind::Job, "default", &name, &json!({"status": {"conditions": condition}}));
        world.settle();
        let said = format!("the [creating] job running timeout(>{seconds}s)");
        assert_eq!(object(&world)["status"]["reason"], said);
    }
}
