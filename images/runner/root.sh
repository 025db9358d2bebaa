# Runs in the new root file system of the runner image (chroot), after debootstrap and pip: removes what no Job
# needs, and everything that would differ between two builds.
set -eu
export LC_ALL=C PYTHONHASHSEED=0

rm -rf /usr/share/doc /usr/share/man /usr/share/info /usr/share/locale /usr/share/lintian /usr/share/bug \
  /usr/share/bash-completion /usr/share/zoneinfo /var/cache /var/log /var/lib/apt/lists /var/lib/dpkg/*-old \
  /etc/machine-id /etc/hostname /etc/resolv.conf /etc/ssh/ssh_host_* /root/.cache /tmp /run /boot /home /media /mnt /opt /srv
mkdir -p /var/cache /var/log /tmp /run
# The compiled files of Python contain a time stamp; unchecked-hash makes them reproducible, and a playbook starts a
# second sooner.
find / -xdev -name __pycache__ -type d -prune -exec rm -rf {} +
rm -rf /usr/lib/python3*/test /usr/lib/python3*/idlelib /usr/lib/python3/dist-packages/ansible_test
python3 -m compileall -q -j 1 --invalidation-mode unchecked-hash /usr/lib/python3 /usr/lib/python3.11 || true
# ssh needs a name for the user that a Job runs as.
grep -q '^nonroot:' /etc/passwd || echo 'nonroot:x:65532:65532:nonroot:/tmp:/bin/bash' >> /etc/passwd
grep -q '^nonroot:' /etc/group || echo 'nonroot:x:65532:' >> /etc/group
# Backups and locks that differ between builds.
rm -f /etc/passwd- /etc/group- /etc/shadow- /etc/gshadow- /etc/subuid- /etc/subgid- /etc/.pwd.lock
rm -rf /dev /proc /sys
mkdir -p /dev /proc /sys || true
