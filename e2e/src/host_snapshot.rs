//! The state of a host that a cluster must not change for good: files, units, packet rules, links, routes and
//! kernel parameters, and that no program of a cluster runs.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};

use crate::lab::TestLab;

/// Prints one line for each item: its kind and name, a tab, and its value. Left out: what changes without a
/// cluster, such as logs, counters, random numbers and costs that the scheduler measures. Of the folders that are
/// left out, those of a cluster are named. The value of a packet rule is how often the line occurs in all tables.
const PRINT: &str = r#"
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /var/tmp \
        -o -path /var/log -o -path /var/cache -o -path /var/lib/systemd -o -path /var/lib/NetworkManager \
        -o -path /root -o -path /lost+found -o -path /etc/machine-id \) -prune \
        -o -type d -printf 'file %p\t%y %m %u:%g\n' -o -type f -printf 'file %p\t%y %m %u:%g %s\n' \
        -o -printf 'file %p\t%y %m %u:%g %l\n'
    find /etc -xdev -type f ! -path '/etc/machine-id' -exec sha256sum {} + | sed -E 's/^(\S+)  (.*)/content \2\t\1/'
    systemctl list-unit-files --no-legend --no-pager | grep -vE '^(session|user)-' | awk '{print "unit " $1 "\t" $2}'
    for table in $(nft list tables 2>/dev/null | tr ' ' '/'); do echo "table $table	present"; done
    nft -s list ruleset 2>/dev/null | tr '\t' ' ' | sort | uniq -c | sed -E 's/^ *([0-9]+) +(.*)$/rule \2\t\1/'
    for tables in iptables-legacy ip6tables-legacy; do
        $tables-save 2>/dev/null | grep -E '^[*:-]' | sed "s/ \[.*//;s/\$/\tpresent/;s/^/$tables /"
    done
    ip -o link | awk -F': ' '{print "link " $2 "\tpresent"}'
    ip -4 route show table all | sed 's/$/\tpresent/;s/^/route /'
    sysctl -a 2>/dev/null | grep -vE '^(kernel\.(random|ns_last_pid|pty\.nr|tainted|sched_domain)|fs\.(dentry|inode|file-nr|quota)|fs\.aio-nr|net\.netfilter\.nf_conntrack_count|vm\.stat|vm\.(user|admin)_reserve|net\.ipv4\.tcp_fastopen_key)' |
        sed -E 's/^(\S+) = /parameter \1\t/'
    for path in /run/flannel /run/kubeon /run/containerd /run/kubernetes /run/nri /run/netns /var/log/pods \
        /var/log/containers /var/log/kubernetes /var/cache/kubeon /root/.kube; do
        [ ! -e $path ] || echo "file $path	present"
    done
    systemctl list-units --all --type=service,timer,path,mount,slice --plain --no-legend --no-pager |
        awk '$1 ~ /kube|etcd|containerd|flannel|haproxy|apiserver/ && $3 != "inactive" {print "running " $1 "\t" $2 " " $3}'
    ip rule | tr '\t' ' ' | sed 's/$/\tpresent/;s/^/policy /'
"#;

/// The items of a host, by kind and name.
pub struct HostSnapshot(BTreeMap<String, String>);

impl HostSnapshot {
    /// Reads the state of a host.
    ///
    /// # Errors
    /// When the host does not answer.
    pub fn of(lab: &TestLab, host: &str) -> Result<Self> {
        let printed = lab.on(host, PRINT)?;
        let items = printed.lines().filter_map(|line| line.split_once('\t'));
        let state: BTreeMap<String, String> =
            items.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        for kind in ["file ", "content ", "unit ", "link ", "route ", "parameter "] {
            ensure!(state.keys().any(|name| name.starts_with(kind)), "{host}: nothing read of: {kind}");
        }
        Ok(Self(state))
    }

    /// What differs now, one line for each item. Parameters that did not exist before belong to kernel modules, which
    /// stay loaded.
    #[must_use]
    pub fn differences(&self, now: &Self) -> Vec<String> {
        let names: BTreeSet<&String> = self.0.keys().chain(now.0.keys()).collect();
        let difference = |name: &String| match (self.0.get(name), now.0.get(name)) {
            (Some(before), Some(now)) if before == now => None,
            (None, _) if name.starts_with("parameter ") => None,
            (before, now) => Some(format!("{name}: {before:?}, now {now:?}")),
        };
        names.into_iter().filter_map(difference).collect()
    }
}
