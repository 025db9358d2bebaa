//! Output to the terminal.

/// Prints a line on standard output.
#[allow(clippy::print_stdout)]
pub(crate) fn say(line: &str) {
    println!("{line}");
}
