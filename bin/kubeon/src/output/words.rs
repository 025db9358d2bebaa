//! Formats times, sizes, counts and lists.

use std::time::Duration;

/// `0.3 s`, `28.4 s`, `3 min`, `5 h`, `210d`: one unit, the largest that fits.
pub(crate) fn time(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..100 => format!("{:.1} s", duration.as_secs_f64()),
        100..6000 => format!("{} min", seconds / 60),
        6000..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// An age as tables show it: `12s`, `5m`, `3h`, `2d`.
pub(crate) fn age(seconds: i64) -> String {
    match seconds.max(0) {
        s @ 0..120 => format!("{s}s"),
        s @ 120..7200 => format!("{}m", s / 60),
        s @ 7200..172_800 => format!("{}h", s / 3600),
        s => format!("{}d", s / 86_400),
    }
}

/// `0:14`, `12:05`, `1:02:03`.
pub(crate) fn clock(duration: Duration) -> String {
    let s = duration.as_secs();
    let (hours, minutes, seconds) = (s / 3600, s / 60 % 60, s % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

/// `312 MiB`, or `0.4 MiB` for less than ten.
pub(crate) fn size(bytes: u64) -> String {
    let mib = mebibytes(bytes);
    if mib < 9.95 { format!("{mib:.1} MiB") } else { format!("{mib:.0} MiB") }
}

/// Bytes in MiB.
pub(crate) fn mebibytes(bytes: u64) -> f64 {
    // The conversion is exact below 2^52 bytes.
    #[expect(clippy::cast_precision_loss)]
    let bytes = bytes as f64;
    bytes / 1_048_576.0
}

/// `1 host`, `3 hosts`.
pub(crate) fn count(n: usize, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

/// `h1`, `h1 and h2`, `h1, h2 and h3`.
pub(crate) fn list(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_the_largest_unit_that_fits() {
        let seconds = Duration::from_secs_f64;
        for (duration, text) in
            [(0.34, "0.3 s"), (28.4, "28.4 s"), (240.0, "4 min"), (7200.0, "2 h"), (18_144_000.0, "210d")]
        {
            assert_eq!(time(seconds(duration)), text);
        }
        assert_eq!([age(12), age(300), age(172_800)], ["12s", "5m", "2d"]);
        assert_eq!([clock(seconds(14.9)), clock(seconds(3723.0))], ["0:14", "1:02:03"]);
        assert_eq!([size(327_155_712), size(419_430)], ["312 MiB", "0.4 MiB"]);
        assert_eq!([count(1, "step"), count(27, "step")], ["1 step", "27 steps"]);
        let names = ["h1", "h2", "h3"].map(str::to_owned);
        assert_eq!([list(&names[..1]), list(&names)], ["h1", "h1, h2 and h3"]);
    }
}
