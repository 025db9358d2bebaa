//! Requests through the haproxy of a worker, and to the pods of a Service, while a test changes the cluster.

use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::lab::TestLab;
use crate::program::eventually;

/// Reads the node of its host from etcd through the haproxy of the host, 25 times a second over a new connection each, until it
/// is stopped. Each time it reads the authority and the kubelet's certificate again; while the kubelet requests another one,
/// it uses the last one, as programs do that run.
const PROBE: &str = r#"
import os, socket, ssl, time
os.umask(0o077)
def login():
    context = ssl.create_default_context(cafile="/etc/kubernetes/pki/ca.crt")
    try:
        # The file can change between the reads of the certificate and of its key.
        with open("/var/lib/kubelet/pki/kubelet-client-current.pem") as own, open("/run/probe.new", "w") as copy:
            copy.write(own.read())
        os.rename("/run/probe.new", "/run/probe.pem")
    except FileNotFoundError:
        pass
    context.load_cert_chain("/run/probe.pem")
    return context
request = b"GET /api/v1/nodes/NODE HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
total = failed = 0
while True:
    begin = time.monotonic()
    try:
        context = login()
        with socket.create_connection(("127.0.0.1", 6443), 5) as plain:
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as client:
                client.sendall(request)
                answer = client.recv(64)
        assert b" 200 " in answer, answer
    except Exception as error:
        failed += 1
        print(time.strftime("%T"), repr(error), flush=True)
    total += 1
    with open("/run/probe.txt", "w") as result:
        result.write(f"{total} {failed}")
    time.sleep(max(0, 0.04 - (time.monotonic() - begin)))
"#;

/// Asks the Service at `ADDRESS` as often, from the host itself, over a new connection each, until it is stopped.
const SERVICE_PROBE: &str = r#"
import socket, time
request = b"GET /probe HTTP/1.1\r\nHost: service\r\nConnection: close\r\n\r\n"
total = failed = 0
while True:
    begin = time.monotonic()
    try:
        with socket.create_connection(("ADDRESS", 80), 5) as client:
            client.sendall(request)
            answer = client.recv(64)
        assert b" 200 " in answer, answer
    except Exception as error:
        failed += 1
        print(time.strftime("%T"), repr(error), flush=True)
    total += 1
    with open("/run/service-probe.txt", "w") as result:
        result.write(f"{total} {failed}")
    time.sleep(max(0, 0.04 - (time.monotonic() - begin)))
"#;

const OF_THE_API: &str = "probe";
const OF_A_SERVICE: &str = "service-probe";

/// Starts the requests to the API on a worker.
///
/// # Errors
/// When they do not begin within a minute.
pub fn start(lab: &TestLab, host: &str) -> Result<()> {
    run(lab, host, OF_THE_API, &PROBE.replace("NODE", host))
}

/// Starts the requests to port 80 of a Service of the namespace `default` on a worker.
///
/// # Errors
/// When there is no such Service, or they do not begin within a minute.
pub fn start_service(lab: &TestLab, host: &str, service: &str) -> Result<()> {
    let address =
        lab.kubectl(lab.name(), &["get", "service", service, "-o", "jsonpath={.spec.clusterIP}"])?;
    run(lab, host, OF_A_SERVICE, &SERVICE_PROBE.replace("ADDRESS", address.trim()))
}

fn run(lab: &TestLab, host: &str, name: &str, script: &str) -> Result<()> {
    let file = lab.file(&format!("{name}.py"));
    std::fs::write(&file, script)?;
    let place = format!("/run/{name}.py");
    lab.must(&["copy", &format!("{}@{host}", lab.name()), &file.display().to_string(), &place])?;
    let line = format!("systemd-run --unit={name} sh -c 'exec python3 {place} >/run/{name}.log 2>&1'");
    lab.on(host, &line)?;
    eventually("the probe runs", Duration::from_secs(60), || {
        lab.on(host, &format!("test -s /run/{name}.txt || {{ cat /run/{name}.log >&2; exit 1; }}")).map(drop)
    })
}

/// The number of requests to the API until now, and how many of them failed.
///
/// # Errors
/// When the probe has not begun.
pub fn counts(lab: &TestLab, host: &str) -> Result<(u32, u32)> {
    counted(lab, host, OF_THE_API)
}

/// The number of requests to the Service until now, and how many of them failed.
///
/// # Errors
/// When the probe has not begun.
pub fn service_counts(lab: &TestLab, host: &str) -> Result<(u32, u32)> {
    counted(lab, host, OF_A_SERVICE)
}

fn counted(lab: &TestLab, host: &str, name: &str) -> Result<(u32, u32)> {
    let text = lab.on(host, &format!("cat /run/{name}.txt"))?;
    let mut counts = text.split_whitespace().map_while(|word| word.parse().ok());
    Ok((counts.next().context("no count")?, counts.next().context("no count")?))
}

/// The last requests to the API that failed.
///
/// # Errors
/// When the host does not answer.
pub fn log(lab: &TestLab, host: &str) -> Result<String> {
    lab.on(host, &format!("tail -n 5 /run/{OF_THE_API}.log"))
}

/// The last requests to the Service that failed.
///
/// # Errors
/// When the host does not answer.
pub fn service_log(lab: &TestLab, host: &str) -> Result<String> {
    lab.on(host, &format!("tail -n 5 /run/{OF_A_SERVICE}.log"))
}
