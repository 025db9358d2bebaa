//! The example for clients against a real API server.

#[path = "../../examples/watch_clusters.rs"]
#[allow(dead_code, reason = "its main connects by a file")]
mod watch_clusters;

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kubeon_api::KubernetesCluster;
use kubeon_envtest::TestApiServer;
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

const TIMEOUT: Duration = Duration::from_secs(60);

/// Sends the written bytes to a channel.
struct Sent(UnboundedSender<String>);

impl Write for Sent {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(String::from_utf8_lossy(bytes).into_owned()).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads until a line contains this text.
async fn printed(output: &mut UnboundedReceiver<String>, text: &str) {
    let mut all = String::new();
    let reads = async {
        while !all.lines().any(|line| line.contains(text)) {
            all += &output.recv().await.expect("the example runs");
        }
    };
    let in_time = timeout(TIMEOUT, reads).await.is_ok();
    assert!(in_time, "the example did not print {text:?}: {all}");
}

#[tokio::test]
async fn watch_clusters_prints_existing_changed_and_deleted_clusters() {
    let server = TestApiServer::shared().await.unwrap();
    server.apply_crds(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds")).await.unwrap();
    let (client, namespace) = (server.client().await.unwrap(), server.namespace().await.unwrap());
    let clusters: Api<KubernetesCluster> = Api::namespaced(client.clone(), &namespace);
    let cluster = json!({"apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster", "metadata": {"name": "shop"},
        "spec": {"cluster": {"masterList": [{"ip": "10.0.0.1"}], "nodeList": [{"ip": "10.0.0.2"}]}}});
    clusters.create(&PostParams::default(), &serde_json::from_value(cluster).unwrap()).await.unwrap();
    let (sender, mut output) = unbounded_channel();
    let follows = tokio::spawn(follow(client, sender));
    let name = format!("{namespace}/shop");
    printed(&mut output, &format!("{name} exists, phase unknown: 1 master(s), 1 worker(s)")).await;
    let status = Patch::Merge(json!({"status": {"phase": "Running"}}));
    clusters.patch_status("shop", &PatchParams::default(), &status).await.unwrap();
    printed(&mut output, &format!("{name} changed, phase Running: 1 master(s), 1 worker(s)")).await;
    clusters.delete("shop", &DeleteParams::default()).await.unwrap();
    printed(&mut output, &format!("{name} was deleted, phase Running: ")).await;
    follows.abort();
}

async fn follow(client: Client, sender: UnboundedSender<String>) {
    watch_clusters::follow(client, &mut Sent(sender)).await.map_err(|error| error.to_string()).unwrap();
}
