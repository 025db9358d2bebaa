//! Failures of a run: broken connections, silent hosts, fences, cancellation.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on must stop"
)]

use std::time::Duration;
use tokio_util::sync::CancellationToken;

use crate::support::{failure, ran, ran_until};
use kubeon_apply::{RunEvent, SHUTDOWN_TIMEOUT};
use kubeon_testkit::{Fault, World, host, plan_of, step};
use kubeon_wire::{Category, ORPHAN_LIFE};
use tokio::time::{Instant, sleep};

const H1: &str = "10.0.0.1";
const H2: &str = "10.0.0.2";

fn world() -> World {
    World::of([host(H1), host(H2)])
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn a_broken_session_is_opened_again_and_the_step_is_sent_again() {
    let world = world();
    world.inject_faults("a", [Fault::BreakBefore, Fault::BreakAfter]);
    let start = Instant::now();
    let ran = ran(&world, &plan_of([step("a", H1).writes("/a", "a").tries(3)])).await;
    assert_eq!(ran.of("a"), "done");
    assert_eq!(world.opened(H1), 3);
    assert_eq!(start.elapsed(), Duration::from_millis(1500), "pauses of 0.5 and 1 s");
    let retries: Vec<(u8, u64)> = ran
        .events
        .iter()
        .filter_map(|event| match event {
            RunEvent::Retrying { attempt, pause_milliseconds, .. } => Some((*attempt, *pause_milliseconds)),
            _ => None,
        })
        .collect();
    assert_eq!(retries, [(2, 500), (3, 1000)]);
    assert_eq!(
        world.log().iter().filter(|line| line.contains("write /a")).count(),
        1,
        "the step ran twice and wrote once"
    );
}

#[tokio::test(start_paused = true)]
async fn many_steps_on_a_broken_session_open_one_new_session() {
    let world = world();
    let plan = plan_of((0..6).map(|n| step(&format!("s{n}"), H1).tries(2)));
    for step in &plan.steps {
        world.inject_faults(&step.id.to_string(), [Fault::Slow(seconds(10))]);
    }
    let power_cycle = async {
        sleep(seconds(5)).await;
        world.cut(H1);
        world.heal(H1);
    };
    let (ran, ()) = tokio::join!(ran(&world, &plan), power_cycle);
    assert!(ran.outcome.is_complete());
    assert_eq!(
        ran.count(|event| matches!(event, RunEvent::Retrying { .. })),
        6,
        "the session broke for all of them"
    );
    assert_eq!(world.opened(H1), 2);
}

#[tokio::test(start_paused = true)]
async fn a_step_is_not_tried_more_often_than_allowed() {
    let world = world();
    world.inject_faults("a", std::iter::repeat_n(Fault::Fail(failure(Category::Timeout)), 9));
    let ran = ran(&world, &plan_of([step("a", H1).tries(4)])).await;
    assert_eq!(ran.failure("a").category, Category::Timeout);
    assert_eq!(world.trace().iter().filter(|line| *line == "+a").count(), 4);
    assert_eq!(world.opened(H1), 1, "a timeout does not open a new session");
}

#[tokio::test(start_paused = true)]
async fn permanent_failures_are_not_retried() {
    for category in [Category::Failed, Category::Exhausted, Category::Corrupt, Category::Unsupported] {
        let world = world();
        world.inject_faults("a", [Fault::Fail(failure(category))]);
        let ran = ran(&world, &plan_of([step("a", H1).tries(5)])).await;
        assert_eq!(ran.failure("a").category, category);
        assert_eq!(world.trace(), ["+a", "-a"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_refuses_the_fence_fails_all_its_steps_and_receives_none() {
    let world = world();
    world.has_seen_generation(H1, 7);
    let plan = plan_of([
        step("a", H1).writes("/a", "a"),
        step("b", H1).writes("/b", "b").needs(["a"]),
        step("c", H2).writes("/c", "c"),
        step("d", H2).writes("/d", "d").needs(["b"]),
    ]);
    let before = world.render();
    let ran = ran(&world, &plan).await;
    for id in ["a", "b"] {
        assert_eq!(ran.failure(id).category, Category::Fenced, "{id}");
    }
    assert_eq!((ran.of("c").as_str(), ran.of("d").as_str()), ("done", "skipped because of b"));
    assert!(
        !world.trace().iter().any(|line| line.contains('a') || line.contains('b')),
        "{:?}",
        world.trace()
    );
    let of_h1 = |text: String| {
        text.lines().filter(|line| line.starts_with("h1 ")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(of_h1(world.render()), of_h1(before));
    assert_eq!(ran.count(|event| matches!(event, RunEvent::HostRetrying { .. })), 0, "a refusal is final");
}

#[tokio::test(start_paused = true)]
async fn a_newer_writer_during_the_run_fails_the_remaining_steps_of_the_host() {
    let world = world();
    world.inject_faults("a", [Fault::Slow(seconds(5)), Fault::Slow(seconds(5))]);
    let plan =
        plan_of([step("a", H1), step("b", H1).needs(["a"]), step("c", H1).needs(["b"]), step("d", H2)]);
    let overtake = async {
        sleep(seconds(1)).await;
        world.has_seen_generation(H1, 9);
    };
    let (ran, ()) = tokio::join!(ran(&world, &plan), overtake);
    assert_eq!(ran.of("a"), "done", "the step was sent before the newer writer");
    assert_eq!([ran.failure("b").category, ran.failure("c").category], [Category::Fenced; 2]);
    assert_eq!(ran.of("d"), "done");
    assert!(!world.trace().contains(&"+c".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_host_fails_its_steps_after_four_attempts() {
    let world = World::of([host(H1).unreachable(), host(H2)]);
    let plan = plan_of([step("a", H1).tries(9), step("b", H1).needs(["a"]), step("c", H2)]);
    let start = Instant::now();
    let ran = ran(&world, &plan).await;
    assert_eq!([ran.failure("a").category, ran.failure("b").category], [Category::Unreachable; 2]);
    assert_eq!(ran.of("c"), "done");
    assert_eq!(ran.count(|event| matches!(event, RunEvent::HostRetrying { .. })), 3);
    assert_eq!(start.elapsed(), Duration::from_millis(3500));
    assert_eq!(
        ran.count(|event| matches!(event, RunEvent::StepStarted { step, .. } if step.what() != "c")),
        0
    );
}

#[tokio::test(start_paused = true)]
async fn a_host_that_comes_back_in_time_continues() {
    let world = world();
    world.inject_opening_faults(H1, [Fault::BreakBefore, Fault::Fail(failure(Category::Timeout))]);
    let ran = ran(&world, &plan_of([step("a", H1)])).await;
    assert_eq!(ran.of("a"), "done");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_an_orphaned_session_locks_is_retried_until_it_is_free() {
    let world = world();
    let held = || Fault::Fail(failure(Category::Held));
    let faults = [held(), held(), Fault::BreakBefore, held(), held(), held(), held(), held()];
    world.inject_opening_faults(H1, faults);
    let ran = ran(&world, &plan_of([step("a", H1)])).await;
    assert_eq!(ran.of("a"), "done");
    let reported = ran.count(|event| matches!(event, RunEvent::HostRetrying { .. }));
    assert_eq!(reported, 2, "once for the lock, once for the broken connection");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_stays_locked_is_lost_after_the_life_of_an_orphaned_session() {
    let world = world();
    world.inject_opening_faults(H1, std::iter::repeat_n(Fault::Fail(failure(Category::Held)), 1000));
    let start = Instant::now();
    let ran = ran(&world, &plan_of([step("a", H1).tries(9), step("b", H2)])).await;
    assert_eq!((ran.failure("a").category, ran.of("b").as_str()), (Category::Held, "done"));
    let waited = start.elapsed();
    assert!(ORPHAN_LIFE < waited && waited < ORPHAN_LIFE + seconds(10), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn opening_a_session_has_a_time_limit() {
    let world = world();
    world.inject_opening_faults(H1, std::iter::repeat_n(Fault::Silence, 4));
    let ran = ran(&world, &plan_of([step("a", H1), step("b", H2)])).await;
    assert!(ran.failure("a").cause.contains("within 300 s"), "{}", ran.failure("a"));
    assert_eq!(ran.of("b"), "done");
}

#[tokio::test(start_paused = true)]
async fn a_host_lost_during_the_run_fails_only_its_remaining_steps() {
    let world = world();
    world.inject_faults("a", [Fault::Slow(seconds(10))]);
    world.inject_faults("c", [Fault::Slow(seconds(60))]);
    let plan = plan_of([
        step("a", H1).writes("/a", "a").tries(3),
        step("b", H1).needs(["a"]),
        step("c", H2).writes("/c", "c"),
        step("d", H2).needs(["c"]),
    ]);
    let cut = async {
        sleep(seconds(5)).await;
        world.cut(H1);
    };
    let (ran, ()) = tokio::join!(ran(&world, &plan), cut);
    assert_eq!([ran.failure("a").category, ran.failure("b").category], [Category::Unreachable; 2]);
    assert_eq!((ran.of("c").as_str(), ran.of("d").as_str()), ("done", "done"));
    assert_eq!(ran.count(|event| matches!(event, RunEvent::HostLost { .. })), 1);
}

#[tokio::test(start_paused = true)]
async fn waiting_steps_end_soon_after_an_idle_host_is_lost() {
    let world = world();
    world.inject_faults("a", [Fault::Slow(seconds(2))]);
    world.inject_faults("c", [Fault::Slow(seconds(3600))]);
    let plan = plan_of([step("a", H1).writes("/a", "a"), step("c", H2).waits_for("/never").within(3600)]);
    let cut = async {
        sleep(seconds(10)).await;
        world.cut(H1);
    };
    let start = Instant::now();
    let (ran, ()) = tokio::join!(ran(&world, &plan), cut);
    assert_eq!((ran.of("a").as_str(), ran.failure("c").category), ("done", Category::Timeout));
    assert!(ran.failure("c").cause.contains(H1), "{}", ran.failure("c").cause);
    assert!(start.elapsed() < seconds(60), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_silent_session_counts_as_broken_and_is_opened_again() {
    let world = world();
    world.inject_faults("a", [Fault::Silence]);
    let start = Instant::now();
    let ran = ran(&world, &plan_of([step("a", H1).within(60).tries(2)])).await;
    assert_eq!(ran.of("a"), "done");
    assert_eq!(world.opened(H1), 2);
    assert_eq!(start.elapsed(), Duration::from_millis(75_500), "60 s, 15 s of grace, 0.5 s of pause");
}

#[tokio::test(start_paused = true)]
async fn an_event_of_one_step_counts_for_all_steps_of_the_session() {
    // The second step takes longer than its timeout and grace period, as if it waited for the bytes of the
    // first step.
    let world = world();
    world.inject_faults("first", [Fault::Slow(seconds(70))]);
    world.inject_faults("second", [Fault::Slow(seconds(140))]);
    let ran = ran(&world, &plan_of([step("first", H1).within(60), step("second", H1).within(60)])).await;
    assert_eq!((ran.of("first").as_str(), ran.of("second").as_str()), ("done", "done"));
}

#[tokio::test(start_paused = true)]
async fn a_part_that_the_bundle_lacks_fails_before_it_is_sent() {
    let world = world();
    world.lose_blob("kubelet");
    let ran = ran(&world, &plan_of([step("a", H1).unpacks("kubelet").tries(3)])).await;
    assert!(
        ran.failure("a").cause.starts_with("the bundle does not hold kubelet (sha256 "),
        "{}",
        ran.failure("a")
    );
    assert!(world.trace().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_starts_no_step_and_lets_running_steps_end() {
    let world = world();
    world.inject_faults("a", [Fault::Slow(seconds(20))]);
    let plan =
        plan_of([step("a", H1).writes("/a", "a"), step("b", H1).needs(["a"]), step("c", H2).needs(["b"])]);
    let cancel = CancellationToken::new();
    let later = async {
        sleep(seconds(5)).await;
        cancel.cancel();
    };
    let start = Instant::now();
    let (ran, ()) = tokio::join!(ran_until(&world, &plan, &cancel), later);
    assert_eq!([ran.of("a"), ran.of("b"), ran.of("c")], ["done", "skipped, cancelled", "skipped, cancelled"]);
    assert_eq!(start.elapsed(), seconds(20));
    assert_eq!(world.file(H1, "/a").as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_ends_at_the_shutdown_timeout() {
    let world = world();
    world.inject_faults("a", [Fault::Silence]);
    let plan = plan_of([step("a", H1).within(600), step("b", H1).needs(["a"])]);
    let cancel = CancellationToken::new();
    let later = async {
        sleep(seconds(5)).await;
        cancel.cancel();
    };
    let start = Instant::now();
    let (ran, ()) = tokio::join!(ran_until(&world, &plan, &cancel), later);
    assert_eq!([ran.of("a"), ran.of("b")], ["skipped, cancelled", "skipped, cancelled"]);
    assert_eq!(start.elapsed(), seconds(5) + SHUTDOWN_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_ends_pauses_and_openings_at_once() {
    let world = world();
    world.inject_faults("a", std::iter::repeat_n(Fault::Fail(failure(Category::Timeout)), 9));
    world.inject_opening_faults(H2, [Fault::Silence]);
    let plan = plan_of([step("a", H1).tries(9), step("b", H2)]);
    let cancel = CancellationToken::new();
    let later = async {
        // In the pause of 8 s after the fifth attempt.
        sleep(seconds(9)).await;
        cancel.cancel();
    };
    let start = Instant::now();
    let (ran, ()) = tokio::join!(ran_until(&world, &plan, &cancel), later);
    assert_eq!(start.elapsed(), seconds(9));
    assert_eq!((ran.of("a").as_str(), ran.of("b").as_str()), ("failed", "skipped, cancelled"));
}

#[tokio::test(start_paused = true)]
async fn a_run_cancelled_before_it_began_does_nothing() {
    let (world, cancel) = (world(), CancellationToken::new());
    cancel.cancel();
    let ran = ran_until(&world, &plan_of([step("a", H1), step("b", H2).needs(["a"])]), &cancel).await;
    assert_eq!([ran.of("a"), ran.of("b")], ["skipped, cancelled", "skipped, cancelled"]);
    assert!(world.trace().is_empty());
}
