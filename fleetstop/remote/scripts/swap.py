"""Puts the files of one run in the place of others and back; knows neither processes nor clients.

Loaded by activate.py, beside which it lies. What it has lying about:

    BASE/stage-RUN/files/REL     what was sent; becomes BASE/releases/RELEASE where there is none
    BASE/releases/BEFORE         files/REL is a copy of what lay at DEST/REL
    BASE/releases/ID/tried.json  {"healthy", "ran", "failed": when, "reason"}: how it did, as far as
                                 was seen
    BASE/late-RUN.json           {"launch": [word], ...}: arguments told after the old run's end
    BASE/late-RUN/REL            what somebody put at DEST/REL while the old run was stopping
    BASE/litter-RUN.json         {"activator": {"pid", "start"}, "dest", "temps": [REL], "keeps":
                                 [in BASE], "made": [REL], "status": [path]}: what is left lying
                                 about if the run is killed; written first, removed last
    BASE/gone-RUN-ID             a release that is kept no more, and could not be removed yet
    DEST/.../.NAME.fleetstop-RUN the new file before it takes NAME's place
"""

import contextlib
import datetime
import json
import os
from typing import TYPE_CHECKING, Any, Dict, List, Optional

if TYPE_CHECKING:
    from fleetstop.remote.scripts import wary
else:
    import wary  # activate.py has loaded it from beside itself

Json = Dict[str, Any]
ELSEWHERE = contextlib.suppress(wary.Refused)  # behind a link there is nothing of ours
GONE = b"gone-"
IN_USE = contextlib.suppress(OSError)  # a directory in which something lies by now stays


class File:
    """One destination. `was`: what lay there when it was prepared, None where nothing did; `new`:
    whether the new file lies there."""

    def __init__(self, told: Json, dest: bytes, run: bytes) -> None:
        self.told, self.path = told, wary.bytes_of(told["path"])
        self.rel = self.path[len(dest.rstrip(b"/")) + 1 :]
        if self.path != os.path.normpath(os.path.join(dest, self.rel)):
            raise wary.Refused(f"{told['path']} does not lie in {wary.text_of(dest)}")
        if self.rel.split(b"/")[0] in (b"", b".", b".fleetstop"):
            raise wary.Refused(f"{told['path']} is nothing that can be replaced")
        self.folder, self.name = os.path.split(self.rel)
        self.temp = b"." + self.name + b".fleetstop-" + run
        self.was, self.new = None, False  # type: wary.Shape, bool


class Litter:
    """What a run leaves lying about if it is killed."""

    def __init__(self, base: wary.Top, run: str, told: Json) -> None:
        self.base, self.run, self.told = base, run, told
        self.stage = wary.bytes_of("stage-" + run)
        self.launches = [wary.bytes_of(name + run + ".json") for name in ("launch-", "launch_old-")]
        self.record = wary.bytes_of("litter-" + run + ".json")
        self.late = wary.bytes_of("late-" + run + ".json")

    @classmethod
    def of_dead(cls, base: wary.Top, run: str) -> "Litter":
        """As its record tells, if it came to write one."""
        wary.plain_name(run)
        found = cls(base, run, {"activator": None, "dest": wary.text_of(base.path)})
        found.told.update(temps=[], keeps=[], made=[], status=[])
        with wary.MISSING, open(base.at(found.record), "rb") as file:
            found.told = json.loads(file.read().decode())
        return found

    def write(self) -> None:
        path = self.base.at(self.record)
        with wary.doing("write", path):
            wary.fill(path, json.dumps(self.told).encode("ascii"))

    def remove(self) -> None:
        dest = wary.Top(wary.bytes_of(self.told["dest"]))
        for top, rels in ((dest, self.told["temps"]), (self.base, self.told["keeps"])):
            for rel in map(wary.bytes_of, rels):
                with ELSEWHERE, wary.MISSING, top.folder(os.path.dirname(rel)) as here:
                    wary.unlink(os.path.basename(rel), here)
        for rel in map(wary.bytes_of, reversed(self.told["made"])):
            with ELSEWHERE, IN_USE, dest.folder(os.path.dirname(rel)) as here:
                os.rmdir(os.path.basename(rel), dir_fd=here)
        wary.remove_tree(self.base.at(self.stage))
        _sweep(self.base)
        for status in map(wary.bytes_of, self.told["status"]):
            if not os.path.lexists(status):  # else this room is its supervisor's
                wary.unlink(status + b".new")
                wary.unlink(status + b".end")
        for name in (*self.launches, self.late, self.record):
            wary.unlink(self.base.at(name))


class Swap:
    """The files of one run: prepare, then either clean or swap, then perhaps back."""

    def __init__(self, spec: Json, activator: Json) -> None:
        run, self.release, self.before = spec["run"], spec["release"], spec["before"]
        for word in filter(None, (run, self.release, self.before, spec.get("stays"))):
            wary.plain_name(word)
        self.base = wary.Top(wary.bytes_of(spec["base"]))
        self.dest = wary.Top(wary.bytes_of(spec["dest"]))
        own = os.lstat(self.base.path)
        if own.st_uid != os.geteuid() or own.st_mode & 0o022:
            whose = f"its owner is {own.st_uid}, its mode {own.st_mode & 0o7777:o}"
            raise wary.Refused(f"{spec['base']} is not ours alone to write to: {whose}")
        self.files = [File(told, self.dest.path, wary.bytes_of(run)) for told in spec["files"]]
        self.manifest, self.late = spec["before_manifest"], wary.bytes_of("late-" + run)
        self.kept = os.path.join(b"releases", wary.bytes_of(self.before or ""))
        self.made_before = self.whole = False
        self.lies = spec.get("before_lies", True)
        self.brings = self.release or spec.get("stays")  # what is launched
        ran = self.lies and spec["gone"] and spec.get("ran_as_kept", True)
        self.ran = self.before if ran else None
        launches = [each for each in (spec["launch"], spec["launch_old"]) if each]
        told = {"activator": activator, "dest": spec["dest"], "made": self._made()}
        told["temps"] = self._temps(b"")
        told["keeps"] = self._temps(self.kept, b"files") + self._temps(self.late)
        told["keeps"] += [wary.text_of(self._tried(each) + b".new") for each in self._named()]
        told["status"] = [each["status"] for each in launches]
        self.litter = Litter(self.base, run, told)

    def _temps(self, *top: bytes) -> List[str]:
        paths = (os.path.join(*top, each.folder, each.temp) for each in self.files)
        return [wary.text_of(path) for path in paths]

    def _named(self) -> List[str]:
        return [word for word in (self.before, self.brings) if word]

    def _tried(self, release: str) -> bytes:
        return os.path.join(b"releases", wary.bytes_of(release), b"tried.json")

    def _made(self) -> List[str]:
        """The directories that will have to be made, each after the one it lies in."""
        missing = set()
        for each in self.files:
            folder = each.folder
            while folder and not os.path.lexists(self.dest.at(folder)):
                missing.add(folder)
                folder = os.path.dirname(folder)
        return [wary.text_of(rel) for rel in sorted(missing)]

    def prepare(self) -> None:
        """Everything that needs room or a right, so that it fails while the old run trains."""
        self.litter.write()
        for each in self.files:
            self._put_beside(each)
        if any(each.was for each in self.files):
            self._keep_all()

    def _put_beside(self, each: File) -> None:
        told = each.told
        staged = wary.bytes_of(told["staged"])
        with wary.doing("read", staged):
            source = os.open(staged, wary.PLAIN)
        try:
            with wary.doing("write", each.path), self.dest.folder(each.folder, make=True) as here:
                each.was = wary.shape(here, each.name)
                why = wary.fixed(each.path, here, each.name) if each.was else None
                if why:
                    raise wary.Refused(f"{wary.text_of(each.path)} cannot be replaced: {why}")
                owner = told["uid"], told["gid"]
                copied = wary.copy(source, here, each.temp, owner, told["mode"])
        finally:
            os.close(source)
        if copied != (told["size"], told["sha256"]):
            raise wary.Refused(f"{told['staged']} is not what was sent: size or SHA-256 differs")

    def _keep_all(self) -> None:
        if self.before is None:
            raise wary.Refused("what is replaced has to be kept, but no release before is named")
        release = self.base.at(self.kept)
        self.made_before = not os.path.lexists(release)
        self.whole = os.path.lexists(os.path.join(release, b"manifest.json"))
        if not self.whole and not self.lies:
            raise wary.Refused(f"release {self.before}, the way back, is not kept")
        for each in self.files:
            if each.was is not None and not self._is_kept(each):
                self._keep(each, os.path.join(self.kept, b"files"), self.whole)
        if not self.whole:
            with wary.doing("write", release):
                manifest = json.dumps(self.manifest).encode("ascii") + b"\n"
                wary.fill(os.path.join(release, b"manifest.json"), manifest, 0o600)

    def _is_kept(self, each: File) -> bool:
        """In a release that is the way back although something else lies there."""
        path = self.base.at(self.kept, b"files", each.rel)
        return not self.lies and self.whole and os.path.lexists(path)

    def _keep(self, each: File, where: bytes, same: bool) -> None:
        """What lies at the destination, with its owner, mode and times, kept below BASE."""
        kept = self.base.folder(os.path.join(where, each.folder), make=True)
        with wary.doing("keep", each.path), self.dest.folder(each.folder) as here, kept as there:
            had = same and wary.shape(there, each.name) is not None
            if had and wary.digest(here, each.name) != wary.digest(there, each.name):
                path = wary.text_of(each.path)
                raise wary.Refused(f"{path} is not what release {self.before} holds")
            if not had:  # a link to what lies there would be changed with that
                wary.again(here, each.name, there, each.temp)

    def swap(self) -> List[str]:
        """What was found amiss. Every destination holds the old file or the new, always whole."""
        findings = self.tried(self.ran, "ran")
        for each in self.files:
            with wary.doing("replace", each.path), self.dest.folder(each.folder) as here:
                if wary.shape(here, each.name) not in (None, each.was):
                    self._keep(each, self.late, False)
                    path, kept = each.path, self.base.at(self.late, each.rel)
                    told = f"{wary.text_of(path)} was changed while the old run was stopping"
                    findings.append(f"{told}: that is kept as {wary.text_of(kept)}")
                os.rename(each.temp, each.name, src_dir_fd=here, dst_dir_fd=here)
                each.new = True
        self._sync()
        if self.release:
            release = self.base.at(b"releases", wary.bytes_of(self.release))
            with wary.doing("keep", release):
                self._keep_release(release)
        return findings

    def _keep_release(self, release: bytes) -> None:
        stage = self.base.at(self.litter.stage)
        sent = os.path.isdir(os.path.join(stage, b"files"))
        if sent and not os.path.lexists(release):
            os.makedirs(os.path.dirname(release), 0o755, exist_ok=True)
            os.rename(stage, release)
        if os.path.isdir(release):
            os.utime(release)  # releases are as old as their last use

    def tried(self, release: Optional[str], how: str, reason: Optional[str] = None) -> List[str]:
        """Noted of a kept release, since whoever goes back has to know which was ever well; what
        was noted before stays. What was found amiss."""
        path = self.base.at(self._tried(release or ""))
        if release is None or not os.path.isdir(os.path.dirname(path)):
            return []
        told = {}  # type: Json
        with contextlib.suppress(OSError, ValueError), open(path, "rb") as file:
            told = dict(json.loads(file.read().decode()))
        told[how] = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        told.update({"reason": reason} if how == "failed" else {})
        try:
            wary.unlink(path + b".new")
            wary.fill(path + b".new", json.dumps(told).encode("ascii") + b"\n", 0o600)
            os.rename(path + b".new", path)
        except OSError as error:
            return [f"how release {release} did was not noted: {error.strerror or error}"]
        return []

    def back(self) -> None:
        for each in filter(lambda each: each.new, self.files):
            with wary.doing("put back", each.path), self.dest.folder(each.folder) as here:
                self._put_back(each, here)
        self._sync()

    def _put_back(self, each: File, here: int) -> None:
        late = os.path.lexists(self.base.at(self.late, each.rel))
        if each.was is None and not late and not self._is_kept(each):
            wary.unlink(each.name, here)
            return
        kept = self.late if late else os.path.join(self.kept, b"files")
        with self.base.folder(os.path.join(kept, each.folder)) as there:
            wary.again(there, each.name, here, each.temp)

    def _sync(self) -> None:
        for folder in {each.folder for each in self.files if each.new}:
            with self.dest.folder(folder) as here:
                os.fsync(here)

    def clean(self) -> None:
        """As if nothing had been prepared."""
        self.litter.remove()
        if self.made_before:
            self._remove_release(wary.bytes_of(self.before))
            self.before = None
        for name in (b"releases", b"status"):
            with IN_USE:
                os.rmdir(self.base.at(name))

    def retain(self, keep: int) -> List[str]:
        """What was found amiss. Kept are the newest `keep` releases, the one that runs, the one for
        the way back, and the newest other that was ever healthy: any number of bad ones may have
        come after it. The same once more counts last."""
        releases = self.base.at(b"releases")
        names = []  # type: List[bytes]
        with wary.MISSING:
            names = os.listdir(releases)
        names.sort(key=lambda name: os.lstat(os.path.join(releases, name)).st_mtime, reverse=True)
        used = [wary.bytes_of(word) for word in self._named()]
        used += [name for name in names if name not in used and self._was_well(name)][:1]
        findings = []
        twice = self._twice(names)
        for name in ([each for each in names if each not in twice] + twice)[keep:]:
            if name in used:
                continue
            try:
                self._remove_release(name)
            except (OSError, wary.Refused) as error:
                which, why = wary.text_of(name), wary.told(error)
                findings.append(f"release {which} was not removed: {why}")
        return findings

    def _twice(self, names: List[bytes]) -> List[bytes]:
        """Those of the same files and words as another of them; of which one the healthy stays, and
        of several the newest."""
        first = {}  # type: Dict[str, bytes]
        for name in sorted(names, key=lambda name: not self._was_well(name)):  # stable
            first.setdefault(self._content(name), name)
        return [name for name in names if first[self._content(name)] != name]

    def _content(self, name: bytes) -> str:
        path = self.base.at(b"releases", name, b"manifest.json")
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
            with open(path, "rb") as file:
                told = json.loads(file.read().decode())
            if told["files"]:
                files = sorted([each["rel"], each["sha256"]] for each in told["files"])
                return json.dumps([files, told.get("argv"), told.get("cwd")])
        return wary.text_of(name)

    def _was_well(self, name: bytes) -> bool:
        path = self.base.at(b"releases", name, b"tried.json")
        with contextlib.suppress(OSError, ValueError, AttributeError), open(path, "rb") as file:
            return bool(json.loads(file.read().decode()).get("healthy"))
        return False

    def _remove_release(self, name: bytes) -> None:
        """By rename first: no release is ever half there. To a place of its own: what lies in the
        way of one that cannot be removed would be in the way of every other."""
        gone = self.base.at(GONE + wary.bytes_of(self.litter.run) + b"-" + name)
        with wary.MISSING:
            os.rename(self.base.at(b"releases", name), gone)
        with wary.doing("remove", gone):
            wary.remove_tree(gone)


def _sweep(base: wary.Top) -> None:
    """What earlier runs could not remove: it may be possible by now, and is no fault of this."""
    for name in os.listdir(base.at()):
        if name.startswith(GONE):
            with IN_USE:
                wary.remove_tree(base.at(name))
