//! Configuration files of the API server: who may use it without a login, which pods are reported, what is logged.

use serde_json::json;

use crate::config::pretty;
use crate::paths::{etc, pki};

/// The webhook of a meta cluster, as the API server names it.
const KUBEON_WEBHOOK: &str = "kubeon-webhook.kubeon-system.svc";

/// `/etc/kubernetes/authentication.yaml`: anonymous requests may read the health endpoints only.
#[must_use]
pub fn authentication() -> String {
    pretty(&json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "anonymous": {
            "enabled": true,
            "conditions": [{ "path": "/livez" }, { "path": "/readyz" }, { "path": "/healthz" }],
        },
    }))
}

/// `/etc/kubernetes/admission.yaml`: pods that do not meet the Pod Security Standard `baseline` are warned of and recorded in
/// the audit log. They are refused only in namespaces whose labels say so. Webhooks are called with [`webhook_login`].
#[must_use]
pub fn admission() -> String {
    let webhooks = |name: &str| {
        json!({
            "name": name,
            "configuration": {
                "apiVersion": "apiserver.config.k8s.io/v1",
                "kind": "WebhookAdmissionConfiguration",
                "kubeConfigFile": etc("webhooks.kubeconfig"),
            },
        })
    };
    let pod_security = json!({
        "name": "PodSecurity",
        "configuration": {
            "apiVersion": "pod-security.admission.config.k8s.io/v1",
            "kind": "PodSecurityConfiguration",
            "defaults": {
                "enforce": "privileged",
                "enforce-version": "latest",
                "audit": "baseline",
                "audit-version": "latest",
                "warn": "baseline",
                "warn-version": "latest",
            },
            "exemptions": { "usernames": [], "runtimeClasses": [], "namespaces": ["kube-system"] },
        },
    });
    let plugins =
        [pod_security, webhooks("MutatingAdmissionWebhook"), webhooks("ValidatingAdmissionWebhook")];
    pretty(&json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": plugins,
    }))
}

/// `/etc/kubernetes/webhooks.kubeconfig`: to the webhook of kubeon the API server presents the certificate that it presents to
/// aggregated API servers, so that the webhook can refuse other clients. Other webhooks might refuse a certificate that they did
/// not expect, and get none.
#[must_use]
pub fn webhook_login() -> String {
    pretty(&json!({
        "apiVersion": "v1",
        "kind": "Config",
        "users": [{
            "name": KUBEON_WEBHOOK,
            "user": {
                "client-certificate": pki("front-proxy-client.crt"),
                "client-key": pki("front-proxy-client.key"),
            },
        }],
    }))
}

/// `/etc/kubernetes/audit-policy.yaml`: who did what to which object, without the content of requests and answers, because
/// it may be secret. Health checks, leases, events and what the programs of the cluster read for themselves are left out;
/// who reads Secrets is always recorded. The first rule that matches decides.
#[must_use]
pub fn audit_policy() -> String {
    let reads = ["get", "list", "watch"];
    pretty(&json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {
                "level": "Metadata",
                "resources": [
                    { "group": "", "resources": ["secrets", "serviceaccounts/token"] },
                    { "group": "authentication.k8s.io", "resources": ["tokenreviews"] },
                ],
            },
            { "level": "None", "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*", "/version", "/openapi*"] },
            {
                "level": "None",
                "resources": [
                    { "group": "", "resources": ["events"] },
                    { "group": "events.k8s.io", "resources": ["events"] },
                    { "group": "coordination.k8s.io", "resources": ["leases"] },
                ],
            },
            {
                "level": "None",
                "users": ["system:apiserver", "system:kube-controller-manager", "system:kube-proxy", "system:kube-scheduler"],
                "verbs": reads,
            },
            {
                "level": "None",
                "userGroups": ["system:nodes", "system:serviceaccounts:kube-system"],
                "verbs": reads,
            },
            {
                "level": "None",
                "userGroups": ["system:nodes"],
                "verbs": ["update", "patch"],
                "resources": [{ "group": "", "resources": ["nodes/status", "pods/status"] }],
            },
            { "level": "Metadata" },
        ],
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn read(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn pods_of_existing_clusters_are_never_refused() {
        let plugin = &read(&admission())["plugins"][0];
        assert_eq!(plugin["name"], "PodSecurity");
        let defaults = &plugin["configuration"]["defaults"];
        assert_eq!((&defaults["enforce"], &defaults["warn"]), (&json!("privileged"), &json!("baseline")));
    }

    #[test]
    fn every_access_to_secrets_is_recorded_without_its_content() {
        let policy = read(&audit_policy());
        let rules = policy["rules"].as_array().unwrap();
        assert_eq!(rules[0]["resources"][0]["resources"][0], "secrets");
        assert!(rules.iter().all(|rule| rule["level"] == "None" || rule["level"] == "Metadata"));
        assert_eq!(rules.last().unwrap(), &json!({ "level": "Metadata" }), "everything else is recorded");
    }
}
