"""The action `kubeon`: hands what Ansible knows to the program kubeon, and passes its words on as they come.

    inventory, variables, key  ──►  two files in memory  ──►  kubeon create NAME --inventory … --vars …
    (templates filled in,            (nothing on disk,              │
     vaults opened)                   nothing in argv)              └─► its lines, live

It runs where Ansible runs; on hosts it needs neither Python nor anything else.
"""

import ctypes
import getpass
import hashlib
import json
import os
import signal
import subprocess
import threading
from pathlib import Path

from ansible import context
from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

display = Display()

# What an inventory says about a host; everything else is about the cluster.
OF_A_HOST = frozenset(
    """
    access_ip ansible_become_method ansible_become_pass ansible_become_password ansible_become_user
    ansible_connection ansible_host ansible_password ansible_port ansible_ssh_host ansible_ssh_pass
    ansible_ssh_password ansible_ssh_port ansible_ssh_private_key_file ansible_ssh_user ansible_user
    ip node_labels node_taints
    """.split()
)
# Variables that Ansible adds by itself, besides those that begin with ansible_.
OF_ANSIBLE = frozenset(
    """
    discovered_interpreter_python environment group_names groups hostvars inventory_dir inventory_file
    inventory_hostname inventory_hostname_short omit play_hosts playbook_dir role_name role_names role_path
    """.split()
)
# Variables of these playbooks.
OF_PLAYBOOKS = frozenset(
    "any_errors_fatal dead ignore_assert_errors kubeon_answer kubeon_cluster kubeon_ignore_checks kubeon_place "
    "kubeon_word node reset_nodes reset_confirmation skip_confirmation".split()
)
# Checks that nobody can go on without.
NOT_TO_BE_IGNORED = frozenset("claim login reach system".split())
MASTERS = ("kube_control_plane", "kube-control-plane", "kube_master", "kube-master")
PR_SET_PDEATHSIG = 1


class ActionModule(ActionBase):
    """Runs kubeon once for the whole play."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _VALID_ARGS = frozenset(("act", "nodes", "dead"))

    def run(self, tmp=None, task_vars=None):
        """One of prepare, precheck, create, scale, remove, destroy."""
        result = super().run(tmp, task_vars)
        self._facts = task_vars or {}
        act = self._task.args.get("act")
        home = Path(os.environ.get("KUBEON_HOME") or Path.home() / ".kubeon")
        cluster = self._cluster()
        if act == "prepare":
            folder = home / "known_hosts"
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            result.update(changed=False, known_hosts=str(folder / cluster))
            return result
        words = self._words(act, cluster)
        if self._task.check_mode and act != "precheck":
            words.append("--dry-run")
        self._turn(words, result)
        return result

    def _words(self, act, cluster):
        if act == "precheck":
            return ["precheck", cluster, "--accept-new", *self._ignored(cluster)]
        if act == "create":
            if context.CLIARGS.get("subset"):
                raise AnsibleActionFail("cluster.yml takes the whole inventory; scale.yml --limit adds some of its workers")
            return ["create", cluster, "--output", "json", "--accept-new", *self._ignored(cluster)]
        if act == "scale":
            limit = ",".join(self._facts.get("ansible_play_hosts_all", []))
            words = ["create", cluster, "--output", "json", "--accept-new", "--limit", limit]
            return words + self._ignored(cluster)
        nodes = [name.strip() for name in str(self._task.args.get("nodes") or "").split(",") if name.strip()]
        if act == "destroy":
            words = ["destroy", cluster, "--output", "json", "--yes"]
            return words + self._without(nodes)
        if act == "remove":
            known = [self._address(name) for name in nodes]
            selector = "ip=" + ",".join(known) if all(known) else "name=" + ",".join(nodes)
            words = ["delon", cluster, selector, "--output", "json", "--yes"]
            return words + (self._without(nodes) if self._task.args.get("dead") else [])
        raise AnsibleActionFail(f"act {act!r} is none of prepare, precheck, create, scale, remove, destroy")

    def _ignored(self, cluster):
        """Checks that may fail: those of kubeon_ignore_checks; with ignore_assert_errors, all that stand in the way."""
        named = self._facts.get("kubeon_ignore_checks") or []
        names = {name.strip() for name in (named.split(",") if isinstance(named, str) else named) if name.strip()}
        if boolean(self._facts.get("ignore_assert_errors", False), strict=False):
            _, out, _ = self._call(["precheck", cluster, "--accept-new", "--output", "json", "--quiet"])
            names |= _in_the_way(out)
        return ["--ignore", ",".join(sorted(names))] if names else []

    def _without(self, nodes):
        words = []
        for name in nodes:
            words += ["--without", self._address(name) or name]
        return words

    def _address(self, name):
        """The address of a host of the inventory; None when it is no host there."""
        if name not in self._facts["hostvars"]:
            return None
        own = self._facts["hostvars"][name]
        for variable in ("ip", "access_ip", "ansible_host"):
            if variable in own:
                return str(own[variable])
        return name

    def _cluster(self):
        """Its name: kubeon_cluster, else $CLUSTER_NAME, else kubernetes. A long or dotted one becomes a label."""
        name = str(self._facts.get("kubeon_cluster") or os.environ.get("CLUSTER_NAME") or "kubernetes")
        label = name.replace(".", "-")
        if len(label) > 63:
            label = label[:52].rstrip("-") + "-" + hashlib.sha256(name.encode()).hexdigest()[:10]
        return label

    # What Ansible knows

    def _inventory(self):
        groups, hostvars = self._facts["groups"], self._facts["hostvars"]
        hosts = {name: self._said(hostvars[name], lambda key: key in OF_A_HOST) for name in groups["all"]}
        children = {name: {"hosts": dict.fromkeys(members)} for name, members in groups.items() if name != "all"}
        children.pop("ungrouped", None)
        return {"all": {"hosts": hosts, "children": children}}

    def _variables(self):
        groups = self._facts["groups"]
        masters = next((groups[name] for name in MASTERS if groups.get(name)), groups["all"])

        def about_the_cluster(key):
            ours = key in OF_A_HOST or key in OF_ANSIBLE or key in OF_PLAYBOOKS
            return not ours and not key.startswith("ansible_")

        return self._said(self._facts["hostvars"][masters[0]], about_the_cluster) if masters else {}

    @staticmethod
    def _said(variables, wanted):
        said = {}
        for key in sorted(variables):
            if not wanted(key):
                continue
            try:
                said[key] = variables[key]
            except Exception as error:  # a template of an unknown name; kubeon refuses it where it matters
                display.vvv(f"kubeon: {key} cannot be filled in: {error}")
                said[key] = "{{ " + key + " }}"
        return said

    # The program

    def _turn(self, words, result):
        if os.environ.get("KUBEON_PROGRESS") == "json":
            words = [*words, "--progress", "json"]
        code, out, said = self._call(words)
        result.update(rc=code, changed=_changed(out))
        if code:
            result.update(failed=True, msg=_why(said) or f"kubeon ended with {code}")

    def _call(self, words):
        program = os.environ.get("KUBEON_PROGRAM", "kubeon")
        files = {
            "--inventory": _in_memory("hosts.yml", self._inventory()),
            "--vars": _in_memory("group_vars.yml", self._variables()),
        }
        command = [program, *words]
        for flag, descriptor in files.items():
            command += [flag, f"/dev/fd/{descriptor}"]
        # As Ansible itself uses them: for hosts that name no key and no account of their own.
        key = context.CLIARGS.get("private_key_file")
        if key:
            command += ["--default-pk-file", os.path.abspath(os.path.expanduser(key))]
        command += ["--default-user", context.CLIARGS.get("remote_user") or getpass.getuser()]
        display.v("kubeon: " + " ".join(command))
        try:
            return _run(command, tuple(files.values()))
        except FileNotFoundError:
            raise AnsibleActionFail(f"the program {program} is not there: put it on PATH, or set KUBEON_PROGRAM") from None
        finally:
            for descriptor in files.values():
                os.close(descriptor)


def _why(said):
    """The program's last words: what stands from its error on, or the reason that its last line of progress names."""
    for line in reversed(said):
        try:
            reason = json.loads(line).get("reason")
        except (ValueError, AttributeError):
            continue
        if reason:
            return reason
    at = max((i for i, line in enumerate(said) if line.startswith("error: ")), default=max(len(said) - 1, 0))
    return "\n".join(said[at:])


def _in_the_way(out):
    """Names of checks that stand in the way, by the report of a precheck."""
    try:
        hosts = json.loads(out).get("hosts", [])
    except ValueError:
        return set()
    checks = (check for host in hosts for check in host.get("checks", []))
    wrong = {check["check"] for check in checks if not check["ok"] and check.get("severity") == "error"}
    return wrong - NOT_TO_BE_IGNORED


def _in_memory(name, content):
    """A file that nobody else can open and that goes with the last process that holds it."""
    descriptor = os.memfd_create(name)
    with os.fdopen(os.dup(descriptor), "w", encoding="utf-8") as file:
        json.dump(content, file, default=str, indent=1)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _dies_with_its_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _run(command, descriptors):
    """Runs it; what it says on standard error is shown line by line, what it answers is kept."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=descriptors,
        preexec_fn=_dies_with_its_parent,
        text=True,
        errors="replace",
    ) as process:
        said = []

        def listen():
            for line in process.stderr:
                said.append(line.rstrip("\n"))
                display.display("  " + said[-1])

        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        out = process.stdout.read()
        listener.join()
        code = process.wait()
    if out and not out.lstrip().startswith("{"):
        for line in out.splitlines():
            display.display("  " + line)
    return code, out, said


def _changed(out):
    """Whether the answer says that something changed. Only looking changes nothing."""
    try:
        answer = json.loads(out)
    except ValueError:
        return False
    return bool(answer.get("changed", answer.get("destroyed", False)))
