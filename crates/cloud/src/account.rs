//! Who asks the provider.

use secrecy::SecretString;

/// The keys of an account of the provider.
#[derive(Debug, Clone)]
pub struct CloudAccount {
    /// The public name of the key.
    pub secret_id: String,
    /// The secret, which signs requests and is in none of them.
    pub secret_key: SecretString,
}
