//! What goes wrong on the way: broken lines, silent hosts, fences, stops.
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
async fn a_broken_line_is_opened_again_and_the_step_sent_again() {
    let world = world();
    world.trouble("a", [Fault::BreakBefore, Fault::BreakAfter]);
    let start = Instant::now();
    let ran = ran(&world, &plan_of([step("a", H1).writes("/a", "a").tries(3)])).await;
    assert_eq!(ran.of("a"), "done");
    assert_eq!(world.opened(H1), 3);
    assert_eq!(start.elapsed(), Duration::from_millis(1500), "pauses of 0.5 and 1 s");
    let retries: Vec<(u8, u64)> = ran
        .told
        .iter()
        .filter_map(|it| match it {
            RunEvent::Retrying { attempt, pause_milliseconds, .. } => Some((*attempt, *pause_milliseconds)),
            _ => None,
        })
        .collect();
    assert_eq!(retries, [(2, 500), (3, 1000)]);
    assert_eq!(
        world.log().iter().filter(|line| line.contains("write /a")).count(),
        1,
        "done twice, written once"
    );
}

#[tokio::test(start_paused = true)]
async fn many_steps_on_a_broken_line_open_it_once() {
    let world = world();
    let plan = plan_of((0..6).map(|n| step(&format!("s{n}"), H1).tries(2)));
    for step in &plan.steps {
        world.trouble(&step.id, [Fault::Slow(seconds(10))]);
    }
    let flicker = async {
        sleep(seconds(5)).await;
        world.cut(H1);
        world.heal(H1);
    };
    let (ran, ()) = tokio::join!(ran(&world, &plan), flicker);
    assert!(ran.outcome.is_complete());
    assert_eq!(ran.count(|it| matches!(it, RunEvent::Retrying { .. })), 6, "the line broke for all of them");
    assert_eq!(world.opened(H1), 2);
}

#[tokio::test(start_paused = true)]
async fn a_step_is_tried_no_more_often_than_allowed() {
    let world = world();
    world.trouble("a", std::iter::repeat_n(Fault::Fail(failure(Category::Timeout)), 9));
    let ran = ran(&world, &plan_of([step("a", H1).tries(4)])).await;
    assert_eq!(ran.failure("a").category, Category::Timeout);
    assert_eq!(world.trace().iter().filter(|line| *line == "+a").count(), 4);
    assert_eq!(world.opened(H1), 1, "a timeout is no reason to open the host again");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_help_is_not_tried_again() {
    for category in [Category::Failed, Category::Exhausted, Category::Corrupt, Category::Unsupported] {
        let world = world();
        world.trouble("a", [Fault::Fail(failure(category))]);
        let ran = ran(&world, &plan_of([step("a", H1).tries(5)])).await;
        assert_eq!(ran.failure("a").category, category);
        assert_eq!(world.trace(), ["+a", "-a"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_refuses_the_fence_fails_all_its_steps_and_is_sent_nothing() {
    let world = world();
    world.has_seen_generation(H1, 7);
    let plan = plan_of([
        step("a", H1).writes("/a", "a"),
        step("b", H1).writes("/b", "b").needs(["a"]),
        step("c", H2).writes("/c", "c"),
        step("d", H2).writes("/d", "d").needs(["b"]),
    ]);
    let before = world.picture();
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
    let of_h1 = |picture: String| {
        picture.lines().filter(|line| line.starts_with("h1 ")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(of_h1(world.picture()), of_h1(before));
    assert_eq!(ran.count(|it| matches!(it, RunEvent::HostRetrying { .. })), 0, "a refusal is final");
}

#[tokio::test(start_paused = true)]
async fn a_fence_that_closes_on_the_way_ends_the_hosts_part() {
    let world = world();
    world.trouble("a", [Fault::Slow(seconds(5)), Fault::Slow(seconds(5))]);
    let plan =
        plan_of([step("a", H1), step("b", H1).needs(["a"]), step("c", H1).needs(["b"]), step("d", H2)]);
    let overtake = async {
        sleep(seconds(1)).await;
        world.has_seen_generation(H1, 9);
    };
    let (ran, ()) = tokio::join!(ran(&world, &plan), overtake);
    assert_eq!(ran.of("a"), "done", "what ran when the fence closed was sent before");
    assert_eq!([ran.failure("b").category, ran.failure("c").category], [Category::Fenced; 2]);
    assert_eq!(ran.of("d"), "done");
    assert!(!world.trace().contains(&"+c".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_cannot_be_reached_fails_its_steps_after_four_tries() {
    let world = World::of([host(H1).unreachable(), host(H2)]);
    let plan = plan_of([step("a", H1).tries(9), step("b", H1).needs(["a"]), step("c", H2)]);
    let start = Instant::now();
    let ran = ran(&world, &plan).await;
    assert_eq!([ran.failure("a").category, ran.failure("b").category], [Category::Unreachable; 2]);
    assert_eq!(ran.of("c"), "done");
    assert_eq!(ran.count(|it| matches!(it, RunEvent::HostRetrying { .. })), 3);
    assert_eq!(start.elapsed(), Duration::from_millis(3500));
    assert_eq!(ran.count(|it| matches!(it, RunEvent::StepStarted { step, .. } if step.what() != "c")), 0);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_comes_back_in_time_goes_on() {
    let world = world();
    world.trouble_opening(H1, [Fault::BreakBefore, Fault::Fail(failure(Category::Timeout))]);
    let ran = ran(&world, &plan_of([step("a", H1)])).await;
    assert_eq!(ran.of("a"), "done");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_an_orphaned_session_holds_is_asked_until_it_is_free() {
    let world = world();
    let held = || Fault::Fail(failure(Category::Held));
    let faults = [held(), held(), Fault::BreakBefore, held(), held(), held(), held(), held()];
    world.trouble_opening(H1, faults);
    let ran = ran(&world, &plan_of([step("a", H1)])).await;
    assert_eq!(ran.of("a"), "done");
    let told = ran.count(|it| matches!(it, RunEvent::HostRetrying { .. }));
    assert_eq!(told, 2, "once that it is held, once that the line broke");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_stays_held_is_given_up_after_every_orphan_would_have_ended() {
    let world = world();
    world.trouble_opening(H1, std::iter::repeat_n(Fault::Fail(failure(Category::Held)), 1000));
    let start = Instant::now();
    let ran = ran(&world, &plan_of([step("a", H1).tries(9), step("b", H2)])).await;
    assert_eq!((ran.failure("a").category, ran.of("b").as_str()), (Category::Held, "done"));
    let waited = start.elapsed();
    assert!(ORPHAN_LIFE < waited && waited < ORPHAN_LIFE + seconds(10), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn an_opening_that_never_ends_is_given_up() {
    let world = world();
    world.trouble_opening(H1, std::iter::repeat_n(Fault::Silence, 4));
    let ran = ran(&world, &plan_of([step("a", H1), step("b", H2)])).await;
    assert!(ran.failure("a").cause.contains("within 120 s"), "{}", ran.failure("a"));
    assert_eq!(ran.of("b"), "done");
}

#[tokio::test(start_paused = true)]
async fn a_host_lost_on_the_way_fails_the_rest_of_its_steps_only() {
    let world = world();
    world.trouble("a", [Fault::Slow(seconds(10))]);
    world.trouble("c", [Fault::Slow(seconds(60))]);
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
    assert_eq!(ran.count(|it| matches!(it, RunEvent::HostLost { .. })), 1);
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_others_ends_soon_after_a_host_is_lost_that_had_nothing_to_do() {
    let world = world();
    world.trouble("a", [Fault::Slow(seconds(2))]);
    world.trouble("c", [Fault::Slow(seconds(3600))]);
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
async fn a_silent_host_is_taken_for_gone_and_opened_again() {
    let world = world();
    world.trouble("a", [Fault::Silence]);
    let start = Instant::now();
    let ran = ran(&world, &plan_of([step("a", H1).within(60).tries(2)])).await;
    assert_eq!(ran.of("a"), "done");
    assert_eq!(world.opened(H1), 2);
    assert_eq!(start.elapsed(), Duration::from_millis(75_500), "60 s, 15 s of grace, 0.5 s of pause");
}

#[tokio::test(start_paused = true)]
async fn a_word_about_one_step_counts_for_all_on_the_line() {
    // The second step takes longer than its timeout and grace, as if it waited behind the first one's bytes.
    let world = world();
    world.trouble("first", [Fault::Slow(seconds(70))]);
    world.trouble("second", [Fault::Slow(seconds(140))]);
    let ran = ran(&world, &plan_of([step("first", H1).within(60), step("second", H1).within(60)])).await;
    assert_eq!((ran.of("first").as_str(), ran.of("second").as_str()), ("done", "done"));
}

#[tokio::test(start_paused = true)]
async fn a_part_that_the_bundle_lacks_fails_before_anything_is_sent() {
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
async fn a_stop_starts_nothing_more_and_lets_running_steps_end() {
    let world = world();
    world.trouble("a", [Fault::Slow(seconds(20))]);
    let plan =
        plan_of([step("a", H1).writes("/a", "a"), step("b", H1).needs(["a"]), step("c", H2).needs(["b"])]);
    let stop = CancellationToken::new();
    let later = async {
        sleep(seconds(5)).await;
        stop.cancel();
    };
    let start = Instant::now();
    let (ran, ()) = tokio::join!(ran_until(&world, &plan, &stop), later);
    assert_eq!([ran.of("a"), ran.of("b"), ran.of("c")], ["done", "skipped, stopped", "skipped, stopped"]);
    assert_eq!(start.elapsed(), seconds(20));
    assert_eq!(world.file(H1, "/a").as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_no_longer_than_its_farewell() {
    let world = world();
    world.trouble("a", [Fault::Silence]);
    let plan = plan_of([step("a", H1).within(600), step("b", H1).needs(["a"])]);
    let stop = CancellationToken::new();
    let later = async {
        sleep(seconds(5)).await;
        stop.cancel();
    };
    let start = Instant::now();
    let (ran, ()) = tokio::join!(ran_until(&world, &plan, &stop), later);
    assert_eq!([ran.of("a"), ran.of("b")], ["skipped, stopped", "skipped, stopped"]);
    assert_eq!(start.elapsed(), seconds(5) + SHUTDOWN_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_pauses_and_openings_at_once() {
    let world = world();
    world.trouble("a", std::iter::repeat_n(Fault::Fail(failure(Category::Timeout)), 9));
    world.trouble_opening(H2, [Fault::Silence]);
    let plan = plan_of([step("a", H1).tries(9), step("b", H2)]);
    let stop = CancellationToken::new();
    let later = async {
        // In the pause of 8 s after the fifth try.
        sleep(seconds(9)).await;
        stop.cancel();
    };
    let start = Instant::now();
    let (ran, ()) = tokio::join!(ran_until(&world, &plan, &stop), later);
    assert_eq!(start.elapsed(), seconds(9));
    assert_eq!((ran.of("a").as_str(), ran.of("b").as_str()), ("failed", "skipped, stopped"));
}

#[tokio::test(start_paused = true)]
async fn a_run_stopped_before_it_began_does_nothing() {
    let (world, stop) = (world(), CancellationToken::new());
    stop.cancel();
    let ran = ran_until(&world, &plan_of([step("a", H1), step("b", H2).needs(["a"])]), &stop).await;
    assert_eq!([ran.of("a"), ran.of("b")], ["skipped, stopped", "skipped, stopped"]);
    assert!(world.trace().is_empty());
}
