//! containerd asks the mirror of a registry, reaches other registries through the proxy, and trusts the given authority.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::TestLab;
use kubeon_e2e::program::{eventually, must};
use parking_lot::Mutex;
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(60);

/// A registry that is also a proxy, and a registry with an authority of its own.
pub(super) struct Registries {
    plain: Listener,
    secure: SecureRegistry,
    machine: String,
}

impl Registries {
    pub(super) fn start(lab: &TestLab) -> Result<Self> {
        let machine = lab.machine()?;
        Ok(Self { plain: Listener::start(&machine)?, secure: SecureRegistry::start(lab, &machine)?, machine })
    }

    /// The flags of `create`.
    pub(super) fn flags(&self) -> Vec<String> {
        let plain = format!("http://{}", self.plain.address);
        [
            ["--registry-mirror", &format!("docker.io={plain}")],
            ["--registry-mirror", &format!("quay.io=https://{}", self.secure.address)],
            ["--registry-ca", &self.secure.authority],
            ["--http-proxy", &plain],
            ["--no-proxy", &self.machine],
        ]
        .concat()
        .into_iter()
        .map(str::to_owned)
        .collect()
    }

    /// Pods with images of three registries: containerd asks the mirrors and the proxy.
    pub(super) fn are_asked(&self, lab: &TestLab) -> Result<()> {
        lab.must(&["use", lab.name()])?;
        let images = [("a", "docker.io/library/a:1"), ("b", "registry.test/b:1"), ("c", "quay.io/c/c:1")];
        for (name, image) in images {
            let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
                "spec": { "containers": [{ "name": name, "image": image }] } });
            lab.apply(lab.name(), &pod)?;
        }
        self.plain.saw("/v2/library/a/manifests/1?ns=docker.io")?;
        self.plain.saw("CONNECT registry.test:443")?;
        eventually("the mirror with the given authority is asked", LIMIT, || {
            self.secure.saw("/v2/c/c/manifests/1")
        })
    }
}

/// Answers every request with 404 and records its first line.
struct Listener {
    address: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Listener {
    fn start(machine: &str) -> Result<Self> {
        let listener = TcpListener::bind((machine, 0))?;
        let address = listener.local_addr()?.to_string();
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&requests);
        // Ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().filter_map(Result::ok) {
                if let Ok(line) = answer(stream) {
                    seen.lock().push(line);
                }
            }
        });
        Ok(Self { address, requests })
    }

    fn saw(&self, text: &str) -> Result<()> {
        eventually(&format!("containerd asks for {text}"), LIMIT, || {
            let requests = self.requests.lock();
            ensure!(requests.iter().any(|line| line.contains(text)), "{requests:?}");
            Ok(())
        })
    }
}

fn answer(mut stream: TcpStream) -> std::io::Result<String> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")?;
    Ok(first)
}

/// `openssl s_server`, which prints what clients send, with a certificate of an authority of its own.
struct SecureRegistry {
    child: Child,
    address: String,
    authority: String,
    log: std::path::PathBuf,
}

impl SecureRegistry {
    fn start(lab: &TestLab, machine: &str) -> Result<Self> {
        let at = lab.file("registry");
        std::fs::create_dir_all(&at)?;
        let port = TcpListener::bind((machine, 0))?.local_addr()?.port();
        let make = format!(
            "cd '{}' && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.crt \
             -subj /CN=test-authority -days 2 && openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout tls.key \
             -out tls.csr -subj /CN=registry && printf 'subjectAltName=IP:{machine}' > san && \
             openssl x509 -req -in tls.csr -CA ca.crt -CAkey ca.key -CAcreateserial -extfile san -days 2 -out tls.crt",
            at.display()
        );
        must("sh", &["-c", &format!("{{ {make}; }} 2>&1")], &[])
            .context("the certificates of the registry")?;
        let log = at.join("log");
        let address = format!("{machine}:{port}");
        let child = Command::new("openssl")
            .args([
                "s_server",
                "-accept",
                &address,
                "-cert",
                "tls.crt",
                "-key",
                "tls.key",
                "-quiet",
                "-no_ticket",
            ])
            .current_dir(&at)
            // At the end of its input it would close every connection.
            .stdin(Stdio::piped())
            .stdout(std::fs::File::create(&log)?)
            .stderr(Stdio::null())
            .spawn()
            .context("openssl s_server")?;
        let authority = at.join("ca.crt").to_string_lossy().into_owned();
        Ok(Self { child, address, authority, log })
    }

    fn saw(&self, text: &str) -> Result<()> {
        let log = std::fs::read(&self.log)?;
        let log = String::from_utf8_lossy(&log);
        ensure!(log.contains(text), "{log}");
        Ok(())
    }
}

impl Drop for SecureRegistry {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
