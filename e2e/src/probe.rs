//! Requests through the haproxy of a worker, while a test changes the cluster.

use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::lab::TestLab;
use crate::program::eventually;

/// Reads the node of its host from etcd through the haproxy of the host, 25 times a second over a new connection each, until it
/// is stopped. Each time it reads the authority and the kubelet's certificate again; while the kubelet requests another one,
/// it uses the last one, as programs do that run.
const PROBE: &str = r#"
import os, shutil, socket, ssl, time
os.umask(0o077)
def login():
    context = ssl.create_default_context(cafile="/etc/kubernetes/pki/ca.crt")
    try:
        # The file can change between the reads of the certificate and of its key.
        shutil.copyfile("/var/lib/kubelet/pki/kubelet-client-current.pem", "/run/probe.new")
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

/// Starts the requests on a worker.
///
/// # Errors
/// When they do not begin within a minute.
pub fn start(lab: &TestLab, host: &str) -> Result<()> {
    std::fs::write(lab.file("probe.py"), PROBE.replace("NODE", host))?;
    let file = lab.file("probe.py").display().to_string();
    lab.must(&["copy", &format!("{}@{host}", lab.name()), &file, "/run/probe.py"])?;
    lab.on(host, "systemd-run --unit=probe sh -c 'exec python3 /run/probe.py >/run/probe.log 2>&1'")?;
    eventually("the probe runs", Duration::from_secs(60), || lab.on(host, "test -s /run/probe.txt").map(drop))
}

/// The number of requests until now, and how many of them failed.
///
/// # Errors
/// When the probe has not begun.
pub fn counts(lab: &TestLab, host: &str) -> Result<(u32, u32)> {
    let text = lab.on(host, "cat /run/probe.txt")?;
    let mut counts = text.split_whitespace().map_while(|word| word.parse().ok());
    Ok((counts.next().context("no count")?, counts.next().context("no count")?))
}

/// The last requests that failed.
///
/// # Errors
/// When the host does not answer.
pub fn log(lab: &TestLab, host: &str) -> Result<String> {
    lab.on(host, "tail -n 5 /run/probe.log")
}
