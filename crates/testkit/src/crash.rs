//! Crash tests: they kill a run after each effect, restart it and compare the result.

use std::collections::BTreeMap;

use crate::World;
use crate::golden::first_difference;
use crate::text::fingerprint;

/// The result of a successful crash test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crashes {
    /// The number of effects of the undisturbed run. One run was killed after each of them.
    pub effects: usize,
}

/// Runs `drive` on a fresh world to its end. Then, for every effect of that run, it takes a fresh world,
/// kills a run right after the effect, restarts, and runs to the end. The world must be the same each time,
/// and no harmful effect may be repeated.
///
/// `fresh` creates equal worlds. `drive` is one complete command: it observes the world, plans, applies, and
/// returns the cause of a failure.
///
/// # Errors
/// The first effect after which a crash is not harmless, and what differs.
pub async fn crash_anywhere(
    fresh: impl AsyncFn() -> World,
    drive: impl AsyncFn(&World) -> Result<(), String>,
) -> Result<Crashes, String> {
    crash_and_wait(fresh, drive, 0).await
}

/// Like [`crash_anywhere`], but the given number of seconds passes between the crash and the next run, so
/// that short-lived certificates can expire. The next run may then rewrite certificates and restart kubelets.
///
/// # Errors
/// The first effect after which a crash is not harmless, and what differs.
pub async fn crash_and_wait(
    fresh: impl AsyncFn() -> World,
    drive: impl AsyncFn(&World) -> Result<(), String>,
    seconds: i64,
) -> Result<Crashes, String> {
    let undisturbed = Undisturbed::run(&fresh, &drive).await?;
    let effects = undisturbed.lines.len();
    for n in 1..=effects {
        let world = fresh().await;
        let explain = |why: String| {
            format!("crash after effect {n} of {effects} ({}): {why}", undisturbed.lines[n - 1])
        };
        crash(&world, n, n == effects, &drive).await.map_err(explain)?;
        world.pass(seconds);
        drive(&world).await.map_err(|why| explain(format!("the run after it fails: {why}")))?;
        undisturbed.compare(&world, seconds > 0).map_err(explain)?;
    }
    Ok(Crashes { effects })
}

/// Like [`crash_anywhere`], but the second run is killed too, and the third run ends. The effects after which
/// the runs are killed are drawn `rounds` times from the seed.
///
/// # Errors
/// The first pair of effects after which crashes are not harmless, and what differs.
pub async fn crash_twice(
    fresh: impl AsyncFn() -> World,
    drive: impl AsyncFn(&World) -> Result<(), String>,
    seed: u64,
    rounds: usize,
) -> Result<Crashes, String> {
    let undisturbed = Undisturbed::run(&fresh, &drive).await?;
    let effects = undisturbed.lines.len();
    for round in 0..rounds {
        let random = fingerprint(&format!("{seed} {round}"));
        let number = usize::from_str_radix(&random[..8], 16).expect("hexadecimal digits");
        let first = 1 + number % (effects - 1);
        let second = 1 + number / effects % (effects - first);
        let world = fresh().await;
        let explain =
            |why: String| format!("crashes after effect {first}, then {second} more, of {effects}: {why}");
        crash(&world, first, false, &drive).await.map_err(explain)?;
        // The second run may end before it is killed, because repeated work has no effect.
        crash(&world, second, true, &drive).await.map_err(explain)?;
        drive(&world).await.map_err(|why| explain(format!("the run after them fails: {why}")))?;
        undisturbed.compare(&world, false).map_err(explain)?;
    }
    Ok(Crashes { effects })
}

async fn crash(
    world: &World,
    n: usize,
    may_end: bool,
    drive: &impl AsyncFn(&World) -> Result<(), String>,
) -> Result<(), String> {
    world.die_after(n);
    tokio::select! {
        biased;
        () = world.died() => {}
        ended = drive(world) => match ended {
            Ok(()) if may_end => {}
            Ok(()) => return Err("the run ended before the crash: its effects differ from run to run".to_owned()),
            Err(why) => return Err(why),
        },
    }
    world.restart();
    Ok(())
}

/// A run without a crash, for comparison.
struct Undisturbed {
    rendered: String,
    /// The number of effects before the run.
    before: usize,
    lines: Vec<String>,
}

impl Undisturbed {
    async fn run(
        fresh: &impl AsyncFn() -> World,
        drive: &impl AsyncFn(&World) -> Result<(), String>,
    ) -> Result<Self, String> {
        let world = fresh().await;
        let before = world.effects();
        drive(&world).await.map_err(|why| format!("the undisturbed run fails: {why}"))?;
        no_harm(&world)?;
        Ok(Self { rendered: world.render(), before, lines: world.log().split_off(before) })
    }

    fn compare(&self, world: &World, later: bool) -> Result<(), String> {
        no_harm(world)?;
        if let Some(difference) = first_difference(&self.rendered, &world.render()) {
            return Err(format!("the world differs\n{difference}"));
        }
        let mut lines = world.log().split_off(self.before);
        lines.retain(|line| !(later && follows_from_time(line)));
        match repeated_effect(&self.lines, &lines) {
            Some(again) => Err(format!("this effect occurs more often than without the crash: {again}")),
            None => Ok(()),
        }
    }
}

/// Whether the effect follows from the age of a certificate.
fn follows_from_time(line: &str) -> bool {
    line.contains(" rewrite ") && line.ends_with(".crt") || line.ends_with(" restart kubelet.service")
}

fn no_harm(world: &World) -> Result<(), String> {
    match world.harms().first() {
        Some(harm) => Err(format!("harm: {harm}")),
        None => Ok(()),
    }
}

/// Effects that are harmful if they are repeated: they disturb running programs, or replace or remove
/// existing content.
const HARMFUL: [&str; 6] = ["rewrite", "relink", "reset", "restart", "stop", "remove"];

fn repeated_effect(undisturbed: &[String], disturbed: &[String]) -> Option<String> {
    let harmful = |line: &&String| line.split(' ').nth(1).is_some_and(|verb| HARMFUL.contains(&verb));
    let mut allowed: BTreeMap<&str, usize> = BTreeMap::new();
    undisturbed.iter().filter(harmful).for_each(|line| *allowed.entry(line).or_default() += 1);
    disturbed.iter().filter(harmful).find_map(|line| match allowed.get_mut(line.as_str()) {
        Some(left) if *left > 0 => {
            *left -= 1;
            None
        }
        _ => Some(line.clone()),
    })
}
