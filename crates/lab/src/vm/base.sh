# Runs in the new root file system of virtual machines (chroot) after mmdebstrap. Arguments: the profiles.
# The machine stays as Debian ships it, but for timers that would load an emulated processor.
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

# Nothing of the building machine, and nothing two hosts must not share.
rm -f /etc/ssh/ssh_host_* /etc/hostname /var/lib/dbus/machine-id
: > /etc/machine-id
rm -rf /var/cache/apt/* /var/lib/apt/lists/* /var/log/*.log /var/log/apt /var/cache/debconf/*-old /var/lib/dpkg/*-old

for unit in apt-daily.timer apt-daily-upgrade.timer man-db.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer; do
  ln -sf /dev/null "/etc/systemd/system/$unit"
done
# SSH refuses users other than root until the boot has come this far; then it need not listen before either.
mkdir -p /etc/systemd/system/ssh.service.d
printf '[Unit]\nAfter=systemd-user-sessions.service\n' > /etc/systemd/system/ssh.service.d/lab.conf

network=systemd-networkd
for profile; do
  case $profile in
    resolved) systemctl enable systemd-resolved.service ;;
    # Debian starts it with the zone `public`, which lets in SSH and nothing else.
    firewalld) systemctl enable firewalld.service ;;
    ufw)
      # ufw itself writes the rule, so that its files have its form; in a network of its own, where it reaches no rules of this
      # machine. Without /proc it would leave out the file of IPv6.
      mount -t proc proc /proc
      trap 'umount /proc' EXIT
      unshare --net ufw allow 22/tcp
      sed -i 's/^ENABLED=no/ENABLED=yes/' /etc/ufw/ufw.conf
      systemctl enable ufw.service ;;
    network-manager) network=NetworkManager ;;
    cloud-init)
      # The lab gives name, keys and addresses; cloud-init writes /etc/hosts.
      cat > /etc/cloud/cloud.cfg.d/90_lab.cfg <<'CONF'
datasource_list: [NoCloud]
network: {config: disabled}
manage_etc_hosts: true
ssh_deletekeys: false
disable_root: false
users: []
resize_rootfs: false
growpart: {mode: "off"}
CONF
      ;;
  esac
done
systemctl enable "$network.service"

