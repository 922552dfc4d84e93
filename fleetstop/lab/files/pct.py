"""Proxmox's `pct` for the practice fleet: exec, push, pull, list, status, config.

As in pve-container 6.1.10.

Texts, exit codes and order of checks are those of pve-container pct.pm and pve-common
CLIHandler.pm, RESTHandler.pm, JSONSchema.pm (line numbers in the comments).
"""

from __future__ import annotations

import _locale
import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import fleetstop.lab.files.pct_options as command_line
else:  # beside this script in the lab's bin directory
    import pct_options as command_line

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LXCPATH = f"{ROOT}/lxc"
NOT_RUNNING = {
    "push": "can only push files to a running CT\n",
    "pull": "can only pull files from a running VM at /usr/share/perl5/PVE/CLI/pct.pm line 664.\n",
}
FORCED_PATH = "/sbin:/bin:/usr/sbin:/usr/bin"  # CLIHandler.pm:688


class Died(Exception):
    """What Perl's `die` prints, and the exit code it leaves (errno if set, else 255)."""

    def __init__(self, text: str, code: int = 255) -> None:
        super().__init__(text)
        self.code = code


def original_environment() -> dict[bytes, bytes]:
    """The environment as it came: Python itself may add LC_CTYPE (PEP 538), pct does not."""
    with open("/proc/self/environ", "rb") as stream:
        entries = stream.read().split(b"\0")
    return {key: value for key, sep, value in (e.partition(b"=") for e in entries) if sep}


def locale_is_utf8(environment: dict[bytes, bytes]) -> bool:
    named = (environment.get(key, b"") for key in (b"LC_ALL", b"LC_CTYPE", b"LANG"))
    name = os.fsdecode(next((value for value in named if value), b"C"))
    try:
        _locale.setlocale(_locale.LC_CTYPE, name)
    except Exception:  # _locale.Error, unknown to typeshed
        return False  # a locale that is not generated counts as C
    return _locale.nl_langinfo(_locale.CODESET).upper() in ("UTF-8", "UTF8")


def node_name() -> str:
    return os.listdir(f"{ROOT}/pve/nodes")[0]


def load_config(vmid: str) -> dict[str, str]:
    """PVE::LXC::Config->load_config: only whether nodes/NODE/lxc/VMID.conf exists on this node."""
    relative = f"nodes/{node_name()}/lxc/{vmid}.conf"
    try:
        with open(f"{ROOT}/pve/{relative}", encoding="utf-8") as stream:
            lines = [line.rstrip("\n").partition(":") for line in stream]
    except FileNotFoundError:
        raise Died(f"Configuration file '{relative}' does not exist\n", code=2) from None
    return {key: value.strip() for key, colon, value in lines if colon}


def check_running(vmid: str) -> bool:
    """The monitor's command socket, LXC.pm:83-116: starting, stopping, frozen count as running."""
    wanted = f"@{LXCPATH}/{vmid}/command"
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as stream:
        return any(line.rstrip("\n").endswith(" " + wanted) for line in stream)


def run_exec(options: command_line.Options, environment: dict[bytes, bytes]) -> None:
    """pct.pm:214-255; exec in the true sense: this PID becomes lxc-attach."""
    vmid, words = str(options["vmid"]), options["extra-args"]
    load_config(vmid)
    if not check_running(vmid):
        raise Died(f"container '{vmid}' not running!\n")
    if not words:
        raise Died("missing command at /usr/share/perl5/PVE/CLI/pct.pm line 246.\n")
    for name in (b"SSL_CERT_FILE", b"SSL_CERT_DIR"):  # pct.pm:162-169
        environment.pop(name, None)
    keep = "--keep-env" if options.get("keep-env", "1") == "1" else "--clear-env"
    argv = ["lxc-attach", "-P", LXCPATH, "-n", vmid, keep, "--", *words]
    os.execvpe("lxc-attach", [word.encode() for word in argv], environment)  # noqa: S606


def run_copy(command: str, options: command_line.Options) -> None:
    """pct.pm:606-800. Whether it runs is asked first: also of one that is not there at all."""
    if TYPE_CHECKING:
        import fleetstop.lab.files.pct_files as files
    else:  # its libraries are for these two only: exec must start fast
        import pct_files as files
    vmid = str(options["vmid"])
    shown = f"/run/lock/lxc/pve-config-{vmid}.lock"
    lock = files.locked(f"{ROOT}{shown}", shown)
    if lock is None:
        raise Died("", code=4)
    if not check_running(vmid):
        raise Died(NOT_RUNNING[command])
    config = load_config(vmid)
    first = files.init_of(LXCPATH, vmid)
    if first is None:
        raise Died(NOT_RUNNING[command])
    files.in_worker(command, first, options, unprivileged=config.get("unprivileged") == "1")
    os.close(lock)


def run_list() -> None:
    """pct.pm:1057-1072: nothing at all, no header either, where the node has no container."""
    names = os.listdir(f"{ROOT}/pve/nodes/{node_name()}/lxc")
    vmids = sorted(int(name[:-5]) for name in names if name.endswith(".conf"))
    if vmids:
        print("%-10s %-10s %-12s %-20s" % ("VMID", "Status", "Lock", "Name"))
    for vmid in vmids:
        config = load_config(str(vmid))
        name = "".join((config.get("hostname") or f"CT{vmid}").split())
        status = "running" if check_running(str(vmid)) else "stopped"
        print("%-10s %-10s %-12s %-20s" % (vmid, status, config.get("lock", ""), name))


def run_status(options: command_line.Options) -> None:
    vmid = str(options["vmid"])
    config = load_config(vmid)
    status = "running" if check_running(vmid) else "stopped"
    if options.get("verbose") != "1":
        print(f"status: {status}")
        return
    name = config.get("hostname", f"CT{vmid}")
    print(f"name: {name}\nstatus: {status}\ntype: lxc\nvmid: {vmid}")


def run_config(options: command_line.Options) -> None:
    """Sorted keys, the raw lxc.* lines last (pct.pm:1073-1093)."""
    config = load_config(str(options["vmid"]))
    for key in sorted(config, key=lambda name: (name.startswith("lxc."), name)):
        print(f"{key}: {config[key]}")


def dispatch(argv: list[str], environment: dict[bytes, bytes]) -> None:
    if not argv:
        raise Died("ERROR: no command specified\n" + command_line.usage())
    if os.geteuid() != 0:
        raise Died("please run as root\n")
    command = command_line.resolve(argv[0])
    if command in command_line.NOT_PLAYED:
        raise Died(f"pct {command}: not played by this practice fleet\n")
    if command not in command_line.COMMANDS:
        raise Died(f"ERROR: unknown command 'pct {command}'\n" + command_line.usage())
    options = command_line.get_options(command, argv[1:], locale_is_utf8(environment))
    if command == "exec":
        run_exec(options, environment)
    elif command in ("push", "pull"):
        run_copy(command, options)
    elif command == "list":
        run_list()
    elif command == "status":
        run_status(options)
    else:
        run_config(options)


def spend_start_up() -> None:
    """Perl loads PVE's modules for 0.3-1.5 s of CPU; the file `pct_cost` says how long here."""
    try:
        with open(f"{ROOT}/pct_cost", encoding="ascii") as stream:
            seconds = float(stream.read())
    except (OSError, ValueError):
        return
    while time.process_time() < seconds:
        pass


def note_call(argv: list[str]) -> None:
    if os.access(ROOT, os.W_OK):  # not root: the real tool refuses in a moment
        with open(f"{ROOT}/pct.log", "a", encoding="utf-8") as stream:
            stream.write(ascii(argv) + "\n")


def main() -> int:
    argv = sys.argv[1:]
    note_call(argv)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, Perl hands them on
        signal.signal(number, signal.SIG_DFL)
    environment = original_environment()
    environment[b"PATH"] = FORCED_PATH.encode()
    os.environ["PATH"] = FORCED_PATH
    spend_start_up()
    try:
        dispatch(argv, environment)
    except command_line.BadRequest as error:
        sys.stderr.write(f"400 {error}{command_line.usage_of(argv[0])}")
        return 255
    except Died as error:
        sys.stderr.write(str(error))
        return error.code
    return 0


if __name__ == "__main__":
    sys.exit(main())
