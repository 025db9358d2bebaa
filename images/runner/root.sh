# Runs in the new root file system of the runner image (chroot), after debootstrap and pip: takes out what no Job
# needs, and everything that would differ the next time.
set -eu
export LC_ALL=C PYTHONHASHSEED=0

rm -rf /usr/share/doc /usr/share/man /usr/share/info /usr/share/locale /usr/share/lintian /usr/share/bug \
  /usr/share/bash-completion /usr/share/zoneinfo /var/cache /var/log /var/lib/apt/lists /var/lib/dpkg/*-old \
  /etc/machine-id /etc/hostname /etc/resolv.conf /etc/ssh/ssh_host_* /root/.cache /tmp /run /boot /home /media /mnt /opt /srv
mkdir -p /var/cache /var/log /tmp /run
# Python's own compiled files carry the time at which they were made; these carry the hash of nothing instead, and
# make a playbook start a second sooner.
find / -xdev -name __pycache__ -type d -prune -exec rm -rf {} +
rm -rf /usr/lib/python3*/test /usr/lib/python3*/idlelib /usr/lib/python3/dist-packages/ansible_test
python3 -m compileall -q -j 1 --invalidation-mode unchecked-hash /usr/lib/python3 /usr/lib/python3.11 || true
# Whoever a Job runs as: ssh wants to know its name.
grep -q '^nonroot:' /etc/passwd || echo 'nonroot:x:65532:65532:nonroot:/tmp:/bin/bash' >> /etc/passwd
grep -q '^nonroot:' /etc/group || echo 'nonroot:x:65532:' >> /etc/group
# Both wait for a root that may write in /etc.
rm -f /etc/passwd- /etc/group- /etc/shadow- /etc/gshadow- /etc/subuid- /etc/subgid- /etc/.pwd.lock
rm -rf /dev /proc /sys
mkdir -p /dev /proc /sys || true
