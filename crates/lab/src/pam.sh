cat > /etc/pam.d/sshd <<'CONF'
auth     required pam_unix.so
account  required pam_unix.so
session  required pam_permit.so
password required pam_unix.so
CONF
rm -f /etc/motd /etc/update-motd.d/*
