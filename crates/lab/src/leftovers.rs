//! Finds the objects of a lab on the machine by the lab's name alone.

use std::fs;

use crate::{LabName, Leftover, Places, Result, cgroup::Cgroups, mounts, net, process, stale};

/// Processes of the lab: processes with its mark and members of its cgroups. Namespaces end with the processes.
pub(crate) fn processes(lab: &LabName, cgroups: &Cgroups) -> Result<Vec<i32>> {
    let mut pids = process::marked(lab, None)?;
    pids.extend(cgroups.processes(lab, "", "")?);
    pids.sort_unstable();
    pids.dedup();
    Ok(pids)
}

/// All objects of the lab that exist.
pub(crate) fn all(places: &Places, lab: &LabName) -> Result<Vec<Leftover>> {
    let cgroups = Cgroups::detect()?;
    let dir = places.lab(lab);
    let mut found = Vec::new();
    for pid in processes(lab, &cgroups)? {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        found.push(Leftover::Process(
            pid,
            String::from_utf8_lossy(&line).replace('\0', " ").trim().to_owned(),
        ));
    }
    found.extend(mounts::below(&dir)?.into_iter().map(Leftover::Mount));
    found.extend(cgroups.existing(lab).into_iter().map(Leftover::Cgroup));
    found.extend(net::link_exists(lab).then(|| Leftover::Link(lab.link())));
    found.extend(net::routes(lab)?.into_iter().map(Leftover::Route));
    found.extend(dir.exists().then_some(Leftover::File(dir)));
    found.extend(stale::builds(places)?.into_iter().map(Leftover::File));
    Ok(found)
}
