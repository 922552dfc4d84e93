"""Which targets a command's words mean. Knows the inventory; knows no file and no connection.

Nothing is ever selected by saying nothing: an empty selection is an error, and so is a word that
fits nothing, in --exclude above all: what it was meant to spare would be stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias, assert_never

import msgspec
from msgspec import Struct

from fleetstop.core import places
from fleetstop.core.address import AdHoc, InGroup, Named, OnHost, parse_address
from fleetstop.core.inventory import MATCH_KEYS, Inventory, Job, Match, Target, match_problem
from fleetstop.core.places import Place, Places
from fleetstop.core.spelling import did_you_mean, shown
from fleetstop.errors import BadUsage, Refused

Purpose: TypeAlias = Literal["status", "stop"]
# A place and the name of a job there; None: the place itself.
Key: TypeAlias = tuple[places.PlaceKey, str | None]

_SAY_WHICH = "say which process is meant: --script train.py, --pgrep ERE or --pid PID"


class Choice(Struct, frozen=True):
    """`job_said`: the word named the job, or said `:*`; otherwise it came with its place."""

    place: Place
    job: Job | None
    job_said: bool

    @property
    def key(self) -> Key:
        return self.place.key, self.job.name if self.job else None

    @property
    def name(self) -> str:
        return f"{self.place.name}:{self.job.name}" if self.job else self.place.name


def select(
    inventory: Inventory,
    words: Sequence[str],
    *,
    tags: Sequence[str] = (),
    failed: Sequence[str] | None = None,
    limit: Sequence[str] = (),
    exclude: Sequence[str] = (),
    all_jobs: bool = False,
    adhoc_match: Match | None = None,
    purpose: Purpose,
) -> tuple[Target, ...]:
    """The targets in the order of the words, each once. `limit` and `exclude` are words too.

    `tags`: only what bears one of them; `failed`: only what did not end well in an earlier run.
    Each only narrows; by itself it stands for all that it leaves.

    Raises BadUsage for an empty or mistyped selection, Refused where a stop does not say which
    of several jobs is meant.
    """
    words = words or failed or (("*",) if tags else ())
    if not words:
        raise BadUsage(
            "no target is given", hint="name one; `fleetstop ls` lists them, '*' means all"
        )
    if adhoc_match is not None and (problem := match_problem(adhoc_match)):
        raise _bad_match(adhoc_match, problem)
    by_match = adhoc_match is not None
    chosen = _choose(Places.of(inventory, every_host=by_match), words, by_match)
    everywhere = Places.of(inventory, every_host=True)
    kept = list(chosen.values())
    if tags:
        kept = _tagged(inventory, tags, kept)
    for narrowing in filter(None, (failed, limit)):
        wanted = _covered(_choose(everywhere, narrowing, by_match), kept)
        kept = [each for each in kept if wanted(each)]
    unwanted = _covered(_choose(everywhere, exclude, by_match), kept)
    kept = [each for each in kept if not unwanted(each)]
    if not kept:
        given = {"--tag": tags, "--failed-in": failed, "--limit": limit, "--exclude": exclude}
        raise BadUsage(_leaves([name for name, words in given.items() if words], chosen))
    if by_match:
        _one_job_each(kept)
    if purpose == "stop" and adhoc_match is None:
        _refuse_jobless(kept)
        if not all_jobs:
            _refuse_ambiguous(kept)
    return tuple(_target(each, adhoc_match) for each in kept)


def _choose(fleet: Places, words: Sequence[str], by_match: bool) -> dict[Key, Choice]:
    chosen: dict[Key, Choice] = {}
    for word in words:
        for each in _of_word(fleet, word, by_match):
            before = chosen.get(each.key)
            if before is None or each.job_said:
                chosen[each.key] = each
    return chosen


def _of_word(fleet: Places, word: str, by_match: bool) -> list[Choice]:
    address = parse_address(word)
    match address:
        case Named():
            return _of_name(fleet, address, by_match)
        case InGroup():
            members = fleet.members(address.group)
            # globs again, never groups: a member that is a group was opened already
            return [each for member in members for each in _of_word(fleet, member, by_match)]
        case OnHost():
            return _of_place(fleet.on_host(address), None, by_match)
        case AdHoc():
            return _of_place(fleet.ad_hoc(address), None, by_match)
        case _:
            assert_never(address)


def _of_name(fleet: Places, address: Named, by_match: bool) -> list[Choice]:
    found = fleet.named(address.place)
    chosen = [each for place in found for each in _of_place(place, address.job, by_match)]
    if not chosen:
        jobs = [job.name for place in found for job in place.jobs]
        raise places.no_job(address.job or "*", address.place, jobs)
    return chosen


def _of_place(place: Place, job: str | None, by_match: bool) -> list[Choice]:
    """With a match a place alone is an ad-hoc job; a job that is said gets the match instead."""
    if by_match and job is None:
        return [Choice(place, None, job_said=False)]
    if job is None:
        jobs = place.jobs or (None,)
        return [Choice(place, each, job_said=False) for each in jobs]
    return [
        Choice(place, each, job_said=True) for each in place.jobs if places.fits(each.name, job)
    ]


def _bad_match(match: Match, problem: str) -> BadUsage:
    given = [each for each in MATCH_KEYS if getattr(match, each) not in (None, False)]
    if match.pid is not None and "pid" not in given:  # a pid of 0 equals False
        given.append("pid")
    if len(given) != 1:
        return BadUsage(f"--script, --pgrep, --pid: {problem}")
    return BadUsage(f"--{given[0]}: {problem.removeprefix(given[0]).strip()}")


def _leaves(options: Sequence[str], chosen: Mapping[Key, Choice]) -> str:
    names = [each.name for each in chosen.values()]
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    leave = "leaves" if len(options) == 1 else "leave"
    return f"{' and '.join(options)} {leave} nothing of {', '.join(names[:5])}{more}"


def _tagged(inventory: Inventory, tags: Sequence[str], kept: Sequence[Choice]) -> list[Choice]:
    """A host's tags are those of its own jobs, not of the containers on it."""
    borne: dict[tuple[str, int | None], frozenset[str]] = {
        (name, None): frozenset(each.tags) for name, each in inventory.hosts.items()
    }
    borne |= {(e.host, e.vmid): frozenset(e.tags) for e in inventory.containers.values()}
    known = frozenset[str]().union(*borne.values())
    for tag in tags:
        if tag not in known:
            there = f"there are {', '.join(sorted(known))}" if known else "nothing there has any"
            raise BadUsage(
                f"no container and no host bears the tag {shown(tag)}{did_you_mean(tag, known)}",
                hint=f"tags stand in the inventory: tags: [gpu]; {there}",
            )
    wanted = frozenset(tags)
    return [e for e in kept if wanted & borne.get((e.place.host.name, e.place.vmid), frozenset())]


def _one_job_each(kept: list[Choice]) -> None:
    """One match finds one process: it cannot be that of two jobs of a place."""
    for choices in _by_place(kept).values():
        if len(choices) > 1:
            names = " and ".join(each.name for each in choices)
            raise BadUsage(
                f"one match, and {names} in {choices[0].place.name}",
                hint="name one of them with --script, --pgrep or --pid",
            )


def _covered(narrowing: dict[Key, Choice], kept: Sequence[Choice]) -> Callable[[Choice], bool]:
    """What --limit or --exclude speak of: a host's name stands for all that is on it."""
    jobs = {each.place.key: each.name for each in narrowing.values() if each.job is not None}
    for each in kept:
        if each.job is None and each.place.key in jobs:
            # what was to be spared might be what the match finds
            raise BadUsage(
                f"{shown(jobs[each.place.key])} is one job, and the match may find any "
                f"of {each.place.name}",
                hint=f"name the job: {jobs[each.place.key]} with the match, or narrow by place",
            )
    hosts = {
        places.host_key(each.place)
        for each in narrowing.values()
        if each.place.vmid is None and not each.job_said
    }
    whole = {each.place.key for each in narrowing.values() if each.job is None}
    return lambda choice: (
        choice.key in narrowing
        or choice.place.key in whole
        or places.host_key(choice.place) in hosts
    )


def _by_place(kept: list[Choice]) -> dict[places.PlaceKey, list[Choice]]:
    found: dict[places.PlaceKey, list[Choice]] = {}
    for each in kept:
        found.setdefault(each.place.key, []).append(each)
    return found


def _refuse_jobless(kept: list[Choice]) -> None:
    jobless = [each.place.name for each in kept if each.job is None]
    if jobless:
        have = "has" if len(jobless) == 1 else "have"
        raise BadUsage(f"{', '.join(jobless)} {have} no job in the inventory", hint=_SAY_WHICH)


def _refuse_ambiguous(kept: list[Choice]) -> None:
    several = [
        choices
        for choices in _by_place(kept).values()
        if len(choices) > 1 and not all(each.job_said for each in choices)
    ]
    if several:
        problems = [
            f"{choices[0].place.name} has several jobs: {', '.join(each.name for each in choices)}"
            for choices in several
        ]
        raise Refused(
            "; ".join(problems),
            hint=f"name the job; all of them: {several[0][0].place.name}:* or --all-jobs",
        )


def _target(choice: Choice, adhoc_match: Match | None) -> Target:
    place, job = choice.place, choice.job
    protected = place.protected or (job is not None and job.protected)
    if adhoc_match is not None:
        known = choice.job or Job(name="", match=adhoc_match)
        job = msgspec.structs.replace(known, match=adhoc_match)
        # The match may well find the protected job; nobody has said that it does not.
        protected = protected or any(each.protected for each in place.jobs)
    others = (*place.foreign_jobs, *(each for each in place.jobs if each is not choice.job))
    return Target(
        name=choice.name,
        host=place.host,
        vmid=place.vmid,
        job=job,
        protected=protected,
        foreign_checkpoints=tuple(dict.fromkeys(o.checkpoints for o in others if o.checkpoints)),
    )
