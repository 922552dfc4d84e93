from __future__ import annotations

from pathlib import Path

import pytest

from fleetstop.config import load_inventory
from fleetstop.core.inventory import Container, Host, Inventory, Launch, Launcher
from fleetstop.errors import BadConfig

ROOT = Path(__file__).resolve().parents[2]
PVE = "hosts: {pve1: {ssh: root@10.1.2.6}}\n"
MIDDLE = "the file ends in the middle of something"
WAYS = "script, module, exe, pgrep, pid, pidfile, unit, tmux, gpu"
SECRET = "must be a mapping with one of env, file, command, keyring, like {env: PVE_TOKEN}"


def load(tmp_path: Path, **files: str) -> Inventory:
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return load_inventory(tmp_path, {}, tmp_path, tmp_path / "none")


def complaint(tmp_path: Path, **files: str) -> str:
    with pytest.raises(BadConfig) as caught:
        load(tmp_path, **files)
    assert caught.value.exit_code == 3
    return caught.value.message


def in_job(key: str) -> str:
    return f"{PVE}containers:\n ct1:\n  host: pve1\n  vmid: 100\n  jobs:\n   a:\n    {key}\n"


def in_host(key: str) -> str:
    return f"hosts:\n pve1:\n  ssh: root@10.1.2.6\n  {key}\n"


JOB = "containers.ct1.jobs.a"
API = 'api: {url: "https://h:8006", token_id: "u@pve!t", token_secret: {env: T}'


# A file, and what is said of it: data for the schema's tests too.
BAD_INVENTORIES: list[tuple[str, str | None]] = [
    # as YAML
    ("", "1: the file is empty"),
    ("# nothing\n", "1: the file is empty"),
    ("- a\n", "1: must be a mapping, with lines like `key: value`"),
    ("hosts:\n\tpve1: x\n", "2: a tab cannot indent; use spaces"),
    ("hosts: {}\n---\nhosts: {}\n", "2: a second document starts here; one is allowed"),
    ("hosts: {}\nhosts: {}\n", "2: duplicate key 'hosts', first in line 1"),
    (
        "hosts:\n h: {ssh: a}\n h: {ssh: b}\n",
        "3: hosts: duplicate key 'h', first in line 2",
    ),
    ("hosts: " + "[" * 40, "1: nested deeper than 32 levels"),
    ("hosts: {a: \x00}\n", "1: character '\\x00' is not allowed"),
    (
        "hosts: &a [*a]\n",
        "1: hosts[0]: an alias (*name) without its anchor (&name) before it",
    ),
    ("hosts: !!python/name:os.system x\n", None),
    ("? [a]\n: b\n", "1: a key must be a plain word"),
    # keys and names
    ("host: {}\n", "1: unknown key 'host', did you mean 'hosts'?"),
    ("on: yes\n", "1: unknown key 'on'"),
    ("defaults: {jobs: {}}\n", "1: defaults: unknown key 'jobs', did you mean 'job'?"),
    (
        "defaults:\n  job:\n    playbok: now\n",
        "3: defaults.job: unknown key 'playbok', did you mean 'playbook'?",
    ),
    (
        "hosts: {'a b': {ssh: x}}\n",
        "1: hosts: name 'a b' is not allowed: "
        "letters, digits and _ . - only, a letter or digit first",
    ),
    (
        'hosts: {"\\e[2J": {ssh: x}}\n',
        "1: hosts: name '\\x1b[2J' is not allowed: "
        "letters, digits and _ . - only, a letter or digit first",
    ),
    ("hosts: [pve1]\n", "1: hosts: must be a mapping, not a list"),
    (
        "hosts:\n h: {ssh: a}\ngroups:\n h: [h]\n",
        "4: groups.h: this name is already taken by hosts.h in f/fleet.yaml:2",
    ),
    # hosts
    (
        "hosts:\n pve1: {}\n",
        "2: hosts.pve1: key 'ssh' is missing, like root@10.1.2.6 or an alias of ~/.ssh/config",
    ),
    (in_host("prot: 1"), "4: hosts.pve1: unknown key 'prot', did you mean 'port'?"),
    (in_host("port: 0"), "4: hosts.pve1.port: must be a number from 1 to 65535, not '0'"),
    (in_host("port: '22'"), "4: hosts.pve1.port: must be a number; write 22 without quotes"),
    (in_host("port: 022"), "4: hosts.pve1.port: must be a number from 1 to 65535, not '022'"),
    (
        in_host("sudo: allways"),
        "4: hosts.pve1.sudo: must be auto or never or always, not 'allways',"
        " did you mean 'always'?",
    ),
    (in_host("pct: pct"), "4: hosts.pve1.pct: must be an absolute path, not 'pct'"),
    (
        in_host("protected: yes"),
        "4: hosts.pve1.protected: must be true or false, not 'yes'",
    ),
    (
        "hosts: {h: {ssh: 'root@h:22'}}\n",
        "1: hosts.h.ssh: a port is not written after the host",
    ),
    (
        "hosts: {h: {ssh: -oProxyCommand=x}}\n",
        "1: hosts.h.ssh: the host's name or address is missing or not one",
    ),
    (
        in_host("jump: -x"),
        "4: hosts.pve1.jump: the host's name or address is missing or not one;"
        " write user@host or user@host:port",
    ),
    (
        in_host("api: {url: 'https://h:8006'}"),
        "4: hosts.pve1.api: key 'token_id' is missing",
    ),
    (
        in_host(API.replace("{env: T}", "hunter2") + "}"),
        f"4: hosts.pve1.api.token_secret: {SECRET}; a secret is never written here",
    ),
    (
        in_host(API.replace("env", "envv") + "}"),
        f"4: hosts.pve1.api.token_secret: {SECRET}",
    ),
    (
        in_host(API.replace("https", "http") + "}"),
        "4: hosts.pve1.api.url: must be like https://10.1.2.6:8006, not 'http://h:8006'",
    ),
    (
        in_host(API.replace("!t", "!t=hunter2") + "}"),
        "4: hosts.pve1.api.token_id: must be like fleet@pve!fleetstop, without the secret",
    ),
    (
        in_host(API + ", fingerprint: 'AB'}"),
        "4: hosts.pve1.api.fingerprint: must be a SHA-256 fingerprint, 32 pairs like AB:CD:EF",
    ),
    # containers
    (
        f"{PVE}containers: {{ct1: {{host: pve1}}}}\n",
        "2: containers.ct1: key 'vmid' is missing",
    ),
    ("containers: {ct1: {vmid: 100}}\n", "1: containers.ct1: key 'host' is missing"),
    (
        f"{PVE}containers: {{ct1: {{host: pve2, vmid: 100}}}}\n",
        "2: containers.ct1.host: no host 'pve2', did you mean 'pve1'?",
    ),
    (
        f"{PVE}containers: {{ct1: {{host: pve1, vmid: 99}}}}\n",
        "2: containers.ct1.vmid: must be a number from 100 to 999999999, not '99'",
    ),
    (
        f"{PVE}containers:\n a: {{host: pve1, vmid: 100}}\n b: {{host: pve1, vmid: 100}}\n",
        "4: containers.b: VMID 100 on pve1 is a in f/fleet.yaml:3",
    ),
    # jobs
    (in_job("log: /x"), f"7: {JOB}: key 'match' is missing"),
    (
        in_job("match: train.py"),
        f"8: {JOB}.match: must say how; write match: {{script: train.py}}",
    ),
    (
        in_job("match: {script: a}\n    gpus: all"),
        f"9: {JOB}.gpus: must be a list, like [0, 1]",
    ),
    (
        f"{PVE}containers: {{ct1: {{host: pve1, vmid: '200'}}}}\n",
        "2: containers.ct1.vmid: must be a number; write 200 without quotes",
    ),
    # not quite YAML
    ("hosts: [a, b\n", f"2: {MIDDLE}: a bracket is not closed"),
    ("hosts: 'a\n", f"2: {MIDDLE}: a quote is not closed"),
    ("hosts:\n  a: 1\n b: 2\n", "3: the indentation does not fit the lines above"),
    ("hosts: {}\nfoo\ngroups: {}\n", "3: a line without its colon; a line is `key: value`"),
    ("hosts: [a, b}\n", "1: a comma or a closing bracket is missing, before this or here"),
    (in_job("match: {}"), f"8: {JOB}.match: exactly one of {WAYS} is needed, none is given"),
    (
        in_job("match: {script: a, pid: 7}"),
        f"8: {JOB}.match: exactly one of {WAYS} is needed, given are script and pid",
    ),
    (
        in_job("match: {scirpt: a}"),
        f"8: {JOB}.match: unknown key 'scirpt', did you mean 'script'?",
    ),
    (in_job("match: {pgrep: ''}"), f"8: {JOB}.match: the pattern is empty"),
    (
        in_job("match: {pgrep: '(a'}"),
        f"8: {JOB}.match: the pattern has a ( that is not closed",
    ),
    (
        in_job("match: {pid: 1}"),
        f"8: {JOB}.match.pid: must be a number from 2 to 4194304, not '1'",
    ),
    (in_job("match: {script: }"), f"8: {JOB}.match.script: must be text, not nothing"),
    (
        in_job("match: {script: a}\n    stop_signal: SIGTEMR"),
        f"9: {JOB}.stop_signal: unknown signal 'SIGTEMR', did you mean 'TERM'?",
    ),
    (
        in_job("match: {script: a}\n    stop_signal: KILL"),
        f"9: {JOB}.stop_signal: KILL cannot make a job save; no process can handle it",
    ),
    (
        in_job("match: {script: a}\n    max_loss: soon"),
        f"9: {JOB}.max_loss: 'soon' is not a duration; write 90s, 3m, 1h30m or forever",
    ),
    (
        in_job("match: {script: a}\n    trainers: leafs"),
        f"9: {JOB}.trainers: must be leaves or all, not 'leafs', did you mean 'leaves'?",
    ),
    (
        in_job("match: {script: a}\n    checkpoints: ck"),
        f"9: {JOB}.checkpoints: must be an absolute path, not 'ck'",
    ),
    (in_job("match: {script: a}\n    gpus: [0, 0]"), f"9: {JOB}.gpus: names a GPU twice"),
    (
        in_job("match: {script: a}\n    launch: {run: /root/run.sh}"),
        f"9: {JOB}.launch.run: must be a list of words, like [/root/run.sh, --fast]",
    ),
    (
        in_job("match: {script: a}\n    launch: {run: [a], env: {'A B': 1}}"),
        f"9: {JOB}.launch.env['A B']: is not the name of an environment variable",
    ),
    (
        in_job("match: {script: a}\n    launch: {run: [a], launcher: tmuxx}"),
        f"9: {JOB}.launch.launcher: must be setsid or tmux or systemd, not 'tmuxx',"
        " did you mean 'tmux'?",
    ),
    (
        in_job("match: {script: a}\n    launch: {run: [a], launcher: {tmux: 'a:b'}}"),
        f"9: {JOB}.launch.launcher.tmux: may have letters, digits, - and _ only",
    ),
    (
        in_job("match: {script: a}\n    launch: {run: [a], launcher: {systemd: a}}"),
        f"9: {JOB}.launch.launcher: unknown key 'systemd'",
    ),
    (
        in_job("match: {script: a}\n    healthcheck: {within: forever}"),
        f"9: {JOB}.healthcheck.within: must end: 'forever' is not allowed here",
    ),
    (
        in_job("match: {script: a}\n    deploy: {ignore: '*.log'}"),
        f'9: {JOB}.deploy.ignore: must be a list of patterns, like ["*.log", data/]',
    ),
    (
        in_job("match: {script: a}\n    deploy: {ignore: [data/, '!']}"),
        f"9: {JOB}.deploy.ignore[1]: '!' is no pattern of .gitignore",
    ),
    (
        in_job("match: {script: a}\n    deploy: {ignore: ['#x']}"),
        f"9: {JOB}.deploy.ignore[0]: '#x' would leave nothing out; write it as in .gitignore",
    ),
    (
        in_job("match: {script: a}\n    deploy: {ignored: [a]}"),
        f"9: {JOB}.deploy: unknown key 'ignored', did you mean 'ignore'?",
    ),
    # groups
    (f"{PVE}groups: {{g: []}}\n", "2: groups.g: must list at least one member"),
    (f"{PVE}groups: {{g: [pve]}}\n", None),
    (
        f"{PVE}groups:\n g: [h]\n h: [g]\n",
        "3: groups.g: groups contain each other: g > h > g",
    ),
    (
        f"{PVE}groups: {{g: ['ct9*']}}\n",
        "2: groups.g[0]: 'ct9*' fits no container and no host with a job",
    ),
    (
        f"{PVE}groups: {{g: ['root@h/200']}}\n",
        "2: groups.g[0]: 'root@h/200' is an address; members are names of this inventory",
    ),
]


@pytest.mark.parametrize(("text", "message"), BAD_INVENTORIES)
def test_a_mistake_is_told_with_its_place(tmp_path: Path, text: str, message: str | None) -> None:
    directory = tmp_path / "f"
    directory.mkdir()
    (directory / "fleet.yaml").write_text(text)
    with pytest.raises(BadConfig) as caught:
        load_inventory(Path("f"), {}, tmp_path, tmp_path)
    special = {
        "hosts: !!py": "1: hosts: tags (words that start with !) have no meaning here",
        PVE
        + "groups: {g: [pve]}": "2: groups.g[0]: no container or host 'pve', did you mean 'pve1'?",
    }
    expected = message or next(say for start, say in special.items() if text.startswith(start))
    assert caught.value.message == f"f/fleet.yaml:{expected}"
    assert "hunter2" not in caught.value.message + caught.value.hint


def test_a_bomb_of_aliases_is_refused_at_once(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "stands for more than 500000 values" in complaint(tmp_path, fleet="\n".join(lines))


def test_what_is_not_text_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_bytes(b"hosts:\n  a\xff: 1\n")
    assert complaint(tmp_path) == "fleet.yaml:2: not UTF-8 text"


def test_the_example_loads_and_says_what_it_shows() -> None:
    inventory = load_inventory(None, {}, ROOT, ROOT / "none")
    assert inventory.sources == ("inventory/fleet.yaml",)
    train = inventory.containers["ct200"].jobs[0]
    assert (train.name, train.stop_signal, train.playbook) == ("train", "INT", "standard")
    assert train.launch is not None
    assert train.launch.env == {"DFLASH_PROFILE_INTERVAL": "60"}
    assert train.healthcheck is not None
    assert train.healthcheck.within_s == 600
    assert train.deploy is not None
    assert (train.deploy.dest, train.deploy.ignore) == ("/root", ("*.log", "data/"))
    assert inventory.hosts["box7"].jobs[0].match.module == "pretrain.main"
    assert inventory.groups == {"training": ("ct200", "box7:train")}


def test_every_fleet_file_of_a_directory_is_merged(tmp_path: Path) -> None:
    inventory = load(
        tmp_path,
        fleet="defaults: {container: {host: pve1, tags: [gpu]}}\ncontainers: {ct1: {vmid: 100}}\n",
        fleet_b=PVE
        + "containers: {ct2: {vmid: 101, tags: []}}\ngroups: {g: [ct1, '@h'], h: [ct2]}\n",
        other="not: read",
    )
    assert inventory.hosts == {"pve1": Host(name="pve1", ssh="root@10.1.2.6")}
    assert inventory.containers == {
        "ct1": Container(name="ct1", host="pve1", vmid=100, tags=("gpu",)),
        "ct2": Container(name="ct2", host="pve1", vmid=101),
    }
    assert inventory.groups == {"g": ("ct1", "@h"), "h": ("ct2",)}
    assert inventory.sources == ("fleet.yaml", "fleet_b.yaml")


def test_a_name_twice_names_both_files(tmp_path: Path) -> None:
    said = complaint(tmp_path, fleet1=PVE, fleet2="\n" + PVE)
    assert said == "fleet2.yaml:2: hosts: 'pve1' is already in fleet1.yaml:1"


def test_local_paths_count_from_their_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    keys = "identity: keys/id, known_hosts: ~/kh, " + API + ", ca: ca.pem}"
    keys = keys.replace("{env: T}", "{file: t}")
    text = f"hosts: {{h: {{ssh: 'root@[::1]', {keys}}}}}\n"
    host = load(tmp_path, fleet=text).hosts["h"]
    assert (host.ssh, host.identity) == ("root@::1", str(tmp_path / "keys/id"))
    assert host.known_hosts == "/home/ann/kh"
    assert host.api is not None
    assert host.api.ca == str(tmp_path / "ca.pem")
    assert host.api.token_secret == {"file": str(tmp_path / "t")}


def test_words_stay_words(tmp_path: Path) -> None:
    launch = "launch: {run: [on, no, 1_000, 0o17, 2001-01-01, ''], env: {A: 012, B: yes}}"
    inventory = load(tmp_path, fleet=in_job("match: {script: a}\n    " + launch))
    got = inventory.containers["ct1"].jobs[0].launch
    assert got is not None
    assert got.run == ("on", "no", "1_000", "0o17", "2001-01-01", "")
    assert got.env == {"A": "012", "B": "yes"}


def test_the_first_place_that_has_an_inventory_wins(tmp_path: Path) -> None:
    def place(name: str) -> Path:
        directory = tmp_path / name
        directory.mkdir(parents=True)
        (directory / "fleet.yaml").write_text(f"hosts: {{{directory.name}: {{ssh: h}}}}\n")
        return directory

    def found(path: Path | None = None, **env: str) -> list[str]:
        return list(load_inventory(path, env, tmp_path, tmp_path / "user").hosts)

    assert found() == []
    place("user")
    assert found() == ["user"]
    place("inventory")
    assert found(FLEETSTOP_INVENTORY="") == ["inventory"]
    place("variable")
    assert found(FLEETSTOP_INVENTORY="variable") == ["variable"]
    place("said")
    assert found(Path("said/fleet.yaml"), FLEETSTOP_INVENTORY="variable") == ["said"]


def test_an_inventory_that_was_asked_for_must_be_there(tmp_path: Path) -> None:
    hint = "of an inventory directory every fleet*.yaml is read"
    for path, env, message in (
        (Path("gone"), {}, "--inventory: there is no gone"),
        (tmp_path, {}, "--inventory: there is no fleet*.yaml in ."),
        (None, {"FLEETSTOP_INVENTORY": "gone"}, "$FLEETSTOP_INVENTORY: there is no gone"),
    ):
        with pytest.raises(BadConfig) as caught:
            load_inventory(path, env, tmp_path, tmp_path)
        assert (caught.value.message, caught.value.hint) == (message, hint)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('{resume: ["--resume", "{checkpoint}"]}', Launch(resume=("--resume", "{checkpoint}"))),
        ("{launcher: tmux}", Launch(launcher=Launcher("tmux"))),
        ("{env: {A: b}}", Launch(env={"A": "b"})),
    ],
)
def test_what_a_launch_leaves_unsaid_is_as_what_runs(
    tmp_path: Path, written: str, read: Launch
) -> None:
    """Also what is run: only how it resumes, or what carries it, has to be said."""
    text = f"match: {{script: a}}\n    launch: {written}"
    assert load(tmp_path, fleet=in_job(text)).containers["ct1"].jobs[0].launch == read


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("", Launcher()),
        (", launcher: setsid", Launcher("setsid")),
        (", launcher: systemd", Launcher("systemd")),
        (", launcher: tmux", Launcher("tmux")),
        (", launcher: {tmux: my-run}", Launcher("tmux", "my-run")),
    ],
)
def test_what_carries_a_launched_trainer(tmp_path: Path, written: str, read: Launcher) -> None:
    text = f"match: {{script: a}}\n    launch: {{run: [a]{written}}}"
    launch = load(tmp_path, fleet=in_job(text)).containers["ct1"].jobs[0].launch
    assert launch is not None
    assert launch.launcher == read
