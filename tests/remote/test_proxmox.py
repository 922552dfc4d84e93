"""The Proxmox API as proxmoxer reads it: every answer of facts, each as one of our errors that says
what and where, and never the token."""

from __future__ import annotations

import asyncio
import socket
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetstop.core.inventory import Api
from fleetstop.errors import (
    BadConfig,
    CertificateRefused,
    FleetstopError,
    HostUnreachable,
    LoginRefused,
    NodeUnreachable,
    PrivilegeMissing,
    RemoteFailed,
)
from fleetstop.remote.proxmox import ProxmoxCluster
from tests.fakes.fake_proxmox import (
    SECRET,
    TOKEN_ID,
    Answer,
    FakeProxmox,
    data,
    refusal,
    served,
    silent_node,
    three_nodes,
)


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PVE_TOKEN", SECRET)
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture(scope="module")
def pve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeProxmox]:
    with served(three_nodes(), tmp_path_factory.mktemp("pve")) as fake:
        yield fake


def api(fake: FakeProxmox, **more: object) -> Api:
    known = {"url": fake.url, "token_id": TOKEN_ID, "token_secret": {"env": "PVE_TOKEN"}}
    return Api(**(known | {"ca": str(fake.ca)} | more))  # type: ignore[arg-type]


def ask(
    where: Api, path: str = "cluster/status", read_s: float = 20, whole_s: float = 60
) -> object:
    async def asked() -> object:
        return await ProxmoxCluster(where, read_s=read_s, whole_s=whole_s).get(path)

    return asyncio.run(asked())


def failed(where: Api, path: str = "cluster/status", **more: float) -> FleetstopError:
    """The error, with no word of the secret in it or in anything that it carries along."""
    with pytest.raises(FleetstopError) as caught:
        ask(where, path, **more)
    error = caught.value
    said = "".join(traceback.format_exception(error)) + repr(error.__dict__) + error.hint
    assert SECRET not in said
    carried: BaseException | None = error.__context__ or error.__cause__
    while carried is not None:
        assert type(carried).__module__.partition(".")[0] not in ("requests", "proxmoxer")
        carried = carried.__context__ or carried.__cause__
    return error


def test_it_is_asked_with_the_token_and_answers(pve: FakeProxmox) -> None:
    found = ask(api(pve))
    assert isinstance(found, list)
    assert [each["name"] for each in found] == ["lab", "pve1", "pve2", "pve3"]
    assert pve.asked[-1] == ("cluster/status", f"PVEAPIToken={TOKEN_ID}={SECRET}")


def test_a_pinned_certificate_needs_no_ca(pve: FakeProxmox) -> None:
    assert ask(api(pve, ca=None, fingerprint=pve.fingerprint))
    assert ask(api(pve, ca=None, fingerprint=pve.fingerprint.lower()))


ANSWERS: list[tuple[str, Answer, type[FleetstopError], str]] = [
    ("401", Answer(401, "Authentication failed!"), LoginRefused, "Authentication failed!"),
    ("401 old", Answer(401, "invalid token value!"), LoginRefused, "invalid token value!"),
    ("401 no ticket", Answer(401, "No ticket"), LoginRefused, f"{TOKEN_ID} was refused: No ticket"),
    (
        "403",
        refusal(403, "Permission check failed (/, Sys.Audit)"),
        PrivilegeMissing,
        "Permission check failed (/, Sys.Audit)",
    ),
    (
        "403 old",
        refusal(403, "Permission check failed (/, Sys.Audit)", message=False),
        PrivilegeMissing,
        "x: Permission check failed (/, Sys.Audit)",
    ),
    (
        "400",
        refusal(400, "Parameter verification failed.", errors={"vmid": "invalid format\n"}),
        RemoteFailed,
        "x: 400 Parameter verification failed. (vmid: invalid format)",
    ),
    (
        "500",
        refusal(500, "Configuration file 'nodes/pve2/lxc/200.conf' does not exist"),
        RemoteFailed,
        "500 Configuration file 'nodes/pve2/lxc/200.conf' does not exist",
    ),
    ("501", refusal(501, "Method 'GET /x' not implemented"), RemoteFailed, "not implemented"),
    ("595", silent_node(595, "No route to host"), NodeUnreachable, "No route to host (595)"),
    ("595", silent_node(595, "Connection refused"), NodeUnreachable, "Connection refused (595)"),
    ("596", silent_node(596, "Connection timed out"), NodeUnreachable, "timed out (596)"),
    ("597", silent_node(597, "body read error"), NodeUnreachable, "(597)"),
    ("599", silent_node(599, "too many redirects"), NodeUnreachable, "(599)"),
    ("a page", Answer(body=b"<html>log in</html>"), RemoteFailed, "answers no JSON"),
    ("no data", Answer(body=b'{"message": "hello"}'), RemoteFailed, "JSON of another kind"),
    ("a list", Answer(body=b"[1]"), RemoteFailed, "JSON of another kind"),
    ("a list, 500", Answer(500, "no", b"[1]"), RemoteFailed, "JSON of another kind"),
    ("nothing", data(None), RemoteFailed, "answers nothing"),
    ("empty", Answer(), RemoteFailed, "answers no JSON"),
    (
        "elsewhere",
        Answer(302, "Found", headers=(("Location", "https://127.0.0.1:1/"),)),
        RemoteFailed,
        "answers a redirection elsewhere",
    ),
    ("hangs up", Answer(0), HostUnreachable, "it hung up without an answer"),
    ("cut", Answer(body=b'{"da', missing=50), HostUnreachable, "the answer broke off"),
    ("said back", Answer(401, f"no such token {SECRET}"), LoginRefused, "no such token ***"),
    (
        "said back in fields",
        refusal(400, "Bad", errors={"t": SECRET}),
        RemoteFailed,
        "(t: ***)",
    ),
    ("said back by a node", silent_node(595, SECRET), NodeUnreachable, "*** (595)"),
    ("escapes", Answer(500, "a\x1b[31mb"), RemoteFailed, r"a\x1b[31mb"),
]


@pytest.mark.parametrize(("played", "answer", "kind", "said"), ANSWERS, ids=[a[0] for a in ANSWERS])
def test_every_answer_that_is_none(
    pve: FakeProxmox, played: str, answer: Answer, kind: type[FleetstopError], said: str
) -> None:
    pve.answers["x"] = answer
    error = failed(api(pve), "x")
    assert type(error) is kind, (played, error)
    assert said in error.message


def test_a_wrong_ca_is_told_and_nothing_is_sent(pve: FakeProxmox, tmp_path: Path) -> None:
    before = len(pve.asked)
    with served(FakeProxmox(), tmp_path) as other:
        error = failed(api(pve, ca=str(other.ca)))
    assert isinstance(error, CertificateRefused)
    assert f"is not signed by {other.ca} (api: ca); nothing was sent to it" in error.message
    assert "pve-root-ca.pem" in error.hint
    error = failed(api(pve, ca=None))
    assert isinstance(error, CertificateRefused)
    assert "is not signed by a CA that this machine knows" in error.message
    assert len(pve.asked) == before


def test_a_wrong_fingerprint_is_told_with_the_one_that_is_shown(pve: FakeProxmox) -> None:
    before = len(pve.asked)
    pinned = ":".join(["AB"] * 32)
    # a CA that is right changes nothing: the pin is what was asked for
    for more in ({"ca": None}, {}):
        error = failed(api(pve, fingerprint=pinned, **more))
        assert isinstance(error, CertificateRefused)
        assert f"shows {pve.fingerprint}, not the pinned {pinned}" in error.message
    assert len(pve.asked) == before


def test_a_certificate_for_another_name(tmp_path: Path) -> None:
    with served(three_nodes(), tmp_path, names=("pve1.lab",)) as fake:
        error = failed(api(fake))
        assert isinstance(error, CertificateRefused)
        assert "is for another name or address" in error.message
        assert ask(api(fake, fingerprint=fake.fingerprint))


@pytest.mark.parametrize(
    ("content", "said"), [(None, "there is no"), ("", "no certificate"), ("x", "no certificate")]
)
def test_a_ca_that_is_none(
    pve: FakeProxmox, tmp_path: Path, content: str | None, said: str
) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    error = failed(api(pve, ca=str(path)))
    assert isinstance(error, BadConfig)
    assert said in error.message


def test_nobody_listens_and_no_such_name(pve: FakeProxmox) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        error = failed(api(pve, url=f"https://127.0.0.1:{free.getsockname()[1]}"))
    assert isinstance(error, HostUnreachable)
    assert error.message.endswith("connection refused")
    error = failed(api(pve, url="https://pve.invalid:8006"))
    assert isinstance(error, HostUnreachable)
    assert "no such host name" in error.message or "name" in error.message


@pytest.mark.parametrize("url", ["https://pve1:99999", "https://pve1:x", "https://[::1:8006"])
def test_a_url_whose_port_is_none(pve: FakeProxmox, url: str) -> None:
    error = failed(api(pve, url=url))
    assert isinstance(error, BadConfig)
    assert "not a host and a port" in error.message


def test_it_listens_and_says_nothing(pve: FakeProxmox) -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        error = failed(api(pve, url=f"https://127.0.0.1:{mute.getsockname()[1]}"), read_s=0.5)
    assert isinstance(error, HostUnreachable)


def test_who_speaks_no_tls(pve: FakeProxmox) -> None:
    import threading

    with socket.socket() as plain:
        plain.bind(("127.0.0.1", 0))
        plain.listen()

        def speak() -> None:
            peer, _ = plain.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")

        speaker = threading.Thread(target=speak)
        speaker.start()
        error = failed(api(pve, url=f"https://127.0.0.1:{plain.getsockname()[1]}"))
        speaker.join()
    assert isinstance(error, HostUnreachable)
    assert "TLS" in error.message


def test_a_slow_answer_is_waited_for_and_a_late_one_is_not(pve: FakeProxmox) -> None:
    late = Answer(200, "OK", b'{"data": [1]}', after_s=1.0)
    pve.answers["late"] = late
    assert ask(api(pve), "late") == [1]
    assert "no answer" in failed(api(pve), "late", read_s=0.3).message
    began = time.monotonic()
    assert "no whole answer within" in failed(api(pve), "late", whole_s=0.2).message
    # the thread that still waits keeps nobody
    assert time.monotonic() - began < 0.9


def test_proxmoxer_without_requests_does_not_end_the_program(
    pve: FakeProxmox, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "requests", None)
    monkeypatch.delitem(sys.modules, "proxmoxer.backends.https", raising=False)
    assert "the package requests is missing" in failed(api(pve)).message
