//! A real object store with the S3 protocol, over TLS.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};

use crate::EnvtestError;
use crate::credentials::{TestAuthority, random_token};
use crate::folder::Folder;
use crate::go_programs::s3_program;
use crate::ports::free_port;
use crate::process::ServerProcess;

/// A running store. Dropping it ends it and removes its objects.
#[derive(Debug)]
pub struct TestObjectStore {
    folder: Folder,
    address: SocketAddrV4,
    secret_key: String,
    _process: ServerProcess,
}

impl TestObjectStore {
    /// The public name of its only key.
    pub const ACCESS_KEY: &str = "envtest";

    /// Starts a store with one empty bucket on an address of this machine.
    ///
    /// # Errors
    /// The program cannot be built or started, or does not listen.
    pub fn start(bucket: &str, address: Ipv4Addr) -> Result<Self, EnvtestError> {
        let folder = Folder::new(true)?;
        let place = folder.path();
        let (authority, secret_key) = (TestAuthority::new()?, random_token());
        let server = authority.server_at(address)?;
        for (name, text) in
            [("ca.crt", &authority.certificate), ("tls.crt", &server.certificate), ("tls.key", &server.key)]
        {
            folder.write(name, text)?;
        }
        let data = place.join("data");
        fs::create_dir_all(data.join(bucket)).map_err(EnvtestError::file(&data))?;
        let address = SocketAddrV4::new(address, free_port(address)?);
        let arguments = [
            "serve".to_owned(),
            "s3".to_owned(),
            format!("--addr={address}"),
            format!("--auth-key={},{secret_key}", Self::ACCESS_KEY),
            format!("--cert={}", place.join("tls.crt").display()),
            format!("--key={}", place.join("tls.key").display()),
            "--config=".to_owned(),
            data.display().to_string(),
        ];
        let mut process = ServerProcess::start("object-store", &s3_program()?, &arguments, place)?;
        process.wait_until_it_listens(address)?;
        Ok(Self { folder, address, secret_key, _process: process })
    }

    /// Its address.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The secret of its only key.
    #[must_use]
    pub fn secret_key(&self) -> &str {
        &self.secret_key
    }

    /// The file of the authority that signed its certificate.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.crt")
    }

    /// The folder with the objects: a folder for each bucket, a file for each object.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The variables that the tools of S3 read.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, String)> {
        let text = |path: &Path| path.display().to_string();
        [
            ("AWS_ENDPOINT_URL", self.endpoint()),
            ("AWS_ACCESS_KEY_ID", Self::ACCESS_KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", self.secret_key.clone()),
            ("AWS_CA_BUNDLE", text(&self.authority())),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}
