//! Command lines for hosts. All arguments are quoted, and no password is in an argument list.

use kubeon_wire::{Category, StepFailure};

use crate::failure::failure;
use kubeon_api::Secret;

/// Marks the end of sudo's input. sudo reads the password only when it asks for one. [`GATE`] drops everything up to this
/// line, so that a password never becomes input of the command.
const MARK: &str = "kubeon: end of preface";

const GATE: &str = "while IFS= read -r l; do [ \"$l\" = \"$1\" ] && break; done; s=$2; shift 2; exec sh -c \"$s\" kubeon \"$@\"";

/// The rights of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rights {
    /// The login is root, or the command is to run as the login's user.
    AsIs,
    /// sudo asks for no password.
    Sudo,
    /// sudo asks for a password.
    SudoPassword(Secret),
}

/// A command line, and the first bytes of its standard input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Prepared {
    pub(crate) line: String,
    pub(crate) preface: String,
}

/// A command line that runs `script` in a POSIX shell with `args` as `$1`, `$2`, …
pub(crate) fn prepare(rights: &Rights, script: &str, args: &[&str]) -> Result<Prepared, StepFailure> {
    let plain = |start: &[&str]| {
        let words = [start, &["sh", "-c", script, "kubeon"], args].concat();
        Ok(Prepared { line: format!("exec {}", join(&words)?), preface: String::new() })
    };
    match rights {
        Rights::AsIs => plain(&[]),
        Rights::Sudo => plain(&["sudo", "-n", "--"]),
        Rights::SudoPassword(password) => {
            let start = ["sudo", "-S", "-p", "", "--", "sh", "-c", GATE, "kubeon", MARK, script];
            let line = format!("exec {}", join(&[&start, args].concat())?);
            Ok(Prepared { line, preface: format!("{}\n{MARK}\n", password.expose()) })
        }
    }
}

/// sudo's prompt on a terminal.
pub(crate) const PROMPT: &str = "kubeon answers for the password of sudo";

/// The same for a command under a terminal. There sudo drops earlier input, so the password is sent only after [`PROMPT`].
pub(crate) fn prepare_for_terminal(
    rights: &Rights,
    script: &str,
    args: &[&str],
) -> Result<Prepared, StepFailure> {
    match rights {
        Rights::SudoPassword(_) => {
            let start = ["sudo", "-S", "-p", PROMPT, "--", "sh", "-c", script, "kubeon"];
            let line = format!("exec {}", join(&[&start, args].concat())?);
            Ok(Prepared { line, preface: String::new() })
        }
        Rights::AsIs | Rights::Sudo => prepare(rights, script, args),
    }
}

fn join(words: &[&str]) -> Result<String, StepFailure> {
    shlex::try_join(words.iter().copied())
        .map_err(|_| failure(Category::Failed, "a command with a zero byte cannot be sent to a host"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    /// Runs the line as sshd does, with a fake sudo that reads the password or does not.
    fn run(prepared: &Prepared, sudo: &str, input: &str) -> String {
        let tools = tempfile::tempdir().unwrap();
        let path = tools.path().join("sudo");
        std::fs::write(
            &path,
            format!("#!/bin/sh\n{sudo}\nwhile [ \"$1\" != -- ]; do shift; done; shift; exec \"$@\"\n"),
        )
        .unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let mut child = Command::new("sh")
            .args(["-c", &prepared.line])
            .env("PATH", format!("{}:/usr/bin:/bin", tools.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        write!(stdin, "{}{input}", prepared.preface).unwrap();
        drop(stdin);
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    }

    #[test]
    fn special_characters_arrive_unchanged() {
        let odd = ["a b", "$HOME", "'", "\"", "`id`", "; reboot", "x\ny", "-n", ""];
        let expected = odd.map(|word| format!("<{word}>")).concat();
        for rights in [Rights::AsIs, Rights::Sudo, Rights::SudoPassword(Secret::new("p"))] {
            let prepared = prepare(&rights, "for a; do printf '<%s>' \"$a\"; done", &odd).unwrap();
            assert_eq!(run(&prepared, "", ""), expected, "{rights:?}");
        }
    }

    #[test]
    fn a_password_is_never_input_of_the_command() {
        let rights = Rights::SudoPassword(Secret::new("hunter2"));
        let prepared = prepare(&rights, "cat", &[]).unwrap();
        assert!(!prepared.line.contains("hunter2"));
        assert_eq!(run(&prepared, "read -r password", "data\n"), "data\n", "sudo asked");
        assert_eq!(run(&prepared, "", "data\n"), "data\n", "sudo did not ask");
    }

    #[test]
    fn refuses_a_zero_byte() {
        assert!(prepare(&Rights::AsIs, "echo", &["a\0b"]).is_err());
    }
}
