//! Crash tests: they end a run after each effect, run again and compare the result.

use std::collections::BTreeMap;

use crate::World;
use crate::golden::first_difference;
use crate::text::fingerprint;

/// The number of worlds that are in memory at a time: each has about a megabyte.
const RECORDED: usize = 64;

/// The result of a successful crash test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crashes {
    /// The number of effects of the undisturbed run. One run was killed after each of them.
    pub effects: usize,
}

/// Runs `drive` to its end on a copy of a world. Then, for every effect of that run, it takes the world as it was right after the
/// effect, as if the process had died there, and runs to the end with a new process. The world must be the same each time,
/// and no harmful effect may be repeated.
///
/// `fresh` creates the world. `drive` is one complete command: it observes the world, plans, applies, and
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
    let fresh = fresh().await;
    let undisturbed = Undisturbed::run(fresh.copy(), &drive).await?;
    let effects = undisturbed.lines.len();
    for first in (1..=effects).step_by(RECORDED) {
        let last = (first + RECORDED - 1).min(effects);
        let world = fresh.copy();
        world.record_after(first - 1);
        let explain = |n: usize, why: String| {
            format!("crash after effect {n} of {effects} ({}): {why}", undisturbed.lines[n - 1])
        };
        crash(&world, last, last == effects, &drive).await.map_err(|why| explain(last, why))?;
        let worlds = world.recorded();
        if worlds.len() != last + 1 - first {
            return Err(explain(last, "the effects of the run differ from run to run".to_owned()));
        }
        for (n, world) in (first..=last).zip(worlds) {
            world.pass(seconds);
            let ended = drive(&world).await.map_err(|why| format!("the run after it fails: {why}"));
            ended.and_then(|()| undisturbed.compare(&world, seconds > 0)).map_err(|why| explain(n, why))?;
        }
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
    let fresh = fresh().await;
    let undisturbed = Undisturbed::run(fresh.copy(), &drive).await?;
    let effects = undisturbed.lines.len();
    for round in 0..rounds {
        let random = fingerprint(&format!("{seed} {round}"));
        let number = usize::from_str_radix(&random[..8], 16).expect("hexadecimal digits");
        let first = 1 + number % (effects - 1);
        let second = 1 + number / effects % (effects - first);
        let world = fresh.copy();
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
    async fn run(world: World, drive: &impl AsyncFn(&World) -> Result<(), String>) -> Result<Self, String> {
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
    undisturbed
        .iter()
        .filter(harmful)
        .for_each(|line| *allowed.entry(without_executor(line)).or_default() += 1);
    disturbed.iter().filter(harmful).find_map(|line| match allowed.get_mut(without_executor(line)) {
        Some(left) if *left > 0 => {
            *left -= 1;
            None
        }
        _ => Some(line.clone()),
    })
}

/// The effect without the host, if it concerns an object of the cluster: after a crash another master may apply the object.
fn without_executor(line: &str) -> &str {
    match line.split_once(' ') {
        Some((_, effect)) if effect.split(' ').nth(1) == Some("object") => effect,
        _ => line,
    }
}
