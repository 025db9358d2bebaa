//! Golden tests: reading `tests/cases/NAME.{hosts,group_vars}.yml` gives `NAME.txt`. `UPDATE_GOLDEN=1` writes the expected
//! files.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use kubeon_inventory::{Inventory, read};

fn check(case: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let file = |end: &str| fs::read_to_string(folder.join(format!("{case}.{end}"))).unwrap();
    let result = read(&"demo".parse().unwrap(), &file("hosts.yml"), &file("group_vars.yml"));
    let text = match &result {
        Ok(inventory) => shown(inventory),
        Err(mistakes) => format!("{mistakes}\n"),
    };
    let golden = folder.join(format!("{case}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&golden, &text).unwrap();
    }
    assert_eq!(text, fs::read_to_string(&golden).unwrap_or_default(), "{case}");
}

fn shown(inventory: &Inventory) -> String {
    let mut text = serde_saphyr::to_string(&inventory.cluster.spec).unwrap();
    for (host, login) in &inventory.logins {
        writeln!(text, "login {host}: {login:?}").unwrap();
    }
    for remark in &inventory.remarks {
        writeln!(text, "remark {}: {}", remark.subjects.join(", "), remark.meaning).unwrap();
    }
    text
}

#[test]
fn an_inventory_with_many_variables() {
    check("kubean");
}

#[test]
fn groups_with_dashes_and_hosts_named_by_address() {
    check("older");
}

#[test]
fn variables_of_groups_within_groups() {
    check("nested");
}

#[test]
fn all_mistakes_are_reported_with_their_place() {
    check("wrong");
}

#[test]
fn variables_that_are_not_yaml() {
    check("novars");
}

#[test]
fn an_inventory_that_is_not_yaml() {
    check("ini");
}

#[test]
fn an_empty_inventory() {
    check("empty");
}

#[test]
fn reads_an_inventory_of_5000_hosts() {
    let mut hosts = String::from("all:\n  hosts:\n");
    let names: Vec<String> = (0..5000).map(|n| format!("n{n}")).collect();
    for (n, name) in names.iter().enumerate() {
        writeln!(hosts, "    {name}: {{ansible_host: 10.1.{}.{}}}", n / 250, n % 250 + 1).unwrap();
    }
    hosts.push_str(
        "  children:\n    kube_control_plane:\n      hosts: {n0: }\n    kube_node:\n      hosts:\n",
    );
    names.iter().skip(1).for_each(|name| writeln!(hosts, "        {name}:").unwrap());
    let inventory = read(&"demo".parse().unwrap(), &hosts, "").unwrap();
    assert_eq!(inventory.cluster.spec.cluster.node_list.len(), 4999);
}

#[test]
fn no_message_contains_a_secret() {
    let hosts = "all:\n  hosts:\n    m: {ansible_host: 10.0.0.1, ansible_password: 'hunter2 {{ x }}', ansible_port: 0}\n  \
                 children:\n    kube_control_plane: {hosts: {m: }}\n";
    let mistakes = read(&"demo".parse().unwrap(), hosts, "").unwrap_err();
    assert!(mistakes.to_string().contains("is a template") && !format!("{mistakes:?}").contains("hunter2"));
}
