//! The environment, read once.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use kubeon_engine::cloud_routes::CloudAccount;
use kubeon_s3::{S3Keys, S3Settings, keys_in_file};

/// The environment of the program.
#[derive(Debug, Clone, Default)]
pub(crate) struct CliEnvironment {
    /// `$HOME`.
    pub home: Option<PathBuf>,
    /// `$KUBEON_HOME`: the state folder instead of `~/.kubeon`.
    pub kubeon_home: Option<PathBuf>,
    /// `$KUBEON_CACHE`, else `$XDG_CACHE_HOME/kubeon`, else `~/.cache/kubeon`.
    pub cache: Option<PathBuf>,
    /// `$KUBEON_BUNDLES`: the folder of bundles instead of the folder in the cache.
    pub bundles: Option<PathBuf>,
    /// `$KUBEON_NODE_PROGRAM`: the node program instead of that in this program or next to it.
    pub node_program: Option<PathBuf>,
    /// `$KUBEON_PINNED_IN`: display name of the source of the pinned host keys, if it is not a file on this
    /// machine.
    pub pinned_in: Option<String>,
    /// `$KUBEON_TRUSTED_KEYS`: lines of the format `allowed_signers` instead of the trusted keys in the state folder.
    pub trusted_keys: Option<String>,
    /// `$KUBEON_TEST_LEAF_MINUTES`: the longest life of new leaf certificates. Only tests set it.
    pub leaf_minutes: Option<u32>,
    /// The settings of object stores, from the variables and the file that the AWS tools read.
    pub s3: S3Settings,
    /// `$CLOUD_SECRET_ID` and `$CLOUD_SECRET_KEY`: the account of a cloud provider.
    pub cloud_account: Option<CloudAccount>,
    /// `$NO_COLOR` is set and not empty.
    pub no_color: bool,
    /// `$TERM` is `dumb`.
    pub dumb_terminal: bool,
    /// `$SSH_AUTH_SOCK`.
    pub ssh_agent: Option<PathBuf>,
    /// `$USER`, else `$LOGNAME`.
    pub user: Option<String>,
    /// `$VISUAL`, else `$EDITOR`, else vi: the command line of an editor.
    pub editor: String,
    /// `$PATH`.
    pub path: Vec<PathBuf>,
    /// The path of this program.
    pub program: Option<PathBuf>,
    /// The arguments, including the program.
    pub words: Vec<OsString>,
}

fn absolute(path: PathBuf) -> Option<PathBuf> {
    std::path::absolute(path).ok()
}

/// The variables of the AWS tools; the more specific one wins.
fn s3_settings() -> S3Settings {
    let text = |name: &str| env::var(name).ok().filter(|text| !text.is_empty());
    let first = |names: [&str; 2]| names.into_iter().find_map(text);
    let keys = || {
        Some(S3Keys {
            access_key: text("AWS_ACCESS_KEY_ID")?,
            secret_key: text("AWS_SECRET_ACCESS_KEY")?.into(),
            session_token: text("AWS_SESSION_TOKEN").map(Into::into),
        })
    };
    let in_file = || {
        let default = || Some(PathBuf::from(env::var_os("HOME")?).join(".aws/credentials"));
        let file = text("AWS_SHARED_CREDENTIALS_FILE").map(PathBuf::from).or_else(default)?;
        let profile = text("AWS_PROFILE").unwrap_or_else(|| "default".to_owned());
        keys_in_file(&fs::read_to_string(file).ok()?, &profile)
    };
    S3Settings {
        endpoint: first(["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]),
        region: first(["AWS_REGION", "AWS_DEFAULT_REGION"]),
        authorities: text("AWS_CA_BUNDLE").map(PathBuf::from),
        keys: keys().or_else(in_file),
    }
}

fn cloud_account() -> Option<CloudAccount> {
    let text = |name: &str| env::var(name).ok().filter(|text| !text.is_empty());
    Some(CloudAccount { secret_id: text("CLOUD_SECRET_ID")?, secret_key: text("CLOUD_SECRET_KEY")?.into() })
}

impl CliEnvironment {
    /// Reads the environment.
    pub(crate) fn read() -> Self {
        let file = |name: &str| env::var_os(name).filter(|text| !text.is_empty()).map(PathBuf::from);
        Self {
            home: file("HOME"),
            kubeon_home: file("KUBEON_HOME").and_then(absolute),
            cache: file("KUBEON_CACHE")
                .or_else(|| Some(file("XDG_CACHE_HOME")?.join("kubeon")))
                .or_else(|| Some(file("HOME")?.join(".cache/kubeon")))
                .and_then(absolute),
            bundles: file("KUBEON_BUNDLES").and_then(absolute),
            node_program: file("KUBEON_NODE_PROGRAM"),
            pinned_in: env::var("KUBEON_PINNED_IN").ok().filter(|name| !name.is_empty()),
            trusted_keys: env::var("KUBEON_TRUSTED_KEYS").ok().filter(|keys| !keys.trim().is_empty()),
            leaf_minutes: env::var("KUBEON_TEST_LEAF_MINUTES").ok().and_then(|minutes| minutes.parse().ok()),
            s3: s3_settings(),
            cloud_account: cloud_account(),
            no_color: file("NO_COLOR").is_some(),
            dumb_terminal: env::var("TERM").is_ok_and(|term| term == "dumb"),
            ssh_agent: file("SSH_AUTH_SOCK"),
            user: ["USER", "LOGNAME"]
                .iter()
                .find_map(|name| env::var(name).ok().filter(|user| !user.is_empty())),
            editor: ["VISUAL", "EDITOR"]
                .iter()
                .find_map(|name| env::var(name).ok().filter(|editor| !editor.is_empty()))
                .unwrap_or_else(|| "vi".to_owned()),
            path: env::var_os("PATH").map(|path| env::split_paths(&path).collect()).unwrap_or_default(),
            program: env::current_exe().ok(),
            words: env::args_os().collect(),
        }
    }

    /// The state folder: `$KUBEON_HOME`, else `~/.kubeon`.
    pub(crate) fn state_folder(&self) -> Option<PathBuf> {
        self.kubeon_home.clone().or_else(|| self.home.as_ref().map(|home| home.join(".kubeon")))
    }
}
