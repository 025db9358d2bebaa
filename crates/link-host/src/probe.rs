//! Reads the facts of a host with one command, without storing anything there.

use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use kubeon_api::HostAddress;
use kubeon_ports::ProbeHost;
use kubeon_wire::{Category, Facts, StepFailure};

use crate::command::CommandInput;
use crate::facts::{Round, parse};
use crate::failure::{failure, last_lines};
use crate::pool::SshHosts;
use crate::probed_tools::ProbedTools;
use crate::shell::Rights;

const SCRIPT: &str = include_str!("probe.sh");

/// The largest output of a host in bytes: a long journal has about 100 KiB.
const LIMIT: usize = 8 * 1024 * 1024;

#[async_trait]
impl ProbeHost for SshHosts {
    async fn facts(&self, host: HostAddress) -> Result<Facts, StepFailure> {
        self.facts_with_connections(host, &[]).await
    }

    async fn facts_with_connections(
        &self,
        host: HostAddress,
        endpoints: &[(String, u16)],
    ) -> Result<Facts, StepFailure> {
        let _permit = self.0.reading_facts.acquire().await;
        let connection = self.0.connection(host).await?;
        let rights = match connection.rights().await {
            Ok(rights) => rights,
            // A host without root rights is probed too: the plan reports the missing rights. A wrong password is an error.
            Err(refused)
                if refused.category == Category::Denied && connection.login.sudo_password.is_none() =>
            {
                Rights::AsIs
            }
            Err(failure) => return Err(failure),
        };
        let (clock, sent) = (SystemTime::now(), Instant::now());
        let limits = self.0.settings.limits;
        let input = CommandInput::Bytes(script(endpoints).into());
        let answer = connection
            .run_live_script(&rights, "exec sh -s", input, limits.facts_silence, (limits.facts, LIMIT))
            .await?;
        let took = answer.first.map_or(sent.elapsed(), |first| first.duration_since(sent));
        let text = String::from_utf8_lossy(&answer.out);
        let facts = parse(&text, round(clock, took)).map_err(|why| StepFailure {
            log: last_lines(&answer.stderr_text(), 20),
            ..failure(Category::Failed, format!("cannot read the facts of {host}: {why}"))
        })?;
        let has_program = facts.node_program.as_ref().is_some_and(|digest| self.has_program(digest));
        self.remember_tools(host, ProbedTools::of(&text, has_program));
        Ok(facts)
    }
}

/// The script with the endpoints to try. Endpoints with characters that a shell interprets are left out.
fn script(endpoints: &[(String, u16)]) -> String {
    let plain = |endpoint: &str| {
        !endpoint.is_empty() && endpoint.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c))
    };
    let endpoints = endpoints.iter().filter(|(endpoint, _)| plain(endpoint));
    let words: Vec<String> = endpoints.map(|(endpoint, port)| format!("{endpoint}:{port}")).collect();
    format!("endpoints='{}'\n{SCRIPT}", words.join(" "))
}

fn round(clock: SystemTime, took: Duration) -> Round {
    let sent = clock.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    Round { sent, answered: sent + took.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;
    use kubeon_wire::Reach;

    fn run(script: &str) -> String {
        let mut child = Command::new("sh")
            .args(["-c", "exec sh -s"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        let out = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&out.stderr), "");
        String::from_utf8(out.stdout).unwrap()
    }

    #[test]
    fn the_script_reports_the_facts_of_this_machine() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 10259));
        let answer = run(SCRIPT);
        let facts = parse(&answer, round(SystemTime::now(), Duration::ZERO)).unwrap();
        assert_eq!(facts.system, "Linux");
        assert!(facts.cpus > 0 && facts.memory_bytes > 64 << 20 && facts.disk_free_bytes > 0, "{facts:?}");
        assert!(facts.clock_offset_seconds.abs() <= 2);
        assert!(!facts.kernel.is_empty() && !facts.hostname.is_empty());
        assert!(listener.is_err() || facts.busy_ports.contains(&10259), "{:?}", facts.busy_ports);
    }

    #[test]
    fn a_refused_connection_is_reported_and_unsafe_endpoints_are_left_out() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let open = listener.local_addr().unwrap().port();
        let endpoint = |target: &str, port| (target.to_owned(), port);
        let endpoints = [
            endpoint("127.0.0.1", open),
            endpoint("127.0.0.1", 1),
            endpoint("no-such-name.invalid", 1),
            endpoint("a';reboot;'", 1),
        ];
        let text = script(&endpoints);
        assert!(!text.contains("reboot"));
        let answer = run(&text);
        let facts = parse(&answer, round(SystemTime::now(), Duration::ZERO)).unwrap();
        let mut outcomes: Vec<_> =
            facts.reached.iter().map(|fact| (fact.target.as_str(), fact.outcome)).collect();
        outcomes.sort_by_key(|(target, outcome)| (target.len(), format!("{outcome:?}")));
        let wanted = [
            ("127.0.0.1", Reach::Open),
            ("127.0.0.1", Reach::Refused),
            ("no-such-name.invalid", Reach::Failed),
        ];
        assert_eq!(outcomes, wanted);
    }

    /// What the script reports of modules of a kernel with this configuration and these symbols, and without loadable modules.
    fn modules(configuration: Option<&str>, symbols: Option<&str>) -> Vec<String> {
        modules_beside(&[], configuration, symbols)
    }

    /// The same with modules that are loaded.
    fn modules_beside(loaded: &[&str], configuration: Option<&str>, symbols: Option<&str>) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        for module in loaded {
            std::fs::create_dir_all(folder.path().join("loaded").join(module)).unwrap();
        }
        let place = |name: &str| folder.path().join(name).display().to_string();
        if let Some(text) = configuration {
            let file = std::fs::File::create(place("config.gz")).unwrap();
            let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
            packed.write_all(text.as_bytes()).unwrap();
            packed.finish().unwrap();
        }
        if let Some(text) = symbols {
            std::fs::write(place("kallsyms"), text).unwrap();
        }
        let script = SCRIPT
            .replace("/proc/config.gz", &place("config.gz"))
            .replace("/proc/kallsyms", &place("kallsyms"))
            .replace("/sys/module", &place("loaded"))
            .replace("/lib/modules", &place("loadable"))
            .replace("has modprobe", "false");
        let known = ["vxlan", "veth", "bridge", "ip_tables"].map(|name| format!("module={name} "));
        let answer = run(&script);
        let all = ["overlay", "br_netfilter", "nf_conntrack", "nf_tables", "ip_vs"];
        let all = all.map(|name| format!("module={name} "));
        for line in answer.lines().filter(|line| line.starts_with("module=")) {
            assert!(known.iter().chain(&all).any(|name| line.starts_with(name)), "{line}");
        }
        let lines = answer.lines().filter(|line| known.iter().any(|name| line.starts_with(name)));
        lines.map(|line| line.trim_start_matches("module=").to_owned()).collect()
    }

    #[test]
    fn modules_of_the_kernel_are_found_in_its_configuration_or_its_symbols() {
        let old = "CONFIG_VXLAN=y\nCONFIG_VETH=m\nCONFIG_BRIDGE_NETFILTER=y\nCONFIG_IP_NF_IPTABLES=y\n";
        let of_old = ["vxlan 1", "veth 0", "bridge 0", "ip_tables 1"];
        assert_eq!(modules(Some(old), None), of_old);
        // The configuration is enough.
        assert_eq!(modules(Some(old), Some("0 T veth_setup\n")), of_old);
        let without_tables = format!("{old}# CONFIG_NETFILTER_XTABLES_LEGACY is not set\n");
        assert_eq!(modules(Some(&without_tables), None), ["vxlan 1", "veth 0", "bridge 0", "ip_tables 0"]);
        let with_tables = format!("{old}CONFIG_NETFILTER_XTABLES_LEGACY=y\nCONFIG_IP_NF_IPTABLES_LEGACY=y\n");
        assert_eq!(modules(Some(&with_tables), None), of_old);
        let of_symbols = ["vxlan 0", "veth 1", "bridge 1", "ip_tables 0"];
        assert_eq!(
            modules(None, Some("0 t veth_setup\n0 t br_dev_setup\n0 t my_vxlan_setup_x\n")),
            of_symbols
        );
        // No other module needs the symbols before.
        let others = ["overlay", "br_netfilter", "nf_conntrack", "nf_tables", "ip_vs"];
        let symbols = "0 t veth_setup\n0 t br_dev_setup\n";
        assert_eq!(modules_beside(&others, None, Some(symbols)), of_symbols);
        assert_eq!(modules(None, None), [""; 0], "nothing is known");
    }

    #[test]
    fn an_incomplete_script_does_nothing() {
        let cut = &SCRIPT[..SCRIPT.rfind("probe <").unwrap()];
        assert_eq!(run(cut), "");
    }

    #[test]
    fn the_script_writes_nowhere() {
        let code: Vec<&str> = SCRIPT.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
        let bare = code.join("\n").replace(">/dev/null", "").replace("2>&1", "");
        // Sockets are not files.
        let bare = bare.replace(r#"3<>"/dev/udp/$0/53""#, "").replace(">&3", "");
        assert!(!bare.contains('>'), "{bare}");
        for word in ["tee ", "mv ", "rm ", "touch ", "mkdir ", "install ", "mktemp ", "ln "] {
            assert!(!bare.contains(word), "{word}");
        }
    }
}
