//! The host that the steps change; all steps share it.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use crate::paths;
use crate::root::Root;
use crate::static_pods::HostServices;
use crate::systemd::{NoServices, Services};

/// The host, with its service manager and cached values.
pub struct HostSystem {
    /// The folder that is used as `/`.
    pub root: Root,
    /// The URL of the host's own API server.
    pub api: String,
    /// The URL of the host's own etcd member.
    pub etcd: String,
    /// The host's service manager.
    pub services: Box<dyn Services>,
    /// The images in containerd, cached after the first read.
    pub images: Mutex<Option<BTreeSet<String>>>,
    /// Serializes steps that change the same shared file.
    pub shared_files: Mutex<()>,
}

impl HostSystem {
    /// The real host for the root `/`. For any other root, a host without services.
    #[must_use]
    pub fn new(root: Root) -> Self {
        let services: Box<dyn Services> =
            if root.is_live() { Box::new(HostServices::new(root.clone())) } else { Box::new(NoServices) };
        Self::with_services(root, services)
    }

    /// A host with the given service manager.
    #[must_use]
    pub fn with_services(root: Root, services: Box<dyn Services>) -> Self {
        Self {
            root,
            api: paths::API.to_owned(),
            etcd: paths::ETCD.to_owned(),
            services,
            images: Mutex::new(None),
            shared_files: Mutex::new(()),
        }
    }
}
