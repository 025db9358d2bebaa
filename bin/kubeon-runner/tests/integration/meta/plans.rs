//! Operations that only plan, and operations that apply an approved plan.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::Api;

use super::{PROGRAM, TestCluster, condition, end};
use crate::support::Running;

/// Writes a plan of as many bytes as the file `size` says.
const PLANNER: &str = r#"#!/bin/bash
echo "$*" >>calls
[ "$1" = plan ] || exit 9
echo '{"event":"precheck","report":{"cluster":"demo","ok":true,"errors":0,"warnings":0,"hosts":[]}}' >&2
while [ $# -gt 0 ]; do [ "$1" != --out ] || out=$2; shift; done
head -c "$(cat size)" /dev/zero >"$out"
echo "start etcd, because it is missing"
"#;
const KEY: &str = "plan.json.zst";

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_saved_and_nothing_else() {
    let cluster = TestCluster::new().await;
    cluster.place.program("kubeon", PLANNER);
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let uid = cluster.operations().get(&cluster.namespace).await.unwrap().uid().unwrap();
    for (job, size, expected) in [("a-job", 1_000_000, 0), ("b-job", 1_000_001, 1)] {
        cluster.place.write("size", &size.to_string());
        let mut command = cluster.command_for(&cluster.namespace).await;
        command.args(["--action", "kubeon", "--job", job, &format!("--operation-uid={uid}")]);
        let done = end(Running::start(command.env("PLAN", "true"))).await;
        assert_eq!(done.code, Some(expected), "{done:?}");
        assert_eq!(done.stdout, ["start etcd, because it is missing"]);
        let map = maps.get_opt(&format!("{job}-plan")).await.unwrap();
        if expected == 0 {
            let map = map.unwrap();
            assert_eq!(map.binary_data.as_ref().unwrap()[KEY].0.len(), size);
            assert_eq!((map.immutable, map.owner_references()[0].uid == uid), (Some(true), true));
        } else {
            assert!(map.is_none() && done.contains("the plan has 1000001 bytes"), "{done:?}");
        }
    }
    let calls = cluster.place.read("calls");
    assert!(calls.lines().all(|call| call.starts_with("plan --take-back -f ")), "{calls}");
    assert_eq!(cluster.secret("state", "state.tar.zst").await, "", "no state is saved");
    assert_eq!(condition(&cluster.status().await, "Prechecked")["status"], "True");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approved_plan_is_given_to_the_program() {
    let cluster = TestCluster::new().await;
    cluster.place.program("kubeon", &PROGRAM.replacen("#!/bin/bash", "#!/bin/bash\necho \"$*\" >>calls", 1));
    std::fs::create_dir(cluster.place.file("approved")).unwrap();
    let plan = cluster.place.write(&format!("approved/{KEY}"), "a plan");
    let mut command = cluster.command_for(&cluster.namespace).await;
    command.arg("--approved-plan").arg(cluster.place.file("approved"));
    let done = cluster.run_to_the_end(command).await;
    assert_eq!(done.code, Some(0), "{done:?}");
    let calls = cluster.place.read("calls");
    let create = calls.lines().find(|call| call.starts_with("create ")).unwrap();
    assert!(create.contains(&format!("--approved-plan {}", plan.display())), "{create}");
}
