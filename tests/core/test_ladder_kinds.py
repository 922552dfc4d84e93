"""What holds for any playbook over all kinds of rungs, any terms of consent, and any answers.

Twice: in a world of dice (masks, files, deaths and checkpoints change at will), and against jobs
with habits, where a wrong signal really costs the save.
"""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetstop.core.climbing.consent import Consent, Terms, uncounted
from fleetstop.core.climbing.rungs import Send
from fleetstop.core.ladder import CALM_S, Arrived, Ask
from fleetstop.core.playbook import Hold, Playbook, Rung
from fleetstop.core.process import ProcessId
from tests.core import habits as h
from tests.core.test_ladder_properties import (
    LATE_S,
    Moment,
    Wild,
    bound,
    consents,
    hold_limits,
    run,
    rungs,
    used_up,
    waits,
    worlds,
)

SETTINGS = settings(max_examples=500, deadline=None, derandomize=True)
WORDS = ("deaf", "busy", "stopping", "saving", "suspended", "unknown")

verdicts = st.lists(st.sampled_from(WORDS), max_size=2, unique=True).map(tuple)
asks = st.builds(
    Rung,
    signal=st.just(""),
    to=st.just("trainers"),
    wait_s=waits,
    does=st.sampled_from(["run", "touch", "keys", "await"]),
    argument=st.just("/x"),
    lossless=st.booleans(),
    when=st.just(()) | st.just(()) | verdicts,
    unless=st.just(()) | st.just(()) | verdicts,
)


@st.composite
def signals(draw: st.DrawFn) -> Rung:
    rung = draw(rungs)
    return Rung(
        rung.signal,
        rung.to,
        rung.wait_s,
        again=draw(st.booleans()),
        lossless=draw(st.booleans()),
        when=draw(st.just(()) | st.just(()) | verdicts),
        unless=draw(st.just(()) | st.just(()) | verdicts),
    )


@st.composite
def playbooks(draw: st.DrawFn) -> Playbook:
    return Playbook(
        name="any",
        ladder=tuple(draw(st.lists(signals() | asks, min_size=1, max_size=5))),
        lossless=draw(st.booleans()),
        hold=draw(st.none() | hold_limits | hold_limits | hold_limits),
    )


terms = st.builds(
    Terms,
    asks=st.booleans(),
    max_loss_s=st.none() | st.none() | st.sampled_from([1.0, 10.0]),
    after_checkpoint=st.sampled_from([False, False, True]),
    at_most_s=st.sampled_from([1.0, 8.0]),
)


def climbed(
    world: Wild, playbook: Playbook, consent: Consent, said: Terms, *, refuses: bool = False
) -> list[Moment]:
    """A limited consent gets a hold of half an hour where the playbook has none (the stories
    tell that); here it is a short one, since half-blind looks make every file seem to grow."""
    if playbook.hold is None and said.limited and consent == "absent":
        playbook = Playbook(
            name=playbook.name,
            ladder=playbook.ladder,
            lossless=playbook.lossless,
            hold=Hold(saving_s=3.0, stopping_s=2.0, moving_s=4.0),
        )
    return run(world, playbook, consent, terms=said, refuses=refuses)


def rung_of(moment: Moment, send: Send) -> Rung:
    return moment.after.playbook.ladder[send.rung]


def is_lossy(moment: Moment, send: Send, heard: set[ProcessId]) -> bool:
    """Judged here anew, not by what the step says of itself."""
    rung = rung_of(moment, send)
    ids = {kin.id for kin in send.recipients}
    if send.does == "signal":
        landings = {moment.tree.processes[each.pid].landing(send.signal) for each in ids}
        assert None not in landings
        assert landings & {"heard", "fatal"}
        if send.signal == "KILL" or "fatal" in landings or send.to != "trainers":
            return True
    elif send.does in ("run", "keys") and not rung.lossless:
        return True
    return bool(heard & ids) and not (rung.again and rung.lossless)


def heard_by(moment: Moment, send: Send) -> set[ProcessId]:
    if send.does != "signal":
        return {kin.id for kin in send.recipients}
    seen = {kin.id: moment.tree.processes[kin.id.pid] for kin in send.recipients}
    return {each for each, process in seen.items() if process.landing(send.signal) == "heard"}


@SETTINGS
@given(worlds, playbooks(), consents, terms, st.booleans())
def test_only_living_family_and_never_pid_one(
    world: Wild, playbook: Playbook, consent: Consent, said: Terms, refuses: bool
) -> None:
    fixed = {kin.id for kin in world.family().members}
    for moment in climbed(world, playbook, consent, said, refuses=refuses):
        for send in moment.sends:
            assert send.recipients
            for kin in send.recipients:
                assert kin.id in fixed or kin.role == "worker"
                seen = moment.tree.get(kin.id)
                assert seen is not None
                assert seen.alive
                assert min(kin.id.pid, kin.pid) > 1
                assert send.does == "signal" or kin.role == "trainer"


@SETTINGS
@given(worlds, playbooks(), consents, terms)
def test_what_holds_of_every_climb(
    world: Wild, playbook: Playbook, consent: Consent, said: Terms
) -> None:
    """Several promises of one climb, which is what costs the time."""
    grows_for = world.grows_until - world.now
    moments = climbed(world, playbook, consent, said)
    nothing_lossy_without_its_consent(moments, playbook, consent, said)
    no_send_while_a_member_saves(moments, playbook, consent)
    two_calm_looks_come_before_every_send(moments)
    it_ends_within_its_waits_and_the_time_of_its_questions(moments, grows_for)


def nothing_lossy_without_its_consent(
    moments: list[Moment], playbook: Playbook, consent: Consent, said: Terms
) -> None:
    heard: set[ProcessId] = set()
    arrived = False
    for moment in moments:
        arrived |= any(isinstance(s, Arrived) and s.name is not None for s in moment.steps)
        for send in moment.sends:
            if said.after_checkpoint:
                assert arrived
            if is_lossy(moment, send, heard):
                assert send.lossy
                assert not playbook.lossless
                assert consent != "refused"
                assert consent == "given" or agreed(moment, send, said)
            heard |= heard_by(moment, send)


def agreed(moment: Moment, send: Send, said: Terms) -> bool:
    if said.limited:
        risk = moment.risk
        return (
            risk is not None
            and uncounted(risk) is None
            and risk.age_s is not None
            and risk.age_s < said.most_s
        )
    keys = {key[:3] for key in moment.after.agreed}
    return said.asks and (send.rung, send.signal, send.landing) in keys


def no_send_while_a_member_saves(
    moments: list[Moment], playbook: Playbook, consent: Consent
) -> None:
    last_sent = -1.0
    for number, moment in enumerate(moments):
        if not moment.sends:
            continue
        (send,) = moment.sends
        since = [each for each in moments[: number + 1] if each.at > last_sent]
        last_sent = moment.at
        hold = moment.after.hold
        if moment.judged.saving is not True:
            continue
        keys = {key for key in moment.after.agreed if key[:3] == (send.rung, *names(send))}
        if hold is None:
            assert consent == "given" or (not send.lossy) or any(key[3] for key in keys)
            continue
        assert used_up(since, hold)
        assert not playbook.lossless
        assert consent == "given" or any(key[4] for key in keys)


def names(send: Send) -> tuple[str, str]:
    return send.signal, send.landing


def two_calm_looks_come_before_every_send(moments: list[Moment]) -> None:
    last_sent = -1.0
    for number, moment in enumerate(moments):
        if moment.sends and moment.after.hold is not None:
            since = [each for each in moments[: number + 1] if each.at > last_sent]
            assert moment.at - since[0].at >= CALM_S - 1e-9
            last_sent = moment.at


def it_ends_within_its_waits_and_the_time_of_its_questions(
    moments: list[Moment], grows_for: float
) -> None:
    pairs = itertools.pairwise(moments)
    asking = sum(b.at - a.at for a, b in pairs if any(isinstance(s, Ask) for s in a.steps))
    # after an answer, or a withdrawal, two looks again; an unseen await waits for 10 s
    questions = sum(a.before.asking is None and a.after.asking is not None for a in moments)
    ladder = moments[0].after.playbook
    awaits = sum(rung.does == "await" for rung in ladder.ladder)
    more = questions * 4 * (CALM_S + LATE_S) + awaits * (10.0 + 1.0 + LATE_S)
    hold = Playbook(name="b", ladder=ladder.ladder, hold=moments[0].after.hold)
    limit = bound(hold, grows_for) + more
    assert moments[-1].at - moments[0].at - asking <= limit


@SETTINGS
@given(worlds, playbooks(), consents, terms)
def test_lossless_no_trainer_is_asked_twice_unless_the_rung_says_so(
    world: Wild, playbook: Playbook, consent: Consent, said: Terms
) -> None:
    gentle = Playbook(name="l", ladder=playbook.ladder, lossless=True, hold=playbook.hold)
    heard: set[ProcessId] = set()
    for moment in climbed(world, gentle, consent, said):
        for send in moment.sends:
            rung, now = rung_of(moment, send), heard_by(moment, send)
            assert not heard & now or (rung.again and rung.lossless)
            heard |= now


# Against habits

spans = st.lists(st.integers(0, 40), max_size=4, unique=True).map(
    lambda at: tuple((1000.0 + 20 * n, 1000.0 + 20 * n + 12.0) for n in sorted(at))
)
characters = st.builds(
    h.Habit,
    hears=st.sampled_from([(), ("INT",), ("TERM",), ("INT", "TERM"), ("USR1",)]),
    ignores=st.sampled_from([(), ("INT", "QUIT"), ("INT", "TERM")]),
    obeys=st.booleans(),
    saves=st.booleans(),
    memory_s=st.sampled_from([0.0, 0.0, 8.0, 40.0]),
    file_s=st.sampled_from([0.5, 5.0, 45.0]),
    leaving_s=st.just(0.1),
    shuts_ears=st.booleans(),
    periodic=spans,
    drains=st.sampled_from([False, False, True]),
    obeys_asks=st.sampled_from([(), ("TOUCH",), ("TOUCH", "RUN", "KEYS")]),
    idle=st.booleans(),
)
patient = st.builds(Hold, saving_s=st.just(1800.0), stopping_s=st.sampled_from([20.0, 60.0]))


@st.composite
def held_playbooks(draw: st.DrawFn) -> Playbook:
    any_ = draw(playbooks())
    return Playbook(name="h", ladder=any_.ladder, lossless=any_.lossless, hold=draw(patient))


@SETTINGS
@given(
    st.lists(characters, min_size=1, max_size=2),
    held_playbooks(),
    consents,
    terms,
    st.lists(st.tuples(st.sampled_from([0.5, 9.0, 30.0]), st.booleans()), max_size=3),
)
def test_no_save_is_ever_cut_under_a_hold(
    ranks: list[h.Habit],
    playbook: Playbook,
    consent: Consent,
    said: Terms,
    answers: list[tuple[float, bool]],
) -> None:
    """Every save here grows, so no hold runs out: whatever the playbook, the terms and the
    answers, each checkpoint that is begun is finished, whether anything was agreed to or not."""
    world = h.job(*ranks, workers=1)
    world.complete = [900.0]
    ended = h.climb(
        world, playbook, consent=consent, terms=said, answers=answers, tmux=True, most_s=2000.0
    )
    assert not [actor.id for actor in world.actors if actor.lost]
    if consent != "given" and not said.asks and not said.limited:
        assert not any(send.lossy for send in ended.sends)
    if playbook.lossless:
        assert not any(send.lossy for send in ended.sends)
    assert all(actor.died is None and not actor.heard for actor in world.strangers)
