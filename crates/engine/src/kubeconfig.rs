//! The administrator's kubeconfig in the state folder: its certificates, endpoints and current context.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::error::EngineError;

/// A parsed kubeconfig. Entries that the user added with `kubectl config` are preserved.
#[derive(Debug, Clone, PartialEq)]
pub struct Kubeconfig(Value);

impl Kubeconfig {
    /// Parses a kubeconfig.
    ///
    /// # Errors
    /// When the text is not YAML, or not a kubeconfig.
    pub fn parse(text: &str) -> Result<Self, EngineError> {
        let value: Value = serde_saphyr::from_str(text)
            .map_err(|error| EngineError::failed(format!("the kubeconfig: {error}")))?;
        if value["clusters"].is_array() {
            return Ok(Self(value));
        }
        Err(EngineError::failed("the kubeconfig has no list of clusters"))
    }

    /// The CA certificate of an entry of `clusters`, as PEM.
    pub fn authority(&self, entry: &str) -> Option<String> {
        let text = self.cluster(entry)?["certificate-authority-data"].as_str()?;
        String::from_utf8(STANDARD.decode(text).ok()?).ok()
    }

    /// The client certificate of an entry of `users`, as PEM.
    pub fn client(&self, entry: &str) -> Option<String> {
        let mut users = self.0["users"].as_array()?.iter();
        let text = users.find(|found| found["name"] == entry)?["user"]["client-certificate-data"].as_str()?;
        String::from_utf8(STANDARD.decode(text).ok()?).ok()
    }

    /// The current context.
    pub fn current(&self) -> Option<&str> {
        self.0["current-context"].as_str()
    }

    /// The server URL of an entry of `clusters`.
    #[cfg(test)]
    pub fn server(&self, entry: &str) -> Option<&str> {
        self.cluster(entry)?["server"].as_str()
    }

    /// Sets the server URL of an entry of `clusters`. Adds no entry.
    pub fn set_server(&mut self, entry: &str, url: &str) {
        let entries = self.0["clusters"].as_array_mut().into_iter().flatten();
        for found in entries.filter(|found| found["name"] == entry) {
            found["cluster"]["server"] = url.into();
        }
    }

    /// Sets the current context.
    pub fn choose(&mut self, context: &str) {
        self.0["current-context"] = context.into();
    }

    /// The kubeconfig as YAML.
    ///
    /// # Errors
    /// When serialization fails.
    pub fn text(&self) -> Result<String, EngineError> {
        serde_saphyr::to_string(&self.0)
            .map_err(|error| EngineError::failed(format!("cannot write the kubeconfig: {error}")))
    }

    fn cluster(&self, entry: &str) -> Option<&Value> {
        let mut entries = self.0["clusters"].as_array()?.iter();
        entries.find(|found| found["name"] == entry).map(|found| &found["cluster"])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "apiVersion: v1\nkind: Config\nclusters:\n- name: \"demo\"\n  cluster:\n    server: \"https://10.0.0.1:6443\"\n    \
        certificate-authority-data: cGVt\n- name: \"demo-h2\"\n  cluster:\n    server: \"https://10.0.0.2:6443\"\ncurrent-context: \"demo\"\n\
        contexts:\n- name: \"demo\"\n  context: {cluster: demo, user: demo-admin, namespace: mine}\n\
        users:\n- name: \"demo-admin\"\n  user:\n    client-certificate-data: cGVt\n";

    #[test]
    fn sets_server_and_context_and_keeps_the_rest() {
        let mut config = Kubeconfig::parse(TEXT).unwrap();
        assert_eq!(config.authority("demo").as_deref(), Some("pem"));
        assert_eq!((config.client("demo-admin").as_deref(), config.client("missing")), (Some("pem"), None));
        assert_eq!((config.authority("demo-h2"), config.server("missing")), (None, None));
        config.set_server("demo", "https://demo.api:6443");
        config.set_server("missing", "https://x");
        config.choose("demo-h2");
        let again = Kubeconfig::parse(&config.text().unwrap()).unwrap();
        assert_eq!(again, config);
        assert_eq!(again.server("demo"), Some("https://demo.api:6443"));
        assert_eq!(again.server("demo-h2"), Some("https://10.0.0.2:6443"));
        assert_eq!(again.current(), Some("demo-h2"));
        assert_eq!(again.0["contexts"][0]["context"]["namespace"], "mine");
        assert_eq!(again.0["clusters"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn text_that_is_not_a_kubeconfig_is_refused() {
        assert!(Kubeconfig::parse("a: [").is_err());
        assert!(Kubeconfig::parse("kind: Config\n").is_err());
    }
}
