//! Stands in for the servers of the official releases: the files that the authors of each component publish, with the
//! programs of the bundle that this machine built, served over HTTPS on loopback.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::program::eventually;

/// Serves the current folder, and Debian's archive as it is. Its arguments are the certificate, its key and the file that gets
/// the port.
const SERVER: &str = "
import http.server, ssl, sys, urllib.error, urllib.request
class Quiet(http.server.SimpleHTTPRequestHandler):
    log_message = lambda *arguments: None
    def do_GET(self):
        if not self.path.startswith('/deb.debian.org/'):
            return super().do_GET()
        try:
            body = urllib.request.urlopen('https:/' + self.path, timeout=120).read()
        except urllib.error.HTTPError as error:
            return self.send_error(error.code)
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Quiet)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
server.socket = context.wrap_socket(server.socket, server_side=True)
open(sys.argv[3], 'w').write(str(server.server_address[1]))
server.serve_forever()
";

/// The server. Dropping the value ends it.
pub struct OfficialServers {
    child: Child,
    folder: PathBuf,
    port: u16,
}

impl OfficialServers {
    /// Publishes the programs of a bundle's folder below `folder`.
    ///
    /// # Errors
    /// When the bundle lacks a part, or a program of this machine fails.
    pub fn of_bundle(bundle: &Path, folder: &Path) -> Result<Self> {
        let files = folder.join("files");
        fs::create_dir_all(&files)?;
        let programs = Programs::of(bundle, &folder.join("programs"))?;
        programs.publish(&Publisher { files: &files })?;
        let (certificate, key, port) = (folder.join("cert.pem"), folder.join("key.pem"), folder.join("port"));
        let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        fs::write(&certificate, signed.cert.pem())?;
        fs::write(&key, signed.signing_key.serialize_pem())?;
        let child = Command::new("python3")
            .args(["-c", SERVER])
            .args([&certificate, &key, &port])
            .current_dir(&files)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let mut server = Self { child, folder: folder.to_owned(), port: 0 };
        server.port = eventually("the server listens", Duration::from_secs(10), || {
            Ok(fs::read_to_string(&port)?.parse()?)
        })?;
        Ok(server)
    }

    /// Its address, as a mirror.
    #[must_use]
    pub fn address(&self) -> String {
        format!("https://localhost:{}", self.port)
    }

    /// The file of its certificate, which clients must trust.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.folder.join("cert.pem")
    }

    /// The published file with that address, without `https://`.
    #[must_use]
    pub fn file(&self, address: &str) -> PathBuf {
        self.folder.join("files").join(address)
    }
}

impl Drop for OfficialServers {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The unpacked programs of a bundle, and its versions.
struct Programs {
    folder: PathBuf,
    versions: BTreeMap<String, String>,
    pause: String,
}

impl Programs {
    fn of(bundle: &Path, folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let index: Value = serde_json::from_slice(&fs::read(bundle.join("index.json"))?)?;
        let blob = |descriptor: &Value| -> Result<PathBuf> {
            let digest = descriptor["digest"].as_str().context("no digest")?;
            Ok(bundle.join("blobs/sha256").join(digest.trim_start_matches("sha256:")))
        };
        let own: Value = serde_json::from_slice(&fs::read(blob(&index["manifests"][0])?)?)?;
        let manifest: Value = serde_json::from_slice(&fs::read(blob(&own["config"])?)?)?;
        let (mut versions, mut pause) = (BTreeMap::new(), String::new());
        for part in manifest["parts"].as_array().context("no parts")? {
            let name = part["name"].as_str().context("a part without a name")?;
            if let Some(tag) =
                part["image"].as_str().and_then(|image| image.strip_prefix("registry.k8s.io/pause:"))
            {
                pause = tag.to_owned();
            }
            if matches!(part["kind"].as_str(), Some("program" | "archive")) {
                let digest = part["digest"].as_str().context("no digest")?.trim_start_matches("sha256:");
                let packed = File::open(bundle.join("blobs/sha256").join(digest))?;
                tar::Archive::new(zstd::Decoder::new(packed)?).unpack(folder)?;
                versions.insert(name.to_owned(), part["version"].as_str().context("no version")?.to_owned());
            }
        }
        ensure!(!pause.is_empty(), "the bundle has no image of pause");
        Ok(Self { folder: folder.join("bin"), versions, pause })
    }

    fn publish(&self, to: &Publisher<'_>) -> Result<()> {
        let version =
            |part: &str| self.versions.get(part).cloned().with_context(|| format!("no part {part}"));
        let kubernetes = version("kubelet")?;
        for name in
            ["apiserver", "controller-manager", "scheduler", "proxy"].map(|name| format!("kube-{name}"))
        {
            self.publish_program(
                to,
                &format!("dl.k8s.io/release/{kubernetes}/bin/linux/amd64/{name}"),
                &name,
            )?;
        }
        for name in ["kubelet", "kubectl", "kubeadm"] {
            self.publish_program(
                to,
                &format!("dl.k8s.io/release/{kubernetes}/bin/linux/amd64/{name}"),
                name,
            )?;
        }
        let runc = format!("github.com/opencontainers/runc/releases/download/{}", version("runc")?);
        self.publish_program(to, &format!("{runc}/runc.amd64"), "runc")?;
        let sum = fs::read_to_string(to.files.join(format!("{runc}/runc.amd64.sha256")))?;
        to.file(&format!("{runc}/runc.sha256sum"), format!("{sum}  runc.amd64\n").as_bytes())?;

        let etcd = version("etcd")?;
        let base = format!("github.com/etcd-io/etcd/releases/download/{etcd}");
        let name = format!("etcd-{etcd}-linux-amd64.tar.gz");
        let digest = self.archive(to, &format!("{base}/{name}"), &["etcd", "etcdctl", "etcdutl"])?;
        to.file(&format!("{base}/SHA256SUMS"), format!("{digest}  {name}\n").as_bytes())?;

        let containerd = version("containerd")?;
        let name = format!("containerd-static-{}-linux-amd64.tar.gz", containerd.trim_start_matches('v'));
        let path = format!("github.com/containerd/containerd/releases/download/{containerd}/{name}");
        let digest = self.archive(to, &path, &["containerd", "containerd-shim-runc-v2", "ctr"])?;
        to.file(&format!("{path}.sha256sum"), format!("{digest}  {name}\n").as_bytes())?;

        let cni = version("cni-plugins")?;
        let path = format!(
            "github.com/containernetworking/plugins/releases/download/{cni}/cni-plugins-linux-amd64-{cni}.tgz"
        );
        let others = ["kube", "etcd", "containerd", "ctr", "runc", "flanneld", "coredns", "pause"];
        let all = fs::read_dir(&self.folder)?.collect::<std::io::Result<Vec<_>>>()?;
        let all: Vec<String> =
            all.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        let plugins: Vec<&str> = all
            .iter()
            .map(String::as_str)
            .filter(|name| !others.iter().any(|other| name.starts_with(other)))
            .collect();
        let digest = self.archive(to, &path, &plugins)?;
        to.file(
            &format!("{path}.sha256"),
            format!("{digest}  ./bin/{}\n", path.rsplit('/').next().unwrap_or_default()).as_bytes(),
        )?;

        let flannel = version("flannel")?;
        let name = format!("flannel-{flannel}-linux-amd64.tar.gz");
        let path = format!("github.com/flannel-io/flannel/releases/download/{flannel}/{name}");
        let digest = self.archive(to, &path, &["flanneld"])?;
        let release = json!({ "assets": [{ "name": name, "digest": format!("sha256:{digest}") }] });
        to.file(
            &format!("api.github.com/repos/flannel-io/flannel/releases/tags/{flannel}"),
            release.to_string().as_bytes(),
        )?;

        let coredns = version("coredns")?;
        let name = format!("coredns_{}_linux_amd64.tgz", coredns.trim_start_matches('v'));
        let path = format!("github.com/coredns/coredns/releases/download/{coredns}/{name}");
        let digest = self.archive(to, &path, &["coredns"])?;
        to.file(&format!("{path}.sha256"), format!("{digest}  {name}\n").as_bytes())?;
        self.publish_pause(to)
    }

    /// A program, and its SHA-256 alone in a file.
    fn publish_program(&self, to: &Publisher<'_>, path: &str, name: &str) -> Result<()> {
        let digest = to.file(path, &fs::read(self.folder.join(name))?)?;
        to.file(&format!("{path}.sha256"), digest.as_bytes()).map(drop)
    }

    fn archive(&self, to: &Publisher<'_>, path: &str, names: &[&str]) -> Result<String> {
        let packed = self.packed(names)?;
        to.file(path, &packed)
    }

    fn packed(&self, names: &[&str]) -> Result<Vec<u8>> {
        let folder = self.folder.to_string_lossy().into_owned();
        let output = Command::new("tar")
            .args(["--use-compress-program=gzip -1", "-C", &folder, "-cf", "-"])
            .args(names.iter().map(|name| format!("./{name}")))
            .output()?;
        ensure!(output.status.success(), "{output:?}");
        Ok(output.stdout)
    }

    /// The image of pause in a registry: an index, a manifest and a layer.
    fn publish_pause(&self, to: &Publisher<'_>) -> Result<()> {
        let layer = self.packed(&["pause"])?;
        let digest = hex::encode(Sha256::digest(&layer));
        to.file(&format!("registry.k8s.io/v2/pause/blobs/sha256:{digest}"), &layer)?;
        let manifest =
            json!({ "schemaVersion": 2, "layers": [{ "digest": format!("sha256:{digest}") }] }).to_string();
        let digest = hex::encode(Sha256::digest(&manifest));
        to.file(&format!("registry.k8s.io/v2/pause/manifests/sha256:{digest}"), manifest.as_bytes())?;
        let platform = json!({ "os": "linux", "architecture": "amd64" });
        let index = json!({ "manifests": [{ "digest": format!("sha256:{digest}"), "platform": platform }] });
        to.file(&format!("registry.k8s.io/v2/pause/manifests/{}", self.pause), index.to_string().as_bytes())
            .map(drop)
    }
}

struct Publisher<'a> {
    files: &'a Path,
}

impl Publisher<'_> {
    /// Writes a file and returns its SHA-256.
    fn file(&self, path: &str, bytes: &[u8]) -> Result<String> {
        let path = self.files.join(path);
        fs::create_dir_all(path.parent().context("no folder")?)?;
        File::create(&path)?.write_all(bytes)?;
        Ok(hex::encode(Sha256::digest(bytes)))
    }
}
