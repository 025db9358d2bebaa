//! Maintenance windows: when changes of a cluster that exists may begin.

use k8s_openapi::jiff::civil::{Date, Weekday as CivilWeekday};
use k8s_openapi::jiff::tz::TimeZone;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kubeon_api::KubernetesCluster;
use kubeon_api::kubernetes_cluster::{MaintenanceWindow, Weekday};

use super::cluster_action::ClusterAction;
use super::next_action::{Approval, DesiredOperation, NextAction};

/// The days from today in which every window begins at least once.
const DAYS: usize = 8;

/// Replaces a change outside of the windows by waiting. Otherwise, when it may begin.
pub(super) fn in_window(
    object: &KubernetesCluster,
    wanted: NextAction,
    now: Timestamp,
) -> (NextAction, Option<Timestamp>) {
    let windows = &object.spec.maintenance_windows;
    let waits = matches!(&wanted, NextAction::Operation(desired) if changes_hosts(desired));
    if windows.is_empty() || !waits || windows.iter().any(|window| is_open(window, now)) {
        return (wanted, None);
    }
    let Some(next) = windows.iter().filter_map(|window| next_start(window, now)).min() else {
        return (wanted, None);
    };
    let text = format!("changes begin in the maintenance windows: the next one begins at {next}");
    (NextAction::Blocked { word: "OutsideWindow", text }, Some(next))
}

/// Whether hosts of a cluster that exists are changed. A deletion, a renewal and a return to a snapshot cannot wait for days.
fn changes_hosts(desired: &DesiredOperation) -> bool {
    desired.approval != Approval::Plan
        && matches!(
            desired.action,
            ClusterAction::ScaleUp | ClusterAction::ScaleDown | ClusterAction::Update | ClusterAction::Repair
        )
}

/// When the window begins on this day; `None` when it does not.
fn start_on(window: &MaintenanceWindow, day: Date) -> Option<Timestamp> {
    let weekday = match day.weekday() {
        CivilWeekday::Monday => Weekday::Monday,
        CivilWeekday::Tuesday => Weekday::Tuesday,
        CivilWeekday::Wednesday => Weekday::Wednesday,
        CivilWeekday::Thursday => Weekday::Thursday,
        CivilWeekday::Friday => Weekday::Friday,
        CivilWeekday::Saturday => Weekday::Saturday,
        CivilWeekday::Sunday => Weekday::Sunday,
    };
    if !window.days.is_empty() && !window.days.contains(&weekday) {
        return None;
    }
    let start = day.at(window.start.hour, window.start.minute, 0, 0);
    Some(start.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

fn today(now: Timestamp) -> Date {
    now.to_zoned(TimeZone::UTC).date()
}

/// Whether a window that began today or yesterday has not ended.
fn is_open(window: &MaintenanceWindow, now: Timestamp) -> bool {
    let length = SignedDuration::from_hours(window.hours.into());
    let days = [Some(today(now)), today(now).yesterday().ok()];
    let mut starts = days.into_iter().flatten().filter_map(|day| start_on(window, day));
    starts.any(|start| start <= now && start.checked_add(length).is_ok_and(|end| now < end))
}

fn next_start(window: &MaintenanceWindow, now: Timestamp) -> Option<Timestamp> {
    let days = std::iter::successors(Some(today(now)), |day| day.tomorrow().ok()).take(DAYS);
    days.filter_map(|day| start_on(window, day)).find(|start| *start > now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(days: &[Weekday], start: &str, hours: u8) -> MaintenanceWindow {
        MaintenanceWindow { days: days.to_vec(), start: start.parse().unwrap(), hours }
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_window_may_end_on_the_next_day() {
        // 2026-01-03 is a Saturday.
        let saturday = window(&[Weekday::Saturday], "22:00", 4);
        for (now, open) in [
            ("2026-01-03T21:59:59Z", false),
            ("2026-01-03T22:00:00Z", true),
            ("2026-01-04T01:59:59Z", true),
            ("2026-01-04T02:00:00Z", false),
            ("2026-01-04T22:00:00Z", false),
        ] {
            assert_eq!(is_open(&saturday, at(now)), open, "{now}");
        }
    }

    #[test]
    fn the_next_start_is_at_most_a_week_away() {
        let saturday = window(&[Weekday::Saturday], "22:00", 4);
        assert_eq!(next_start(&saturday, at("2026-01-01T00:00:00Z")), Some(at("2026-01-03T22:00:00Z")));
        assert_eq!(next_start(&saturday, at("2026-01-03T22:00:00Z")), Some(at("2026-01-10T22:00:00Z")));
        let daily = window(&[], "02:30", 1);
        assert_eq!(next_start(&daily, at("2026-02-28T03:00:00Z")), Some(at("2026-03-01T02:30:00Z")));
    }
}
