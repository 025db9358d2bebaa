# Prints the facts of a host as `key=value` lines. Reads only; stores nothing. POSIX shell, read from standard input.
# Everything is in a function, so that an incomplete script does nothing.

emit() { printf '%s\n' "$1"; }

has() { command -v "$1" >/dev/null 2>&1; }

module() { # in the kernel, or loadable
    [ -d "/sys/module/$1" ] && return 0
    is_built_in "$1" && return 0
    has modprobe && modprobe -n -q "$1" 2>/dev/null && return 0
    [ -z "$knows_built_in" ] && built_in_by_symbols && is_built_in "$1"
}

is_built_in() {
    case " $built_in " in *" $1 "*) return 0 ;; esac
    return 1
}

kernel_default() { # a parameter on which a kubelet may insist: its name, its file
    [ -r "/proc/sys/$2" ] && emit "parameter=$1 $(cat "/proc/sys/$2")"
    [ -w "/proc/sys/$2" ] || emit "fixed_parameter=$1"
}

# Modules that are part of the kernel: those without parameters are in no folder of modules. The kernel's own configuration
# names them, if it has one.
built_in_modules() {
    grep -qw overlay /proc/filesystems 2>/dev/null && built_in="$built_in overlay"
    [ -d /proc/sys/net/bridge ] && built_in="$built_in br_netfilter"
    [ -e /proc/sys/net/netfilter/nf_conntrack_max ] && built_in="$built_in nf_conntrack"
    [ -r /proc/config.gz ] && has gzip || return 0
    options=$(gzip -dc /proc/config.gz 2>/dev/null | grep -oE \
        '^CONFIG_(VXLAN|VETH|BRIDGE|BRIDGE_NETFILTER|NF_CONNTRACK|NF_TABLES|IP_NF_IPTABLES(_LEGACY)?)=y$|TABLES_LEGACY')
    [ -n "$options" ] || return 0
    knows_built_in=1
    tables=IP_NF_IPTABLES
    # Since Linux 6.10 this option also stands for nftables, and the old tables have options of their own.
    case $options in *TABLES_LEGACY*) tables=IP_NF_IPTABLES_LEGACY ;; esac
    for sign in vxlan:VXLAN veth:VETH bridge:BRIDGE br_netfilter:BRIDGE_NETFILTER nf_conntrack:NF_CONNTRACK \
        nf_tables:NF_TABLES "ip_tables:$tables"; do
        case $options in *"CONFIG_${sign#*:}=y"*) built_in="$built_in ${sign%:*}" ;; esac
    done
}

# The same by the symbols of the kernel, a long list: read once, for a module that nothing else has named. It runs within the loop
# of `kernel_facts`, whose variable a loop here must not change: POSIX functions share all variables.
built_in_by_symbols() {
    knows_built_in=1
    symbols=$(grep -oE ' (vxlan_setup|veth_setup|br_dev_setup|br_nf_pre_routing|nf_conntrack_in|nf_tables_newtable|ipt_do_table)$' \
        /proc/kallsyms 2>/dev/null)
    [ -n "$symbols" ] || knows_built_in=0
    for sign in vxlan:vxlan_setup veth:veth_setup bridge:br_dev_setup br_netfilter:br_nf_pre_routing \
        nf_conntrack:nf_conntrack_in nf_tables:nf_tables_newtable ip_tables:ipt_do_table; do
        case $symbols in *" ${sign#*:}"*) built_in="$built_in ${sign%:*}" ;; esac
    done
}

host_facts() {
    emit "system=$(uname -s)"
    emit "architecture=$(uname -m)"
    emit "kernel=$(uname -r)"
    emit "hostname=$(uname -n)"
    emit "install_tools=$install_tools"
    for f in /etc/os-release /usr/lib/os-release; do
        [ -r "$f" ] || continue
        (PRETTY_NAME=; . "$f"; emit "os=$PRETTY_NAME")
        break
    done 2>/dev/null
    [ -r /etc/machine-id ] && emit "machine_id=$(head -n 1 /etc/machine-id)"
    emit "cpus=$(nproc 2>/dev/null || grep -c '^processor' /proc/cpuinfo)"
    while read -r key value unit; do
        case $key in
            MemTotal:) emit "memory_kib=$value" ;;
            SwapTotal:) emit "swap_kib=$value" ;;
        esac
    done < /proc/meminfo
    d=/var/lib/kubeon
    while [ ! -d "$d" ]; do d=${d%/*}; d=${d:-/}; done
    df -Pk "$d" 2>/dev/null | {
        read -r heading
        read -r device total used free rest
        emit "disk_free_kib=$free"
        emit "disk_total_kib=$total"
    }
    df -Pi "$d" 2>/dev/null | {
        read -r heading
        read -r device total used free rest
        emit "inodes_free=$free"
    }
    if [ ! -e /run/systemd/container ] && [ -r /sys/class/dmi/id/product_uuid ]; then
        emit "product_uuid=$(cat /sys/class/dmi/id/product_uuid 2>/dev/null)"
    fi
    emit "uid=$(id -u)"
    f=/sys/fs/selinux/enforce
    [ -r "$f" ] && emit "selinux=$(cat "$f")"
    for m in apt-get:apt dnf:dnf yum:yum zypper:zypper apk:apk; do
        has "${m%:*}" && { emit "package_manager=${m#*:}"; break; }
    done
    for m in nft iptables; do
        has "$m" && emit "program=$m 1" || emit "program=$m 0"
    done
    has nft && emit "nft_version=$(nft --version 2>/dev/null)"
}

kernel_facts() {
    built_in=
    knows_built_in=
    built_in_modules
    [ -f /sys/fs/cgroup/cgroup.controllers ] && emit cgroup=v2 || emit cgroup=v1
    while read -r key value; do
        [ "$key" = CapEff: ] && emit "cap_eff=$value"
    done < /proc/self/status
    f=/proc/sys/net/netfilter/nf_conntrack_max
    if [ -e "$f" ]; then [ -w "$f" ] && emit "fact=canSetConntrack true"
    else module nf_conntrack && [ -w /proc/sys/net/ipv4/ip_forward ] && emit "fact=canSetConntrack true"; fi
    { [ -e /proc/net/ip_vs ] || module ip_vs; } && emit "fact=hasIpvs true"
    { module nf_tables || { has nft && nft list tables >/dev/null 2>&1; }; } && built_in="$built_in nf_tables" &&
        emit "fact=hasNftables true"
    [ -d /run/systemd/system ] && emit "fact=hasSystemd true"
    for m in overlay vxlan veth bridge br_netfilter nf_conntrack nf_tables ip_tables ip_vs; do
        if module "$m"; then
            emit "module=$m 1"
        elif [ "$knows_built_in" = 1 ] || [ -d "/lib/modules/$(uname -r)" ]; then
            # Without the kernel's configuration, its symbols and its modules nothing is known.
            emit "module=$m 0"
        fi
    done
    f=/proc/sys/net/ipv4/ip_forward
    [ -r "$f" ] && emit "parameter=net.ipv4.ip_forward $(cat "$f")"
    kernel_default vm.overcommit_memory vm/overcommit_memory
    kernel_default vm.panic_on_oom vm/panic_on_oom
    kernel_default kernel.panic kernel/panic
    kernel_default kernel.panic_on_oops kernel/panic_on_oops
    kernel_default kernel.keys.root_maxkeys kernel/keys/root_maxkeys
    kernel_default kernel.keys.root_maxbytes kernel/keys/root_maxbytes
    [ -w "$f" ] && emit "fact=canSetParameters true" || emit "fact=canSetParameters false"
}

network_facts() {
    if has ip; then
        ip -4 -o addr show scope global 2>/dev/null | while read -r number name family address rest; do
            emit "address=${address%%/*}"
            [ -r "/sys/class/net/$name/mtu" ] && emit "link=${address%%/*} $name $(cat "/sys/class/net/$name/mtu")"
        done
        # A host of a cluster has a route for each node, and nothing is decided by them.
        [ -e /var/lib/kubeon/claim.json ] || ip -4 route show 2>/dev/null | while read -r network rest; do
            [ "$network" = default ] || emit "route=$network"
        done
    else
        for a in $(hostname -I 2>/dev/null); do emit "address=$a"; done
    fi
    grep -h ' 0A ' /proc/net/tcp /proc/net/tcp6 2>/dev/null | while read -r number address rest; do
        emit "listen=${address##*:}"
    done
}

# Asks the name servers for the servers of the root zone: all at once, 2 attempts of 3 s. The two bytes that are read
# are the number of the query. A host of a cluster is skipped: the cluster verified them.
name_server_facts() ( # a subshell: `wait` waits for its own attempts only
    [ ! -e /var/lib/kubeon/claim.json ] && has bash && has timeout || exit 0
    asked=" "
    for s in $1; do
        case $s in *[!0-9a-fA-F.:]* | 127.* | ::1 | 0.0.0.0 | ::) continue ;; esac
        case $asked in *" $s "*) continue ;; esac
        asked="$asked$s "
        ask_name_server "$s" &
    done
    wait
)

ask_name_server() {
    for i in 1 2; do
        m=$(timeout 3 bash -c 'exec 3<>"/dev/udp/$0/53" && printf "\153\154\1\0\0\1\0\0\0\0\0\0\0\0\2\0\1" >&3 && head -c 2 <&3' "$1" 2>/dev/null)
        [ "$m" = kl ] && emit "name_server=$1 1" && return 0
    done
    emit "name_server=$1 0"
}

name_facts() {
    # A local resolver names itself in /etc/resolv.conf and lists the servers that it asks in a file of its own.
    all=
    for f in /etc/resolv.conf /run/systemd/resolve/resolv.conf /run/NetworkManager/no-stub-resolv.conf \
        /run/dnsmasq/resolv.conf; do
        s=
        if [ -r "$f" ]; then
            while read -r key value rest || [ -n "$key" ]; do
                [ "$key" = nameserver ] && s="$s $value"
            done < "$f"
        elif [ "$f" != /etc/resolv.conf ]; then
            continue
        fi
        emit "name_servers=$f$s"
        all="$all$s"
    done
    name_server_facts "$all"
    if has getent && has timeout; then
        timeout 2 getent hosts "$(uname -n)" >/dev/null 2>&1 && emit "fact=resolvesItself true" || emit "fact=resolvesItself false"
    fi
}

# Services of the host whose paths or data a cluster would replace. The first line of a unit marks the units of kubeon.
# A process without a unit counts if it does not run in a container.
service_facts() {
    [ ! -e /var/lib/kubeon/claim.json ] || return 0
    for name in containerd docker etcd flanneld haproxy kubelet; do
        for folder in /etc /usr/local/lib /usr/lib /lib; do
            f=$folder/systemd/system/$name.service
            [ -f "$f" ] && ! grep -q '^# Written by kubeon' "$f" && emit "own_service=$name" && break
        done
    done
    here=$(readlink /proc/self/ns/pid)
    for f in $(grep -lxE 'containerd|dockerd|etcd|flanneld|haproxy|kubelet' /proc/[0-9]*/comm 2>/dev/null); do
        [ "$(readlink "${f%/comm}/ns/pid")" = "$here" ] || continue
        name=$(cat "$f" 2>/dev/null)
        [ "$name" = dockerd ] && name=docker
        [ -z "$name" ] || emit "own_service=$name"
    done
}

# Programs of the owner in the places of the links of kubeon.
program_facts() {
    [ ! -e /var/lib/kubeon/claim.json ] || return 0
    for name in ctr etcdctl etcdutl kubectl; do
        f=/usr/local/bin/$name
        [ -e "$f" ] || [ -L "$f" ] || continue
        case $(readlink "$f") in
            /var/lib/kubeon/*) ;;
            *) emit "own_program=$name" ;;
        esac
    done
}

# Tries to connect to the endpoints: 64 at a time, 2 s each, 8 s in total. A host of a cluster is skipped: its
# connections have already worked.
reach_facts() (
    [ -n "$endpoints" ] && [ ! -e /var/lib/kubeon/claim.json ] && has bash && has timeout || exit 0
    n=0
    end=$(($(date +%s) + 8))
    for endpoint in $endpoints; do
        reach "${endpoint%:*}" "${endpoint##*:}" &
        n=$((n + 1))
        [ $((n % 64)) = 0 ] || continue
        wait
        [ "$(date +%s)" -lt "$end" ] || break
    done
    wait
)

reach() {
    m=$(LC_ALL=C timeout 2 bash -c 'exec 3<"/dev/tcp/$0/$1"' "$1" "$2" 2>&1)
    case "$? $m" in
        0*) emit "reached=$1 $2 open" ;;
        124*) emit "reached=$1 $2 silent" ;;
        *refused*) emit "reached=$1 $2 refused" ;;
        *) emit "reached=$1 $2 failed" ;;
    esac
}

lines() { # each line of the input as the value of a key
    while IFS= read -r line; do emit "$1=$line"; done
}

# The rules of the active firewall. firewalld and ufw write nftables themselves, so only the owner of the rules is asked.
# Rules that nobody manages are read on a host that is not part of a cluster, where few programs have rules, and where kubeon
# opened them. Tables of the cluster's own programs are left out.
firewall_facts() {
    has timeout || return 0
    if has firewall-cmd && systemctl -q is-active firewalld 2>/dev/null; then
        grep -h '^DefaultZone=' /etc/firewalld/firewalld.conf 2>/dev/null | lines firewalld_default
        { LC_ALL=C timeout 60 firewall-cmd --list-all-zones 2>/dev/null || echo "(unread)"; } | lines firewalld
    elif has ufw && grep -q '^ENABLED=yes' /etc/ufw/ufw.conf 2>/dev/null; then
        { LC_ALL=C timeout 60 ufw status verbose 2>/dev/null || echo "(unread)"; } | lines ufw
    elif [ -e /var/lib/kubeon/claim.json ] && ! [ -e /var/lib/kubeon/firewall.json ]; then
        return 0
    elif has nft; then
        nft list chains 2>/dev/null | while read -r word name rest; do
            case "$word $name $rest" in
                "table "*) table="$name ${rest%% *}" ;;
                "chain "*) chain=$name ;;
                "type filter hook input "* | "type filter hook forward "*)
                    case "$table" in *" kube-"* | *" flannel"* | *" cni_"*) continue ;; esac
                    case "$table $chain" in "ip "*" INPUT" | "ip "*" FORWARD") has iptables && continue ;; esac
                    nft list chain $table "$chain" 2>/dev/null | lines nft ;;
            esac
        done
        [ -e /var/lib/kubeon/claim.json ] || iptables_facts
    elif has iptables; then
        chains_of iptables
    fi
}

# The rules of iptables on a host with nft, of each variant that has some: to list the rules of another variant would create its
# tables.
iptables_facts() {
    has iptables || return 0
    if nft list chain ip filter INPUT >/dev/null 2>&1 || nft list chain ip filter FORWARD >/dev/null 2>&1; then
        variant nft
    fi
    if grep -q '^filter$' /proc/net/ip_tables_names 2>/dev/null; then variant legacy; fi
}

variant() { # the chains of a variant of iptables
    if has "iptables-$1"; then
        chains_of "iptables-$1"
        return
    fi
    case "$1 $(iptables -V 2>/dev/null)" in
        nft*nf_tables*) chains_of iptables ;;
        *nf_tables*) ;;
        legacy*) chains_of iptables ;;
    esac
}

chains_of() {
    for chain in INPUT FORWARD; do "$1" -S "$chain" 2>/dev/null | lines iptables; done
}

cluster_facts() {
    c=/var/lib/kubeon/claim.json
    if [ -e "$c" ]; then
        emit "claim=$(tr -d '\n' < "$c")"
    else
        for f in /etc/kubernetes/admin.conf /etc/kubernetes/kubelet.conf /etc/kubernetes/manifests/*.yaml \
            /var/lib/etcd/member /var/lib/rancher /etc/rancher /etc/systemd/system/k3s.service \
            /etc/systemd/system/k3s-agent.service /etc/systemd/system/rke2-server.service \
            /etc/systemd/system/k0scontroller.service /var/lib/k0s /var/snap/microk8s /etc/kubeedge; do
            [ -e "$f" ] && emit "foreign=$f"
        done
    fi
}

# The facts that only the node program knows, from standard input.
node_facts() {
    [ -x "$node_program" ] || return 0
    emit "node_link=$(readlink "$node_program")"
    facts=$(tr -d '\n')
    # The text is long: another line must not be written into it.
    end_heartbeat
    emit "node_facts=$facts"
}

# The programs with which the node program can be installed, as a command of its own finds them.
install_tools=
for m in gzip bash timeout; do has "$m" && install_tools="$install_tools $m"; done

# The PATH of a login without a shell often lacks the folders of system programs.
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

# Shows every few seconds that the host is working. It has no output of its own besides `alive`, so that nothing but
# this script keeps the output open.
heartbeat() {
    while sleep 3 >/dev/null 2>&1; do emit alive=1; done
}

end_heartbeat() {
    kill "$alive" 2>/dev/null && wait "$alive" 2>/dev/null
}

# All facts. Those of the node program come from standard input, while this reads the others.
all_facts() {
    heartbeat &
    alive=$!
    {
        host_facts
        kernel_facts
        network_facts
        name_facts
        service_facts
        program_facts
        firewall_facts
        reach_facts
        cluster_facts
    } < /dev/null
    node_facts
    end_heartbeat
    emit end=1
}

probe() {
    emit "clock=$(date +%s.%N)"
    node_program=/var/lib/kubeon/node/current
    if [ -x "$node_program" ]; then
        "$node_program" facts 2>/dev/null | all_facts
    else
        all_facts
    fi
}

probe < /dev/null
