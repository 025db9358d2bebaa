//! Which addresses the clusters of a namespace may have. Otherwise a tenant could claim hosts of others, or probe addresses
//! through the operator.

use kubeon_api::labels::HOST_POOL;

use super::cel::cel_text;
use super::policy::{AdmissionPolicy, Validation, not_the_operator};
use crate::InstallOptions;

/// New hosts of a cluster are in the pool of its namespace. Hosts that the cluster has are not checked again.
pub(super) fn host_pool(options: &InstallOptions) -> AdmissionPolicy {
    let pool = format!(
        "namespaceObject.metadata.?annotations[?{}].orValue('').split(',').map(entry, entry.trim()).filter(entry, entry != '')",
        cel_text(HOST_POOL)
    );
    let networks = "variables.pool.filter(entry, isCIDR(entry) || isIP(entry))\
                    .map(entry, cidr(isCIDR(entry) ? entry : entry + '/32'))";
    let outside = "variables.addresses.filter(address, !(address in variables.addressesBefore) && \
                   !(isIP(address) && variables.networks.exists(network, network.containsIP(address))))";
    let place = format!("'namespace ' + request.namespace + ' (annotation {HOST_POOL}: '");
    AdmissionPolicy {
        name: "kubeon-host-pool",
        resource_rules: vec![("ecs.yun.com", "v1", &["kubernetesclusters"])],
        operations: &["CREATE", "UPDATE"],
        parameters: None,
        match_conditions: vec![not_the_operator(options)],
        variables: vec![
            ("required", options.require_host_pools.to_string()),
            ("pool", pool),
            ("networks", networks.to_owned()),
            ("hosts", hosts("object")),
            ("hostsBefore", format!("oldObject == null ? [] : {}", hosts("oldObject"))),
            ("addresses", addresses("variables.hosts")),
            ("addressesBefore", addresses("variables.hostsBefore")),
            ("outside", outside.to_owned()),
        ],
        validations: vec![
            Validation {
                expression: "variables.pool.all(entry, isCIDR(entry) || isIP(entry))".to_owned(),
                message: format!(
                    "'metadata.annotations[{HOST_POOL}] of namespace ' + request.namespace + ': ' + \
                     variables.pool.filter(entry, !isCIDR(entry) && !isIP(entry)).join(', ') + \
                     ': neither an address nor a network; the owner of the meta cluster must correct it'"
                ),
                reason: "Forbidden",
            },
            Validation {
                expression:
                    "size(variables.outside) == 0 || !variables.required && size(variables.pool) == 0"
                        .to_owned(),
                message: format!(
                    "'spec.cluster: host ' + string(variables.outside[0]) + ' is outside of the addresses of ' + {place} + \
                     (size(variables.pool) == 0 ? 'none' : variables.pool.join(', ')) + ')'"
                ),
                reason: "Forbidden",
            },
        ],
    }
}

/// The hosts in an object, whose cluster is below `spec.cluster` or, as older clients write it, in `spec`.
pub(super) fn hosts(root: &str) -> String {
    let list = |name: &str| {
        let of = |spec: &str| format!("dyn({root}).spec.{spec}?{name}.orValue([])");
        format!("{} + {}", of("?cluster."), of(""))
    };
    ["masterList", "nodeList", "etcdList"].map(list).join(" + ")
}

/// The addresses of these hosts.
fn addresses(hosts: &str) -> String {
    format!(
        "{hosts}.map(host, host.ip) + {hosts}.filter(host, host.?internalAddress.orValue('') != '')\
         .map(host, host.internalAddress)"
    )
}
