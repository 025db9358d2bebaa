//! For maintainers: writes `catalogue/go/COMPONENT/VERSION/{go.mod,go.sum}` for a new version of a component that is
//! in the catalogue. `cargo run -p kubeon-bundle --example pin -- kubernetes v1.37.0`
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use kubeon_bundle::Catalogue;
use kubeon_bundle::catalogue::{Component, GoRecipe, Recipe};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [name, version] = arguments.as_slice() else { return Err("usage: pin COMPONENT VERSION".into()) };
    let catalogue = Catalogue::embedded()?;
    let newest = catalogue.versions().last().ok_or("the catalogue is empty")?;
    let component = catalogue.entry(newest)?.component(name).ok_or("no such component")?;
    let Recipe::GoModules(recipe) = &component.recipe else {
        return Err("it is not built from Go modules".into());
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../catalogue/go").join(name).join(version);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("go.mod"), go_mod(component, recipe, version)?)?;
    // The sources of a program that the catalogue itself contains: `go mod tidy` reads what they import.
    for (file, text) in recipe.files.iter().filter(|(file, _)| file.ends_with(".go")) {
        fs::write(folder.join(file), text)?;
    }
    let status = Command::new("go").args(["mod", "tidy"]).current_dir(&folder).env("GOFLAGS", "").status()?;
    if !status.success() {
        return Err(format!("go mod tidy failed in {}", folder.display()).into());
    }
    println!("{}", folder.display());
    Ok(())
}

/// The `go.mod` of a module that requires the component's modules at one version. Minimal version selection then chooses
/// the same dependencies as the component's authors.
fn go_mod(component: &Component, recipe: &GoRecipe, version: &str) -> Outcome<String> {
    let first = recipe.modules.first().ok_or("it has no module to pin")?;
    let upstream = fs::read_to_string(module_file(first, version)?)?;
    let mut text = format!("module kubeon.io/catalogue/{}\n\n", component.name);
    for line in upstream.lines().filter(|line| line.starts_with("go ") || line.starts_with("godebug ")) {
        writeln!(text, "{line}")?;
    }
    for module in &recipe.modules {
        writeln!(text, "require {module} {version}")?;
    }
    if recipe.staging_replaced {
        let published = version.replacen("v1.", "v0.", 1);
        let staged = |line: &str| Some(line.trim().split_once(" => ./staging/")?.0.to_owned());
        for module in upstream.lines().filter_map(staged) {
            writeln!(text, "replace {module} => {module} {published}")?;
        }
    }
    for (module, served) in &recipe.replace {
        writeln!(text, "replace {module} => {module} {served}")?;
    }
    let own = format!("kubeon.io/catalogue/{}", component.name);
    for program in component.parts.iter().flat_map(|part| &part.programs) {
        let package = program.package.as_deref().ok_or("a program has no package")?;
        if package != own {
            writeln!(text, "tool {package}")?;
        }
    }
    Ok(text)
}

/// The path of a module's `go.mod` in the module cache.
fn module_file(module: &str, version: &str) -> Outcome<String> {
    let output =
        Command::new("go").args(["mod", "download", "-json", &format!("{module}@{version}")]).output()?;
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let path = answer.get("GoMod").and_then(serde_json::Value::as_str);
    Ok(path.ok_or_else(|| format!("{module} {version} is not served: {answer}"))?.to_owned())
}
