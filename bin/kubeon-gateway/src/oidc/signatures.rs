//! The signatures of tokens, checked by ring, which TLS uses too. jsonwebtoken's own providers would bring a second set of
//! cryptographic crates.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::signature::{Error, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use ring::signature as ring_signature;

/// The algorithms of tokens, as of kube-apiserver without the curve P-521. Those with a shared secret are no proof here.
pub(super) const ALGORITHMS: [Algorithm; 8] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
];

/// Checks signatures and makes none.
static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(ErrorKind::InvalidAlgorithm.into()),
    verifier_factory: |algorithm, key| Ok(Box::new(TokenVerifier::new(*algorithm, key)?)),
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes jsonwebtoken check signatures with ring in this process.
pub(super) fn install() {
    // An error says that it was installed before.
    let _ = PROVIDER.install_default();
}

struct TokenVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl TokenVerifier {
    fn new(algorithm: Algorithm, key: &DecodingKey) -> Result<Self> {
        if key.family().algorithms().contains(&algorithm) && ALGORITHMS.contains(&algorithm) {
            return Ok(Self { algorithm, key: key.clone() });
        }
        Err(ErrorKind::InvalidAlgorithm.into())
    }
}

impl JwtVerifier for TokenVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl Verifier<Vec<u8>> for TokenVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        let verified = match self.key.kind() {
            DecodingKeyKind::RsaModulusExponent { n, e } => {
                let key = ring_signature::RsaPublicKeyComponents { n, e };
                key.verify(rsa(self.algorithm).ok_or_else(Error::new)?, message, signature)
            }
            DecodingKeyKind::SecretOrDer(point) => {
                let algorithm = ecdsa(self.algorithm).ok_or_else(Error::new)?;
                ring_signature::UnparsedPublicKey::new(algorithm, point).verify(message, signature)
            }
        };
        verified.map_err(|_| Error::new())
    }
}

fn rsa(algorithm: Algorithm) -> Option<&'static ring_signature::RsaParameters> {
    Some(match algorithm {
        Algorithm::RS256 => &ring_signature::RSA_PKCS1_2048_8192_SHA256,
        Algorithm::RS384 => &ring_signature::RSA_PKCS1_2048_8192_SHA384,
        Algorithm::RS512 => &ring_signature::RSA_PKCS1_2048_8192_SHA512,
        Algorithm::PS256 => &ring_signature::RSA_PSS_2048_8192_SHA256,
        Algorithm::PS384 => &ring_signature::RSA_PSS_2048_8192_SHA384,
        Algorithm::PS512 => &ring_signature::RSA_PSS_2048_8192_SHA512,
        _ => return None,
    })
}

fn ecdsa(algorithm: Algorithm) -> Option<&'static ring_signature::EcdsaVerificationAlgorithm> {
    Some(match algorithm {
        Algorithm::ES256 => &ring_signature::ECDSA_P256_SHA256_FIXED,
        Algorithm::ES384 => &ring_signature::ECDSA_P384_SHA384_FIXED,
        _ => return None,
    })
}
