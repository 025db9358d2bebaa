//! What etcd stores.

use std::collections::BTreeMap;
use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::process::Command;

use crate::{EnvtestError, TestApiServer, program};

impl TestApiServer {
    /// The bytes of every value in etcd, by its key, such as `/registry/configmaps/NAMESPACE/NAME`.
    ///
    /// # Errors
    /// When the bundle has no etcdctl, or that fails.
    pub async fn stored_bytes(&self) -> Result<BTreeMap<String, usize>, EnvtestError> {
        let mut command = Command::new(program("etcd")?.with_file_name("etcdctl"));
        command.args(["--endpoints", &self.etcd_url, "get", "/registry/", "--prefix", "--write-out=json"]);
        let output = command.kill_on_drop(true).output().await.map_err(EnvtestError::Etcd)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(EnvtestError::Etcd(io::Error::other(said)));
        }
        sizes(&output.stdout).map_err(EnvtestError::Etcd)
    }
}

fn sizes(answer: &[u8]) -> io::Result<BTreeMap<String, usize>> {
    let answer: serde_json::Value = serde_json::from_slice(answer)?;
    let bytes = |value: &serde_json::Value| {
        let text = value.as_str().unwrap_or_default();
        STANDARD.decode(text).map_err(io::Error::other)
    };
    let pairs = answer["kvs"].as_array().into_iter().flatten();
    let sizes = pairs.map(|pair| {
        let key = String::from_utf8(bytes(&pair["key"])?).map_err(io::Error::other)?;
        Ok((key, bytes(&pair["value"])?.len()))
    });
    sizes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_etcdctl_has_keys_and_sizes() {
        let answer = br#"{"header":{},"kvs":[{"key":"L2E=","value":"AQID"},{"key":"L2I="}],"count":2}"#;
        assert_eq!(sizes(answer).unwrap(), BTreeMap::from([("/a".to_owned(), 3), ("/b".to_owned(), 0)]));
        assert!(sizes(br#"{"kvs":[{"key":"?"}]}"#).is_err());
    }
}
