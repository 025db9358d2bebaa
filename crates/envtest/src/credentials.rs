//! One certificate authority, certificates with P-256 keys, and kubeconfigs.

use std::net::{IpAddr, Ipv4Addr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rand::RngExt as _;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType,
};
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

/// The authority that issues all certificates.
pub(crate) struct TestAuthority {
    /// PEM.
    pub(crate) certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, PEM.
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl TestAuthority {
    pub(crate) fn new() -> Result<Self, rcgen::Error> {
        let key = pair()?;
        let mut params = params("envtest");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { certificate, issuer: Issuer::new(params, key) })
    }

    /// The certificate of a server on loopback.
    pub(crate) fn server(&self) -> Result<Identity, rcgen::Error> {
        self.server_at(Ipv4Addr::LOCALHOST)
    }

    /// The certificate of a server on an address of this machine.
    pub(crate) fn server_at(&self, address: Ipv4Addr) -> Result<Identity, rcgen::Error> {
        let mut params = params("kube-apiserver");
        params.subject_alt_names = vec![
            SanType::DnsName("localhost".try_into()?),
            SanType::DnsName("kubernetes.default.svc".try_into()?),
            SanType::IpAddress(IpAddr::V4(address)),
        ];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(params)
    }

    /// The certificate of a user in one group.
    pub(crate) fn client(&self, user: &str, group: &str) -> Result<Identity, rcgen::Error> {
        let mut params = params(user);
        params.distinguished_name.push(DnType::OrganizationName, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(params)
    }

    fn issue(&self, params: CertificateParams) -> Result<Identity, rcgen::Error> {
        let key = pair()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Identity { certificate, key: key.serialize_pem() })
    }
}

/// A key for signing the tokens of service accounts, and its public half, PEM.
pub(crate) fn token_keys() -> Result<(String, String), rcgen::Error> {
    let key = pair()?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}

/// A random bearer token.
pub(crate) fn random_token() -> String {
    let bytes: [u8; 24] = rand::rng().random();
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

fn pair() -> Result<KeyPair, rcgen::Error> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
}

fn params(name: &str) -> CertificateParams {
    let now = OffsetDateTime::now_utc();
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.not_before = now - Duration::minutes(5);
    params.not_after = now + Duration::days(7);
    params
}

/// The authentication of a client.
pub(crate) enum KubeconfigUser<'a> {
    Certificate(&'a Identity),
    Token(&'a str),
    Anonymous,
    /// The administrator, who impersonates this user.
    As {
        admin: &'a Identity,
        user: &'a str,
        groups: &'a [&'a str],
    },
}

/// The text of a kubeconfig with one context. JSON is YAML too.
pub(crate) fn kubeconfig(url: &str, authority: &str, login: &KubeconfigUser<'_>) -> String {
    let user = match login {
        KubeconfigUser::Certificate(identity) => certificate(identity),
        KubeconfigUser::Token(token) => json!({ "token": token }),
        KubeconfigUser::Anonymous => json!({}),
        KubeconfigUser::As { admin, user, groups } => {
            let mut login = certificate(admin);
            login["as"] = json!(user);
            login["as-groups"] = json!(groups);
            login
        }
    };
    let document = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "envtest", "cluster": {
            "server": url, "certificate-authority-data": STANDARD.encode(authority) } }],
        "users": [{ "name": "envtest", "user": user }],
        "contexts": [{ "name": "envtest", "context": { "cluster": "envtest", "user": "envtest" } }],
        "current-context": "envtest",
    });
    format!("{document:#}\n")
}

fn certificate(identity: &Identity) -> Value {
    json!({
        "client-certificate-data": STANDARD.encode(&identity.certificate),
        "client-key-data": STANDARD.encode(&identity.key),
    })
}
