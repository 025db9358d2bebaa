//! Tests of the flags of the contract.

use clap::{CommandFactory as _, Parser as _};

use super::missing::{MISSING, Takes};
use super::{CliCommand, CommandLine};
use kubeon_engine::cluster_request::HostRequest;
use kubeon_engine::login_request::{LoginRequest, SecretSource};

fn parsed(args: &[&str]) -> super::cluster::ClusterArgs {
    let cli = CommandLine::try_parse_from([&["kubeon", "create", "x", "v1.36.3"], args].concat());
    match cli.unwrap_or_else(|error| panic!("{error}")).command {
        Some(CliCommand::Create(args)) => args.cluster,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_parser_is_sound() {
    CommandLine::command().debug_assert();
}

#[test]
fn knows_every_flag_of_the_contract() {
    let nodes = [
        ["--default-port", "2222"],
        ["--default-user", "admin"],
        ["--default-passwd", "@f"],
        ["--default-pk-file", "k"],
        ["--default-pk-password", "-"],
    ];
    for [flag, value] in nodes {
        parsed(&[flag, value]);
        for role in ["master", "worker"] {
            parsed(&[&flag.replace("--default-", &format!("--default-{role}-")), value]);
            parsed(&[&flag.replace("--default-", &format!("--{role}-")), value]);
        }
    }
    parsed(&["--default-sudo-passwd", "@f"]);
    for flag in ["-m", "--master", "-w", "--worker"] {
        parsed(&[flag, "10.0.0.1"]);
    }
    for flag in ["-M", "--master-name", "-W", "--worker-name"] {
        parsed(&[flag, "a"]);
    }
    for [flag, value] in [
        ["--lb-domain", "a.b"],
        ["--dns-domain", "c.d"],
        ["--max-pods", "100"],
        ["--port-range", "1-2"],
        ["--node-mask-size", "24"],
        ["--feature-gates", "A=true"],
        ["--cert-years", "10"],
        ["--svc-cidr", "10.0.0.0/16"],
        ["--pod-cidr", "10.1.0.0/16"],
        ["--lb-ip", "10.0.0.9"],
        ["--lb-port", "6443"],
        ["--lb-mode", "haproxy"],
        ["--deploy-mode", "container"],
        ["--proxy", "nftables"],
        ["--cri", "containerd"],
        ["--cni", "flannel"],
        ["--ic", "none"],
        ["--cert-san", "x,y"],
        ["--master-labels", "a=b"],
        ["--worker-labels", "a=b"],
        ["--master-taints", "a=b:NoSchedule"],
        ["--worker-taints", "a:NoExecute"],
        ["--kernel-parameter", "vm.max_map_count=262144"],
    ] {
        parsed(&[flag, value]);
    }
    for flag in ["-C", "--only-create", "-O", "--offline", "--offline=false"] {
        parsed(&[flag]);
    }
    for args in [
        &["exec", "t@all", "ls", "-p", "x", "-R", "-P"][..],
        &["exec", "t@all", "ls", "--arg", "-l", "--result", "--parallel"],
        &["copy", "t@all", "a", "b"],
        &["destroy", "t", "-f"],
        &["-v", "4", "ls"],
        &["ls", "--v=8"],
    ] {
        CommandLine::try_parse_from([&["kubeon"], args].concat())
            .unwrap_or_else(|error| panic!("{args:?}: {error}"));
    }
}

#[test]
fn every_flag_of_a_missing_part_is_refused_unless_its_value_is_harmless() {
    for flag in MISSING {
        let long = format!("--{}", flag.flag);
        let given = match flag.takes {
            Takes::Nothing => parsed(&[&long]),
            Takes::Value => parsed(&[&long, "7"]),
        };
        assert_eq!(given.missing.refusals.len(), 1, "{long}");
        let refusal = &given.missing.refusals[0];
        assert!(refusal.value.starts_with(&long) && !refusal.reason.is_empty(), "{refusal:?}");
        for harmless in flag.harmless {
            let argument = format!("{long}={harmless}");
            assert!(parsed(&[&argument]).missing.refusals.is_empty(), "{argument}");
        }
    }
    assert!(parsed(&[]).missing.refusals.is_empty());
}

#[test]
fn every_alias_of_the_contract_selects_its_command() {
    let name = |args: &[&str]| {
        let cli = CommandLine::try_parse_from([&["kubeon"], args].concat())
            .unwrap_or_else(|error| panic!("{args:?}: {error}"));
        let text = format!("{:?}", cli.command.unwrap());
        text.split(['(', ' ']).next().unwrap().to_owned()
    };
    for (args, command) in [
        (&["c", "a", "b"][..], "Create"),
        (&["new", "a", "b"], "Create"),
        (&["D", "a"], "Destroy"),
        (&["rmr", "a"], "Destroy"),
        (&["d", "a"], "Display"),
        (&["dp"], "Display"),
        (&["cluster-info"], "Display"),
        (&["cp", "a@all", "b", "c"], "Copy"),
        (&["v", "sp"], "View"),
        (&["v", "cp", "v1.36.3"], "View"),
        (&["ver"], "Version"),
        (&["U", "a", "b"], "Upgrade"),
        (&["add", "a", "-w", "b"], "Addon"),
        (&["del", "a", "@w*"], "Delon"),
        (&["rm", "a", "name=b"], "Delon"),
        (&["R", "hosts", "a"], "Redo"),
        (&["redo", "img", "a"], "Redo"),
        (&["down", "v1.36.3", "--use-offline"], "Download"),
        (&["m", "add", "a@all", "x"], "Module"),
        (&["cl", "mr", "a"], "Cloud"),
    ] {
        assert_eq!(name(args), command, "{args:?}");
    }
}

#[test]
fn logins_resolve_from_list_to_role_to_all() {
    let args = parsed(&[
        "-m",
        "10.0.0.1,10.0.0.2",
        "-w",
        "10.0.0.3",
        "--master-port",
        "2201,2202",
        "--default-master-user",
        "boss",
        "--default-user",
        "admin",
        "--default-port",
        "22",
        "--default-worker-pk-file",
        "w.key",
        "--default-pk-file",
        "all.key",
        "--default-passwd",
        "@secret",
    ]);
    let mut refusals = Vec::new();
    let hosts = args.nodes.hosts(&mut refusals);
    assert!(refusals.is_empty(), "{refusals:?}");
    let found: Vec<_> = hosts
        .masters
        .iter()
        .chain(&hosts.workers)
        .map(|host| {
            let login = &host.login;
            let file = login.key_file.as_ref().unwrap().display().to_string();
            (login.port.unwrap(), login.user.clone().unwrap(), file, login.password.clone().unwrap())
        })
        .collect();
    let secret = SecretSource::File("secret".into());
    let login = |port, user: &str, key: &str| (port, user.to_owned(), key.to_owned(), secret.clone());
    assert_eq!(
        found,
        [login(2201, "boss", "all.key"), login(2202, "boss", "all.key"), login(22, "admin", "w.key")]
    );
}

#[test]
fn every_command_on_a_known_cluster_takes_a_login_for_each_role() {
    for command in [
        &["create", "t"][..],
        &["plan", "t"],
        &["precheck", "t"],
        &["addon", "t", "-w", "10.0.0.9"],
        &["delon", "t", "@w*"],
        &["destroy", "t"],
        &["display", "t"],
        &["ls"],
        &["exec", "t@all", "ls"],
        &["copy", "t@all", "a", "b"],
        &["image", "load", "a.tar", "t"],
    ] {
        for flag in ["port 2222", "user admin", "passwd @f", "pk-file k", "pk-password -"] {
            let (flag, value) = flag.split_once(' ').unwrap();
            for role in ["master", "worker"] {
                let flag = format!("--default-{role}-{flag}");
                let line = [&["kubeon"][..], command, &[flag.as_str(), value]].concat();
                CommandLine::try_parse_from(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"));
            }
        }
    }
}

#[test]
fn a_list_without_hosts_is_refused_with_the_flag_for_all_hosts() {
    let mut refusals = Vec::new();
    parsed(&["-m", "10.0.0.1", "--worker-passwd", "@f", "--worker-name", "a"]).nodes.hosts(&mut refusals);
    let found: Vec<_> =
        refusals.iter().map(|refusal| (refusal.value.as_str(), refusal.reason.as_str())).collect();
    let none = "[worker] 1 given, but no -w";
    let instead = format!("{none}; --default-worker-passwd is for every worker");
    assert_eq!(found, [("--worker-name", none), ("--worker-passwd", instead.as_str())]);
}

#[test]
fn labels_are_one_flag_for_each_host() {
    let args = parsed(&[
        "-w",
        "10.0.0.1,10.0.0.2",
        "--worker-labels",
        "a=b,c=d",
        "--worker-labels",
        "e=f",
        "-m",
        "10.0.0.3",
    ]);
    let hosts = args.nodes.hosts(&mut Vec::new());
    let labels: Vec<Vec<_>> =
        hosts.workers.iter().map(|host| host.labels.keys().cloned().collect()).collect();
    assert_eq!(labels, [vec!["a", "c"], vec!["e"]]);
    assert!(hosts.masters[0].labels.is_empty(), "labels of a worker do not apply to a master");
}

#[test]
fn labels_are_read_by_the_rules_of_a_file_and_every_wrong_one_is_named() {
    let args = parsed(&[
        "-w",
        "10.0.0.1,10.0.0.2",
        "--worker-labels",
        "a b=c,-x=y,disk=ssd!,z,=v,ok=,disk=a,disk=b",
        "--worker-labels",
        "example.com/disk=ssd,tier=",
        "-m",
        "10.0.0.3",
        "--master-labels",
        "k=v w",
    ]);
    let mut refusals = Vec::new();
    let hosts = args.nodes.hosts(&mut refusals);
    let found: Vec<_> = refusals.iter().map(|refusal| refusal.value.as_str()).collect();
    assert_eq!(
        found,
        [
            "--master-labels k=v w",
            "--worker-labels a b=c",
            "--worker-labels -x=y",
            "--worker-labels disk=ssd!",
            "--worker-labels z",
            "--worker-labels =v",
            "--worker-labels disk=b",
        ]
    );
    let rules = [
        "\"v w\" is not a label value: empty, or up to 63 letters",
        "\"a b\" is not a label key such as example.com/disk: up to 63 letters",
        "\"-x\" is not a label key",
        "\"ssd!\" is not a label value",
        "is not KEY=VALUE",
        "\"\" is not a label key",
        "is named twice",
    ];
    for (refusal, rule) in refusals.iter().zip(rules) {
        assert!(refusal.reason.starts_with(rule), "{refusal:?}");
    }
    assert!(hosts.masters.is_empty(), "{hosts:?}");
    assert_eq!(hosts.workers.len(), 1, "{hosts:?}");
    let labels: Vec<_> =
        hosts.workers[0].labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(labels, [("example.com/disk", "ssd"), ("tier", "")]);
}

#[test]
fn port_0_is_not_a_valid_port() {
    for flag in
        ["--default-port", "--default-master-port", "--default-worker-port", "--master-port", "--worker-port"]
    {
        let parse =
            |port: &str| CommandLine::try_parse_from(["kubeon", "create", "x", "v1.36.3", flag, port]);
        parse("65535").unwrap_or_else(|error| panic!("{error}"));
        for port in ["0", "65536", "ssh"] {
            let error = parse(port).err().unwrap_or_else(|| panic!("{flag} {port} is accepted"));
            assert!(error.to_string().contains(flag), "{error}");
        }
    }
}

#[test]
fn hosts_of_etcd_have_names_and_logins_of_their_own() {
    let hosts = |flags: &[&str]| {
        let cli = CommandLine::try_parse_from([&["kubeon", "addon", "x"], flags].concat());
        let args = match cli.unwrap_or_else(|error| panic!("{error}")).command {
            Some(CliCommand::Addon(args)) => args,
            other => panic!("{other:?}"),
        };
        let default = LoginRequest { user: Some("admin".to_owned()), ..LoginRequest::default() };
        let mut refusals = Vec::new();
        let hosts = args.etcd_hosts.hosts(&default, &mut refusals);
        (hosts, refusals.into_iter().map(|refusal| refusal.reason).collect::<Vec<_>>())
    };
    let flags = ["--etcd", "10.0.0.8,10.0.0.9", "--etcd-name", "e1,e2", "--etcd-port", "2222,22"];
    let (found, refused) = hosts(&flags);
    assert_eq!(refused, Vec::<String>::new());
    let shown = |host: &HostRequest| (host.name.as_ref().unwrap().to_string(), host.login.port);
    assert_eq!(
        found.iter().map(shown).collect::<Vec<_>>(),
        [("e1".to_owned(), Some(2222)), ("e2".to_owned(), Some(22))]
    );
    assert!(found.iter().all(|host| host.login.user.as_deref() == Some("admin")));
    let own = ["--etcd", "10.0.0.8", "--etcd-user", "ops", "--etcd-internal-address", "192.168.0.8"];
    let (found, _) = hosts(&own);
    assert_eq!(found[0].login.user.as_deref(), Some("ops"));
    assert_eq!(found[0].internal_address, "192.168.0.8".parse().ok());
    assert_eq!(hosts(&["--etcd-user", "ops"]).1, ["[etcd] 1 given, but no --etcd"]);
    let (_, refused) = hosts(&["--etcd", "10.0.0.8,10.0.0.9", "--etcd-port", "2222"]);
    assert_eq!(refused, ["[etcd] 1 given for 2 hosts: give one for each --etcd"]);
    assert_eq!(hosts(&["--etcd", "h9"]).1.len(), 1);
}

#[test]
fn a_secret_is_never_shown() {
    let args = parsed(&["--default-passwd", "hunter2", "--master-passwd", "hunter2"]);
    assert!(!format!("{args:?}").contains("hunter2"));
}

/// The page with indented lines of help texts, such as examples, as blocks that keep their lines.
fn fenced(page: &str) -> String {
    let (mut text, mut is_block, mut before) = (String::new(), false, "");
    for line in page.lines() {
        let is_indented = line.starts_with("  ");
        if is_indented && !is_block && !before.is_empty() && !before.starts_with(' ') {
            text.push_str("\n```text\n");
            is_block = true;
        } else if !is_indented && is_block {
            text.push_str("```\n");
            is_block = false;
        }
        text.push_str(if is_block { &line[2..] } else { line });
        text.push('\n');
        before = line;
    }
    text
}

/// `UPDATE_GOLDEN=1 cargo test -p kubeon reference` writes the page.
#[test]
fn the_reference_page_shows_every_command() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/kubeon.md");
    let options = clap_markdown::MarkdownOptions::new().title("kubeon".to_owned()).show_footer(false);
    let page = fenced(&clap_markdown::help_markdown_custom::<CommandLine>(&options));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap();
    assert!(
        written == page,
        "{} is out of date: UPDATE_GOLDEN=1 cargo test -p kubeon reference",
        path.display()
    );
}
