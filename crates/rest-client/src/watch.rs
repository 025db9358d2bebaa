//! Waits for a change of a cluster: reads the server-sent events of the server.

use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use kubeon_rest::ClusterView;

use crate::{RestClient, RestError, refuse};

impl RestClient {
    /// Waits until `wanted` returns a value for the cluster, which it sees now and after every change.
    ///
    /// # Errors
    /// When the server refuses, ends the stream, or the time limit passes first. `what` names the event for the error.
    pub fn wait_for_cluster<T>(
        &self,
        (namespace, name): (&str, &str),
        (what, limit): (&'static str, Duration),
        mut wanted: impl FnMut(&ClusterView) -> Option<T>,
    ) -> Result<T, RestError> {
        let until = Instant::now() + limit;
        let request = self.agent.get(format!("{}/api/v2/watch/clusters", self.url));
        let request = request.header("authorization", &self.bearer).header("accept", "text/event-stream");
        let request = request.query("namespace", namespace);
        let request = request.config().timeout_recv_body(Some(limit)).build();
        let answer = refuse(request.call().map_err(RestError::lost)?)?;
        let mut event = String::new();
        for line in BufReader::new(answer.into_body().into_reader()).lines() {
            let line = match line {
                Err(_) if Instant::now() >= until => return Err(RestError::TooLate { what, limit }),
                line => line.map_err(|error| RestError::lost(ureq::Error::Io(error)))?,
            };
            match line.split_once(": ") {
                Some(("event", kind)) => kind.clone_into(&mut event),
                Some(("data", reason)) if event == "end" => return Err(RestError::Ended(reason.to_owned())),
                Some(("data", text)) if event == "added" || event == "modified" => {
                    let cluster: ClusterView = serde_json::from_str(text).map_err(RestError::Unreadable)?;
                    if cluster.name == name
                        && let Some(found) = wanted(&cluster)
                    {
                        return Ok(found);
                    }
                }
                Some(("data", text)) if event == "deleted" => {
                    let cluster: ClusterView = serde_json::from_str(text).map_err(RestError::Unreadable)?;
                    if cluster.name == name {
                        return Err(RestError::Ended(format!("cluster {name} was deleted")));
                    }
                }
                _ => {}
            }
        }
        Err(RestError::Ended("without a reason".to_owned()))
    }
}
