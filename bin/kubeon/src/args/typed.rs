//! Parses the typed command line, to print similar command lines that the user can paste.

use std::ffi::{OsStr, OsString};

use clap::{Arg, ArgMatches, CommandFactory as _, parser::ValueSource};

use super::cli::CommandLine;

/// Flags that control output and holds, not the change itself.
const OUTPUT_FLAGS: [&str; 8] =
    ["dry_run", "output", "out", "verbosity", "quiet", "progress", "hold", "hold_for"];
/// Flags that the next command needs too, because the state does not remember them.
const REPEATED_FLAGS: [&str; 14] = [
    "approved_plan",
    "default_passwd",
    "default_sudo_passwd",
    "default_pk_password",
    "default-master-passwd",
    "default-worker-passwd",
    "default-master-pk-password",
    "default-worker-pk-password",
    "without",
    "ignore",
    "drain_timeout",
    "max_unavailable",
    "known_hosts",
    "accept_new",
];
/// Flags with secrets of single hosts, or with files that contain them. They can only be repeated with the
/// whole command.
const PER_HOST_FLAGS: [&str; 6] =
    ["file", "inventory", "master-passwd", "worker-passwd", "master-pk-password", "worker-pk-password"];

/// A typed command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Typed {
    command: String,
    /// Positional arguments in order.
    words: Vec<String>,
    /// Flags: ID and typed text.
    flags: Vec<(String, String)>,
}

impl Typed {
    /// Parses a command line, including the program. `None` if it is invalid or has a subcommand of a
    /// command.
    pub(crate) fn read(words: &[OsString]) -> Option<Self> {
        Self::read_any(words).filter(|typed| !typed.command.contains(' '))
    }

    /// Parses a command line, including the program. A nested command has both names: `image load`.
    pub(crate) fn read_any(words: &[OsString]) -> Option<Self> {
        let mut root = CommandLine::command();
        root.build();
        let all = root.clone().try_get_matches_from(words).ok()?;
        let (mut command, mut matches, mut names) = (&root, &all, Vec::new());
        while let Some((name, nested)) = matches.subcommand() {
            command = command.find_subcommand(name)?;
            matches = nested;
            names.push(name);
        }
        if names.is_empty() {
            return None;
        }
        let mut typed = Self { command: names.join(" "), words: Vec::new(), flags: Vec::new() };
        for arg in command.get_arguments().filter(|arg| is_typed(arg, matches)) {
            typed.add(arg, matches);
        }
        Some(typed)
    }

    /// The name of the command.
    pub(crate) fn command(&self) -> &str {
        &self.command
    }

    /// The command line of another command with the same arguments, without flags that only control output.
    pub(crate) fn line(&self, command: &str) -> String {
        self.text(command, &self.words, |id| !OUTPUT_FLAGS.contains(&id))
    }

    /// The command line that continues the typed command on a stored cluster, with the flags that are not
    /// remembered. `--yes` is never repeated, because the confirmed change is stored.
    pub(crate) fn continue_line(&self, command: &str, cluster: &str) -> String {
        let has_per_host_flags =
            self.flags.iter().any(|(id, flag)| PER_HOST_FLAGS.contains(&id.as_str()) && flag != "-f -");
        if has_per_host_flags && self.command == command {
            return self.text(command, &self.words, |id| !OUTPUT_FLAGS.contains(&id) && id != "yes");
        }
        let fits = |id: &str| {
            REPEATED_FLAGS.contains(&id)
                // The plan of an upgrade is compared before its first step only.
                && (self.command != "upgrade" || id != "approved_plan")
                && (command == "create" || !["ignore", "drain_timeout", "max_unavailable"].contains(&id))
        };
        self.text(command, &[cluster.to_owned()], fits)
    }

    fn text(&self, command: &str, words: &[String], wanted: impl Fn(&str) -> bool) -> String {
        let flags = self.flags.iter().filter(|(id, _)| wanted(id)).map(|(_, text)| text);
        words.iter().chain(flags).fold(format!("kubeon {command}"), |line, word| format!("{line} {word}"))
    }

    fn add(&mut self, arg: &Arg, matches: &ArgMatches) {
        let id = arg.get_id().as_str();
        let flag = match (arg.get_short(), arg.get_long()) {
            (Some(short), _) if arg.get_action().takes_values() && !arg.is_require_equals_set() => {
                format!("-{short}")
            }
            (_, Some(long)) => format!("--{long}"),
            (Some(short), None) => format!("-{short}"),
            (None, None) => String::new(),
        };
        if !arg.get_action().takes_values() {
            return self.flags.push((id.to_owned(), flag));
        }
        for occurrence in matches.get_raw_occurrences(id).into_iter().flatten() {
            let values: Vec<&OsStr> = occurrence.collect();
            if flag.is_empty() {
                self.words.extend(values.into_iter().map(quoted));
                continue;
            }
            let value = values.join(OsStr::new(","));
            let value = if is_literal_secret(id, &value) { "-".to_owned() } else { quoted(&value) };
            let sign = if arg.is_require_equals_set() { '=' } else { ' ' };
            self.flags.push((id.to_owned(), format!("{flag}{sign}{value}")));
        }
    }
}

fn is_typed(arg: &Arg, matches: &ArgMatches) -> bool {
    let id = arg.get_id().as_str();
    matches.try_contains_id(id).is_ok() && matches.value_source(id) == Some(ValueSource::CommandLine)
}

/// Whether a flag has a literal secret. The printed command asks for the secret instead.
fn is_literal_secret(id: &str, value: &OsStr) -> bool {
    let secret = id.ends_with("passwd") || id.ends_with("pk_password") || id.ends_with("pk-password");
    secret
        && value.to_str().is_none_or(|text| text.split(',').any(|text| !text.starts_with('@') && text != "-"))
}

fn quoted(value: &OsStr) -> String {
    let text = value.to_string_lossy();
    // Lists and pairs need no quotes in a shell.
    if !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "+-./:@_,=".contains(c)) {
        return text.into_owned();
    }
    shlex::try_quote(&text).map_or_else(|_| text.to_string(), |quoted| quoted.into_owned())
}

#[cfg(test)]
mod tests {
    use clap::Command;

    use super::*;

    fn typed(line: &str) -> Typed {
        let words: Vec<OsString> = shlex::split(line).unwrap().into_iter().map(OsString::from).collect();
        Typed::read(&words).unwrap()
    }

    #[test]
    fn a_plan_becomes_the_create_command_that_applies_it() {
        let line = "kubeon plan -v 4 demo v1.36.3 -m 10.0.0.1,10.0.0.2 --worker=10.0.0.3 -w 10.0.0.4 --worker-labels 'a=b,c=d e' \
                    --cert-years 10 --offline --default-user admin -o json --quiet";
        assert_eq!(
            typed(line).line("create"),
            "kubeon create demo v1.36.3 -m 10.0.0.1,10.0.0.2 -w 10.0.0.3 -w 10.0.0.4 --worker-labels 'a=b,c=d e' \
             --default-user admin --cert-years 10 --offline=true"
        );
        let line = "kubeon --progress json addon demo -w 10.0.0.9 --dry-run --without 10.0.0.3";
        assert_eq!(typed(line).line("addon"), "kubeon addon demo -w 10.0.0.9 --without 10.0.0.3");
        let line = "kubeon delon demo ip=10.0.0.9 --dry-run --yes";
        assert_eq!(typed(line).line("delon"), "kubeon delon demo ip=10.0.0.9 --yes");
    }

    #[test]
    fn a_command_that_continues_repeats_what_is_not_remembered() {
        let first = "kubeon create demo v1.36.3 -m 10.0.0.1 -w 10.0.0.2 --default-user admin --default-passwd @/p \
                     --without 10.0.0.2 --ignore swap --yes";
        assert_eq!(
            typed(first).continue_line("create", "demo"),
            "kubeon create demo --default-passwd @/p --without 10.0.0.2 --ignore swap"
        );
        let first = "kubeon destroy demo --yes --default-passwd @/p --without 10.0.0.2";
        assert_eq!(
            typed(first).continue_line("destroy", "demo"),
            "kubeon destroy demo --without 10.0.0.2 --default-passwd @/p"
        );
        let first = "kubeon addon demo -w 10.0.0.2 --default-sudo-passwd -";
        assert_eq!(
            typed(first).continue_line("create", "demo"),
            "kubeon create demo --default-sudo-passwd -"
        );
        let first = "kubeon create demo v1.36.3 -m 10.0.0.1 -w 10.0.0.2 --default-master-passwd @/a \
                     --default-worker-passwd hunter2 --default-worker-user ops";
        let again = "--default-master-passwd @/a --default-worker-passwd -";
        assert_eq!(typed(first).continue_line("create", "demo"), format!("kubeon create demo {again}"));
        let first = format!("kubeon destroy demo --yes {again}");
        assert_eq!(typed(&first).continue_line("destroy", "demo"), format!("kubeon destroy demo {again}"));
        for whole in [
            "kubeon create -f demo.yaml",
            "kubeon create -f demo.yaml --default-worker-passwd @/p",
            "kubeon create demo --inventory hosts.yml --vars vars.yml",
            "kubeon create demo v1.36.3 -m 10.0.0.1 --master-passwd @/p",
        ] {
            assert_eq!(typed(&format!("{whole} --yes -o json")).continue_line("create", "demo"), whole);
        }
        assert_eq!(typed("kubeon create -f -").continue_line("create", "demo"), "kubeon create demo");
    }

    #[test]
    fn a_secret_is_not_printed() {
        let text =
            typed("kubeon create demo v1.36.3 -m 10.0.0.1 --default-passwd hunter2 --master-passwd hunter2")
                .line("create");
        assert!(!text.contains("hunter2") && text.contains("--default-passwd -"), "{text}");
        assert!(
            !typed("kubeon create demo --default-passwd hunter2")
                .continue_line("create", "demo")
                .contains("hunter2")
        );
    }

    fn ids(command: &Command) -> Vec<String> {
        command.get_arguments().map(|arg| arg.get_id().to_string()).collect()
    }

    #[test]
    fn every_special_flag_exists() {
        let mut root = CommandLine::command();
        root.build();
        let create = ids(root.find_subcommand("create").unwrap());
        let plan = ids(root.find_subcommand("plan").unwrap());
        for id in REPEATED_FLAGS.iter().chain(&PER_HOST_FLAGS).chain(&OUTPUT_FLAGS) {
            assert!(create.iter().chain(&plan).any(|known| known == id), "{id} is not a flag of create");
        }
        for id in plan.iter().filter(|id| !OUTPUT_FLAGS.contains(&id.as_str())) {
            assert!(create.contains(id), "{id} of plan is not a flag of create");
        }
    }

    #[test]
    fn other_command_lines_are_not_parsed() {
        let read = |words: &[&str]| {
            Typed::read(&words.iter().map(OsString::from).collect::<Vec<_>>()).map(|typed| typed.command)
        };
        assert_eq!(read(&["kubeon", "lab", "up"]), None);
        assert_eq!(read(&["kubeon", "frobnicate"]), None);
        assert_eq!(read(&["kubeon"]), None);
        assert_eq!(read(&["kubeon", "new", "a", "b"]).as_deref(), Some("create"));
    }

    #[test]
    fn a_nested_command_has_both_names() {
        let read = |line: &str| {
            let words: Vec<OsString> = shlex::split(line).unwrap().into_iter().map(OsString::from).collect();
            Typed::read_any(&words).map(|typed| (typed.command().to_owned(), typed.line("image load")))
        };
        let line = "kubeon image load 'my app.tar' db.tar demo --default-user admin --default-passwd hunter2 \
                    -o json";
        let again = "kubeon image load 'my app.tar' db.tar demo --default-user admin --default-passwd -";
        assert_eq!(read(line), Some(("image load".to_owned(), again.to_owned())));
        assert_eq!(read("kubeon image").map(|(command, _)| command).as_deref(), Some("image"));
        assert_eq!(read("kubeon"), None);
    }
}
