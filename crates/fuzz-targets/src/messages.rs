//! Messages of other programs.

use kubeon_admission::{Lookup, NotReady, ObjectName};
use kubeon_api::{HostAddress, Version};
use kubeon_link_kube::{ObserverKubeconfig, observed_nodes, reports_of_masters};
use kubeon_operation_log::{decompressed, decompressed_steps, last_lines};
use kubeon_pki::CertificateRequest;
use kubeon_s3::{S3Address, code_and_message, listed_objects};
use kubeon_wire::{Event, Facts, MasterReport, Request};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A meta cluster in which another cluster has one address.
struct OtherCluster([Version; 1]);

impl Lookup for OtherCluster {
    fn versions(&self) -> &[Version] {
        &self.0
    }

    fn holder(&self, address: HostAddress, _: &ObjectName) -> Result<Option<ObjectName>, NotReady> {
        let taken = address == HostAddress::from(std::net::Ipv4Addr::new(10, 0, 0, 9));
        Ok(taken.then(|| ObjectName::new("other", "other")))
    }

    fn is_ready(&self) -> bool {
        true
    }
}

/// Every body gets an answer: 400, or a review that is JSON.
pub(crate) fn admission_review(bytes: &[u8]) {
    let lookup = OtherCluster(["v1.36.3".parse().unwrap()]);
    for (status, body) in
        [kubeon_admission::answer(bytes, &lookup), kubeon_admission::answer_with_requester(bytes)]
    {
        match status {
            200 => {
                let review: serde_json::Value = serde_json::from_slice(&body).unwrap();
                assert!(review["response"]["uid"].is_string(), "{review}");
            }
            400 => {}
            other => panic!("{other}: {}", String::from_utf8_lossy(&body)),
        }
    }
}

/// A request that is accepted asks for at most one organization.
pub(crate) fn certificate_request(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(request) = CertificateRequest::parse(text, "request") else { return };
    assert!(request.leaf.organizations.len() <= 1, "{:?}", request.leaf);
}

/// What is accepted is written in a form that is accepted as the same.
pub(crate) fn wire(bytes: &[u8]) {
    same_again::<Request>(bytes);
    same_again::<Event>(bytes);
    same_again::<Facts>(bytes);
}

/// What the tenant of a business cluster may send to its observer: the nodes are sorted, and a report that is accepted is written
/// in a form that is accepted as the same.
pub(crate) fn observed_cluster(bytes: &[u8]) {
    if let Ok(nodes) = observed_nodes(bytes) {
        assert!(nodes.is_sorted_by_key(|node| &node.name), "{nodes:?}");
    }
    drop(reports_of_masters(bytes));
    same_again::<MasterReport>(bytes);
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(kubeconfig) = ObserverKubeconfig::parse(text) {
        assert!(!kubeconfig.servers().is_empty());
    }
}

/// The objects of a list are in the bucket that was asked.
pub(crate) fn s3_answer(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let prefix: S3Address = "s3://backups/shop/".parse().unwrap();
    if let Ok((objects, _)) = listed_objects(text, &prefix) {
        assert!(objects.iter().all(|object| object.bucket() == prefix.bucket()), "{objects:?}");
    }
    drop(code_and_message(text));
}

fn same_again<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    let Ok(value) = serde_json::from_slice::<T>(bytes) else { return };
    let text = serde_json::to_string(&value).unwrap();
    assert_eq!(serde_json::from_str::<T>(&text).unwrap(), value, "{text}");
}

/// The end of a log has the requested size and is a part of it.
pub(crate) fn operation_log(bytes: &[u8]) {
    let _ = (decompressed(bytes), decompressed_steps(bytes));
    // A fuzzer does not find its way through the compression.
    let _ = decompressed_steps(&zstd::encode_all(bytes, 1).unwrap());
    let Some((first, text)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let most = usize::from(*first);
    let last = last_lines(text, most);
    assert!(last.len() <= most.max(1) && text.ends_with(last), "{last:?}");
}
