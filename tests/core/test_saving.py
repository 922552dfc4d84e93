"""Who writes a checkpoint, whether that file itself grows, and how much of it is left."""

from __future__ import annotations

import pytest

from fleetstop.core.judging.progress import follow
from fleetstop.core.kin.family import Family, Kin
from fleetstop.core.process import Detail, OpenFile, Process, ProcessId, ProcessTree
from fleetstop.core.saves.checkpoint import Entry, Listing, checkpoints, growing, new_since
from fleetstop.core.saves.risk import AtRisk
from fleetstop.core.saves.saving import Save, saves_of

ME = ProcessId(7, 70)
FAMILY = Family(members=(Kin(ME, 7, "trainer", ("python", "train.py"), 1, 7, 1.0),))
WRITE_ONLY, APPENDING = 0o100001, 0o102001
MIB = 2**20
RISK = AtRisk(name="step_41000.pt", size=100 * MIB, known_format=True)


def tree(
    at: float, *files: tuple[str, int], written: int | None = 0, flags: int = WRITE_ONLY
) -> ProcessTree:
    """`files`: target and position, by descriptor from 5 on."""
    opened = tuple(OpenFile(5 + n, path, flags, pos) for n, (path, pos) in enumerate(files))
    process = Process(
        id=ME, ppid=1, pgid=7, sid=7, state="S", comm="python", flags=0, threads=1, ticks=0,
        rss_kib=1, tracer=0, masks=None, argv=("python", "train.py"),
        detail=Detail(files=opened, written=written),
    )  # fmt: skip
    return ProcessTree({7: process}, uptime=at)


def seen(
    before: ProcessTree,
    now: ProcessTree,
    changed: tuple[str, ...] | None = (),
    temporary: tuple[str, ...] = (),
    risk: AtRisk | None = None,
) -> list[Save]:
    saves, unseen = saves_of(before, now, FAMILY, ("/ck", "/data/ck"), changed, temporary, risk)
    assert unseen == []
    return saves


def grows(save: Save) -> bool:
    return save.text.endswith("growing")


LEFT_OPEN = ("/ck/left.bin", 5)


def test_a_file_left_open_beside_a_chatty_log_does_not_grow() -> None:
    [save] = seen(tree(1, LEFT_OPEN), tree(2, LEFT_OPEN, written=50 * MIB))
    assert save.name == "left.bin"
    assert not grows(save)


@pytest.mark.parametrize("path", ["/ck/left.bin", "/data/ck/left.bin"])
def test_what_the_listing_saw_change_grows_though_its_position_stands_still(path: str) -> None:
    """Written by pwrite or through a map; the listing names it by the declared path."""
    [save] = seen(tree(1, (path, 0)), tree(2, (path, 0)), changed=("/ck/left.bin",))
    assert grows(save)


@pytest.mark.parametrize(
    ("path", "changed"),
    [
        (LEFT_OPEN[0], None),  # the directory could not be listed
        ("/ck/gone.pt (deleted)", ()),
        ("/ck/a/b/c/d/e/f/deep.bin", ()),  # deeper than the listing goes
    ],
)
def test_where_nothing_else_can_be_told_the_writers_bytes_count(
    path: str, changed: tuple[str, ...] | None
) -> None:
    still, moving = tree(2, (path, 5)), tree(2, (path, 5), written=MIB)
    [save] = seen(tree(1, (path, 5)), moving, changed)
    assert grows(save)
    [save] = seen(tree(1, (path, 5)), still, changed)
    assert not grows(save)


PATH = "/ck/step_41212.pt.tmp"


def watched(*sizes: int, every_s: float = 1.0) -> Save:
    """What is told of it after so many looks, the last at the last of these sizes."""
    trees = [tree(10 + n * every_s, (PATH, size)) for n, size in enumerate(sizes)]
    progress = None
    for n, each in enumerate(trees):
        progress = follow(progress, each, 10 + n * every_s, FAMILY)
    assert progress is not None
    (save,), _ = saves_of(trees[-2], trees[-1], FAMILY, ("/ck",), (), (), RISK, progress.paces)
    return save


def test_how_much_of_a_save_is_left_once_it_was_seen_to_grow_evenly() -> None:
    save = watched(*(n * 10 * MIB for n in range(1, 9)))
    assert save.text == (
        "step_41212.pt.tmp open for writing by 7, 80.0 MiB of about 100.0 MiB "
        "(size of step_41000.pt), about 2 s left, growing"
    )
    slow = watched(*(n * MIB // 4 for n in range(1, 9)))
    assert ", about 7 min left, growing" in slow.text


OF = "(size of step_41000.pt)"


@pytest.mark.parametrize(
    "sizes",
    [
        (1, 20 * MIB),  # the first sight of it: it may have come in one piece, or waited before
        (1, 20 * MIB, 40 * MIB, 60 * MIB),  # some looks, all of them within a moment
        # a piece now, and none for long
        (MIB, 9 * MIB, 9 * MIB, 9 * MIB, 9 * MIB, 9 * MIB, 9 * MIB, 10 * MIB),
        # its first half fast, by the page cache; then the disk
        (MIB, 20 * MIB, 40 * MIB, 60 * MIB, 61 * MIB, 62 * MIB, 63 * MIB, 64 * MIB),
    ],
)
def test_no_time_is_told_of_what_was_not_seen_to_grow_evenly(sizes: tuple[int, ...]) -> None:
    save = watched(*sizes)
    assert OF in save.text
    assert " left" not in save.text
    assert grows(save)


def test_what_begins_anew_in_its_file_is_paced_anew() -> None:
    save = watched(*(n * 10 * MIB for n in range(1, 9)), 5 * MIB, 10 * MIB)
    assert " left" not in save.text


@pytest.mark.parametrize(
    ("path", "size", "risk"),
    [
        ("/ck/optimizer.pt", 70 * MIB, RISK),  # another kind
        ("/ck/step_41212.pt", 120 * MIB, RISK),  # already bigger
        ("/ck/step_41212.pt", 70 * MIB, None),
        ("/ck/step_41212.pt", 70 * MIB, AtRisk()),
    ],
)
def test_nothing_is_said_of_what_is_left_where_nothing_tells(
    path: str, size: int, risk: AtRisk | None
) -> None:
    [save] = seen(tree(10, (path, size - MIB)), tree(12, (path, size)), risk=risk)
    assert "left" not in save.text
    assert "about" not in save.text
    assert grows(save)


def test_a_set_that_lacks_a_part_is_no_temporary_name() -> None:
    saves = seen(tree(1), tree(2), temporary=("/ck/step_5", "/ck/a.pt.tmp"))
    assert [each.text for each in saves] == [
        "step_5 may not be whole yet",
        "a.pt.tmp has no final name yet",
    ]


def test_a_database_with_a_models_name_is_a_save_while_a_transaction_lasts() -> None:
    """INT into the transaction rolls it back: that checkpoint is lost."""
    base, journal = ("/ck/checkpoint.db", 0), ("/ck/checkpoint.db-journal", 0)
    assert [e.name for e in seen(tree(1, base), tree(2, base, journal))] == [
        "checkpoint.db-journal"
    ]
    assert seen(tree(1, base), tree(2, base)) == []
    [save] = seen(tree(1, base), tree(2, base), changed=("/ck/checkpoint.db",))
    assert grows(save)
    assert seen(tree(1), tree(2, ("/ck/optuna.db-journal", 0))) == []
    before = Listing("/ck/", (Entry("/ck/checkpoint.db", 7, 4096, 10.0, "f"),))
    now = Listing("/ck/", (Entry("/ck/checkpoint.db", 7, 8192, 20.0, "f"),))
    assert [e.path for e in new_since(before, now)] == ["/ck/checkpoint.db"]
    # what a crash left behind is none
    left = Listing("/ck/", (Entry("/ck/checkpoint.db-journal", 8, 8192, 20.0, "f"),))
    assert checkpoints(left) == ()


def test_a_model_in_text_is_a_save_and_notes_are_none() -> None:
    model = ("/ck/lgb_model_100.txt", 10)
    assert [each.name for each in seen(tree(1), tree(2, model, ("/ck/step.txt", 10)))] == [
        "lgb_model_100.txt"
    ]
    alone = Listing("/ck/", (Entry("/ck/model.txt", 7, 9, 1.0, "f"),))
    assert [each.name for each in checkpoints(alone)] == ["model.txt"]
    weights = Entry("/ck/model.pt", 8, 9, 1.0, "f")
    beside = Listing("/ck/", (*alone.entries, weights))
    assert [each.name for each in checkpoints(beside)] == ["model.pt"]


def test_a_model_in_json_is_a_save_and_a_metrics_file_is_none() -> None:
    model, metrics = ("/ck/model_5.json", 10), ("/ck/metrics.json", 10)
    assert [each.name for each in seen(tree(1), tree(2, model, metrics))] == ["model_5.json"]
    # elsewhere it is just a file
    assert seen(tree(1), tree(2, ("/tmp/model_5.json", 10))) == []


LIVE_ALL_LIFE = [
    "optuna.db", "optuna.db-journal", "study.sqlite3-wal", "train.log.1", "metrics.csv",
    "tb/events.out.tfevents.1700.host.7.0", "wandb/run-1/run-1.wandb", "mlruns/0/4f/metrics/loss",
]  # fmt: skip


@pytest.mark.parametrize("name", LIVE_ALL_LIFE)
def test_what_is_written_to_all_its_life_is_neither_a_save_nor_a_checkpoint(name: str) -> None:
    """It held every signal until the hold ended; and, new after the signal, passed for a save."""
    before = Listing("/ck/", (Entry(f"/ck/{name}", 7, 4096, 10.0, "f"),))
    now = Listing("/ck/", (Entry(f"/ck/{name}", 7, 8192, 20.0, "f"),))
    assert growing(before, now) == ()
    assert (checkpoints(now), new_since(before, now)) == ((), ())
    path = f"/ck/{name}"
    assert seen(tree(1, (path, 10)), tree(2, (path, 4096)), growing(before, now)) == []


@pytest.mark.parametrize(
    "name",
    ["metrics", "trace.bin2", "stats.mdb", "mlruns/0/4f/artifacts/m", "m/epoch", "loss_step"],
)
def test_of_a_name_that_tells_nothing_how_it_is_opened_tells(name: str) -> None:
    """Appended to by the trainer, it is a log; by whom is not seen, it may be a save."""
    path, moved = f"/ck/{name}", (f"/ck/{name}",)
    appending = (tree(1, (path, 9), flags=APPENDING), tree(2, (path, 99), flags=APPENDING))
    assert seen(*appending, changed=moved) == []
    [save] = seen(tree(1), tree(2), changed=moved)
    assert grows(save)
    [save] = seen(tree(1, (path, 9)), tree(2, (path, 99)), changed=moved)
    assert grows(save)


APPENDED = [
    "step_5.pt", "state.pkl", "all.hdf5", "epochs.tar", "step_100", "checkpoint-500", "model_final",
]  # fmt: skip


@pytest.mark.parametrize("name", APPENDED)
def test_a_checkpoint_that_is_appended_to_is_a_save_all_the_same(name: str) -> None:
    path = f"/ck/{name}"
    appending = (tree(1, (path, 9), flags=APPENDING), tree(2, (path, 99), flags=APPENDING))
    [save] = seen(*appending, changed=(path,))
    assert grows(save)


def test_what_grows_by_more_than_lines_is_a_save_though_it_is_appended_to() -> None:
    """`open("history", "ab")` with a state pickled into it: only how much comes tells."""
    path = "/ck/history"
    appending = (tree(1, (path, 9), flags=APPENDING), tree(2, (path, 5 * MIB), flags=APPENDING))
    [save] = seen(*appending, changed=(path,))
    assert grows(save)
    [save] = seen(*appending, changed=())
    assert grows(save)
    # elsewhere it is just a file
    away = "/var/tmp/history"
    appending = (tree(1, (away, 9), flags=APPENDING), tree(2, (away, 5 * MIB), flags=APPENDING))
    assert seen(*appending, changed=()) == []
