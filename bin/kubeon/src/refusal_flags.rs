//! Renders refusals with the flags that help.

use kubeon_api::refusal::{FREE_HOST, failed_with};
use kubeon_plan::precheck::may_be_ignored;
use kubeon_plan::{Refusal, RefusedField, Remedy};
use kubeon_wire::PrecheckReport;

use crate::next_step::NextStep;
use crate::remedies::TRUST_KEYS;

/// A row of an error: the flag with its value, and the reason with the remedy.
pub(crate) fn row(refusal: &Refusal) -> (String, String) {
    (subject(refusal), reason(&refusal.reason, refusal.remedy.as_ref()))
}

/// The reason, followed by the flag or the command that helps.
pub(crate) fn reason(reason: &str, remedy: Option<&Remedy>) -> String {
    let Some(remedy) = remedy else { return reason.to_owned() };
    match remedy {
        Remedy::SkipHost(host) => format!("{reason}: --without {host}"),
        Remedy::Ignore(check) => format!("{reason}: --ignore {check}"),
        Remedy::ManageFirewall(_) => {
            format!("{reason}; open it, or create the cluster with --firewall manage")
        }
        Remedy::SetInternalAddress(_) => {
            format!("{reason}; give it with --master-internal-address or --worker-internal-address")
        }
        Remedy::Change(field) => format!("{reason} ({})", flag(*field)),
        Remedy::NameHost(_) => format!("{reason}; give names with -M or -W"),
        Remedy::TrustHostKey(_) => format!("{reason}, then trust it with {TRUST_KEYS}"),
        Remedy::FreeHost(_) => format!("{reason}{FREE_HOST}"),
        Remedy::AdoptCluster(name) => format!(
            "{reason}; if its control machine was lost: kubeon adopt {name} -m MASTER; else remove it there, or name another host"
        ),
        Remedy::BuildBundle(version) => format!("{reason}; build it again: kubeon bundle build {version}"),
    }
}

/// The failed checks that prevent a change, one line per host.
pub(crate) fn failed_checks(report: &PrecheckReport) -> String {
    failed_with(report.hosts.iter().filter(|host| !host.ok).map(|host| {
        let failed = host.checks.iter().filter(|result| result.prevents());
        let messages: Vec<_> = failed.map(|result| reason(&result.message, result.remedy.as_ref())).collect();
        format!("{} : {}", host.host, messages.join("; "))
    }))
}

/// The flag that ignores the failed checks, if all of them may be ignored.
pub(crate) fn ignore_advice(report: &PrecheckReport) -> Option<NextStep> {
    let failed = report.hosts.iter().flat_map(|host| &host.checks).filter(|result| result.prevents());
    let mut names: Vec<&str> = failed.map(|result| result.check.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let all = !names.is_empty() && names.iter().all(|name| may_be_ignored(name).is_ok());
    all.then(|| NextStep::Advice(format!("to continue anyway: --ignore {}", names.join(","))))
}

fn subject(refusal: &Refusal) -> String {
    let Refusal { field, value, .. } = refusal;
    [flag(*field), value].into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// The flag that sets a field; empty if the value is sufficient.
fn flag(field: RefusedField) -> &'static str {
    match field {
        RefusedField::Name | RefusedField::Host | RefusedField::Setting | RefusedField::Argument => "",
        RefusedField::Version => "version",
        RefusedField::Master => "-m",
        RefusedField::Worker => "-w",
        RefusedField::EtcdHost => "etcd host",
        RefusedField::MasterName => "-M",
        RefusedField::WorkerName => "-W",
        RefusedField::PodCidr => "--pod-cidr",
        RefusedField::ServiceCidr => "--svc-cidr",
        RefusedField::NodeMaskSize => "--node-mask-size",
        RefusedField::MaxPods => "--max-pods",
        RefusedField::NodePortRange => "--port-range",
        RefusedField::CaYears => "--cert-years",
        RefusedField::Mtu => "--mtu",
        RefusedField::LoadBalancer => "load balancer",
        RefusedField::Bundle => "bundle",
    }
}

#[cfg(test)]
mod tests {
    use kubeon_api::refusal::FAILED_WITH;
    use kubeon_engine::error::{EngineError, RefusalReasons};
    use kubeon_plan::sim::{bare, cluster};
    use kubeon_plan::{Artifacts, Intent, Observation, Snapshot, precheck, validate};
    use kubeon_wire::Facts;

    use super::*;
    use crate::cli_error::CliError;

    fn checked(kernel: &str, ignore: &[&str]) -> PrecheckReport {
        let spec = cluster(&["10.0.0.1"], &["10.0.0.2"]);
        let version = spec.version;
        let mut intent = Intent::new(validate(spec, &[version]).unwrap().0, "u", 0, Artifacts::default());
        intent.ignore = ignore.iter().map(|&name| name.to_owned()).collect();
        let old = Facts { kernel: kernel.to_owned(), clock_offset_seconds: 3600, ..bare("h2") };
        let hosts = [("10.0.0.1", bare("h1")), ("10.0.0.2", old)];
        let hosts = hosts.map(|(host, facts)| (host.parse().unwrap(), Observation::Fresh(facts)));
        precheck(&intent, &Snapshot { taken_at: 0, hosts: hosts.into() })
    }

    #[test]
    fn failed_checks_are_shown_host_by_host_with_the_flag_that_ignores_them() {
        let report = checked("3.9.1", &[]);
        let mut error = EngineError::refused(FAILED_WITH);
        let others = vec![Refusal::argument("bundle", "is old")];
        error.refused =
            Some(Box::new(RefusalReasons { report: Some(report), others, ..RefusalReasons::default() }));
        assert_eq!(
            CliError::from(error).to_string(),
            "error: [precheck] failed with:\n 10.0.0.2 : kernel version is minor < 3.10; its clock is off by 1 h 0 min, ahead; \
             set the time (chrony, timesyncd)\n  bundle  is old\nto continue anyway: --ignore clock,kernel\n"
        );
        assert!(checked("3.9.1", &["kernel", "clock"]).ok);
        assert_eq!(ignore_advice(&checked("6.1.0", &["clock"])), None);
    }

    #[test]
    fn a_missing_field_is_its_flag_alone() {
        let refusal = Refusal::new(RefusedField::Master, "", "is missing");
        assert_eq!(row(&refusal), ("-m".to_owned(), "is missing".to_owned()));
    }

    #[test]
    fn remedies_are_flags_and_commands_that_can_be_pasted() {
        let host = "10.0.0.4".parse().unwrap();
        let of = |remedy| reason("is wrong", Some(&remedy));
        assert_eq!(of(Remedy::SkipHost(host)), "is wrong: --without 10.0.0.4");
        assert_eq!(of(Remedy::Ignore("ports".into())), "is wrong: --ignore ports");
        assert_eq!(of(Remedy::Change(RefusedField::ServiceCidr)), "is wrong (--svc-cidr)");
        assert_eq!(
            of(Remedy::BuildBundle("v1.36.3".parse().unwrap())),
            "is wrong; build it again: kubeon bundle build v1.36.3"
        );
    }
}
