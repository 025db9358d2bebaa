//! The program in the pods of the end-to-end tests: a small web server, clients for HTTP and DNS, and a
//! writer that counts lost writes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::json;

const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
const AUTHORITY: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["serve", port] => serve(port.parse()?),
        ["get", url] => print(&get(url)?),
        ["resolve", name] => print(&resolve(name)?),
        ["write", server, seconds] => write(server, Duration::from_secs(seconds.parse()?)),
        ["sleep"] => loop {
            std::thread::park();
        },
        _ => bail!("usage: lab-client serve PORT | get URL | resolve NAME | write SERVER SECONDS | sleep"),
    }
}

fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

/// Answers every request with the pod's name and the requested path.
fn serve(port: u16) -> Result<()> {
    let name = std::env::var("HOSTNAME").unwrap_or_else(|_| "unknown".to_owned());
    let listener = TcpListener::bind(("0.0.0.0", port))?;
    print(&format!("{name} serves on port {port}"))?;
    for stream in listener.incoming() {
        let name = name.clone();
        std::thread::spawn(move || answer(stream?, &name));
    }
    Ok(())
}

fn answer(mut stream: TcpStream, name: &str) -> Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut request = String::new();
    BufReader::new(&stream).read_line(&mut request)?;
    let path = request.split_whitespace().nth(1).unwrap_or("/");
    let body = format!("hello from {name}, you asked for {path}\n");
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())?;
    Ok(())
}

fn get(url: &str) -> Result<String> {
    let mut response = ureq::get(url).config().timeout_global(Some(Duration::from_secs(5))).build().call()?;
    Ok(response.body_mut().read_to_string()?.trim_end().to_owned())
}

fn resolve(name: &str) -> Result<String> {
    let addresses = (name, 0).to_socket_addrs().with_context(|| format!("cannot resolve {name}"))?;
    let texts: Vec<String> = addresses.map(|address| address.ip().to_string()).collect();
    Ok(texts.join(" "))
}

/// Creates numbered ConfigMaps one after the other. Retries each until the API server acknowledges it, then
/// counts them: an acknowledged object that does not exist is a lost write.
fn write(server: &str, duration: Duration) -> Result<()> {
    let run = std::env::var("RUN").context("RUN is not set: it is the prefix of this run's objects")?;
    let collection = format!("{server}/api/v1/namespaces/default/configmaps");
    let mut agent = agent()?;
    let (start, mut written) = (Instant::now(), 0_u32);
    let mut gaps = Gaps::since(start);
    let mut is_acknowledged = false;
    // A write whose answer was lost may exist, so it is repeated before they are counted.
    while start.elapsed() < duration || !is_acknowledged {
        let body = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": format!("{run}-{written}"), "labels": { "run": run } },
        });
        is_acknowledged = create(&agent, &collection, &body)?;
        if is_acknowledged {
            written += 1;
            gaps.end(Instant::now());
        } else {
            // Drops the broken connection: the next attempt opens a new one.
            agent = self::agent()?;
            std::thread::sleep(Duration::from_millis(50));
        }
        if gaps.open(Instant::now()) > Duration::from_secs(60) {
            bail!("no write succeeded for 60 s, after {written} writes");
        }
    }
    let longest = gaps.longest(Instant::now());
    let found = counted(&collection, &run)?;
    print(&format!("written {written} found {found} longest gap {} ms", longest.as_millis()))?;
    if found == written {
        Ok(())
    } else {
        bail!("{} writes were lost", i64::from(written) - i64::from(found))
    }
}

/// The number of objects that exist. A server that does not answer is asked again, over a new connection.
fn counted(collection: &str, run: &str) -> Result<u32> {
    let start = Instant::now();
    loop {
        match agent().and_then(|agent| count(&agent, collection, run)) {
            Err(_) if start.elapsed() < Duration::from_secs(60) => {
                std::thread::sleep(Duration::from_millis(200))
            }
            result => return result,
        }
    }
}

/// The times without a successful write.
struct Gaps {
    last: Instant,
    longest: Duration,
}

impl Gaps {
    fn since(start: Instant) -> Self {
        Self { last: start, longest: Duration::ZERO }
    }

    /// The current gap.
    fn open(&self, now: Instant) -> Duration {
        now - self.last
    }

    /// Records a successful write.
    fn end(&mut self, now: Instant) {
        self.longest = self.longest(now);
        self.last = now;
    }

    /// The longest gap, including the current one, so that a server that died at the end counts.
    fn longest(&self, now: Instant) -> Duration {
        self.longest.max(self.open(now))
    }
}

fn agent() -> Result<ureq::Agent> {
    let authority = std::fs::read(AUTHORITY)?;
    let certificate = ureq::tls::Certificate::from_pem(&authority)?.to_owned();
    let tls = ureq::tls::TlsConfig::builder()
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .root_certs(ureq::tls::RootCerts::new_with_certs(&[certificate]))
        .build();
    let config = ureq::Agent::config_builder()
        .tls_config(tls)
        .http_status_as_error(false)
        .timeout_connect(Some(Duration::from_secs(1)))
        .timeout_global(Some(Duration::from_secs(2)))
        .build();
    Ok(config.new_agent())
}

fn bearer() -> Result<String> {
    Ok(format!("Bearer {}", std::fs::read_to_string(TOKEN)?.trim()))
}

/// Whether the object exists now, created by this attempt or by an earlier one whose answer was lost.
fn create(agent: &ureq::Agent, collection: &str, body: &serde_json::Value) -> Result<bool> {
    let sent = agent
        .post(collection)
        .header("Authorization", bearer()?)
        .header("Content-Type", "application/json")
        .send(serde_json::to_string(body)?);
    match sent {
        Ok(response) if matches!(response.status().as_u16(), 201 | 409) => Ok(true),
        Ok(response) if matches!(response.status().as_u16(), 401 | 403 | 422) => {
            bail!("the API server refuses: {}", response.status())
        }
        Ok(_) | Err(_) => Ok(false),
    }
}

fn count(agent: &ureq::Agent, collection: &str, run: &str) -> Result<u32> {
    let url = format!("{collection}?labelSelector=run%3D{run}");
    let mut response = agent.get(url).header("Authorization", bearer()?).call()?;
    let list: serde_json::Value =
        serde_json::from_str(&response.body_mut().with_config().limit(256 << 20).read_to_string()?)?;
    Ok(u32::try_from(list["items"].as_array().map_or(0, Vec::len))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gap_at_the_end_counts() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut gaps = Gaps::since(start);
        gaps.end(at(2));
        gaps.end(at(3));
        assert_eq!(gaps.longest(at(4)), Duration::from_secs(2));
        assert_eq!(gaps.longest(at(30)), Duration::from_secs(27));
        gaps.end(at(30));
        assert_eq!((gaps.open(at(30)), gaps.longest(at(30))), (Duration::ZERO, Duration::from_secs(27)));
    }
}
