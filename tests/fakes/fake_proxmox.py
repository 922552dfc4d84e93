"""A Proxmox API over TLS with a CA of its own, which plays every answer of a real one, and some of
what is no Proxmox at all. Shapes and error texts as pve-http-server and pve-manager have them."""

from __future__ import annotations

import datetime
import http.server
import ipaddress
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

TOKEN_ID = "fleet@pve!fleetstop"
SECRET = "0f5c1d3e-7a52-4e0b-9d57-secretsecret"


@dataclass(frozen=True)
class Answer:
    """`reason` is where pve-http-server says what went wrong."""

    code: int = 200
    reason: str = "OK"
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    after_s: float = 0.0
    # bytes that are promised and never come
    missing: int = 0


def data(value: object) -> Answer:
    return Answer(body=json.dumps({"data": value}).encode())


def refusal(code: int, reason: str, *, message: bool = True, **more: object) -> Answer:
    """`message`: pve-http-server since 5.2.0; older ones say it in the reason phrase only."""
    told = {"data": None, **more} | ({"message": reason + "\n"} if message else {})
    return Answer(code, reason, json.dumps(told).encode())


def silent_node(code: int, reason: str) -> Answer:
    """595 and 596 have no body at all."""
    return Answer(code, reason)


@dataclass
class FakeProxmox:
    """Answers by path below /api2/json; a path that has none is 501. Three nodes, four containers
    and a virtual machine at first."""

    answers: dict[str, Answer | Callable[[], Answer]] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    check_token: bool = True
    port: int = 0
    ca: Path = Path()
    fingerprint: str = ""

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def answer(self, path: str, authorization: str) -> Answer:
        self.asked.append((path, authorization))
        if self.check_token and authorization != f"PVEAPIToken={TOKEN_ID}={SECRET}":
            return Answer(401, "Authentication failed!")
        found = self.answers.get(path)
        if found is None:
            return refusal(501, f"Method 'GET /{path}' not implemented")
        return found() if callable(found) else found


def guest(vmid: object, node: str, status: str = "running", **more: object) -> dict[str, object]:
    known = {"vmid": vmid, "id": f"lxc/{vmid}", "node": node, "type": "lxc", "status": status}
    return known | ({"name": f"ct{vmid}", "template": 0} if status != "unknown" else {}) | more


def three_nodes() -> FakeProxmox:
    """pve3 is dead: the cluster says so, and what it knows of its container is stale."""
    fake = FakeProxmox()
    status = [
        {"type": "cluster", "id": "cluster", "name": "lab", "nodes": 3, "quorate": 1, "version": 7},
        *(
            {"type": "node", "id": f"node/{name}", "name": name, "ip": ip, "online": up}
            | {"local": int(name == "pve1"), "nodeid": number, "level": ""}
            for number, (name, ip, up) in enumerate(
                [("pve1", "10.1.2.6", 1), ("pve2", "10.1.2.7", 1), ("pve3", "10.1.2.8", 0)], 1
            )
        ),
    ]
    of_1 = [
        guest(200, "pve1", tags="gpu;train", pool="ml"),
        guest(201, "pve1", "stopped", lock="backup"),
    ]
    of_2 = [guest(202, "pve2")]
    machine = {"vmid": 900, "id": "qemu/900", "node": "pve1", "type": "qemu", "status": "running"}
    dead = guest(203, "pve3", "unknown", tags="gpu")
    fake.answers = {
        "cluster/resources": data([*of_1, *of_2, dead, machine]),
        "cluster/status": data(status),
        "nodes": data([{"node": f"pve{n}", "status": "online", "type": "node"} for n in (1, 2, 3)]),
        "nodes/pve1/lxc": data([{k: v for k, v in each.items() if k != "node"} for each in of_1]),
        # before pve-container 5.0.10: numbers as text, no type
        "nodes/pve2/lxc": data([{"vmid": "202", "status": "running", "name": "ct202"}]),
        "nodes/pve3/lxc": silent_node(595, "No route to host"),
        "access/permissions": data({"/vms": {"VM.Audit": 1}, "/": {"Sys.Audit": 1}}),
    }
    return fake


@contextmanager
def served(fake: FakeProxmox, where: Path, *, names: tuple[str, ...] = ()) -> Iterator[FakeProxmox]:
    """On a port of loopback; `names`: what its certificate is for instead of 127.0.0.1."""
    where.mkdir(exist_ok=True)
    fake.ca, chain, fake.fingerprint = certificates(where, names)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(fake))
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    fake.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(fake: FakeProxmox) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0].removeprefix("/api2/json/")
            told = fake.answer(path, self.headers.get("Authorization", ""))
            time.sleep(told.after_s)
            if told.code == 0:  # hangs up
                self.close_connection = True
                return
            self.send_response(told.code, told.reason)
            for name, value in told.headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(told.body) + told.missing))
            self.end_headers()
            self.wfile.write(told.body)
            self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:
            """A test's output is its own."""

    return Handler


def certificates(where: Path, names: tuple[str, ...]) -> tuple[Path, Path, str]:
    """The CA's file, the server's chain with its key, and the leaf's SHA-256 in pairs."""
    authority = ec.generate_private_key(ec.SECP256R1())
    root = _signed("Proxmox Virtual Environment", authority, None, ())
    key = ec.generate_private_key(ec.SECP256R1())
    leaf = _signed("pve1", key, (root, authority), names or ("127.0.0.1",))
    pem = serialization.Encoding.PEM
    (where / "pve-root-ca.pem").write_bytes(root.public_bytes(pem))
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (where / "pve-ssl.pem").write_bytes(private + leaf.public_bytes(pem))
    digits = leaf.fingerprint(hashes.SHA256()).hex(":").upper()
    return where / "pve-root-ca.pem", where / "pve-ssl.pem", digits


def _signed(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    by: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None,
    names: tuple[str, ...],
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    issuer, signer = (by[0].subject, by[1]) if by else (subject, key)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
    )
    if by is None:
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        made = made.add_extension(usage, critical=True)
    if names:
        alternatives = x509.SubjectAlternativeName([_general(each) for each in names])
        made = made.add_extension(alternatives, critical=False)
    return made.sign(signer, hashes.SHA256())


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
