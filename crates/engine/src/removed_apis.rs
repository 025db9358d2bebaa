//! Versions of APIs that Kubernetes ceases to serve, as data: what the lifecycle of each type in `k8s.io/api` v0.36.3 says. Add a
//! line when another release says so of a type.

use kubeon_api::Version;

/// A resource in a version of its API that a minor version of Kubernetes does not serve any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RemovedApi {
    /// The first minor version of Kubernetes 1 without it.
    removed: u32,
    /// Group and version, such as `networking.k8s.io/v1beta1`.
    group: &'static str,
    version: &'static str,
    resource: &'static str,
}

const fn removed(
    removed: u32,
    group: &'static str,
    version: &'static str,
    resource: &'static str,
) -> RemovedApi {
    RemovedApi { removed, group, version, resource }
}

const ADMISSION: &str = "admissionregistration.k8s.io";
const RESOURCE: &str = "resource.k8s.io";

const REMOVED: &[RemovedApi] = &[
    removed(34, ADMISSION, "v1beta1", "validatingadmissionpolicies"),
    removed(34, ADMISSION, "v1beta1", "validatingadmissionpolicybindings"),
    removed(35, "storage.k8s.io", "v1alpha1", "volumeattributesclasses"),
    removed(37, "certificates.k8s.io", "v1alpha1", "clustertrustbundles"),
    removed(37, "networking.k8s.io", "v1beta1", "ipaddresses"),
    removed(37, "networking.k8s.io", "v1beta1", "servicecidrs"),
    removed(37, "storage.k8s.io", "v1beta1", "volumeattributesclasses"),
    removed(38, ADMISSION, "v1alpha1", "mutatingadmissionpolicies"),
    removed(38, ADMISSION, "v1alpha1", "mutatingadmissionpolicybindings"),
    removed(38, "coordination.k8s.io", "v1alpha2", "leasecandidates"),
    removed(38, RESOURCE, "v1beta1", "deviceclasses"),
    removed(38, RESOURCE, "v1beta1", "resourceclaims"),
    removed(38, RESOURCE, "v1beta1", "resourceclaimtemplates"),
    removed(38, RESOURCE, "v1beta1", "resourceslices"),
    removed(39, "coordination.k8s.io", "v1beta1", "leasecandidates"),
    removed(39, RESOURCE, "v1alpha3", "devicetaintrules"),
    removed(39, RESOURCE, "v1beta2", "deviceclasses"),
    removed(39, RESOURCE, "v1beta2", "resourceclaims"),
    removed(39, RESOURCE, "v1beta2", "resourceclaimtemplates"),
    removed(39, RESOURCE, "v1beta2", "resourceslices"),
    removed(40, ADMISSION, "v1beta1", "mutatingadmissionpolicies"),
    removed(40, ADMISSION, "v1beta1", "mutatingadmissionpolicybindings"),
    removed(40, "certificates.k8s.io", "v1beta1", "clustertrustbundles"),
];

/// What `now` may serve and `wanted` does not.
pub(crate) fn removed_between(now: Version, wanted: Version) -> impl Iterator<Item = &'static RemovedApi> {
    REMOVED.iter().filter(move |api| now.minor < api.removed && api.removed <= wanted.minor)
}

impl RemovedApi {
    /// Group and version, such as `networking.k8s.io/v1beta1`.
    pub(crate) fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// The resource with its group, such as `ipaddresses.networking.k8s.io`.
    pub(crate) fn of_group(&self) -> String {
        format!("{}.{}", self.resource, self.group)
    }

    /// The resource.
    pub(crate) fn resource(&self) -> &'static str {
        self.resource
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_way_loses_is_listed() {
        let between = |now: &str, wanted: &str| -> Vec<String> {
            let versions = (now.parse().unwrap(), wanted.parse().unwrap());
            removed_between(versions.0, versions.1)
                .map(|api| format!("{} {}", api.api_version(), api.resource()))
                .collect()
        };
        assert_eq!(between("v1.36.3", "v1.36.4"), Vec::<String>::new());
        assert_eq!(between("v1.34.9", "v1.35.7"), ["storage.k8s.io/v1alpha1 volumeattributesclasses"]);
        assert_eq!(between("v1.34.9", "v1.37.2").len(), 5);
        assert!(REMOVED.is_sorted_by_key(|api| api.removed));
    }
}
