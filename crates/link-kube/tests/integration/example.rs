//! The example for clients, against a real API server.

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

/// Sends on what is written.
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

/// Reads until a line holds these words.
async fn told(said: &mut UnboundedReceiver<String>, text: &str) {
    let mut all = String::new();
    let reads = async {
        while !all.lines().any(|line| line.contains(text)) {
            all += &said.recv().await.expect("it goes on");
        }
    };
    let in_time = timeout(TIMEOUT, reads).await.is_ok();
    assert!(in_time, "nobody said {text:?}: {all}");
}

#[tokio::test]
async fn watch_clusters_tells_what_is_there_what_changes_and_what_goes() {
    let server = TestApiServer::shared().await.unwrap();
    server.apply_crds(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds")).await.unwrap();
    let (client, namespace) = (server.client().await.unwrap(), server.namespace().await.unwrap());
    let clusters: Api<KubernetesCluster> = Api::namespaced(client.clone(), &namespace);
    let wish = json!({"apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster", "metadata": {"name": "shop"},
        "spec": {"cluster": {"masterList": [{"ip": "10.0.0.1"}], "nodeList": [{"ip": "10.0.0.2"}]}}});
    clusters.create(&PostParams::default(), &serde_json::from_value(wish).unwrap()).await.unwrap();
    let (tell, mut said) = unbounded_channel();
    let follows = tokio::spawn(follow(client, tell));
    let name = format!("{namespace}/shop");
    told(&mut said, &format!("{name} is there unseen: 1 master(s), 1 worker(s)")).await;
    let status = Patch::Merge(json!({"status": {"phase": "Running"}}));
    clusters.patch_status("shop", &PatchParams::default(), &status).await.unwrap();
    told(&mut said, &format!("{name} is now Running: 1 master(s), 1 worker(s)")).await;
    clusters.delete("shop", &DeleteParams::default()).await.unwrap();
    told(&mut said, &format!("{name} is gone, was Running: ")).await;
    follows.abort();
}

async fn follow(client: Client, tell: UnboundedSender<String>) {
    watch_clusters::follow(client, &mut Sent(tell)).await.map_err(|error| error.to_string()).unwrap();
}
