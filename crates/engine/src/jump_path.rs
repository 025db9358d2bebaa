//! The jump hosts of a host, as users write them: `USER@HOST:PORT`, several joined by commas, the first one nearest to this
//! machine.

use std::fmt;
use std::str::FromStr;

/// A path of jump hosts; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JumpPath(pub(crate) Vec<JumpStep>);

/// One jump host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JumpStep {
    pub(crate) user: Option<String>,
    /// A name, an address, or a name that `~/.ssh/config` defines.
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
}

/// A text that is not a path of jump hosts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a jump host: write USER@HOST:PORT, and join several with commas")]
pub struct JumpPathError(String);

impl FromStr for JumpPath {
    type Err = JumpPathError;
    fn from_str(text: &str) -> Result<Self, JumpPathError> {
        Ok(Self(text.split(',').map(str::parse).collect::<Result<_, _>>()?))
    }
}

impl FromStr for JumpStep {
    type Err = JumpPathError;
    fn from_str(text: &str) -> Result<Self, JumpPathError> {
        let invalid = || JumpPathError(text.to_owned());
        let address = text.strip_prefix("ssh://").unwrap_or(text);
        let (user, address) = match address.rsplit_once('@') {
            Some((user, address)) => (Some(user), address),
            None => (None, address),
        };
        let (host, port) = match address.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (address, None),
        };
        let port = port.map(str::parse::<u16>).transpose().map_err(|_| invalid())?;
        let is_word = |text: &str| {
            let word = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            !text.is_empty() && !text.starts_with('-') && text.bytes().all(word)
        };
        if !is_word(host) || user.is_some_and(|user| !is_word(user)) || port == Some(0) {
            return Err(invalid());
        }
        Ok(Self { user: user.map(str::to_owned), host: host.to_owned(), port })
    }
}

impl fmt::Display for JumpPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, JumpStep { user, host, port }) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            user.iter().try_for_each(|user| write!(f, "{user}@"))?;
            f.write_str(host)?;
            port.iter().try_for_each(|port| write!(f, ":{port}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_read_and_written() {
        for text in ["bastion", "ops@bastion:2222", "10.0.0.9,ops@b.example:22"] {
            assert_eq!(text.parse::<JumpPath>().unwrap().to_string(), text);
        }
        assert_eq!("ssh://ops@bastion".parse::<JumpPath>().unwrap().to_string(), "ops@bastion");
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for text in ["", ",", "a,,b", "-oProxyCommand=x", "a b", "a:0", "a:x", "@a", "$(id)", "a:70000"] {
            assert!(text.parse::<JumpPath>().is_err(), "{text:?}");
        }
    }
}
