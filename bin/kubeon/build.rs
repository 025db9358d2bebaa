//! Removes the symbols of the published program. Cargo does so only for packages with the `opt-level` of the profile.

#![allow(clippy::print_stdout, reason = "Cargo reads it")]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        println!("cargo::rustc-link-arg-bins=-Wl,--strip-all");
    }
}
