"""The course of one activation: waits for the old run's end, swaps, launches, watches, goes back.

Loaded by activate.py, beside which it lies and which tells of the spec, the orders and the state.
Knows how to talk with the client; how files are replaced and trainers started is not its business.
"""

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional

if TYPE_CHECKING:
    from fleetstop.remote.scripts import aside, client, living, record, relief, swap, trainer, wary
else:
    import aside  # activate.py has loaded them from beside itself
    import client
    import living
    import record
    import relief
    import swap
    import trainer
    import wary

Json = Dict[str, Any]
HEED_S = 0.03  # while the old run is on its way out a GPU idles for as long as an order lies there
LEAVE_S = 10.0  # so long what was launched may still be seen after the order `back`
UNWELL_S = 120.0  # so long what is unwell may take to end once its client has left
SETTLE_S = 1.0  # so long its supervisor may take to leave after it
LATE_S = 0.5  # so often it is looked whether what the old run forked at its end lives on
TRIES_S = 600  # so long the last state is tried to be written, once a second
UNSEEN = contextlib.suppress(OSError, wary.Refused)


class Activation:
    """One run's way, from `waiting` to where it ends."""

    def __init__(self, spec: Json) -> None:
        own = {"pid": os.getpid(), "start": living.start_of(os.getpid())}
        self.spec, self.swap = spec, swap.Swap(spec, own)
        self.base = self.swap.base
        self.new, self.old = map(self._trainer, ("launch", "launch_old"), self.swap.litter.launches)
        self.client = client.Client(self.base, spec["run"], spec["stale_s"])
        self.state = {"schema": 1, "step": None, "files": "old"}  # type: Json
        self.findings = []  # type: List[str]
        self.state.update(activator=own, findings=self.findings, ended_at=None)
        self.state.update({name: spec[name] for name in ("run", "release", "before", "gone")})
        names = "trainer exit signal reason at order running resumes log_rotated confirmed_by"
        self.state.update(dict.fromkeys(names.split()))
        self.resumes = spec.get("resumes") or {}  # type: Json
        self.was = {}  # type: Json
        self.resume = spec.get("resume") or {}  # type: Json
        self.state.update(checkpoint=self.resume.get("known"), alone=False, wish=spec.get("wish"))
        self.record = record.Record(self.base, self.state)
        self.say = self.record.say
        self.ended, self._lives_on = None, None  # type: Optional[str], Optional[str]
        self._tell_at = None  # type: Optional[float]
        self.ran = living.Ran([])

    def _trainer(self, name: str, file: bytes) -> "Optional[trainer.Trainer]":
        told, reads = self.spec[name], self.spec.get("reads") or {}
        return trainer.Trainer(self.base, told, file, reads.get(name)) if told else None

    def waiting(self) -> str:
        return "waiting {pid} {start}".format(**self.state["activator"])

    def go_on(self) -> None:
        try:
            if self.wait():
                self.activate()
        except Exception as error:
            told = f"a fault: {type(error).__name__}: {wary.told(error)}"
            self.end(self.state["step"], reason=told)

    def prepare(self) -> None:
        """All or nothing, while the old run trains."""
        other = relief.Relief(self.base, self.spec)
        other.check()
        other.inherit(self.swap.litter.told["made"])
        self.ran = living.Ran([each["pid"] for each in self.spec["gone"]])
        try:
            self.swap.prepare()
            for each in filter(None, (self.new, self.old)):
                self._rehearse(each)
                each.make_room()
            self.was = self._as_before(other.other)
            runs = self._runs()
            if other.take():
                self.client.word = "armed"
                self.say("waiting", order="armed", **runs)
            else:
                self.record.write("waiting", **runs)
        except BaseException:
            if not other.lives():  # else that room is its
                self.record.no_room()
            self._try_to(self.swap.clean)
            raise

    def _rehearse(self, one: "trainer.Trainer") -> None:
        gone = [each["pid"] for each in self.spec["gone"]]
        back = None if one is self.new else self.spec["roll_back"]
        files = self.spec["files"] if one is self.new else []
        self.findings += one.rehearse(files, self.spec["log"], gone, back)

    def wait(self) -> bool:
        """Whether all that has to be gone is gone; else it has ended, and all is as it was."""
        alone = None  # type: Optional[float]
        while True:
            if self.client.look("armed go cancel yield", HEED_S):
                self.say("waiting", order=self.client.word, alone=self.client.gone_s() >= 0)
            word, silent = self.client.word, self.client.gone_s() >= 0
            if word == "cancel":
                return self._leave("cancelled", "the client cancelled it")
            if word == "yield":
                self.swap.made_before = False  # it is the way back of whoever came for it
                return self._leave("cancelled", "another run took its place")
            if not silent and word != "go":
                alone = None
                continue
            if word is None:
                return self._leave("cancelled", "the client left before it sent a signal")
            left = self._living()
            if not left and word != "go":  # its client would have looked
                left = self._others(self.state["activator"]["start"])
                new = [pid for pid in left if living.group_of(pid) not in self.ran.groups]
                if new:
                    told = f"PID {new[0]} runs it, started meanwhile by something else"
                    return self._leave("cancelled", f"{told}: nothing is started beside it")
            if not left:
                return True
            if word == "go":
                return self._leave("failed", f"PID {left[0]} is alive: nothing was replaced")
            alone = self.client.now if alone is None else alone
            if self.client.now - alone >= self.spec["patience_s"]:
                told = f"the client left, and PID {left[0]} did not end"
                return self._leave("cancelled", told)

    def activate(self) -> None:
        self.say("swapping", files="mixed", running=None, trainer=None)
        try:
            self.findings += self.swap.swap()
        except (OSError, wary.Refused) as error:
            return self.back(wary.told(error))
        self.say("swapped", files="new")
        self._rotate()
        if self.new is None:
            return self.end("swapped")
        self.say("launching")
        self._hear_late()
        try:
            self.new.start()
        except (OSError, wary.Refused) as error:
            return self._down(wary.told(error))
        except trainer.Silent as error:
            return self.end("unhealthy", reason=str(error))
        known = self.resumes.get("launch")
        self.say("launched", trainer=self.new.id, running=self.swap.brings, resumes=known)
        return self.watch(self.new, self.client.now)

    def _hear_late(self) -> None:
        """Arguments that were known only once the old run had ended, with its last checkpoint;
        where the client has left without a word they are found here."""
        told = self.base.said(self.swap.litter.late)
        if not told and self.resume and self.client.word != "go":
            found, findings = aside.goes_on_from(self.resume)
            self.findings += findings if self.resume["launch"] else []
            if found and found != self.resume["known"]:
                names = ("launch", "launch_old")
                told = {name: aside.argv_from(self.resume, name, found) for name in names}
                told["checkpoint"] = found
        for name, one in (("launch", self.new), ("launch_old", self.old)):
            if one is not None and told.get(name):
                one.late = [str(word) for word in told[name]]
        self.state["checkpoint"] = told.get("checkpoint", self.state["checkpoint"])
        self.resume = {}  # once: the old version comes back with what was found for it

    def _rotate(self) -> None:
        """What somebody writes stays where it is: his lines would go on into the old file."""
        log = self.spec["log"]
        if log is None:
            return
        try:
            who = os.path.exists(wary.bytes_of(log)) and living.writers(wary.bytes_of(log))
            if who:
                self.findings.append(f"{log} was not rotated: PID {who[0]} writes it")
                return
            its = self.new.spec if self.new is not None and self.new.lacks_log else None
            rotated = wary.rotate(wary.bytes_of(log), (its["uid"], its["gid"]) if its else None)
        except FileNotFoundError:
            return
        except (OSError, wary.Refused) as error:
            self.findings.append(f"{log} was not rotated: {wary.told(error)}")
            return
        self.state["log_rotated"] = rotated and wary.text_of(rotated)

    def watch(self, new: "trainer.Trainer", since: float) -> None:
        """Until somebody has judged it, or nothing lives of it."""
        asked = since
        while True:
            # `go` is taken already, but its client may leave with it
            if self.client.look("armed go unwell done keep back leave"):
                asked = self.client.now
                self.say("launched", order=self.client.word, alone=self.client.gone_s() >= 0)
            word, left, now = self.client.word, new.left(), self.client.now
            self._note_end(new, left)
            if not left:
                told = self._told_end()
                return self.back(told) if word == "back" else self._down(told)
            if word == "done" and (new.runs() or new.became(self.client.judged)):
                self.state["trainer"] = new.id
                return self._healthy("client")
            if word == "done" and self.ended and self._tell_at is None:
                return self.end("unconfirmed", reason=f"{self.ended}, before the client had judged")
            if word == "back" and now - asked >= LEAVE_S:
                told = f"PID {left[0]} is alive: the old version was not brought back"
                return self.end("unhealthy", reason=told)
            if word == "leave":
                return self.end("unconfirmed", reason="it was asked to leave, before it had judged")
            if word == "keep":
                told = f"{self.client.why or 'the client found it so'}; it was left running"
                return self.end("unhealthy", reason=told)
            alone = self.client.gone_s()
            if word == "unwell" and alone >= min(UNWELL_S, self.spec["patience_s"]):
                told = "the client found it so, and left before it had ended"
                return self.end("unhealthy", reason=told)
            if word != "unwell" and alone >= 0 and now - since >= self.spec["health"]["within_s"]:
                return self._judge(new)

    def _told_end(self) -> str:
        """Its end is no reason where its client had found it unwell before, and ended it."""
        if self.client.word in ("unwell", "back"):
            return f"{self.client.why or 'the client found it unwell'}; {self.ended} after that"
        return str(self.ended)

    def _note_end(self, new: "trainer.Trainer", left: List[int]) -> None:
        """Of what was started itself; what it started may live on."""
        now = self.client.now
        if self.ended is None and not new.runs() and new.recorded():
            self.state["exit"], self.state["signal"], self.ended = new.end()
            self._tell_at = now + SETTLE_S
        if self.ended and left and self._tell_at is not None and now >= self._tell_at:
            self._tell_at, self.ended = None, new.end(lives=True)[2]
            pids = ", ".join(map(str, left))
            self._lives_on = f"{self.ended}, but what it started lives on: {pids}"
            self.findings.append(self._lives_on)
            self.say("launched")

    def _look_again(self) -> None:
        """Whoever lived on may have ended since, and this is the last that is told of it."""
        if self._lives_on is not None and self.new is not None and not self.new.left():
            pids = self._lives_on.rpartition(": ")[2]
            told = f"{self.ended}; what it had started ended after it: {pids}"
            self.findings[self.findings.index(self._lives_on)] = told
            self._lives_on = None

    def _judge(self, new: "trainer.Trainer") -> None:
        """In the client's stead; what lives is left running."""
        told = "the client left before it had judged"
        if not new.runs():
            return self.end("unconfirmed", reason=f"{told}, and {self.ended or 'it ended'}")
        said = new.said(self.spec["health"]["log_matches"])
        if said is None:
            self.findings.append("log_matches took too long: health was not judged by it")
            return self.end("unconfirmed", reason=f"{told}, and log_matches took too long")
        if not said:
            return self.end("unconfirmed", reason=f"{told}, and the log does not tell of health")
        return self._healthy("activator")

    def _healthy(self, by: str) -> None:
        if self.spec.get("as_kept", True):
            self.findings += self.swap.tried(self.swap.brings, "healthy")
        try:
            self.findings += self.swap.retain(int(self.spec["keep"]))
        except (OSError, wary.Refused) as error:
            self.findings.append(f"old releases were not removed: {wary.told(error)}")
        self.end("healthy", confirmed_by=by)

    def _down(self, reason: str) -> None:
        if self.spec["roll_back"]:
            return self.back(reason)
        return self.end("unhealthy", reason=reason, trainer=None, running=None)

    def back(self, reason: str) -> None:
        """Nothing of the new version lives; unless somebody else was asked to start it."""
        others = self._others()
        if others:
            told = f"{reason}; PID {others[0]} runs it, started meanwhile by something else"
            return self.end("unhealthy", reason=f"{told}: nothing is started beside it")
        self._look_again()
        self.findings += self.swap.tried(self.swap.release, "failed", reason)
        self.state["log_end"] = self.new and self.new.log_size()
        self.say("rolling_back", reason=reason, files="mixed", trainer=None, running=None)
        try:
            self.swap.back()
            self.state["files"] = "old"
            if self.old:
                self._hear_late()
                self.old.start()
        except (OSError, wary.Refused, trainer.Silent) as error:
            why = wary.told(error)
            return self.end("failed", reason=f"{reason}; the old version does not run: {why}")
        self.state["running"] = self.spec["before"] or self.spec.get("stays")
        known = self.resumes.get("launch_old")
        return self.end("rolled_back", trainer=self.old and self.old.id, resumes=known)

    def _others(self, since: Optional[int] = None) -> List[int]:
        if self.new is None:
            return []
        files = [wary.bytes_of(each["path"]) for each in self.spec["files"]] + self.ran.scripts
        by_script = self.spec.get("by_script", True)
        found = self.new.elsewhere(files if by_script else [], self.ran.ways, since)
        time.sleep(LATE_S if found else 0)  # that was a look at every process
        return found

    def _living(self) -> List[int]:
        return [one["pid"] for one in self.spec["gone"] if living.alive(one)]

    def _as_before(self, other: Json) -> Json:
        """What the last state tells of what runs: that it is ours, and which release."""
        its = other.get("trainer")
        one = {name: its[name] for name in ("pid", "start")} if its else None
        known = {"trainer": its, **{name: other.get(name) for name in ("running", "resumes")}}
        return known if one in self.spec["gone"] else {}

    def _runs(self) -> Json:
        known = {"trainer": None, "running": self.swap.before, **self.was}
        return known if self._living() else dict.fromkeys(known)

    def _leave(self, step: str, reason: str) -> bool:
        self._try_to(self.swap.clean)
        self.end(step, reason=reason, **self._runs())
        return False

    def end(self, step: str, **more: Any) -> None:
        self._look_again()
        if step == "unhealthy":
            self.findings += self.swap.tried(self.swap.release, "failed", more.get("reason"))
        self._try_to(self.swap.litter.remove)
        self.state["ended_at"] = record.now()
        for _ in range(TRIES_S):
            if self.say(step, **more):
                break
            time.sleep(1)
        self.record.no_room()

    def _try_to(self, tidy: Callable[[], None]) -> None:
        try:
            tidy()
        except (OSError, wary.Refused) as error:
            self.findings.append(f"something is left lying about: {wary.told(error)}")
