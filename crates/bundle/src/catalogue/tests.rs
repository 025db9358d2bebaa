use super::*;

/// The versions in `cmd/kubeadm/app/constants` of each version's kubeadm: etcd, CoreDNS, pause.
const KUBEADM: [(&str, &str, &str, &str); 8] = [
    ("v1.34.4", "3.6.5-0", "v1.12.1", "3.10.1"),
    ("v1.34.12", "3.6.5-0", "v1.12.1", "3.10.1"),
    ("v1.35.4", "3.6.6-0", "v1.13.1", "3.10.1"),
    ("v1.35.8", "3.6.6-0", "v1.13.1", "3.10.1"),
    ("v1.36.1", "3.6.8-0", "v1.14.2", "3.10.2"),
    ("v1.36.3", "3.6.8-0", "v1.14.2", "3.10.2"),
    ("v1.36.5", "3.6.8-0", "v1.14.2", "3.10.2"),
    ("v1.37.2", "3.7.0-0", "v1.14.6", "3.10.2"),
];

fn entry(version: &str) -> CatalogueEntry {
    Catalogue::embedded().unwrap().entry(version.parse().unwrap()).unwrap().clone()
}

#[test]
fn names_the_images_that_kubeadm_requires() {
    let catalogue = Catalogue::embedded().unwrap();
    let known: Vec<String> = catalogue.versions().map(|version| version.to_string()).collect();
    assert_eq!(known, KUBEADM.map(|row| row.0));
    for (version, etcd, coredns, pause) in KUBEADM {
        let entry = entry(version);
        let references: Vec<&str> = entry.images.iter().map(|image| image.reference.as_str()).collect();
        let wanted = [
            format!("registry.k8s.io/coredns/coredns:{coredns}"),
            format!("registry.k8s.io/etcd:{etcd}"),
            "ghcr.io/flannel-io/flannel:v0.28.4".to_owned(),
            format!("docker.io/kubeon/local-haproxy:{version}"),
            format!("registry.k8s.io/kube-apiserver:{version}"),
            format!("registry.k8s.io/kube-controller-manager:{version}"),
            format!("registry.k8s.io/kube-proxy:{version}"),
            format!("registry.k8s.io/kube-scheduler:{version}"),
            format!("registry.k8s.io/pause:{pause}"),
        ];
        assert_eq!(references, wanted);
        assert_eq!(format!("{}-0", entry.component("etcd").unwrap().version), format!("v{etcd}"));
        assert_eq!(entry.component("coredns").unwrap().version, coredns);
    }
}

#[test]
fn hosts_import_the_images_of_static_pods() {
    for (version, ..) in KUBEADM {
        let images = entry(version).images;
        let on_hosts: Vec<&str> =
            images.iter().filter(|image| image.on_hosts).map(|image| image.name.as_str()).collect();
        let control_plane = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"];
        for name in control_plane.into_iter().chain(["coredns", "etcd", "haproxy", "pause"]) {
            assert!(on_hosts.contains(&name), "{version}: {name}");
        }
    }
}

#[test]
fn pins_every_module_and_program() {
    for (version, ..) in KUBEADM {
        for component in entry(version).components {
            let Recipe::GoModules(recipe) = &component.recipe else { continue };
            let file =
                |name: &str| recipe.files.iter().find(|(file, _)| file == name).map_or("", |(_, text)| text);
            for module in &recipe.modules {
                let sum = format!("{module} {} h1:", component.version);
                assert!(file("go.sum").contains(&sum), "{} lacks {sum}", component.name);
            }
            for program in component.parts.iter().flat_map(|part| &part.programs) {
                let package = program.package.as_deref().unwrap();
                let pinned = file("go.mod").lines().any(|line| {
                    line.strip_prefix("tool ").is_some_and(|tool| tool == package) || line.trim() == package
                });
                let own = package == format!("kubeon.io/catalogue/{}", component.name)
                    && !file("main.go").is_empty();
                assert!(pinned || own, "{} does not pin {package}", component.name);
            }
        }
    }
}

#[test]
fn writes_the_version_into_the_programs() {
    let entry = entry("1.36.3");
    let Recipe::GoModules(recipe) = &entry.component("kubernetes").unwrap().recipe else { panic!() };
    assert!(recipe.ldflags.contains("component-base/version.gitVersion=v1.36.3"));
    assert!(recipe.ldflags.contains("component-base/version.gitMinor=36"));
    assert!(!recipe.ldflags.contains('{'));
}

#[test]
fn lists_the_known_versions_for_an_unknown_version() {
    let error = Catalogue::embedded().unwrap().entry("1.20.0".parse().unwrap()).unwrap_err().to_string();
    assert!(error.contains("v1.20.0") && error.contains("v1.34.4, v1.34.12, v1.35.4"), "{error}");
}

#[test]
fn versions_and_sources_have_different_inputs() {
    let inputs = |version: &str, from: &str| entry(version).inputs(Arch::Amd64, from).unwrap();
    assert_eq!(inputs("1.36.3", "go-modules"), inputs("1.36.3", "go-modules"));
    assert_ne!(inputs("1.36.3", "go-modules"), inputs("1.36.1", "go-modules"));
    assert_ne!(inputs("1.36.3", "go-modules"), inputs("1.36.3", "directory"));
}

fn broken(name: &str, text: &str) -> String {
    let mut files = crate::bundle::tests::CATALOGUE.to_vec();
    files.retain(|(file, _)| *file != name);
    files.push((name, text));
    Catalogue::from_files(&files).unwrap_err().to_string()
}

#[test]
fn refuses_contradictions() {
    let image = "tool: { reference: example.org/tool, layers: [nothing], entrypoint: [/tool] }";
    assert!(broken("images.yaml", image).contains("needs the part nothing"));
    let version = "{ kubernetes: v1.0.0, components: { tool: v2 }, tags: { tool: v1 } }";
    assert!(broken("versions/v1.0.0.yaml", version).contains("go/tool/v2/go.mod"));
    let component = "tool: { expectedSeconds: 1, parts: [], debain: {} }";
    assert!(broken("components.yaml", component).contains("components.yaml cannot be read"));
    let unknown = "{ channels: { stable: v1.0.0, latest: v1.0.1 }, endOfLife: { \"1.0\": 2015-12-31 } }";
    assert!(broken("releases.yaml", unknown).contains("channel latest names no version"));
    let endless = "{ channels: { stable: v1.0.0, latest: v1.0.0 }, endOfLife: {} }";
    assert!(broken("releases.yaml", endless).contains("v1.0.0 has no end of life"));
    let neither = "{ tool: { expectedSeconds: 1, parts: [] }, root: { expectedSeconds: 1, parts: [] } }";
    assert!(broken("components.yaml", neither).contains("exactly one"));
}

#[test]
fn a_channel_names_a_version_that_gets_fixes_longest() {
    let catalogue = Catalogue::embedded().unwrap();
    let named = |channel| catalogue.channel(channel).unwrap();
    let (stable, latest) = (named(Channel::Stable), named(Channel::Latest));
    assert_eq!(Some(latest), catalogue.versions().last());
    assert!(stable.minor < latest.minor, "stable is a minor version behind: {stable}");
    let minors = catalogue.versions().filter(|version| version.minor == stable.minor);
    assert_eq!(Some(stable), minors.last(), "the newest patch");
    let ends = |version| catalogue.end_of_life(version).unwrap();
    assert!(ends(stable) < ends(latest));
    assert_eq!("stable".parse(), Ok(Channel::Stable));
    assert!("Stable".parse::<Channel>().is_err());
}

#[test]
fn every_component_but_those_of_the_distribution_is_published_somewhere() {
    for (version, ..) in KUBEADM {
        for component in entry(version).components {
            let is_published = !component.published.is_empty();
            assert_eq!(is_published, matches!(component.recipe, Recipe::GoModules(_)), "{}", component.name);
            for published in &component.published {
                let addresses = match published {
                    Published::File { url, sums, .. } => vec![url, sums],
                    Published::Image { manifests } => vec![manifests],
                };
                for address in addresses {
                    assert!(address.starts_with("https://"), "{address}");
                    assert!(!address.replace("{arch}", "").contains(['{', '}']), "{address} has a gap");
                }
            }
        }
    }
    let pause = entry("v1.36.3").component("pause").unwrap().published[0].clone();
    let manifests = "https://registry.k8s.io/v2/pause/manifests/3.10.2".to_owned();
    assert_eq!(pause, Published::Image { manifests });
    let kubernetes = entry("v1.36.3").component("kubernetes").unwrap().published.clone();
    let kubelet = kubernetes
        .iter()
        .find(|one| matches!(one, Published::File { program, .. } if program.as_deref() == Some("kubelet")));
    let url = "https://dl.k8s.io/release/v1.36.3/bin/linux/{arch}/kubelet".to_owned();
    let sums = format!("{url}.sha256");
    assert_eq!(kubelet, Some(&Published::File { url, sums, program: Some("kubelet".to_owned()) }));
}
