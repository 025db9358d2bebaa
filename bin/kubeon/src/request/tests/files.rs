//! Tests of files: the examples, their use in README, and flags next to a file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Parser as _;
use kubeon_api::{HostAddress, KubernetesCluster, Version, read_yaml};

use crate::args::{CliCommand, CommandLine};
use crate::cli_error::CliError;
use kubeon_engine::cluster_request::ClusterRequest;
use kubeon_engine::login_request::{LoginRequest, LoginRequests, SecretSource};
use kubeon_engine::request_file::from_file;

/// Examples that `create -f` accepts, with the necessary flags and the number of hosts.
const ACCEPTED: [(&str, &[&str], usize); 3] = [
    ("minimal.yaml", &[], 3),
    ("kubeadm.yaml", &[], 2),
    ("highly-available.yaml", &["--default-user", "kube-admin", "--default-pk-file", "~/.ssh/id_ed25519"], 6),
];
/// Examples with unsupported settings, and the refused fields.
const UNSUPPORTED: [(&str, &[&str]); 2] = [
    ("external-load-balancer.yaml", &["spec.cluster.imagesRegistry"]),
    ("older-form.yaml", &["spec.cluster.etcdList 192.168.1.12"]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn example(name: &str) -> KubernetesCluster {
    let text = std::fs::read_to_string(root().join("examples").join(name));
    let text = text.unwrap_or_else(|error| panic!("{name}: {error}"));
    read_yaml(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn requested(cluster: &KubernetesCluster, flags: &[&str]) -> Result<ClusterRequest, CliError> {
    let supported: Vec<Version> = kubeon_engine::bundles::catalogue().unwrap().versions().collect();
    match CommandLine::parse_from([&["kubeon", "create", "-f", "-"], flags].concat()).command {
        Some(CliCommand::Create(args)) => {
            Ok(from_file(cluster, &LoginRequests::from(&args.cluster.nodes), &supported)?)
        }
        other => panic!("{other:?}"),
    }
}

fn login<'a>(request: &'a ClusterRequest, host: &str) -> &'a LoginRequest {
    &request.logins[&host.parse::<HostAddress>().unwrap()].flags
}

#[test]
fn examples_that_create_accepts_become_requests() {
    for (name, flags, hosts) in ACCEPTED {
        let request = requested(&example(name), flags).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!((request.spec.hosts().count(), request.logins.len()), (hosts, hosts), "{name}");
    }
}

#[test]
fn examples_with_unsupported_settings_are_refused_by_field() {
    for (name, fields) in UNSUPPORTED {
        let error = requested(&example(name), &[]).unwrap_err();
        for field in fields {
            assert!(error.rows.iter().any(|(subject, _)| subject == field), "{field} of {name}: {error}");
        }
    }
}

#[test]
fn the_readme_shows_the_use_of_every_example() {
    let files = std::fs::read_dir(root().join("examples")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let names: BTreeSet<String> = names.filter(|name| name.ends_with(".yaml")).collect();
    let known = ACCEPTED.map(|(name, ..)| name).into_iter().chain(UNSUPPORTED.map(|(name, _)| name));
    let known: BTreeSet<String> = known.map(str::to_owned).collect();
    assert_eq!(names, known);
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    for (name, flags, _) in ACCEPTED {
        let line = format!("kubeon create -f examples/{name} {}", flags.join(" "));
        assert!(readme.contains(line.trim_end()), "{line}");
    }
    for (name, _) in UNSUPPORTED {
        assert!(readme.contains(&format!("(examples/{name})")), "{name}");
    }
}

#[test]
fn flags_by_role_replace_a_secret_of_a_meta_cluster() {
    let cluster = example("highly-available.yaml");
    for (flags, expected) in [
        (&[][..], "--default-pk-file or --default-passwd @FILE"),
        (&["--default-port", "2200"], "--default-pk-file or --default-passwd @FILE"),
        (&["--default-master-passwd", "@a"], "--default-worker-pk-file or --default-worker-passwd @FILE"),
        (&["--default-worker-pk-file", "k"], "--default-master-pk-file or --default-master-passwd @FILE"),
    ] {
        let error = requested(&cluster, flags).unwrap_err();
        assert_eq!(error.rows.len(), 1, "{error}");
        assert_eq!(error.rows[0].0, "spec.cluster.authConfig.credentialsRef");
        let next = error.next.unwrap().to_string();
        assert!(next.ends_with(expected), "{flags:?}: {next}");
    }
    let flags = ["--default-master-passwd", "@a", "--default-worker-passwd", "@b"];
    let request = requested(&cluster, &flags).unwrap();
    for (host, file) in [("10.20.0.1", "a"), ("10.20.0.11", "b")] {
        assert_eq!(login(&request, host).password, Some(SecretSource::File(file.into())), "{host}");
    }
    let found = request.notes.iter().any(|note| note.text.contains("authConfig.credentialsRef"));
    assert!(found, "{:?}", request.notes);
}

#[test]
fn flags_of_a_role_complete_a_file() {
    let flags = ["--default-pk-file", "k", "--default-port", "2200", "--default-worker-port", "2201"];
    let request =
        requested(&example("highly-available.yaml"), &[&flags[..], &["--default-user", "admin"]].concat())
            .unwrap();
    for (host, user, port) in
        [("10.20.0.1", "admin", 2200), ("10.20.0.11", "admin", 2201), ("10.20.0.13", "ops", 2222)]
    {
        let login = login(&request, host);
        assert_eq!((login.user.as_deref(), login.port), (Some(user), Some(port)), "{host}");
    }
    let request = requested(&example("minimal.yaml"), &[]).unwrap();
    assert_eq!(login(&request, "172.30.0.11"), &LoginRequest::default(), "no login is given");
}

#[test]
fn a_flag_wins_over_the_user_of_a_file_only_if_it_replaces_a_secret() {
    let mut cluster = example("highly-available.yaml");
    cluster.spec.cluster.auth_config.as_mut().unwrap().username = Some("beside".parse().unwrap());
    let account = |cluster: &KubernetesCluster, flags: &[&str]| {
        login(&requested(cluster, flags).unwrap(), "10.20.0.1").user.clone().unwrap()
    };
    let (key, user) = (["--default-pk-file", "k"], ["--default-user", "admin"]);
    assert_eq!(account(&cluster, &key), "beside");
    assert_eq!(account(&cluster, &user), "admin");
    cluster.spec.cluster.auth_config.as_mut().unwrap().credentials_ref = None;
    assert_eq!(account(&cluster, &user), "beside");
}
