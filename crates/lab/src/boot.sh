#!/bin/bash
# Stages of a lab on the machine. Started by the library, detached; all input comes in the environment:
#   KUBEON_LAB_PROCESS  name of the lab: the mark by which `down` finds every process started for it
#   LAB_CGROUPS  one line per cgroup hierarchy: its mount name, a tab, this host's folder in it
#   LAB_MODE     v1 | v2
#   LAB_SWITCH   path of the network namespace with the bridge
#   LAB_DIR      folder of this host: upper, work, var, root; a file `cut` there marks an unplugged cable
#   LAB_BASE, LAB_HOST, LAB_ADDRESS (with /24), LAB_GATEWAY, LAB_MAC
set -euo pipefail
umask 022
# The commands below do not depend on the environment of the caller.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C

log() { echo "kubeon-lab: $*"; }

# join LEAF: move this process into the leaf of every hierarchy ("0" is the writer itself).
join() {
  local name dir
  while IFS=$'\t' read -r name dir; do echo 0 > "$dir/$1/cgroup.procs"; done <<< "$LAB_CGROUPS"
}

# The switch: a network namespace with the bridge of the lab. It has no route out, so it rejects packets for other
# networks at once (ICMP). It exists as long as the sleeping process.
switch() {
  join payload
  exec unshare --net bash "$0" switch-net
}
switch_net() {
  ip -batch - <<BATCH
link set lo up
link add br0 type bridge stp_state 0 forward_delay 0
addr add $LAB_GATEWAY/24 dev br0
BATCH
  echo 1 > /proc/sys/net/ipv4/ip_forward
  echo 0 > /proc/sys/net/ipv4/icmp_ratelimit
  ip link set br0 up
  exec -a kubeon-lab-switch sleep infinity
}

# Power on: run the host until it is powered off. On a reboot, init ends by SIGHUP (129): boot again.
power() {
  join supervisor
  local status
  while :; do
    status=0
    unshare --net --mount --pid --uts --ipc --fork --kill-child --propagation private \
      bash "$0" enter || status=$?
    log "$LAB_HOST ended with status $status"
    [ "$status" = 129 ] || exit "$status"
    remove_cgroups
    # The kernel removes the port of the previous boot too, but later.
    nsenter --net="$LAB_SWITCH" ip link del "$LAB_HOST" 2> /dev/null || :
  done
}

# Cgroups below the host's root remain after its processes have ended: remove them before the next boot.
remove_cgroups() {
  local name dir
  while IFS=$'\t' read -r name dir; do
    find "$dir/payload" -mindepth 1 -depth -type d -exec rmdir {} +
  done <<< "$LAB_CGROUPS"
}

# First process of the new PID namespace. The cgroup namespace is made after joining: its root is the leaf.
enter() {
  join payload
  exec unshare --cgroup bash "$0" boot
}

# Whether the cable is plugged in, as a state of a port.
cable() { if [ -e "$LAB_DIR/cut" ]; then echo down; else echo up; fi; }

# connect PORT BRIDGE: a port gets the state of the cable. A command that changes the cable meanwhile first writes the
# file, then sets the ports that exist; so the state is read again after it was set.
connect() {
  local state= wanted
  wanted=$(cable)
  while [ "$state" != "$wanted" ]; do
    state=$wanted
    nsenter --net="$LAB_SWITCH" ip link set "$1" master "$2" "$state"
    wanted=$(cable)
  done
}

network() {
  ip link add eth0 address "$LAB_MAC" type veth peer name "$LAB_HOST" netns "$LAB_SWITCH"
  connect "$LAB_HOST" br0
  ip -batch - <<BATCH
link set lo up
addr add $LAB_ADDRESS dev eth0
link set eth0 up
route add default via $LAB_GATEWAY
BATCH
}

# Mounts are collected here and mounted by one program: a fork per mount would take half of the boot time.
mounts=
add_mount() { mounts+="$1 $PWD/$2 $3 $4 0 0"$'\n'; }
make_mounts() {
  printf '%s' "$mounts" > "$1"
  mount --all --fstab "$1"
  mounts=
}

cgroups() {
  local name dir part
  while IFS=$'\t' read -r name dir; do
    case $LAB_MODE/$name in
      v2/*) add_mount cgroup2 sys/fs/cgroup cgroup2 defaults ;;
      v1/unified) add_mount cgroup2 sys/fs/cgroup/unified cgroup2 X-mount.mkdir ;;
      v1/name=*) add_mount cgroup "sys/fs/cgroup/${name#name=}" cgroup "none,$name,X-mount.mkdir" ;;
      v1/*)
        add_mount cgroup "sys/fs/cgroup/$name" cgroup "$name,X-mount.mkdir"
        for part in ${name//,/ }; do [ "$part" = "$name" ] || ln -s "$name" "sys/fs/cgroup/$part"; done ;;
    esac
  done <<< "$LAB_CGROUPS"
}

devices() {
  local n
  mkdir dev/pts dev/shm dev/net
  for n in null zero full random urandom tty kmsg net/tun; do
    [ -e "/dev/$n" ] || continue
    : > "dev/$n"
    add_mount "/dev/$n" "dev/$n" none bind
  done
  add_mount devpts dev/pts devpts newinstance,ptmxmode=0666,mode=620,gid=5
  add_mount tmpfs dev/shm tmpfs nosuid,nodev
  ln -s pts/ptmx dev/ptmx
  : > dev/console
}

# copy FROM TO: the value of a kernel parameter as a plain file. The file of a write-only parameter stays empty.
copy() {
  local value=
  { IFS= read -r -d '' value < "$1" || :; } 2> /dev/null
  printf '%s' "$value" > "$2"
}

# Kernel parameters without a namespace: the host gets its own files with the same values, so that kubelet and
# sysctl can write them without a change of the machine. The parameters of net, IPC and UTS and of fs.inotify (shared
# limits that several hosts may need to raise) are the real ones; all others are read-only.
parameters() {
  local p number=0
  add_mount "$PWD/proc/sys" proc/sys none bind
  for p in net fs/inotify kernel/hostname kernel/domainname kernel/sem kernel/shmmax kernel/shmall kernel/shmmni \
    kernel/msgmax kernel/msgmnb kernel/msgmni; do
    [ ! -e "/proc/sys/$p" ] || add_mount "$PWD/proc/sys/$p" "proc/sys/$p" none bind
  done
  for p in kernel/panic kernel/panic_on_oops kernel/pid_max kernel/threads-max kernel/printk kernel/core_pattern \
    kernel/keys/root_maxkeys kernel/keys/root_maxbytes fs/file-max fs/nr_open fs/aio-max-nr; do
    [ -e "/proc/sys/$p" ] || continue
    number=$((number + 1))
    copy "/proc/sys/$p" "run/machine/$number"
    add_mount "$PWD/run/machine/$number" "proc/sys/$p" none bind
  done
  copy /proc/sys/kernel/random/uuid run/machine/boot_id
  add_mount "$PWD/run/machine/boot_id" proc/sys/kernel/random/boot_id none bind
  add_mount tmpfs proc/sys/vm tmpfs mode=755,nosuid,nodev,noexec
}

boot() {
  cd "$LAB_DIR"
  local try
  # The kernel may still use the overlay of a host that was just killed.
  for try in 1 2 3 4 5 6 7 8 9 10; do
    mount -t overlay overlay -o "lowerdir=$LAB_BASE,upperdir=upper,workdir=work" root && break
    [ "$try" -lt 10 ] || { log "cannot mount the overlay"; exit 1; }
    sleep 0.1
  done
  network
  cd root
  # /var must be a real file system: containerd's overlayfs cannot stack on the overlay above.
  add_mount "$LAB_DIR/var" var none bind
  add_mount proc proc proc nosuid,nodev,noexec
  add_mount sysfs sys sysfs nosuid,nodev,noexec
  add_mount tmpfs run tmpfs mode=755,nosuid,nodev
  add_mount tmpfs dev tmpfs mode=755,nosuid
  [ "$LAB_MODE" = v2 ] || add_mount tmpfs sys/fs/cgroup tmpfs mode=755,nosuid,nodev,noexec
  make_mounts "$LAB_DIR/fstab"
  mkdir run/machine
  cgroups
  devices
  parameters
  local modules
  modules=lib/modules/$(uname -r)
  [ ! -d "/$modules" ] || add_mount "/$modules" "usr/$modules" none bind,ro,X-mount.mkdir
  make_mounts "$LAB_DIR/fstab"
  local parameter
  for parameter in /proc/sys/vm/*; do copy "$parameter" ".$parameter"; done
  echo "$LAB_HOST" > proc/sys/kernel/hostname
  mount -o remount,bind,ro proc/sys
  log "$LAB_HOST init"
  mkdir run/machine/old
  pivot_root . run/machine/old
  umount -l /run/machine/old
  rm -rf /run/machine
  # In a container systemd keeps the propagation that it was started with; kubelet needs it shared.
  mount --make-rshared /
  exec env -i container=kubeon-lab PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    /sbin/init --log-target=console --show-status=no
}

# A virtual machine: "$@" is its process. LAB_PORTS has one line per network card: port, blank, bridge.
machine() {
  join supervisor
  local port bridge status=0
  while read -r port bridge; do
    nsenter --net="$LAB_SWITCH" ip tuntap add dev "$port" mode tap
    connect "$port" "$bridge"
  done <<< "$LAB_PORTS"
  (join payload && exec nsenter --net="$LAB_SWITCH" "$@") || status=$?
  log "$LAB_HOST ended with status $status"
  exit "$status"
}

# The name server of virtual machines: "$@" is its process. It ends with the switch, whose cgroup it is in.
dns() {
  join payload
  exec nsenter --net="$LAB_SWITCH" "$@"
}

case ${1:-} in
  switch) switch ;;
  switch-net) switch_net ;;
  power) power ;;
  enter) enter ;;
  boot) boot ;;
  machine) machine "${@:2}" ;;
  dns) dns "${@:2}" ;;
  *) echo "usage: boot.sh switch | power | machine PROGRAM | dns PROGRAM" >&2; exit 2 ;;
esac
