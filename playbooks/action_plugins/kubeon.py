"""The action `kubeon`: runs the program kubeon with the inventory and variables of Ansible, and shows its output live.

    inventory, variables, key  ──►  two files in memory  ──►  kubeon create NAME --inventory … --vars …
    (templates filled in,            (nothing on disk,              │
     vaults opened)                   nothing in argv)              └─► its lines, live

It runs on the Ansible control node; the hosts need neither Python nor another program.
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

# Variables of a host; all other variables belong to the cluster.
HOST_VARIABLES = frozenset(
    """
    access_ip ansible_become_method ansible_become_pass ansible_become_password ansible_become_user
    ansible_connection ansible_host ansible_password ansible_port ansible_ssh_host ansible_ssh_pass
    ansible_ssh_password ansible_ssh_port ansible_ssh_private_key_file ansible_ssh_user ansible_user
    ip node_labels node_taints
    """.split()
)
# Variables that Ansible sets itself, in addition to those that begin with ansible_.
ANSIBLE_VARIABLES = frozenset(
    """
    discovered_interpreter_python environment group_names groups hostvars inventory_dir inventory_file
    inventory_hostname inventory_hostname_short omit play_hosts playbook_dir role_name role_names role_path
    """.split()
)
# Variables of these playbooks.
PLAYBOOK_VARIABLES = frozenset(
    "any_errors_fatal dead drain_nodes ignore_assert_errors kubeon_answer kubeon_cluster kubeon_ignore_checks kubeon_place "
    "kubeon_word node reset_nodes reset_confirmation skip_confirmation".split()
)
# Checks that cannot be ignored.
REQUIRED_CHECKS = frozenset("claim login reach system".split())
MASTERS = ("kube_control_plane", "kube-control-plane", "kube_master", "kube-master")
PR_SET_PDEATHSIG = 1


class ActionModule(ActionBase):
    """Runs kubeon once for the whole play."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _VALID_ARGS = frozenset(("act", "nodes", "dead"))

    def run(self, tmp=None, task_vars=None):
        """Runs the act: prepare, precheck, create, scale, upgrade, remove or destroy."""
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
        arguments = self._arguments(act, cluster)
        if self._task.check_mode and act != "precheck":
            arguments.append("--dry-run")
        self._run_kubeon(arguments, result)
        return result

    def _arguments(self, act, cluster):
        if act == "precheck":
            return ["precheck", cluster, "--accept-new", *self._ignored(cluster)]
        if act == "create":
            if context.CLIARGS.get("subset"):
                raise AnsibleActionFail("cluster.yml needs the whole inventory: remove --limit, or add workers with scale.yml --limit")
            return ["create", cluster, "--output", "json", "--accept-new", *self._ignored(cluster)]
        if act == "scale":
            limit = ",".join(self._facts.get("ansible_play_hosts_all", []))
            arguments = ["create", cluster, "--output", "json", "--accept-new", "--limit", limit]
            return arguments + self._ignored(cluster)
        if act == "upgrade":
            if context.CLIARGS.get("subset"):
                raise AnsibleActionFail("upgrade-cluster.yml changes the whole cluster: remove --limit")
            version = str(self._facts["kube_version"])
            arguments = ["upgrade", cluster, version, "--output", "json", "--accept-new", *self._ignored(cluster)]
            keeps = not boolean(self._facts.get("drain_nodes", True), strict=False)
            return arguments + (["--skip-evict"] if keeps else [])
        nodes = [name.strip() for name in str(self._task.args.get("nodes") or "").split(",") if name.strip()]
        if act == "destroy":
            arguments = ["destroy", cluster, "--output", "json", "--yes"]
            return arguments + self._without(nodes)
        if act == "remove":
            known = [self._address(name) for name in nodes]
            selector = "ip=" + ",".join(known) if all(known) else "name=" + ",".join(nodes)
            arguments = ["delon", cluster, selector, "--output", "json", "--yes"]
            return arguments + (self._without(nodes) if self._task.args.get("dead") else [])
        raise AnsibleActionFail(f"act {act!r} is not one of prepare, precheck, create, scale, upgrade, remove, destroy")

    def _ignored(self, cluster):
        """Checks that may fail: those in kubeon_ignore_checks; with ignore_assert_errors, also all failed checks."""
        named = self._facts.get("kubeon_ignore_checks") or []
        names = {name.strip() for name in (named.split(",") if isinstance(named, str) else named) if name.strip()}
        if boolean(self._facts.get("ignore_assert_errors", False), strict=False):
            _, out, _ = self._call(["precheck", cluster, "--accept-new", "--output", "json", "--quiet"])
            names |= _failed_checks(out)
        return ["--ignore", ",".join(sorted(names))] if names else []

    def _without(self, nodes):
        arguments = []
        for name in nodes:
            arguments += ["--without", self._address(name) or name]
        return arguments

    def _address(self, name):
        """The address of a host of the inventory; None for an unknown host."""
        if name not in self._facts["hostvars"]:
            return None
        own = self._facts["hostvars"][name]
        for variable in ("ip", "access_ip", "ansible_host"):
            if variable in own:
                return str(own[variable])
        return name

    def _cluster(self):
        """The name of the cluster: kubeon_cluster, else $CLUSTER_NAME, else kubernetes. It is converted to a valid label."""
        name = str(self._facts.get("kubeon_cluster") or os.environ.get("CLUSTER_NAME") or "kubernetes")
        label = name.replace(".", "-")
        if len(label) > 63:
            label = label[:52].rstrip("-") + "-" + hashlib.sha256(name.encode()).hexdigest()[:10]
        return label

    # The inventory and variables of Ansible

    def _inventory(self):
        groups, hostvars = self._facts["groups"], self._facts["hostvars"]
        hosts = {name: self._select(hostvars[name], lambda key: key in HOST_VARIABLES) for name in groups["all"]}
        children = {name: {"hosts": dict.fromkeys(members)} for name, members in groups.items() if name != "all"}
        children.pop("ungrouped", None)
        return {"all": {"hosts": hosts, "children": children}}

    def _variables(self):
        groups = self._facts["groups"]
        masters = next((groups[name] for name in MASTERS if groups.get(name)), groups["all"])

        def belongs_to_cluster(key):
            other = key in HOST_VARIABLES or key in ANSIBLE_VARIABLES or key in PLAYBOOK_VARIABLES
            return not other and not key.startswith("ansible_")

        return self._select(self._facts["hostvars"][masters[0]], belongs_to_cluster) if masters else {}

    @staticmethod
    def _select(variables, wanted):
        selected = {}
        for key in sorted(variables):
            if not wanted(key):
                continue
            try:
                selected[key] = variables[key]
            except Exception as error:  # a template with an unknown name; kubeon refuses it if it uses the variable
                display.vvv(f"kubeon: {key} cannot be rendered: {error}")
                selected[key] = "{{ " + key + " }}"
        return selected

    # The program

    def _run_kubeon(self, arguments, result):
        if os.environ.get("KUBEON_PROGRESS") == "json":
            arguments = [*arguments, "--progress", "json"]
        code, out, lines = self._call(arguments)
        result.update(rc=code, changed=_changed(out))
        if code:
            result.update(failed=True, msg=_reason(lines) or f"kubeon ended with {code}")

    def _call(self, arguments):
        program = os.environ.get("KUBEON_PROGRAM", "kubeon")
        files = {
            "--inventory": _in_memory("hosts.yml", self._inventory()),
            "--vars": _in_memory("group_vars.yml", self._variables()),
        }
        command = [program, *arguments]
        for flag, descriptor in files.items():
            command += [flag, f"/dev/fd/{descriptor}"]
        # As in Ansible, these are the defaults for hosts without their own key and user.
        key = context.CLIARGS.get("private_key_file")
        if key:
            command += ["--default-pk-file", os.path.abspath(os.path.expanduser(key))]
        command += ["--default-user", context.CLIARGS.get("remote_user") or getpass.getuser()]
        display.v("kubeon: " + " ".join(command))
        try:
            return _run(command, tuple(files.values()))
        except FileNotFoundError:
            raise AnsibleActionFail(f"cannot find the program {program}: put it on PATH, or set KUBEON_PROGRAM") from None
        finally:
            for descriptor in files.values():
                os.close(descriptor)


def _reason(lines):
    """The reason of a failure and the next command: from the last line of progress, else the output from the line `error: ` on."""
    for line in reversed(lines):
        try:
            end = json.loads(line)
            reason, command = end.get("reason"), end.get("next")
        except (ValueError, AttributeError):
            continue
        if reason:
            return f"{reason}\nnext: {command}" if command else reason
    at = max((i for i, line in enumerate(lines) if line.startswith("error: ")), default=max(len(lines) - 1, 0))
    return "\n".join(lines[at:])


def _failed_checks(out):
    """The names of failed checks in the report of a precheck, without those that cannot be ignored."""
    try:
        hosts = json.loads(out).get("hosts", [])
    except ValueError:
        return set()
    checks = (check for host in hosts for check in host.get("checks", []))
    wrong = {check["check"] for check in checks if not check["ok"] and check.get("severity") == "error"}
    return wrong - REQUIRED_CHECKS


def _in_memory(name, content):
    """A file in memory that no other program can open; the kernel removes it after its last process ends."""
    descriptor = os.memfd_create(name)
    with os.fdopen(os.dup(descriptor), "w", encoding="utf-8") as file:
        json.dump(content, file, default=str, indent=1)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _dies_with_its_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _run(command, descriptors):
    """Runs a command, shows its standard error line by line, and returns its exit code and output."""
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
        lines = []

        def read_stderr():
            for line in process.stderr:
                lines.append(line.rstrip("\n"))
                display.display("  " + lines[-1])

        reader = threading.Thread(target=read_stderr, daemon=True)
        reader.start()
        out = process.stdout.read()
        reader.join()
        code = process.wait()
    if out and not out.lstrip().startswith("{"):
        for line in out.splitlines():
            display.display("  " + line)
    return code, out, lines


def _changed(out):
    """Whether the JSON output reports a change. A precheck changes nothing."""
    try:
        answer = json.loads(out)
    except ValueError:
        return False
    return bool(answer.get("changed", answer.get("destroyed", False)))
