"""What carries a trainer that we launch: nothing, a tmux session, a systemd unit. Runs nothing.

`PYTHON -I BASE/supervise.py SPEC` starts a trainer and prints one line: `started PID START`, status
0, or `failed SENTENCE`, status 1. With `prefix(…)` in front it is carried, and the same is true: in
a pane or a unit stay.py puts that line into SPEC.report, for which the shell text here waits.

Measured on systemd 252, tmux 3.3a. With KillMode=mixed the end of a unit's main process, whatever
ended it, is KILL for all that is left in the unit (systemd.kill(5)), the trainer; so KillMode is
`process`, and no time is set after which anything is killed.
"""

from __future__ import annotations

from typing import Any

from fleetstop.core.inventory import Job, Launcher
from fleetstop.core.launching.spec import LaunchSpec

# what the job that ended was carried by may be on its way out: so long its name is waited for
_FREE_TRIES = 100
_HEARD_TRIES = 300

_COMMON = r"""
set -f
name=$1 signal=$2 python=$3 base=${5%/*} spec=$6 report=$6.report
cd / && rm -f -- "$report" "$report.new"
failed() { printf failed; printf ' %s' $*; echo; exit 1; }
doubled() { # WORD -> $text: $$ for each $
  text= rest=$1
  while :; do
    case $rest in
    *\$*) text=$text${rest%%\$*}\$\$ rest=${rest#*\$} ;;
    *) text=$text$rest && return ;;
    esac
  done
}
pause() { sleep 0.1 2>/dev/null || sleep 1; }
wait_until_free() {
  tries=0
  while lives; do
    tries=$((tries + 1))
    [ $tries -le FREE_TRIES ] || return 1
    pause
  done
}
"""

_TMUX = r"""
unset TMUX TMUX_PANE
command -v tmux >/dev/null 2>&1 || failed there is no tmux
lives() {
  case $(tmux list-panes -s -t "=$name" -F '#{pane_dead}' 2>/dev/null) in
  *0*) return 0 ;;
  *) return 1 ;;
  esac
}
wait_until_free || failed "the tmux session $name has a living pane (tmux attach -t $name)"
set -- "$python" -I "$base/stay.py" "$spec"
for each; do # a ; at the end of a word would begin its next command
  case $each in *\;) each=${each%?}\\\; ;; esac
  shift
  set -- "$@" "$each"
done
if tmux has-session -t "=$name" 2>/dev/null; then
  set -- respawn-window -k -t "=$name:" -- "$@"
else
  set -- new-session -d -s "$name" -- "$@"
fi
said=$(tmux "$@" ';' set-option -w -t "=$name:" remain-on-exit on 2>&1) || failed "tmux: $said"
"""

_SYSTEMD = r"""
[ -d /run/systemd/system ] || failed systemd does not run here
command -v systemd-run >/dev/null 2>&1 || failed there is no systemd-run
lives() {
  state=$(systemctl show -p ActiveState "$name.service" 2>&1)
  case $state in
  *=inactive* | *=failed*) return 1 ;;
  *) return 0 ;;
  esac
}
wait_until_free || failed "the unit $name.service is not free: $state"
systemctl reset-failed "$name.service" 2>/dev/null
doubled "$python" # it would put variables into the words
set -- "$text" -I
doubled "$base/stay.py"
set -- "$@" "$text"
doubled "$spec"
set -- "$@" "$text"
version=$(systemctl --version 2>/dev/null)
version=${version#systemd }
version=${version%%[!0-9]*}
oom=--property=OOMPolicy=continue
[ "${version:-0}" -ge 243 ] || oom=--property=TasksMax=infinity
said=$(systemd-run --quiet --no-ask-password --collect --unit="$name" --property=KillMode=process \
  --property=KillSignal="SIG$signal" --property=TimeoutStopSec=infinity --property=Restart=no \
  --property=TasksMax=infinity "$oom" -- "$@" 2>&1) || failed "systemd-run: $said"
"""

# Once the spec is taken away, who has not read it yet starts nothing any more.
_WAIT = r"""
tries=0
while [ ! -s "$report" ]; do
  tries=$((tries + 1))
  if ! lives; then
    pause
    [ -s "$report" ] || failed "it ended before it told whether the trainer started"
  fi
  [ $tries -ne HEARD_TRIES ] || rm -f -- "$spec"
  [ $tries -le $((HEARD_TRIES + FREE_TRIES)) ] || failed "nothing was heard of it: see $report"
  pause
done
IFS= read -r line <"$report"
rm -f -- "$report"
printf '%s\n' "$line"
case $line in started\ *) exit 0 ;; *) exit 1 ;; esac
"""


def launcher_of(job: Job) -> Launcher:
    return job.launch.launcher if job.launch is not None else Launcher()


def carrier(job: Job) -> str | None:
    """The tmux session's name, or the unit's (without .service); None where nothing carries it."""
    launcher = launcher_of(job)
    if launcher.kind == "setsid":
        return None
    own = job.match.tmux if launcher.kind == "tmux" else None
    # tmux makes _ of a dot in a session's name, and would then not find the name that it was given
    made = f"fleetstop-{job.name}"
    made = made.replace(".", "_") if launcher.kind == "tmux" else made
    return launcher.session or own or made


def carried_in(job: Job) -> str | None:
    """The same for people: `tmux session fleetstop-train`, `unit fleetstop-train`."""
    name, kind = carrier(job), launcher_of(job).kind
    return None if name is None else f"{'tmux session' if kind == 'tmux' else 'unit'} {name}"


def prefix(job: Job) -> tuple[str, ...]:
    """The words in front of `PYTHON -I BASE/supervise.py SPEC`; none where nothing carries it. In a
    pane or a unit stay.py, which has to lie beside supervise.py, is run instead."""
    name = carrier(job)
    if name is None:
        return ()
    text = _COMMON + (_TMUX if launcher_of(job).kind == "tmux" else _SYSTEMD) + _WAIT
    for word, number in (("FREE_TRIES", _FREE_TRIES), ("HEARD_TRIES", _HEARD_TRIES)):
        text = text.replace(word, str(number))
    # where it is not known what makes the job save, TERM is sent, and is not handed on
    return ("sh", "-c", text, "fleetstop", name, job.stop_signal or "TERM")


def words(job: Job, spec: LaunchSpec, stop: str | None = None) -> dict[str, Any]:
    """The spec as the scripts read it, `prefix` with it for who runs the command. `stop`: the
    command that ends the job gently, for who types Ctrl-C into its pane."""
    told = spec.words()
    kind = launcher_of(job).kind
    if kind == "setsid":
        return told
    output = "pane" if kind == "tmux" and spec.log is not None else "log"
    hand_on = job.stop_signal if kind == "systemd" else None
    told |= {"output": output, "hand_on": hand_on, "stop": stop}
    return {**told, "prefix": list(prefix(job))}


def question(job: Job) -> tuple[str, ...] | None:
    """What tells, before anything is stopped, whether the name will be free; see `in_the_way`."""
    name = carrier(job)
    if name is None:
        return None
    if launcher_of(job).kind == "tmux":
        return ("tmux", "list-panes", "-s", "-t", f"={name}", "-F", "#{pane_dead} #{pane_pid}")
    return ("systemctl", "show", "-p", "ActiveState,MainPID", f"{name}.service")


def in_the_way(job: Job, answer: str, ours: frozenset[int]) -> str | None:
    """Why it could not be launched: the name is somebody else's. `ours`: the PIDs, as the
    container counts, of the job that is about to be stopped and of all that stands above it."""
    name = carrier(job)
    if launcher_of(job).kind == "tmux":
        living = [line[2:] for line in answer.splitlines() if line.startswith("0 ")]
        other = [pid for pid in living if pid.isdigit() and int(pid) not in ours]
        if other:
            return (
                f"the tmux session {name} has a living pane that is not this job's"
                f" (its first process is {other[0]}): close it, or name another session"
            )
    if launcher_of(job).kind == "systemd":
        told = dict(line.partition("=")[::2] for line in answer.splitlines())
        if "ActiveState" not in told:
            return "systemd does not run there, or does not answer"
        over = told.get("ActiveState") in ("inactive", "failed")
        if not over and int(told.get("MainPID") or 0) not in ours:
            return f"the unit {name}.service runs, and its main process is not this job's"
    return None


def not_found_again(job: Job) -> str | None:
    """Why the job's own `match` would not find what its launcher starts."""
    kind, name = launcher_of(job).kind, carrier(job)
    if job.match.tmux is not None and (kind != "tmux" or name != job.match.tmux):
        return f"match looks in the tmux session {job.match.tmux} only: launcher must be tmux"
    unit = (job.match.unit or "").removesuffix(".service")
    if unit and (kind != "systemd" or name != unit):
        return f"match looks in the unit {unit} only, and launcher does not start it there"
    return None
