//! The log of a runner and the records of its steps, in the ConfigMap of its Job.

use std::process::Stdio;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::Api;
use kubeon_api::{StepRecord, StepResult};
use kubeon_envtest::{ProxyFault, RequestMatcher};

use super::{TestCluster, end};

const STEPS: &str = "steps.json.zst";
const WHOLE: &str = "log.zst";

/// Nobody else can read the log after Kubernetes has removed the pod.
#[tokio::test(flavor = "multi_thread")]
async fn a_terminated_runner_saves_its_log_and_one_that_ends_too() {
    let cluster = TestCluster::new().await;
    cluster.place.write("auth/password", "hunter2-hunter2");
    cluster.place.program(
        "script",
        "#!/bin/bash\ntrap 'echo cleaned up' TERM\necho ready hunter2-hunter2; sleep 1000 & wait\n",
    );
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let uid = cluster.operations().get(&cluster.namespace).await.unwrap().uid().unwrap();
    let uid_flag = format!("--operation-uid={uid}");
    let running = cluster.begin(&["--job", "a-job", &uid_flag]).await;
    assert!(running.line().starts_with("ready"));
    // The first write fails, and is repeated.
    cluster.fail(RequestMatcher::nth("post", "configmaps", 1), ProxyFault::Status(500));
    running.signal(rustix::process::Signal::TERM);
    let done = end(running).await;
    assert_eq!(done.code, Some(143), "{done:?}");
    let map = maps.get("a-job-log").await.unwrap();
    let log = &map.data.as_ref().unwrap()["log"];
    for text in ["ready ", "received signal 15; stopping the work", "cleaned up", "exit code 143"] {
        assert!(log.contains(text), "{text}: {log}");
    }
    assert!(!log.contains("hunter2"), "{log}");
    assert_eq!((map.immutable, map.labels()["kubeon.io/operation"] == uid), (Some(true), true));
    assert_eq!(map.owner_references()[0].uid, uid);

    cluster.place.program("script", "#!/bin/bash\nexit 5\n");
    let done = end(cluster.begin(&["--job", "another-job", &uid_flag]).await).await;
    assert_eq!(done.code, Some(5), "{done:?}");
    let map = maps.get("another-job-log").await.unwrap();
    assert!(map.data.as_ref().unwrap()["log"].contains("exit code 5"), "{map:?}");
    assert_eq!(map.binary_data, None, "a script has no steps");
}

/// KiB of memory that a runner may need, however much its work prints.
const MEMORY: u64 = 64 * 1024;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the work prints 1 GiB, about a minute: ./test long"]
async fn soak_a_log_of_one_gibibyte_is_stored_in_bounded_memory() {
    let cluster = TestCluster::new().await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let uid = cluster.operations().get(&cluster.namespace).await.unwrap().uid().unwrap();
    cluster.place.program(
        "script",
        "#!/bin/bash\nyes 'changed: [h1] => a line of a playbook' | head -c 1G\necho; grep VmHWM /proc/$PPID/status\n",
    );
    let mut command = cluster.command_for(&cluster.namespace).await;
    command.args(["--job", "a-job", &format!("--operation-uid={uid}")]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let ends = tokio::task::spawn_blocking(move || command.status().unwrap().code());
    let code = tokio::time::timeout(Duration::from_secs(600), ends).await.expect("it ends in time").unwrap();
    assert_eq!(code, Some(0));

    let map = maps.get("a-job-log").await.unwrap();
    let end = &map.data.as_ref().unwrap()["log"];
    let memory = end.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the last line");
    let memory: u64 = memory.trim().trim_end_matches(" kB").parse().unwrap();
    let stored: usize = map.annotations()["kubeon.io/stored-bytes"].parse().unwrap();
    println!("1 GiB printed: {stored} bytes stored, {} MiB of memory", memory >> 10);
    assert!(memory < MEMORY, "{memory} KiB of memory");
    assert!(stored < 512 * 1024, "{stored} bytes stored");
}

fn records(map: &ConfigMap) -> Vec<StepRecord> {
    let stored = &map.binary_data.as_ref().unwrap()[STEPS].0;
    let text = String::from_utf8(zstd::decode_all(stored.as_slice()).unwrap()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_log_is_compressed_and_the_next_pod_begins_with_all_of_it() {
    let cluster = TestCluster::new().await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let uid = cluster.operations().get(&cluster.namespace).await.unwrap().uid().unwrap();
    let uid_flag = format!("--operation-uid={uid}");
    cluster.place.program("script", "#!/bin/bash\nfor n in {1..2000}; do echo line $n; done\n");
    let folder = cluster.place.file("earlier");
    let earlier_flag = format!("--earlier-log={}", folder.display());
    for (job, lines) in [("long-job", 2000), ("longer-job", 4000)] {
        let done = end(cluster.begin(&["--job", job, &uid_flag, &earlier_flag]).await).await;
        assert_eq!(done.code, Some(0), "{done:?}");
        let map = maps.get(&format!("{job}-log")).await.unwrap();
        let shown = &map.data.as_ref().unwrap()["log"];
        assert!(shown.len() <= 4096 && shown.contains("line 2000\n"), "{shown}");
        let stored = map.binary_data.as_ref().unwrap()[WHOLE].0.clone();
        let log = String::from_utf8(zstd::decode_all(stored.as_slice()).unwrap()).unwrap();
        assert_eq!(log.lines().filter(|line| line.starts_with("line ")).count(), lines);
        assert!(log.ends_with(shown), "{shown}");
        let bytes: usize = map.annotations()["kubeon.io/stored-bytes"].parse().unwrap();
        assert_eq!(bytes, shown.len() + stored.len());
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(WHOLE), stored).unwrap();
        std::fs::write(folder.join("log"), shown).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_records_of_the_steps_are_stored_after_those_of_the_pod_before() {
    let cluster = TestCluster::new().await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let uid = cluster.operations().get(&cluster.namespace).await.unwrap().uid().unwrap();
    let mut earlier = None;
    for (job, count) in [("first-job", 1), ("second-job", 2)] {
        let mut command = cluster.command_for(&cluster.namespace).await;
        command.args(["--job", job, &format!("--operation-uid={uid}")]);
        if let Some(stored) = earlier.take() {
            let folder = cluster.place.file("earlier");
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join(STEPS), stored).unwrap();
            command.arg("--earlier-log").arg(folder);
        }
        let done = cluster.run_to_the_end(command).await;
        assert_eq!(done.code, Some(0), "{done:?}");
        let map = maps.get(&format!("{job}-log")).await.unwrap();
        let records = records(&map);
        assert_eq!(records.len(), count, "{records:?}");
        let shown =
            map.data.as_ref().unwrap()["steps"].lines().map(|line| serde_json::from_str(line).unwrap());
        assert_eq!(shown.collect::<Vec<StepRecord>>(), records);
        for record in records {
            assert_eq!((record.name.as_str(), record.step.as_str()), ("h4", "start etcd"));
            assert_eq!((record.why.as_str(), record.result), ("it is missing", StepResult::Changed));
            assert!(record.ended.is_some_and(|ended| ended.0 >= record.started.0));
        }
        earlier = Some(map.binary_data.unwrap()[STEPS].0.clone());
    }
}
