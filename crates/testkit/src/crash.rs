//! Crash anywhere: the cheapest substitute for a proof that an installer can have.

use std::collections::BTreeMap;

use crate::World;
use crate::golden::first_difference;
use crate::text::fingerprint;

/// What a [`crash_anywhere`] went through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crashes {
    /// Effects of the undisturbed run, each of which was the last of one disturbed run.
    pub effects: usize,
}

/// Runs `drive` on a fresh world to its end. Then, for every effect of that run: a fresh world, a run that
/// dies right after the effect, a restart, and a run to the end. The world must be the same each time, and
/// nothing may have been done twice that harms when done twice.
///
/// `fresh` makes equal worlds. `drive` is one whole command: it looks at the world, plans, applies, and
/// says why it failed, if it did.
///
/// # Errors
/// The first effect after which a crash is not harmless, and what differs.
pub async fn crash_anywhere(
    fresh: impl AsyncFn() -> World,
    drive: impl AsyncFn(&World) -> Result<(), String>,
) -> Result<Crashes, String> {
    crash_and_wait(fresh, drive, 0).await
}

/// Like [`crash_anywhere`], but so many seconds pass between the crash and the run after it: long enough, and what was
/// to be used within an hour is of no use any more. Certificates may be written again then, and kubelets start again.
///
/// # Errors
/// The first effect after which a crash is not harmless, and what differs.
pub async fn crash_and_wait(
    fresh: impl AsyncFn() -> World,
    drive: impl AsyncFn(&World) -> Result<(), String>,
    seconds: i64,
) -> Result<Crashes, String> {
    let calm = Calm::run(&fresh, &drive).await?;
    let effects = calm.lines.len();
    for n in 1..=effects {
        let world = fresh().await;
        let told =
            |why: String| format!("crash after effect {n} of {effects} ({}): {why}", calm.lines[n - 1]);
        crash(&world, n, n == effects, &drive).await.map_err(told)?;
        world.pass(seconds);
        drive(&world).await.map_err(|why| told(format!("the run after it fails: {why}")))?;
        calm.compare(&world, seconds > 0).map_err(told)?;
    }
    Ok(Crashes { effects })
}

/// Like [`crash_anywhere`], but the run after the crash dies too, and only the third goes to its end. Which
/// effects the runs die after is drawn from the seed, `rounds` times.
///
/// # Errors
/// The first pair of effects after which crashes are not harmless, and what differs.
pub async fn crash_twice(
    fresh: impl AsyncFn() -> World,
    drive: impl AsyncFn(&World) -> Result<(), String>,
    seed: u64,
    rounds: usize,
) -> Result<Crashes, String> {
    let calm = Calm::run(&fresh, &drive).await?;
    let effects = calm.lines.len();
    for round in 0..rounds {
        let drawn = fingerprint(&format!("{seed} {round}"));
        let number = usize::from_str_radix(&drawn[..8], 16).expect("hexadecimal digits");
        let first = 1 + number % (effects - 1);
        let second = 1 + number / effects % (effects - first);
        let world = fresh().await;
        let told =
            |why: String| format!("crashes after effect {first}, then {second} more, of {effects}: {why}");
        crash(&world, first, false, &drive).await.map_err(told)?;
        // The second run may be done before it would die, as work done twice is no effect.
        crash(&world, second, true, &drive).await.map_err(told)?;
        drive(&world).await.map_err(|why| told(format!("the run after them fails: {why}")))?;
        calm.compare(&world, false).map_err(told)?;
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
            Ok(()) => return Err("the run ended before it crashed: its effects are not the same each time".to_owned()),
            Err(why) => return Err(why),
        },
    }
    world.restart();
    Ok(())
}

/// A run without a crash, to compare with.
struct Calm {
    picture: String,
    /// What lay behind when it began.
    before: usize,
    lines: Vec<String>,
}

impl Calm {
    async fn run(
        fresh: &impl AsyncFn() -> World,
        drive: &impl AsyncFn(&World) -> Result<(), String>,
    ) -> Result<Self, String> {
        let world = fresh().await;
        let before = world.effects();
        drive(&world).await.map_err(|why| format!("even the undisturbed run fails: {why}"))?;
        no_harm(&world)?;
        Ok(Self { picture: world.picture(), before, lines: world.log().split_off(before) })
    }

    fn compare(&self, world: &World, later: bool) -> Result<(), String> {
        no_harm(world)?;
        if let Some(difference) = first_difference(&self.picture, &world.picture()) {
            return Err(format!("the world is another\n{difference}"));
        }
        let mut lines = world.log().split_off(self.before);
        lines.retain(|line| !(later && comes_of_time(line)));
        match more_often(&self.lines, &lines) {
            Some(again) => Err(format!("it happens more often than without the crash: {again}")),
            None => Ok(()),
        }
    }
}

/// What follows when a certificate got old.
fn comes_of_time(line: &str) -> bool {
    line.contains(" rewrite ") && line.ends_with(".crt") || line.ends_with(" restart kubelet.service")
}

fn no_harm(world: &World) -> Result<(), String> {
    match world.harms().first() {
        Some(harm) => Err(format!("harm: {harm}")),
        None => Ok(()),
    }
}

/// What harms when it happens more often than needed: programs that run are disturbed, content that was
/// there is replaced or taken away.
const HARMFUL: [&str; 6] = ["rewrite", "relink", "reset", "restart", "stop", "remove"];

fn more_often(undisturbed: &[String], disturbed: &[String]) -> Option<String> {
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
