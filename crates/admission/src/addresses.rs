//! The addresses that clusters declare, from a watch.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::Future;

use futures::TryStreamExt as _;
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use kubeon_api::{HostAddress, KubernetesCluster, KubernetesClusterSpec, Version};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::lookup::{Lookup, NotReady, ObjectName};

/// The addresses of every declared cluster, and the versions that can be installed.
///
/// A declared address is in use until the object is deleted, also while the cluster is being removed.
pub struct AddressBook {
    versions: Vec<Version>,
    held: RwLock<Held>,
}

#[derive(Default)]
struct Held {
    by_address: HashMap<HostAddress, BTreeSet<ObjectName>>,
    by_cluster: BTreeMap<ObjectName, Vec<HostAddress>>,
    /// The clusters of an unfinished listing, and whether one was ever finished.
    listing: Option<BTreeSet<ObjectName>>,
    complete: bool,
}

impl AddressBook {
    /// An empty book, which is not ready. `versions` are sorted, oldest first.
    #[must_use]
    pub fn new(versions: Vec<Version>) -> Self {
        Self { versions, held: RwLock::default() }
    }

    /// Replaces the addresses of a cluster.
    pub fn note(&self, cluster: &ObjectName, spec: &KubernetesClusterSpec) {
        let lists = [&spec.cluster.master_list, &spec.cluster.node_list, &spec.cluster.etcd_list];
        let addresses: BTreeSet<HostAddress> =
            lists.into_iter().flat_map(|list| list.iter().map(|n| n.ip)).collect();
        let mut held = self.write();
        held.remove(cluster);
        for address in &addresses {
            held.by_address.entry(*address).or_default().insert(cluster.clone());
        }
        held.by_cluster.insert(cluster.clone(), addresses.into_iter().collect());
        if let Some(listing) = &mut held.listing {
            listing.insert(cluster.clone());
        }
    }

    /// Removes a deleted cluster.
    pub fn forget(&self, cluster: &ObjectName) {
        self.write().remove(cluster);
    }

    /// Starts a listing of all clusters: clusters that it does not [`note`](Self::note) are removed at its end.
    pub fn begin(&self) {
        self.write().listing = Some(BTreeSet::new());
    }

    /// Ends the listing. From now on the book is ready.
    pub fn end(&self) {
        let mut held = self.write();
        if let Some(listed) = held.listing.take() {
            let removed: Vec<_> =
                held.by_cluster.keys().filter(|name| !listed.contains(name)).cloned().collect();
            removed.iter().for_each(|name| held.remove(name));
        }
        held.complete = true;
    }

    fn write(&self) -> RwLockWriteGuard<'_, Held> {
        self.held.write()
    }

    fn read(&self) -> RwLockReadGuard<'_, Held> {
        self.held.read()
    }
}

impl Held {
    fn remove(&mut self, cluster: &ObjectName) {
        for address in self.by_cluster.remove(cluster).unwrap_or_default() {
            if let Some(holders) = self.by_address.get_mut(&address) {
                holders.remove(cluster);
                if holders.is_empty() {
                    self.by_address.remove(&address);
                }
            }
        }
    }
}

impl Lookup for AddressBook {
    fn versions(&self) -> &[Version] {
        &self.versions
    }

    fn holder(&self, address: HostAddress, asking: &ObjectName) -> Result<Option<ObjectName>, NotReady> {
        let held = self.read();
        if !held.complete {
            return Err(NotReady);
        }
        let holders = held.by_address.get(&address).into_iter().flatten();
        Ok(holders.into_iter().find(|name| *name != asking).cloned())
    }

    fn is_ready(&self) -> bool {
        self.read().complete
    }
}

/// Updates the book from a watch of all clusters until `stop`. A failed watch is restarted with growing pauses. An object
/// that cannot be parsed has no addresses.
pub async fn follow(client: Client, book: &AddressBook, stop: impl Future<Output = ()>) {
    let clusters: Api<DynamicObject> = Api::all_with(client, &ApiResource::erase::<KubernetesCluster>(&()));
    let events = watcher(clusters, watcher::Config::default()).default_backoff();
    let events = events.inspect_err(|error| tracing::warn!(%error, "watching clusters for their addresses"));
    let mut events = std::pin::pin!(events);
    let mut stop = std::pin::pin!(stop);
    loop {
        let next = tokio::select! {
            () = &mut stop => return,
            next = futures::StreamExt::next(&mut events) => next,
        };
        match next {
            Some(Ok(watcher::Event::Init)) => book.begin(),
            Some(Ok(watcher::Event::InitDone)) => book.end(),
            Some(Ok(watcher::Event::InitApply(object) | watcher::Event::Apply(object))) => {
                update(book, &object)
            }
            Some(Ok(watcher::Event::Delete(object))) => book.forget(&name_of(&object)),
            Some(Err(_)) => {}
            None => return,
        }
    }
}

fn update(book: &AddressBook, object: &DynamicObject) {
    let name = name_of(object);
    let spec = object.data.get("spec").cloned().unwrap_or_default();
    match serde_json::from_value(spec) {
        Ok(spec) => book.note(&name, &spec),
        Err(error) => {
            tracing::warn!(cluster = %name, %error, "its addresses are unknown: the object cannot be read");
            book.note(&name, &KubernetesClusterSpec::default());
        }
    }
}

fn name_of(object: &DynamicObject) -> ObjectName {
    ObjectName::new(object.namespace().unwrap_or_default(), object.name_any())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(ips: &[&str]) -> KubernetesClusterSpec {
        let nodes: Vec<_> = ips.iter().map(|ip| serde_json::json!({"ip": ip})).collect();
        serde_json::from_value(serde_json::json!({"cluster": {"masterList": nodes}})).unwrap()
    }

    #[test]
    fn an_address_is_in_use_until_its_cluster_gives_it_up() {
        let book = AddressBook::new(vec![]);
        let (a, b) = (ObjectName::new("default", "a"), ObjectName::new("default", "b"));
        let ip = "10.0.0.1".parse().unwrap();
        assert_eq!(book.holder(ip, &b), Err(NotReady));
        book.begin();
        book.note(&a, &spec(&["10.0.0.1", "10.0.0.2"]));
        book.end();
        assert_eq!(book.holder(ip, &b), Ok(Some(a.clone())));
        assert_eq!(book.holder(ip, &a), Ok(None), "a cluster does not conflict with itself");
        book.note(&a, &spec(&["10.0.0.2"]));
        assert_eq!(book.holder(ip, &b), Ok(None));
    }

    /// An interrupted watch starts with a listing; clusters that are not in it were deleted.
    #[test]
    fn removes_clusters_that_a_new_listing_does_not_have() {
        let book = AddressBook::new(vec![]);
        let (a, b) = (ObjectName::new("default", "a"), ObjectName::new("default", "b"));
        book.begin();
        book.note(&a, &spec(&["10.0.0.1"]));
        book.end();
        book.begin();
        book.note(&b, &spec(&["10.0.0.2"]));
        assert_eq!(book.holder("10.0.0.1".parse().unwrap(), &b), Ok(Some(a)), "not before the end");
        book.end();
        assert_eq!(book.holder("10.0.0.1".parse().unwrap(), &b), Ok(None));
        book.forget(&b);
        assert!(book.read().by_address.is_empty());
    }
}
