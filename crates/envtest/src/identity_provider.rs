//! A real provider of OpenID Connect, over TLS.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;

use crate::EnvtestError;
use crate::credentials::{TestAuthority, random_token};
use crate::folder::Folder;
use crate::go_programs::oidc_program;
use crate::ports::free_port;
use crate::process::ServerProcess;

/// A running provider with one client and the user `test-user@127.0.0.1`. Dropping it ends it.
#[derive(Debug)]
pub struct TestIdentityProvider {
    folder: Folder,
    address: SocketAddrV4,
    secret: String,
    _process: ServerProcess,
}

impl TestIdentityProvider {
    /// The name of its only client, which is the audience of its tokens.
    pub const CLIENT: &str = "kubeon";
    /// Where the browser of a user goes after the login. Nothing listens there.
    pub const REDIRECT: &str = "https://127.0.0.1:9/callback";
    /// The user, and the password.
    pub const LOGIN: (&str, &str) = ("test-user@127.0.0.1", "verysecure");

    /// Starts a provider on loopback.
    ///
    /// # Errors
    /// The program cannot be built or started, or does not listen.
    pub fn start() -> Result<Self, EnvtestError> {
        let folder = Folder::new(true)?;
        let place = folder.path();
        let (authority, secret) = (TestAuthority::new()?, random_token());
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, free_port(Ipv4Addr::LOCALHOST)?);
        let server = authority.server_at(*address.ip())?;
        for (name, text) in
            [("ca.crt", &authority.certificate), ("tls.crt", &server.certificate), ("tls.key", &server.key)]
        {
            folder.write(name, text)?;
        }
        let file = |name: &str| place.join(name).display().to_string();
        let arguments = [
            address.to_string(),
            file("tls.crt"),
            file("tls.key"),
            Self::CLIENT.to_owned(),
            secret.clone(),
            Self::REDIRECT.to_owned(),
        ];
        let mut process = ServerProcess::start("identity-provider", &oidc_program()?, &arguments, place)?;
        process.wait_until_it_listens(address)?;
        Ok(Self { folder, address, secret, _process: process })
    }

    /// Its URL, as it is in its tokens.
    #[must_use]
    pub fn issuer(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The secret of its client.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// The file of the authority that signed its certificate.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.crt")
    }
}
