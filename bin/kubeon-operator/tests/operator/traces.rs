//! What a collector hears of an operation, and what its Job learns of the trace.

use kubeon_api::kubeonkube::OperationResult;
use kubeon_envtest::Collector;

use crate::lab::{Lab, TIMEOUT};

#[tokio::test]
async fn an_operations_trace_holds_its_turns_and_goes_on_in_its_job() {
    let collector = Collector::start().unwrap();
    let lab = Lab::open().await;
    let url = collector.url();
    lab.start_in(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &url)], &["--leader-elect=false"]);
    lab.cluster("sample").await;
    lab.ask("sample", "myops").await;
    let running = lab.until_is("myops", OperationResult::Running).await;
    let job = lab.job_of(&running).await;
    let trace = running.metadata.uid.clone().unwrap().replace('-', "");
    let traceparent = &job.metadata.annotations.as_ref().unwrap()["kubeon.io/traceparent"];
    assert!(traceparent.starts_with(&format!("00-{trace}-")), "{traceparent}");
    let env = job.spec.unwrap().template.spec.unwrap().containers.remove(0).env.unwrap();
    let says =
        |name: &str| env.iter().find(|entry| entry.name == name).and_then(|entry| entry.value.as_ref());
    assert_eq!((says("TRACEPARENT"), says("OTEL_EXPORTER_OTLP_ENDPOINT")), (Some(traceparent), Some(&url)));
    lab.finish("myops").await;
    let whole = tokio::task::spawn_blocking(move || {
        collector.until(TIMEOUT, |sent| sent.iter().any(|span| span.name == "operation"))
    });
    let sent: Vec<_> = whole.await.unwrap().into_iter().filter(|span| span.trace == trace).collect();
    let root = sent.iter().find(|span| span.name == "operation").unwrap();
    assert_eq!((root.parent.as_str(), root.says("kubeon.result")), ("", Some("Succeeded")));
    assert_eq!(format!("00-{trace}-{}-01", root.span), *traceparent);
    let turns: Vec<_> = sent.iter().filter(|span| span.name == "turn").collect();
    assert!(turns.len() >= 2 && turns.iter().all(|turn| turn.parent == root.span), "{sent:#?}");
    assert!(turns.iter().any(|turn| turn.says("kubeon.writes").unwrap().contains("the operation starts")));
}
