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
use crate::shell::Rights;

const SCRIPT: &str = include_str!("probe.sh");

/// The largest output of a host in bytes: a long journal has about 100 KiB.
const LIMIT: usize = 8 * 1024 * 1024;

#[async_trait]
impl ProbeHost for SshHosts {
    async fn facts(&self, host: HostAddress) -> Result<Facts, StepFailure> {
        self.facts_and(host, &[]).await
    }

    async fn facts_and(&self, host: HostAddress, places: &[(String, u16)]) -> Result<Facts, StepFailure> {
        let _turn = self.0.reading_facts.acquire().await;
        let connection = self.0.connection(host).await?;
        let rights = match connection.rights().await {
            Ok(rights) => rights,
            // The plan reports what a host without root rights cannot do; a wrong password is an error here.
            Err(refused)
                if refused.category == Category::Denied && connection.login.sudo_password.is_none() =>
            {
                Rights::AsIs
            }
            Err(failure) => return Err(failure),
        };
        let (clock, sent) = (SystemTime::now(), Instant::now());
        let bounds = (self.0.settings.limits.facts, LIMIT);
        let answer = connection
            .ask(&rights, "exec sh -s", &[], CommandInput::Bytes(script(places).into()), bounds)
            .await?;
        let took = answer.first.map_or(sent.elapsed(), |first| first.duration_since(sent));
        let facts = parse(&String::from_utf8_lossy(&answer.out), round(clock, took));
        facts.map_err(|why| StepFailure {
            log: last_lines(&answer.stderr_text(), 20),
            ..failure(Category::Failed, format!("{host} cannot be looked at: {why}"))
        })
    }
}

/// The script with the endpoints to try. Endpoints with characters that a shell interprets are left out.
fn script(places: &[(String, u16)]) -> String {
    let plain = |place: &str| {
        !place.is_empty() && place.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c))
    };
    let places = places.iter().filter(|(place, _)| plain(place));
    let words: Vec<String> = places.map(|(place, port)| format!("{place}:{port}")).collect();
    format!("places='{}'\n{SCRIPT}", words.join(" "))
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
    fn the_script_tells_the_truth_of_this_machine() {
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
    fn a_refused_connection_is_an_answer_and_nonsense_is_not_asked() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let open = listener.local_addr().unwrap().port();
        let place = |target: &str, port| (target.to_owned(), port);
        let places = [
            place("127.0.0.1", open),
            place("127.0.0.1", 1),
            place("no-such-name.invalid", 1),
            place("a';reboot;'", 1),
        ];
        let text = script(&places);
        assert!(!text.contains("reboot"));
        let answer = run(&text);
        let facts = parse(&answer, round(SystemTime::now(), Duration::ZERO)).unwrap();
        let mut outcomes: Vec<_> =
            facts.reached.iter().map(|one| (one.target.as_str(), one.outcome)).collect();
        outcomes.sort_by_key(|(target, outcome)| (target.len(), format!("{outcome:?}")));
        let wanted = [
            ("127.0.0.1", Reach::Open),
            ("127.0.0.1", Reach::Refused),
            ("no-such-name.invalid", Reach::Failed),
        ];
        assert_eq!(outcomes, wanted);
    }

    #[test]
    fn a_script_cut_off_does_nothing() {
        let cut = &SCRIPT[..SCRIPT.rfind("look <").unwrap()];
        assert_eq!(run(cut), "");
    }

    #[test]
    fn the_script_writes_nowhere() {
        let code: Vec<&str> = SCRIPT.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
        let bare = code.join("\n").replace(">/dev/null", "").replace("2>&1", "");
        assert!(!bare.contains('>'), "{bare}");
        for word in ["tee ", "mv ", "rm ", "touch ", "mkdir ", "install ", "mktemp ", "ln "] {
            assert!(!bare.contains(word), "{word}");
        }
    }
}
