from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetstop.core.inventory import Container, Host, Inventory, Job, Match
from fleetstop.core.selection import select
from fleetstop.errors import BadUsage, FleetstopError, Refused


def job(name: str, checkpoints: str | None = None, *, protected: bool = False) -> Job:
    script = Match(script=f"{name}.py")
    return Job(name=name, match=script, checkpoints=checkpoints, protected=protected)


FLEET = Inventory(
    hosts={
        "pve1": Host(name="pve1", ssh="root@10.1.2.6"),
        "pve2": Host(name="pve2", ssh="root@10.1.2.7", port=2222),
        "box7": Host(name="box7", ssh="ml@box7", jobs=(job("train"),)),
    },
    containers={
        "ct200": Container("ct200", "pve1", 200, jobs=(job("train", "/ck"),)),
        "ct201": Container("ct201", "pve1", 201, jobs=(job("train", "/a"), job("eval", "/b"))),
        "ct202": Container("ct202", "pve2", 202),
        "safe": Container("safe", "pve2", 300, protected=True, jobs=(job("train"),)),
        "mixed": Container("mixed", "pve2", 301, jobs=(job("keep", protected=True), job("go"))),
    },
    groups={
        "training": ("ct200", "@boxes"),
        "boxes": ("box7:train",),
        "all": ("ct20*:tr*", "@training"),
        "pair": ("ct201",),
    },
)
SCRIPT = Match(script="x.py")
Purpose = Literal["status", "stop"]


def names(*words: str, purpose: Purpose = "stop", **options: Any) -> list[str]:
    return [each.name for each in select(FLEET, words, purpose=purpose, **options)]


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        (["ct200"], ["ct200:train"]),
        (["ct200:train"], ["ct200:train"]),
        (["ct200:*"], ["ct200:train"]),
        (["ct201:*"], ["ct201:train", "ct201:eval"]),
        (["ct201:ev*"], ["ct201:eval"]),
        (["box7"], ["box7:train"]),
        (["box7:train"], ["box7:train"]),
        (["ct2*:tr*"], ["ct200:train", "ct201:train"]),
        (["*:eval"], ["ct201:eval"]),
        (["box7", "ct200", "box7:train", "ct200"], ["box7:train", "ct200:train"]),
        (["@training"], ["ct200:train", "box7:train"]),
        (["@all"], ["ct200:train", "ct201:train", "box7:train"]),
        (["@tr*"], ["ct200:train", "box7:train"]),
        (["pve1/200"], ["ct200:train"]),
        (["root@10.1.2.6/200"], ["ct200:train"]),
        (["ssh://root@10.1.2.7:2222/300"], ["safe:train"]),
        (["ct201", "ct201:*"], ["ct201:train", "ct201:eval"]),
    ],
)
def test_words_for_a_stop(words: list[str], chosen: list[str]) -> None:
    assert names(*words) == chosen


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        (["ct201"], ["ct201:train", "ct201:eval"]),
        (["ct202"], ["ct202"]),
        (["pve1"], ["pve1"]),
        (["pve1/999"], ["pve1/999"]),
        (["root@10.9.9.9"], ["root@10.9.9.9"]),
        (["ct20*"], ["ct200:train", "ct201:train", "ct201:eval", "ct202"]),
    ],
)
def test_words_for_a_look(words: list[str], chosen: list[str]) -> None:
    assert names(*words, purpose="status") == chosen


@pytest.mark.parametrize(
    ("word", "name", "ssh", "port", "vmid"),
    [
        ("root@10.9.9.9/200", "root@10.9.9.9/200", "root@10.9.9.9", None, 200),
        ("root@10.9.9.9", "root@10.9.9.9", "root@10.9.9.9", None, None),
        ("ssh://root@h:2222/200", "ssh://root@h:2222/200", "root@h", 2222, 200),
        ("ssh://h/200", "ssh://h/200", "h", None, 200),
        ("ssh://root@h/200", "root@h/200", "root@h", None, 200),
        ("root@[::1]/200", "root@[::1]/200", "root@::1", None, 200),
        ("root@fe80::1%eth0", "root@[fe80::1%eth0]", "root@fe80::1%eth0", None, None),
        ("ssh://root@[::1]:2222/200", "ssh://root@[::1]:2222/200", "root@::1", 2222, 200),
        ("me@dom@h/200", "me@dom@h/200", "me@dom@h", None, 200),
    ],
)
def test_an_ad_hoc_address(
    word: str, name: str, ssh: str, port: int | None, vmid: int | None
) -> None:
    (target,) = select(FLEET, [word], adhoc_match=SCRIPT, purpose="stop")
    assert (target.name, target.host.ssh, target.host.port, target.vmid) == (name, ssh, port, vmid)
    assert target.job == Job(name="", match=SCRIPT)


NO_JOBS = "`fleetstop ls` lists the names"
ADHOC = "an ad-hoc address is written root@HOST/VMID, or ssh://root@HOST:PORT/VMID"
VMIDS = "after the / stands a container's VMID, a number from 100 to 999999999, not"
WHICH = "say which process is meant: --script train.py, --pgrep ERE or --pid PID"


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ([], "no target is given", "name one; `fleetstop ls` lists them, '*' means all"),
        (["", "ct200"], "a target is an empty word", "`fleetstop ls` lists the targets"),
        (["ct20"], "no container or host 'ct20', did you mean 'ct202'?", NO_JOBS),
        (["CT201"], "no container or host 'CT201', did you mean 'ct201'?", NO_JOBS),
        (["zzz"], "no container or host 'zzz'", NO_JOBS),
        (["training"], "'training' is a group; write '@training'", ""),
        (["@trainin"], "no group 'trainin', did you mean 'training'?", NO_JOBS),
        (["@"], "'@': a group's name is missing after the @", ""),
        (["ct9*"], "'ct9*' fits no container and no host with a job", NO_JOBS),
        (
            ["pve*"],
            "'pve*' fits no container and no host with a job, did you mean 'pve2'?",
            NO_JOBS,
        ),
        (
            ["ct201:trian"],
            "'trian' is no job of 'ct201', did you mean 'train'? There: train, eval",
            NO_JOBS,
        ),
        (["ct201:x*"], "'x*' fits no job of 'ct201'; there: train, eval", NO_JOBS),
        (["ct202:*"], "'*' fits no job of 'ct202'; no job is listed there", NO_JOBS),
        (["ct200:"], "'ct200:': a job's name is missing after the :", ""),
        ([":train"], "':train': a place is missing before :", ""),
        (["ct202"], "ct202 has no job in the inventory", WHICH),
        (["root@h/200"], "root@h/200 has no job in the inventory", WHICH),
        (["pve1"], "pve1 has no job in the inventory", WHICH),
        (["root@h/abc"], f"'root@h/abc': {VMIDS} 'abc'", ADHOC),
        (["root@h/"], f"'root@h/': {VMIDS} ''", ADHOC),
        (["root@h/99"], f"'root@h/99': {VMIDS} '99'", ADHOC),
        (["root@h/200:train"], f"'root@h/200:train': {VMIDS} '200:train'", ADHOC),
        (["pve1/20O"], f"'pve1/20O': {VMIDS} '20O'", ADHOC),
        (
            ["pev1/200"],
            "no host 'pev1' in the inventory, did you mean 'pve1'?",
            "a host outside the inventory is addressed as root@HOST/VMID",
        ),
        (["root@h:22/200"], "'root@h:22/200': a port is not written after the host", ADHOC),
        (["ssh://root@h:0/200"], "'ssh://root@h:0/200': '0' is not a port", ADHOC),
        (
            ["ssh://root@::1:22"],
            "'ssh://root@::1:22': an IPv6 address stands in brackets, like ssh://root@[::1]:22",
            ADHOC,
        ),
        (
            ["ssh://root:hunter2@h/200"],
            "the user before the @ is not a user's name; a password is never written here",
            ADHOC,
        ),
        (
            ["root@-oProxyCommand=x/200"],
            "'root@-oProxyCommand=x/200': the host's name or address is missing or not one",
            ADHOC,
        ),
        (["ct\x1bc200"], "no container or host 'ct\\x1bc200', did you mean 'ct200'?", NO_JOBS),
    ],
)
def test_a_wrong_word_is_named(words: list[str], message: str, hint: str) -> None:
    with pytest.raises(BadUsage) as caught:
        select(FLEET, words, purpose="stop")
    assert (caught.value.message, caught.value.hint) == (message, hint)
    assert caught.value.exit_code == 2


def test_without_an_inventory_the_way_out_is_an_address() -> None:
    with pytest.raises(BadUsage) as caught:
        select(Inventory(), ["ct200"], purpose="stop")
    assert (
        caught.value.hint == "no inventory was found; an address works without one: root@HOST/VMID"
    )


def test_a_stop_does_not_choose_among_several_jobs() -> None:
    with pytest.raises(Refused) as caught:
        names("ct201")
    assert caught.value.message == "ct201 has several jobs: ct201:train, ct201:eval"
    assert caught.value.hint == "name the job; all of them: ct201:* or --all-jobs"
    assert caught.value.exit_code == 5
    for words in (["ct201:train", "ct201"], ["ct200", "@pair"], ["ct20[01]"]):
        with pytest.raises(Refused):
            names(*words)


def test_all_jobs_and_narrowing_say_which() -> None:
    assert names("ct201", all_jobs=True) == ["ct201:train", "ct201:eval"]
    assert names("ct201", exclude=["ct201:eval"]) == ["ct201:train"]
    assert names("ct201", limit=["*:eval"]) == ["ct201:eval"]


def test_limit_and_exclude_take_the_same_words() -> None:
    assert names("@training", limit=["box*"]) == ["box7:train"]
    assert names("@training", exclude=["@boxes"]) == ["ct200:train"]
    assert names("ct200", "box7", exclude=["root@10.1.2.6/200"]) == ["box7:train"]


def test_an_excluded_host_spares_its_containers() -> None:
    assert names("ct200", "ct201:eval", "box7", exclude=["pve1"]) == ["box7:train"]
    assert names("ct200", "box7", "pve1/201", limit=["pve1"], all_jobs=True)[0] == "ct200:train"
    assert names("ct200", "box7", exclude=["pve*"]) == ["box7:train"]
    assert names("pve1/999", "box7", exclude=["pve1"], adhoc_match=SCRIPT) == ["box7"]


@pytest.mark.parametrize("option", ["limit", "exclude"])
def test_a_mistyped_narrowing_stops_everything(option: str) -> None:
    with pytest.raises(BadUsage) as caught:
        names("ct200", "ct201:eval", purpose="stop", **{option: ["ct20l"]})
    assert caught.value.message.startswith("no container or host 'ct20l', did you mean 'ct20")


def test_nothing_left_is_an_error() -> None:
    with pytest.raises(BadUsage) as caught:
        names("ct200", exclude=["ct200"])
    assert caught.value.message == "--exclude leaves nothing of ct200:train"


def tagged(*words: str, purpose: Purpose = "stop", **options: Any) -> list[str]:
    tags = {"ct200": ("gpu", "lab"), "ct201": ("gpu",), "safe": ("lab",)}
    containers = {
        name: msgspec.structs.replace(each, tags=tags.get(name, ()))
        for name, each in FLEET.containers.items()
    }
    hosts = FLEET.hosts | {"box7": msgspec.structs.replace(FLEET.hosts["box7"], tags=("bare",))}
    fleet = msgspec.structs.replace(FLEET, containers=containers, hosts=hosts)
    return [each.name for each in select(fleet, words, purpose=purpose, **options)]


def test_a_tag_narrows_and_alone_stands_for_all_that_bears_it() -> None:
    assert tagged(tags=["lab"]) == ["ct200:train", "safe:train"]
    assert tagged("ct2*:tr*", tags=["gpu"]) == ["ct200:train", "ct201:train"]
    assert tagged("ct200", "box7", tags=["gpu"]) == ["ct200:train"]
    assert tagged(tags=["lab", "bare"], exclude=["safe"]) == ["ct200:train", "box7:train"]
    assert tagged("pve1/200", "pve1/999", tags=["lab"], adhoc_match=SCRIPT) == ["ct200"]


def test_a_tag_says_which_job_no_more_than_a_name_does() -> None:
    with pytest.raises(Refused, match="ct201 has several jobs: ct201:train, ct201:eval"):
        tagged(tags=["gpu"])
    assert len(tagged(tags=["gpu"], all_jobs=True)) == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tags": ["gpus"]}, "no container and no host bears the tag 'gpus', did you mean 'gpu'?"),
        ({"tags": [""]}, "no container and no host bears the tag ''"),
        ({"tags": []}, "no target is given"),
        ({"tags": ["lab"], "limit": ["box7"]}, "--tag and --limit leave nothing of ct200:train"),
        ({"failed": ["ct200:train"], "tags": ["bare"]}, "--tag and --failed-in leave nothing of"),
    ],
)
def test_a_narrowing_that_is_mistyped_or_leaves_nothing(options: Any, said: str) -> None:
    with pytest.raises(BadUsage) as caught:
        tagged(**options)
    assert caught.value.message.startswith(said)


def test_what_failed_narrows_and_alone_names() -> None:
    """What ended well, or was never asked for, is not stopped again."""
    failed = ["ct201:eval", "safe:train"]
    assert names(failed=failed) == failed
    assert names("ct200", "ct201:*", failed=failed) == ["ct201:eval"]
    assert names("*:train", failed=failed, exclude=["pve1"]) == ["safe:train"]


def test_a_match_makes_an_ad_hoc_job_anywhere() -> None:
    targets = select(FLEET, ["ct201", "ct202", "box7"], adhoc_match=SCRIPT, purpose="stop")
    assert [each.name for each in targets] == ["ct201", "ct202", "box7"]
    assert all(each.job_name is None and each.job is not None for each in targets)
    assert targets[0].foreign_checkpoints == ("/a", "/b")


def test_a_job_with_a_match_keeps_its_settings() -> None:
    (target,) = select(FLEET, ["ct201:train"], adhoc_match=Match(pid=122), purpose="stop")
    (plain,) = select(FLEET, ["ct201:train"], purpose="stop")
    assert target.name == "ct201:train"
    assert plain.job is not None
    assert target.job == msgspec.structs.replace(plain.job, match=Match(pid=122))
    assert target.foreign_checkpoints == plain.foreign_checkpoints == ("/b",)


@pytest.mark.parametrize("words", [["ct201:*"], ["ct201", "ct201:train"]])
def test_one_match_is_not_two_jobs_of_a_place(words: list[str]) -> None:
    with pytest.raises(BadUsage, match="one match, and ct201"):
        names(*words, adhoc_match=SCRIPT)


def test_a_job_cannot_be_spared_from_a_match_of_its_place() -> None:
    """The match may find the very job that was to be spared."""
    with pytest.raises(BadUsage, match="the match may find any of ct201"):
        names("ct201", exclude=["ct201:train"], adhoc_match=SCRIPT)
    assert names("ct201:train", "box7", exclude=["ct201"], adhoc_match=SCRIPT) == ["box7"]
    assert names("ct201:train", "box7", exclude=["ct201:train"], adhoc_match=SCRIPT) == ["box7"]


@pytest.mark.parametrize(
    ("match", "message"),
    [
        (Match(pid=1), "--pid: must be above 1"),
        (Match(pid=0), "--pid: must be above 1"),
        (Match(pgrep="("), "--pgrep: the pattern has a ( that is not closed"),
        (Match(script=" "), "--script: is empty"),
    ],
)
def test_only_the_option_that_was_given_is_blamed(match: Match, message: str) -> None:
    with pytest.raises(BadUsage) as caught:
        names("ct201", adhoc_match=match)
    assert caught.value.message == message


def test_other_jobs_checkpoints_are_foreign() -> None:
    train, evaluate = select(FLEET, ["ct201:*"], purpose="stop")
    assert train.foreign_checkpoints == ("/b",)
    assert evaluate.foreign_checkpoints == ("/a",)


@pytest.mark.parametrize(
    ("word", "adhoc_match", "protected"),
    [
        ("safe", None, True),
        ("mixed:keep", None, True),
        ("mixed:go", None, False),
        ("mixed", SCRIPT, True),
        ("mixed:go", SCRIPT, True),
        ("mixed:keep", SCRIPT, True),
        ("pve2/300", SCRIPT, True),
        ("ssh://root@10.1.2.7:2222/300", SCRIPT, True),
        ("ssh://ml@10.1.2.7:2222/300", SCRIPT, True),
        ("ml@pve2/300", SCRIPT, True),
        ("ml@10.1.2.7/300", SCRIPT, False),  # another port may be another machine
        ("ct200", None, False),
    ],
)
def test_no_way_around_protection(word: str, adhoc_match: Match | None, protected: bool) -> None:
    (target,) = select(FLEET, [word], adhoc_match=adhoc_match, purpose="stop")
    assert target.protected is protected


WORDS = st.text(max_size=30) | st.from_regex(
    r"(ssh://)?(root@|@)?(ct2|pve1|box7|\[::1\]|\*|h)?[\]\[*?:@/]{0,3}[0-9a-z]{0,4}(/200)?"
)


@given(
    st.lists(WORDS, max_size=3),
    st.lists(WORDS, max_size=1),
    st.sampled_from(["status", "stop"]),
    st.sampled_from([None, SCRIPT]),
)
def test_any_words_select_something_or_fail_as_expected(
    words: list[str], exclude: list[str], purpose: Purpose, adhoc_match: Match | None
) -> None:
    try:
        targets = select(FLEET, words, exclude=exclude, adhoc_match=adhoc_match, purpose=purpose)
    except FleetstopError as error:
        message = error.message
    else:
        message = ""
        assert targets
        assert purpose == "status" or all(each.job is not None for each in targets)
    assert message.isprintable()
