//! Tests the spans that a collector receives: the run, its stages and its steps, in the operation's trace.

use std::time::Duration;

use crate::support::{Place, Running, TIMEOUT};
use kubeon_envtest::{Collector, ReceivedSpan};

const OPERATION: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const PROGRAM: &str = r#"#!/bin/bash
say() { echo "$1" >&2; }
[ "$1" = destroy ] || exit 0
say '{"event":"started","host":"10.0.0.4","name":"h4","stage":"etcd","step":"stop etcd","why":"it must go with a secret"}'
sleep 0.1
say '{"event":"finished","host":"10.0.0.4","step":"stop etcd","changed":true,"milliseconds":7}'
say '{"event":"started","host":"10.0.0.5","name":"h5","stage":"etcd","step":"stop etcd","why":"it must go"}'
say '{"event":"failed","host":"10.0.0.5","step":"stop etcd","cause":"it does not stop","log":[],"again":false}'
exit 3
"#;

fn place() -> Place {
    let place = Place::new();
    place.program("kubeon", PROGRAM);
    place.write("auth/password", "a secret");
    place.write("conf/cluster.json", r#"{"metadata":{"name":"demo"},"spec":{"cluster":{}}}"#);
    place
}

fn run(place: &Place, environment: &[(&str, &str)]) -> Duration {
    let mut command = place.command(&["--action", "kubeon"]);
    command.env("OPERATION", "terminating").env("CLUSTER_NAME", "demo").env("CLUSTER_NAMESPACE", "team");
    command
        .env_remove("TRACEPARENT")
        .env_remove("OTEL_EXPORTER_OTLP_ENDPOINT")
        .envs(environment.iter().copied());
    let begun = std::time::Instant::now();
    let done = Running::start(&mut command).end();
    assert_ne!(done.code, Some(0), "{done:?}");
    begun.elapsed()
}

#[test]
fn the_run_its_stage_and_each_step_on_a_host_are_spans_of_the_operations_trace() {
    let (place, collector) = (place(), Collector::start().unwrap());
    run(&place, &[("TRACEPARENT", OPERATION), ("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url())]);
    let sent = collector.until(TIMEOUT, |sent| sent.len() == 4);
    let named = |name: &str| sent.iter().filter(|span| span.name == name).collect::<Vec<&ReceivedSpan>>();
    let (runs, stages, steps) = (named("run"), named("stage"), named("step"));
    assert_eq!((runs.len(), stages.len(), steps.len()), (1, 1, 2), "{sent:#?}");
    assert_eq!(format!("00-{}-{}-01", runs[0].trace, runs[0].parent), OPERATION);
    assert!(runs[0].failure.is_some() && runs[0].service == "kubeon-runner");
    assert_eq!((&stages[0].parent, stages[0].attribute("kubeon.stage")), (&runs[0].span, Some("etcd")));
    let finished = steps.iter().find(|step| step.attribute("host.name") == Some("h4")).unwrap();
    assert_eq!((&finished.parent, finished.attribute("kubeon.step")), (&stages[0].span, Some("stop etcd")));
    assert!(finished.failure.is_none() && finished.duration >= Duration::from_millis(90), "{finished:?}");
    assert!(!format!("{sent:?}").contains("a secret"), "secrets are redacted: {sent:#?}");
    let failed = steps.iter().find(|step| step.attribute("host.name") == Some("h5")).unwrap();
    assert_eq!(failed.failure.as_deref(), Some("it does not stop"));
}

#[test]
fn a_missing_collector_does_not_stop_the_work() {
    let place = place();
    let took =
        run(&place, &[("TRACEPARENT", OPERATION), ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")]);
    assert!(took < Duration::from_secs(30), "{took:?}");
}
