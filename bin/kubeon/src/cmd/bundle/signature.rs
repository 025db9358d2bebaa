//! `kubeon bundle sign` and `trust`, and the signature in `kubeon bundle verify`.

use std::fs;
use std::path::Path;

use jiff::Timestamp;
use kubeon_bundle::signature::{NAMESPACE, read_key, sign as sign_bundle};
use kubeon_bundle::{Bundle, SignatureError, TrustedSigners};
use kubeon_engine::error::chain;
use kubeon_engine::output::EngineOutput as _;
use kubeon_engine::trusted_signers;

use super::open::open_bundle;
use crate::args::bundle::{BundleSign, BundleTrust};
use crate::cli_error::CliError;
use crate::context::Context;

/// Signs a bundle.
pub(super) fn sign(context: &Context<'_>, args: &BundleSign) -> Result<(), CliError> {
    let bundle = open_bundle(context, &args.bundle)?;
    let key = match read_key(&args.key, None) {
        Err(SignatureError::Encrypted { path }) => {
            let passphrase = context.output.ask_secret(&format!("passphrase of {}", path.display()))?;
            read_key(&args.key, Some(&passphrase))
        }
        read => read,
    };
    let fingerprint = sign_bundle(&bundle, &key.map_err(refused)?).map_err(failed)?;
    let version = bundle.manifest().kubernetes;
    context.output.result(&format!("bundle {version} is signed by {fingerprint}\n"))
}

/// Adds a public key to the trusted ones.
pub(super) fn trust(context: &Context<'_>, args: &BundleTrust) -> Result<(), CliError> {
    let public = fs::read_to_string(&args.key)
        .map_err(|error| CliError::refused(format!("{}: {error}", args.key.display())))?;
    let line = signers_line(public.trim(), args.name.as_deref(), args.until.as_deref())
        .ok_or_else(|| not_a_key(&args.key))?;
    let (file, is_new) = trusted_signers::trust(&context.engine_environment(), &line)?;
    let (key, place) = (args.key.display(), context.shorten(&file));
    context.output.result(&if is_new {
        format!("{key} is trusted: from now on, only bundles that a key in {place} signed are used\n")
    } else {
        format!("{key} is trusted already\n")
    })
}

/// A line of `allowed_signers`; `None` if the text is no public key, or there is no name.
fn signers_line(public: &str, name: Option<&str>, until: Option<&str>) -> Option<String> {
    let mut words = public.split_whitespace();
    let (kind, key) = (words.next()?, words.next()?);
    let name = name
        .or_else(|| words.next())
        .filter(|name| !name.is_empty() && !name.contains(char::is_whitespace))?;
    let until = until.map(|until| format!(",valid-before=\"{until}\"")).unwrap_or_default();
    Some(format!("{name} namespaces=\"{NAMESPACE}\"{until} {kind} {key}"))
}

/// The signer of a bundle, by the keys in `keys` or by the trusted ones; `None` if neither exists.
pub(super) fn signer(
    context: &Context<'_>,
    bundle: &Bundle,
    keys: Option<&Path>,
) -> Result<Option<String>, CliError> {
    let Some(keys) = keys else { return Ok(trusted_signers::signer(&context.engine_environment(), bundle)?) };
    let signers = TrustedSigners::read(keys).map_err(refused)?;
    signers.check(bundle, Timestamp::now()).map(Some).map_err(failed)
}

fn not_a_key(path: &Path) -> CliError {
    let error = CliError::refused(format!("{} is not a public key of OpenSSH with a name", path.display()));
    error.row("make", "ssh-keygen -t ed25519 -C NAME -f KEY").row("or name it", "--name NAME")
}

fn refused(error: SignatureError) -> CliError {
    CliError::refused(chain(&error))
}

fn failed(error: SignatureError) -> CliError {
    CliError::failed(chain(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trusted_key_has_a_name_and_signs_only_bundles() {
        let line = |text, name, until| signers_line(text, name, until);
        assert_eq!(
            line("ssh-ed25519 AAAA me@host", None, Some("20271231")).unwrap(),
            "me@host namespaces=\"kubeon-bundle\",valid-before=\"20271231\" ssh-ed25519 AAAA"
        );
        assert_eq!(
            line("ssh-ed25519 AAAA me@host", Some("release"), None).unwrap(),
            "release namespaces=\"kubeon-bundle\" ssh-ed25519 AAAA"
        );
        assert_eq!(line("ssh-ed25519 AAAA", None, None), None);
        assert_eq!(line("ssh-ed25519 AAAA", Some("two words"), None), None);
        assert_eq!(line("garbage", Some("x"), None), None);
    }
}
