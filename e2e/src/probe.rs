//! Requests through the haproxy of a worker, and to the pods of a Service, while a test changes the cluster.

use std::time::Duration;

use anyhow::{Result, bail, ensure};

use crate::lab::TestLab;
use crate::program::eventually;

/// Reads the node of its host from etcd through the haproxy of the host, over a new connection each. Each time it reads the
/// authority and the kubelet's certificate again; while the kubelet requests another one, it uses the last one, as programs do
/// that run.
const API_REQUEST: &str = r#"
import os, socket, ssl
os.umask(0o077)
request = b"GET /api/v1/nodes/NODE HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
def login(number):
    own, new = f"/run/probe-login.{number}.pem", f"/run/probe-login.{number}.new"
    context = ssl.create_default_context(cafile="/etc/kubernetes/pki/ca.crt")
    try:
        # The file can change between the reads of the certificate and of its key.
        with open("/var/lib/kubelet/pki/kubelet-client-current.pem") as current, open(new, "w") as copy:
            copy.write(current.read())
        os.rename(new, own)
    except FileNotFoundError:
        pass
    context.load_cert_chain(own)
    return context
def ask(number):
    context = login(number)
    with socket.create_connection(("127.0.0.1", 6443), 5) as plain:
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as client:
            client.sendall(request)
            answer = client.recv(64)
    assert b" 200 " in answer, answer
"#;

/// Asks the Service at `ADDRESS` from the host itself, over a new connection each.
const SERVICE_REQUEST: &str = r#"
import os, socket
request = b"GET /probe HTTP/1.1\r\nHost: service\r\nConnection: close\r\n\r\n"
def ask(number):
    with socket.create_connection(("ADDRESS", 80), 5) as client:
        client.sendall(request)
        answer = client.recv(64)
    assert b" 200 " in answer, answer
"#;

/// Sends a request 25 times a second until it is stopped. Two threads alternate, and each makes up for what a slow answer took. It
/// writes the number of requests, how many of them failed, and the seconds since the first one.
const REPEAT: &str = r#"
import threading, time
lock, begin, counts = threading.Lock(), time.monotonic(), [0, 0]
def count(why):
    with lock:
        counts[0] += 1
        if why:
            counts[1] += 1
            print(time.strftime("%T"), why, flush=True)
        with open("/run/NAME.txt.new", "w") as result:
            result.write(f"{counts[0]} {counts[1]} {time.monotonic() - begin:.3f}")
        os.rename("/run/NAME.txt.new", "/run/NAME.txt")
def repeat(number):
    due = begin + number * 0.04
    while True:
        time.sleep(max(0, due - time.monotonic()))
        try:
            ask(number)
            why = None
        except Exception as error:
            why = repr(error)
        count(why)
        due += 0.08
threading.Thread(target=repeat, args=(1,), daemon=True).start()
repeat(0)
"#;

/// So many requests a second prove that none fails.
const LEAST_RATE: f64 = 20.0;
/// So many requests prove it.
const LEAST_TOTAL: u32 = 100;

const OF_THE_API: &str = "probe";
const OF_A_SERVICE: &str = "service-probe";

/// Starts the requests to the API on a worker.
///
/// # Errors
/// When they do not begin within a minute.
pub fn start(lab: &TestLab, host: &str) -> Result<()> {
    run(lab, host, OF_THE_API, &API_REQUEST.replace("NODE", host))
}

/// Starts the requests to port 80 of a Service of the namespace `default` on a worker.
///
/// # Errors
/// When there is no such Service, or they do not begin within a minute.
pub fn start_service(lab: &TestLab, host: &str, service: &str) -> Result<()> {
    let address =
        lab.kubectl(lab.name(), &["get", "service", service, "-o", "jsonpath={.spec.clusterIP}"])?;
    run(lab, host, OF_A_SERVICE, &SERVICE_REQUEST.replace("ADDRESS", address.trim()))
}

fn run(lab: &TestLab, host: &str, name: &str, request: &str) -> Result<()> {
    let file = lab.file(&format!("{name}.py"));
    std::fs::write(&file, request.to_owned() + &REPEAT.replace("NAME", name))?;
    let place = format!("/run/{name}.py");
    lab.must(&["copy", &format!("{}@{host}", lab.name()), &file.display().to_string(), &place])?;
    let line = format!("systemd-run --unit={name} sh -c 'exec python3 {place} >/run/{name}.log 2>&1'");
    lab.on(host, &line)?;
    eventually("the probe runs", Duration::from_secs(60), || {
        lab.on(host, &format!("test -s /run/{name}.txt || {{ cat /run/{name}.log >&2; exit 1; }}")).map(drop)
    })
}

/// None of the requests to the API until now failed, and there were enough of them. The text says how many.
///
/// # Errors
/// When one failed, with the last ones that did, or there were fewer than 20 a second.
pub fn none_failed(lab: &TestLab, host: &str) -> Result<String> {
    proven(lab, host, OF_THE_API, "the API")
}

/// The same of the requests to the Service.
///
/// # Errors
/// Like [`none_failed`].
pub fn none_to_service_failed(lab: &TestLab, host: &str) -> Result<String> {
    proven(lab, host, OF_A_SERVICE, "the Deployment")
}

fn proven(lab: &TestLab, host: &str, name: &str, server: &str) -> Result<String> {
    let text = lab.on(host, &format!("cat /run/{name}.txt"))?;
    let words: Vec<&str> = text.split_whitespace().collect();
    ensure!(words.len() == 3, "the probe on {host} wrote {text:?}");
    let (total, failed): (u32, u32) = (words[0].parse()?, words[1].parse()?);
    let rate = f64::from(total) / words[2].parse::<f64>()?.max(1.0);
    let text = format!("{failed} of {total} requests to {server} failed on {host}, {rate:.1} a second");
    if failed > 0 {
        let last = lab.on(host, &format!("tail -n 5 /run/{name}.log"))?;
        bail!("{text}: {last}");
    }
    ensure!(total > LEAST_TOTAL && rate >= LEAST_RATE, "too few: {text}");
    Ok(text)
}
