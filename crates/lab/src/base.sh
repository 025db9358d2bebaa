# Runs in the new base root file system (chroot) after debootstrap: what every lab host has in common.
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

# Nothing of the building machine, and nothing two hosts must not share.
rm -f /etc/ssh/ssh_host_* /etc/hostname /var/lib/dbus/machine-id
: > /etc/machine-id
: > /etc/resolv.conf
rm -rf /var/cache/apt/* /var/lib/apt/lists/* /var/log/*.log /var/log/apt /var/cache/debconf/*-old /var/lib/dpkg/*-old
rm -rf /usr/share/doc/* /usr/share/man/* /usr/share/locale/* /usr/share/info/*

# Every host gets a copy of /var: the database of packages, most of its files, stays in the shared base.
mv /var/lib/dpkg /usr/lib/dpkg-database
ln -s /usr/lib/dpkg-database /var/lib/dpkg

# Units that have no hardware, console or network service to serve here.
for unit in getty.target getty@tty1.service console-getty.service systemd-logind.service \
  systemd-udevd.service systemd-udev-trigger.service systemd-udev-settle.service \
  systemd-udevd-control.socket systemd-udevd-kernel.socket \
  systemd-networkd.service systemd-networkd.socket systemd-networkd-wait-online.service systemd-resolved.service \
  systemd-timesyncd.service systemd-pstore.service systemd-random-seed.service systemd-remount-fs.service \
  systemd-hwdb-update.service systemd-journal-catalog-update.service systemd-update-utmp.service \
  systemd-update-utmp-runlevel.service systemd-update-done.service systemd-firstboot.service systemd-sysusers.service \
  systemd-machine-id-commit.service systemd-binfmt.service systemd-tmpfiles-setup-dev.service kmod-static-nodes.service \
  systemd-ask-password-console.path systemd-ask-password-wall.path systemd-initctl.socket \
  ldconfig.service first-boot-complete.target remote-fs.target \
  dev-hugepages.mount sys-kernel-debug.mount sys-kernel-tracing.mount sys-kernel-config.mount \
  sys-fs-fuse-connections.mount proc-sys-fs-binfmt_misc.automount proc-sys-fs-binfmt_misc.mount \
  apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer \
  systemd-tmpfiles-clean.timer systemd-repart.service systemd-sysext.service systemd-pcrphase.service \
  systemd-pcrphase-initrd.service systemd-pcrphase-sysinit.service modprobe@.service; do
  ln -sf /dev/null "/etc/systemd/system/$unit"
done
# Programs that look for disks, consoles and old init scripts at every boot and would find none. /etc/fstab counts.
mkdir -p /etc/systemd/system-generators
for generator in /lib/systemd/system-generators/*; do
  [ "${generator##*/}" = systemd-fstab-generator ] || ln -sf /dev/null "/etc/systemd/system-generators/${generator##*/}"
done
ln -sf /lib/systemd/system/multi-user.target /etc/systemd/system/default.target

mkdir -p /etc/systemd/journald.conf.d /etc/systemd/system.conf.d
printf '[Journal]\nReadKMsg=no\nAudit=no\nForwardToSyslog=no\nSystemMaxUse=64M\nRuntimeMaxUse=16M\n' \
  > /etc/systemd/journald.conf.d/lab.conf

