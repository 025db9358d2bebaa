//! Crash anywhere: the cheapest substitute for a proof that an installer can have.

use std::collections::BTreeMap;

use crate::World;
use crate::golden::first_difference;

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
    fresh: impl Fn() -> World, drive: impl AsyncFn(&World) -> Result<(), String>,
) -> Result<Crashes, String> {
    let undisturbed = fresh();
    let before = undisturbed.effects();
    drive(&undisturbed).await.map_err(|why| format!("even the undisturbed run fails: {why}"))?;
    no_harm(&undisturbed)?;
    let lines = undisturbed.log().split_off(before);
    for (index, line) in lines.iter().enumerate() {
        let world = fresh();
        world.die_after(index + 1);
        let wrong = |why: String| format!("crash after effect {} of {} ({line}): {why}", index + 1, lines.len());
        tokio::select! {
            () = world.died() => {}
            ended = drive(&world) => match ended {
                Ok(()) if index + 1 == lines.len() => {}
                Ok(()) => return Err(wrong("the run ended before it crashed: its effects are not the same each time".into())),
                Err(why) => return Err(wrong(why)),
            },
        }
        world.restart();
        drive(&world).await.map_err(|why| wrong(format!("the run after it fails: {why}")))?;
        no_harm(&world).map_err(wrong)?;
        if let Some(difference) = first_difference(&undisturbed.picture(), &world.picture()) {
            return Err(wrong(format!("the world is another\n{difference}")));
        }
        if let Some(again) = more_often(&lines, &world.log().split_off(before)) {
            return Err(wrong(format!("it happens more often than without the crash: {again}")));
        }
    }
    Ok(Crashes { effects: lines.len() })
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

fn more_often<'a>(undisturbed: &'a [String], disturbed: &'a [String]) -> Option<&'a str> {
    let harmful = |line: &&String| line.split(' ').nth(1).is_some_and(|verb| HARMFUL.contains(&verb));
    let mut allowed: BTreeMap<&str, usize> = BTreeMap::new();
    undisturbed.iter().filter(harmful).for_each(|line| *allowed.entry(line).or_default() += 1);
    disturbed.iter().filter(harmful).find_map(|line| match allowed.get_mut(line.as_str()) {
        Some(left) if *left > 0 => {
            *left -= 1;
            None
        }
        _ => Some(line.as_str()),
    })
}
