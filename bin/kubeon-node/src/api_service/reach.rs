//! Keeps the API's name of a worker leading to an API server that answers.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::thread;
use std::time::Duration;

use kubeon_wire::{API_WAY_FILE, API_WAY_FOUND, ApiWay, HostsEntry, StepFailure};

use crate::durable::{read_text, remove_file, write_file};
use crate::failure::failed;
use crate::host::HostSystem;
use crate::https::Https;
use crate::ops::hosts;
use crate::paths;

/// The pause between two checks while the Service answers, and while it does not.
const PAUSE: Duration = Duration::from_secs(5);
const PAUSE_WITHOUT_SERVICE: Duration = Duration::from_secs(1);
/// The time limit of one check. A usual API server answers at once, or the packets are lost.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);
/// The same for an API server that accepts a connection: a slow host needs some seconds for `/readyz`.
const SLOW_TIMEOUT: Duration = Duration::from_secs(10);
/// Checks without an answer after which the Service counts as gone: its endpoints include a dead master for some seconds.
const MISSES: u32 = 3;

/// Where the name leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Service(Ipv4Addr),
    Master(Ipv4Addr),
}

/// Checks the way and changes it when needed. It never ends; `report` gets every change and what goes wrong, once until it
/// changes.
pub fn reach(host: &HostSystem, report: &mut dyn FnMut(&str)) -> ! {
    let (mut search, mut reported) = (Search::default(), String::new());
    loop {
        match search.once(host) {
            Ok(None) => reported.clear(),
            Ok(Some(change)) => report(&change),
            Err(failure) => {
                let why = failure.to_string();
                if why != reported {
                    report(&why);
                    reported = why;
                }
            }
        }
        let pause = if matches!(search.found, Some(Found::Service(_))) && search.misses == 0 {
            PAUSE
        } else {
            PAUSE_WITHOUT_SERVICE
        };
        thread::sleep(pause);
    }
}

/// Removes what [`reach`] wrote: nobody keeps it true any more.
///
/// # Errors
/// If a file cannot be changed.
pub fn end(host: &HostSystem) -> Result<(), StepFailure> {
    hosts::stand_in(&host.root, None)?;
    let place = host.root.at(API_WAY_FOUND);
    remove_file(&place)?;
    // Fails if another file is in the folder, which must stay.
    drop(place.parent().map(std::fs::remove_dir));
    Ok(())
}

#[derive(Debug, Default)]
struct Search {
    found: Option<Found>,
    misses: u32,
}

impl Search {
    /// One check. Returns a text if the way changed.
    fn once(&mut self, host: &HostSystem) -> Result<Option<String>, StepFailure> {
        let way = way(host)?;
        // A client of its own for every check: an open connection does not show that a new one leads anywhere, and the
        // authorities may have changed.
        let answers = |address: Ipv4Addr| -> Result<bool, StepFailure> {
            let https = Https::open(&host.root.at(paths::API_CA), None)?;
            Ok(is_ready(&https, SocketAddrV4::new(address, way.port)))
        };
        let found = self.choose(&way, &answers)?;
        let stand_in = match found {
            Some(Found::Master(address)) => Some(HostsEntry { address, names: vec![way.name.clone()] }),
            Some(Found::Service(_)) => None,
            None => return Err(failed(format!("neither the Service {} nor a master answers", way.service))),
        };
        hosts::stand_in(&host.root, stand_in.as_ref())?;
        if self.found == found {
            return Ok(None);
        }
        let (address, text) = match found {
            Some(Found::Master(address)) => (
                address,
                format!("the Service {} does not answer: {} leads to {address}", way.service, way.name),
            ),
            _ => (way.service, format!("{} leads to the Service {}", way.name, way.service)),
        };
        write_file(&host.root.at(API_WAY_FOUND), format!("{address}\n").as_bytes(), 0o644)?;
        self.found = found;
        Ok(Some(text))
    }

    /// The Service if it answers or did so a moment ago, else a master that answers: the one before, if it still does. Without
    /// any answer, the way stays.
    fn choose(
        &mut self,
        way: &ApiWay,
        answers: &dyn Fn(Ipv4Addr) -> Result<bool, StepFailure>,
    ) -> Result<Option<Found>, StepFailure> {
        if answers(way.service)? {
            self.misses = 0;
            return Ok(Some(Found::Service(way.service)));
        }
        self.misses = self.misses.saturating_add(1);
        if matches!(self.found, Some(Found::Service(_))) && self.misses < MISSES {
            return Ok(self.found);
        }
        let before = match self.found {
            Some(Found::Master(master)) => Some(master).filter(|master| way.masters.contains(master)),
            _ => None,
        };
        for master in before.into_iter().chain(way.masters.iter().copied()) {
            if answers(master)? {
                return Ok(Some(Found::Master(master)));
            }
        }
        Ok(self.found)
    }
}

fn is_ready(https: &Https, place: SocketAddrV4) -> bool {
    let url = format!("https://{place}/readyz");
    let ask = |timeout| https.get(&url, timeout).is_ok_and(|answer| answer.status == 200);
    let connects = || TcpStream::connect_timeout(&SocketAddr::V4(place), CHECK_TIMEOUT).is_ok();
    ask(CHECK_TIMEOUT) || connects() && ask(SLOW_TIMEOUT)
}

/// The way that the plan wrote.
fn way(host: &HostSystem) -> Result<ApiWay, StepFailure> {
    let text = read_text(&host.root.at(API_WAY_FILE))?.unwrap_or_default();
    serde_json::from_str(&text).map_err(|error| failed(format!("{API_WAY_FILE}: {error}")))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use super::*;
    use crate::testing::Bench;
    use crate::testing_api::{Reply, serve};

    const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 64, 0, 15);
    const M1: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const M2: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

    fn api_way() -> ApiWay {
        ApiWay { name: "api".to_owned(), service: SERVICE, port: 6443, masters: vec![M1, M2] }
    }

    /// The choices of a search while only these addresses answer, one set for each check.
    fn choices(answering: &[&[Ipv4Addr]]) -> Vec<Option<Found>> {
        let mut search = Search::default();
        let mut choose = |up: &&[Ipv4Addr]| {
            let up: BTreeSet<Ipv4Addr> = up.iter().copied().collect();
            search.found = search.choose(&api_way(), &|address| Ok(up.contains(&address))).unwrap();
            search.found
        };
        answering.iter().map(&mut choose).collect()
    }

    #[test]
    fn after_a_boot_a_master_stands_in_until_the_service_answers() {
        let (service, first) = (Some(Found::Service(SERVICE)), Some(Found::Master(M1)));
        assert_eq!(choices(&[&[], &[M1, M2], &[SERVICE, M1, M2]]), [None, first, service]);
    }

    #[test]
    fn a_master_that_answers_is_kept_and_a_dead_one_is_not() {
        let (first, second) = (Some(Found::Master(M1)), Some(Found::Master(M2)));
        assert_eq!(choices(&[&[M2], &[M1, M2], &[M1], &[]]), [second, second, first, first]);
    }

    #[test]
    fn a_service_that_misses_one_check_is_not_left() {
        let (service, second) = (Some(Found::Service(SERVICE)), Some(Found::Master(M2)));
        let all: &[&[Ipv4Addr]] = &[&[SERVICE], &[M2], &[M2], &[M2], &[SERVICE, M2]];
        assert_eq!(choices(all), [service, service, service, second, service]);
    }

    #[test]
    fn every_address_is_asked_only_when_it_is_needed() {
        let asked = RefCell::new(Vec::new());
        let mut search = Search::default();
        let answers = |address| {
            asked.borrow_mut().push(address);
            Ok(address == M2)
        };
        search.found = search.choose(&api_way(), &answers).unwrap();
        search.choose(&api_way(), &answers).unwrap();
        assert_eq!(asked.into_inner(), [SERVICE, M1, M2, SERVICE, M2]);
    }

    #[test]
    fn the_hosts_file_and_the_found_address_follow_the_way() {
        let mut bench = Bench::new();
        serve(&mut bench, |_, _, _| Reply::Json(200, "ok".to_owned()));
        let port = bench.host.api.rsplit(':').next().unwrap().parse().unwrap();
        bench.write(paths::HOSTS, "127.0.0.1 localhost\n");
        let mut search = Search::default();
        // The scripted server has the address of the master; nothing listens on that of the Service.
        let absent = Ipv4Addr::new(127, 0, 0, 2);
        let way = ApiWay { service: absent, port, masters: vec![Ipv4Addr::LOCALHOST], ..api_way() };
        bench.write(API_WAY_FILE, &serde_json::to_string(&way).unwrap());
        let change = search.once(&bench.host).unwrap().unwrap();
        assert_eq!(change, "the Service 127.0.0.2 does not answer: api leads to 127.0.0.1");
        assert!(bench.read(paths::HOSTS).contains("127.0.0.1\tapi\n"));
        assert_eq!(bench.read(API_WAY_FOUND), "127.0.0.1\n");
        assert_eq!(search.once(&bench.host).unwrap(), None);

        let way = ApiWay { service: Ipv4Addr::LOCALHOST, ..way };
        bench.write(API_WAY_FILE, &serde_json::to_string(&way).unwrap());
        assert_eq!(search.once(&bench.host).unwrap().unwrap(), "api leads to the Service 127.0.0.1");
        assert_eq!(bench.read(paths::HOSTS), "127.0.0.1 localhost\n");

        search.found = Some(Found::Master(Ipv4Addr::LOCALHOST));
        bench.write(API_WAY_FILE, "{");
        assert!(search.once(&bench.host).unwrap_err().cause.contains("apiserver-startup.json"));
        end(&bench.host).unwrap();
        assert!(!bench.host.root.at(API_WAY_FOUND).exists());
    }
}
