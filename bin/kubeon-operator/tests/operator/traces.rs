//! The spans of an operation at a collector, and the trace parent of its Job.

use kubeon_api::kubeonkube::OperationResult;
use kubeon_envtest::Collector;

use crate::lab::{Lab, TIMEOUT};

#[tokio::test]
async fn the_trace_of_an_operation_has_its_reconciles_and_continues_in_its_job() {
    let collector = Collector::start().unwrap();
    let lab = Lab::open().await;
    let url = collector.url();
    lab.start_in(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &url)], &["--leader-elect=false"]);
    lab.cluster("sample").await;
    lab.create_shell_operation("sample", "myops").await;
    let running = lab.wait_result("myops", OperationResult::Running).await;
    let job = lab.job_of(&running).await;
    let trace = running.metadata.uid.clone().unwrap().replace('-', "");
    let traceparent = &job.metadata.annotations.as_ref().unwrap()["kubeon.io/traceparent"];
    assert!(traceparent.starts_with(&format!("00-{trace}-")), "{traceparent}");
    let env = job.spec.unwrap().template.spec.unwrap().containers.remove(0).env.unwrap();
    let variable =
        |name: &str| env.iter().find(|entry| entry.name == name).and_then(|entry| entry.value.as_ref());
    assert_eq!(
        (variable("TRACEPARENT"), variable("OTEL_EXPORTER_OTLP_ENDPOINT")),
        (Some(traceparent), Some(&url))
    );
    lab.finish("myops").await;
    let received = tokio::task::spawn_blocking(move || {
        collector.until(TIMEOUT, |spans| spans.iter().any(|span| span.name == "operation"))
    });
    let spans: Vec<_> = received.await.unwrap().into_iter().filter(|span| span.trace == trace).collect();
    let root = spans.iter().find(|span| span.name == "operation").unwrap();
    assert_eq!((root.parent.as_str(), root.attribute("kubeon.result")), ("", Some("Succeeded")));
    assert_eq!(format!("00-{trace}-{}-01", root.span), *traceparent);
    let reconciles: Vec<_> = spans.iter().filter(|span| span.name == "reconcile").collect();
    assert!(reconciles.len() >= 2 && reconciles.iter().all(|span| span.parent == root.span), "{spans:#?}");
    assert!(
        reconciles
            .iter()
            .any(|span| span.attribute("kubeon.writes").unwrap().contains("the operation starts"))
    );
}
