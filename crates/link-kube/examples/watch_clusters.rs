//! Lists the business clusters of a meta cluster, then prints every change, with public types only: `cargo
//! run -p kubeon-link-kube --example watch_clusters [KUBECONFIG]`. Older clients used a generated clientset,
//! informer and lister for this: `Api` sends requests, `watch` delivers changes, and the map is the lister.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;

use futures::StreamExt as _;
use kube::api::{Api, ListParams};
use kube::{Client, Resource as _, ResourceExt as _};
use kubeon_api::{KubernetesCluster, Phase};
use kubeon_link_kube::{Event, connect, watch};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let kubeconfig = std::env::args_os().nth(1).map(PathBuf::from);
    let client = connect(kubeconfig.as_deref()).await?;
    follow(client, &mut io::stdout()).await
}

/// Prints a line for every cluster, then one for every change, without end.
pub(crate) async fn follow(client: Client, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let clusters: Api<KubernetesCluster> = Api::all(client);
    for cluster in clusters.list(&ListParams::default()).await? {
        print(out, "exists", &cluster)?;
    }
    let mut known = BTreeMap::new();
    let mut events = watch(clusters, None);
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(cluster) | Event::InitApply(cluster)) => {
                let state = (cluster.meta().generation, phase(&cluster));
                if known.insert((cluster.namespace(), cluster.name_any()), state) != Some(state) {
                    print(out, "changed", &cluster)?;
                }
            }
            Ok(Event::Delete(cluster)) => {
                known.remove(&(cluster.namespace(), cluster.name_any()));
                print(out, "was deleted", &cluster)?;
            }
            Ok(Event::Init | Event::InitDone) => {}
            // The watch restarts by itself.
            Err(error) => writeln!(io::stderr(), "the watch was interrupted: {error}")?,
        }
    }
    Ok(())
}

fn phase(cluster: &KubernetesCluster) -> Option<Phase> {
    cluster.status.as_ref()?.phase
}

fn print(out: &mut impl Write, change: &str, cluster: &KubernetesCluster) -> io::Result<()> {
    let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
    let phase = phase(cluster).map_or("unknown", |phase| phase.as_str());
    let (masters, workers) = (&cluster.spec.cluster.master_list, &cluster.spec.cluster.node_list);
    writeln!(
        out,
        "{namespace}/{name} {change}, phase {phase}: {} master(s), {} worker(s)",
        masters.len(),
        workers.len()
    )
}
