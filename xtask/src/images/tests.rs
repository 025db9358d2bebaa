//! Tests that the Dockerfiles build the same images.

use std::collections::BTreeSet;

use super::*;

/// `("USER", "65532:65532")`.
type Instruction = (String, String);

/// The instructions of a Dockerfile's last stage, with continued lines joined.
fn instructions(image: &str) -> Vec<Instruction> {
    let path = crate::workspace::root().join("images").join(image).join("Dockerfile");
    let text = fs::read_to_string(&path).unwrap().replace("\\\n", " ");
    let mut all = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (word, rest) = line.split_once(' ').unwrap();
        if word == "FROM" {
            all.clear();
        }
        all.push((word.to_owned(), rest.trim().to_owned()));
    }
    all
}

fn values_of<'a>(all: &'a [Instruction], wanted: &str) -> Vec<&'a str> {
    all.iter().filter(|(word, _)| word == wanted).map(|(_, rest)| rest.as_str()).collect()
}

/// The paths of kubeon's programs in the image.
fn programs(all: &[Instruction]) -> Vec<String> {
    let mut found = Vec::new();
    for copy in values_of(all, "COPY") {
        let words: Vec<&str> = copy.split_whitespace().filter(|word| !word.starts_with("--")).collect();
        let (to, from) = words.split_last().unwrap();
        for name in from.iter().filter_map(|path| path.strip_prefix(TARGET)?.strip_prefix("/release")) {
            let place = to.strip_suffix('/').map(|folder| format!("{folder}{name}"));
            found.push(place.unwrap_or_else(|| (*to).to_owned()));
        }
    }
    found
}

#[test]
fn dockerfiles_have_the_same_programs_and_processes() {
    for (image, recipe) in
        [("operator", &OPERATOR), ("gateway", &GATEWAY), ("runner", &RUNNER), ("bundle", &BUNDLE)]
    {
        let dockerfile = instructions(image);
        let ImageProcess { user, environment, entrypoint, command, folder } = &recipe.process;
        assert_eq!(values_of(&dockerfile, "USER"), [*user], "{image}");
        assert_eq!(values_of(&dockerfile, "WORKDIR"), [*folder], "{image}");
        let run: Vec<String> = serde_json::from_str(values_of(&dockerfile, "ENTRYPOINT")[0]).unwrap();
        assert_eq!(run, *entrypoint, "{image}");
        assert_eq!((values_of(&dockerfile, "CMD").len(), command.len()), (0, 0), "{image}");
        let set: BTreeSet<&str> =
            values_of(&dockerfile, "ENV").into_iter().flat_map(str::split_whitespace).collect();
        assert_eq!(set, BTreeSet::from_iter(environment.iter().copied()), "{image}");
        assert_eq!(programs(&dockerfile), recipe.programs, "{image}");
    }
}

#[test]
fn the_dockerfile_of_the_runner_installs_the_same_packages() {
    let dockerfile = instructions("runner");
    let run = values_of(&dockerfile, "RUN").join(" ");
    let words: BTreeSet<&str> = run.split_whitespace().map(|word| word.trim_end_matches(';')).collect();
    let packages = debian::PACKAGES.split(',').map(str::to_owned);
    let folders = debian::FOLDERS.map(|name| format!("/{name}"));
    let scripts = debian::PROGRAMS.iter().map(|(program, module)| format!("{program}:{module}"));
    for wanted in packages.chain(folders).chain(scripts) {
        assert!(words.contains(wanted.as_str()), "{wanted} is not in: {run}");
    }
}
