"""A Proxmox API over HTTPS, read by proxmoxer in threads. Knows no meaning of its answers."""

from __future__ import annotations

import asyncio
import re
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from fleetstop.core.inventory import Api
from fleetstop.core.spelling import plain
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
from fleetstop.remote.token import Secret, read_secret

if TYPE_CHECKING:
    from proxmoxer import ProxmoxAPI  # type: ignore[import-untyped]

T = TypeVar("T")
# pveproxy gives a node 30 s before it says 596 itself (pve-http-server, AnyEvent.pm): its word is
# waited for, since it tells which node it was
READ_S = 35.0
# a server that drips keeps the read alive for ever
WHOLE_S = 120.0
_PORT = 8006
# pve-http-server's own codes: no connection to the node, no TLS or no headers, a broken body
_NODE_CODES = frozenset({595, 596, 597, 598, 599})
_GOT = re.compile(r'[Gg]ot "?([0-9a-f]{64})')
_CERTIFICATE = "openssl x509 -noout -fingerprint -sha256 -in /etc/pve/local/pve-ssl.pem"
_PIN = f"ca: a copy of its /etc/pve/pve-root-ca.pem, or fingerprint: as `{_CERTIFICATE}` says there"


class ProxmoxCluster:
    """ports.Cluster. Every call has a thread and a session of its own: neither is shared."""

    def __init__(self, api: Api, *, read_s: float = READ_S, whole_s: float = WHOLE_S) -> None:
        self._api = api
        self._read_s, self._whole_s = read_s, whole_s
        self._secret: Secret | None = None
        self._reading = asyncio.Lock()

    @property
    def url(self) -> str:
        return self._api.url

    async def get(self, path: str) -> object:
        async with self._reading:  # once, however many ask: it may be a command that asks somebody
            if self._secret is None:
                source, who = self._api.token_secret, self._api.token_id
                self._secret = await in_thread(lambda: read_secret(source, who))
        secret = self._secret
        try:
            async with asyncio.timeout(self._whole_s):
                found = await in_thread(lambda: self._asked(path, secret))
        except TimeoutError:
            raise HostUnreachable(
                f"{self.url}: no whole answer within {self._whole_s:.0f} s"
            ) from None
        if isinstance(found, FleetstopError):
            raise found
        return found

    def _asked(self, path: str, secret: Secret) -> object:
        """In a thread. An error is returned: raised here it would carry the foreign one along,
        and with it a request whose headers hold the token."""
        try:
            if self._api.ca is not None and not Path(self._api.ca).exists():
                return BadConfig(f"api: ca: there is no {plain(self._api.ca)}")
            found = self._session(secret).get(path)
        except (Exception, SystemExit) as error:
            return _translated(error, self.url, path, self._api, secret)
        if found is None:
            return _odd(self.url, "nothing")
        if isinstance(found, dict) and set(found) == {"errors"}:  # what is not JSON is handed on so
            return _odd(self.url, "no JSON")
        return found

    def _session(self, secret: Secret) -> ProxmoxAPI:
        from proxmoxer import ProxmoxAPI

        try:
            where = urlsplit(self._api.url)
            host, port = where.hostname or "", where.port or _PORT
        except ValueError:
            raise BadConfig(f"api: url: {plain(self.url)}: not a host and a port") from None
        user, _, token = self._api.token_id.rpartition("!")
        pin = self._api.fingerprint
        made = ProxmoxAPI(
            f"[{host}]" if ":" in host else host,
            port=port,
            user=user,
            token_name=token,
            token_value=secret.reveal(),
            # the pin is looked at instead of the chain, and before anything is sent
            verify_ssl=False if pin is not None else (self._api.ca or True),
            timeout=self._read_s,
        )
        session = made._store["session"]
        session.max_redirects = 0  # the API never does; whoever does is no Proxmox
        if pin is not None:
            session.mount("https://", _pinned(pin))
        return made


def _pinned(fingerprint: str) -> Any:
    """Connections only to who shows this certificate (SHA-256, in pairs), directly or by proxy."""
    from requests.adapters import HTTPAdapter

    class Pinned(HTTPAdapter):
        def init_poolmanager(self, *args: Any, **more: Any) -> None:
            super().init_poolmanager(*args, **more, assert_fingerprint=fingerprint)

        def proxy_manager_for(self, proxy: Any, **more: Any) -> Any:
            return super().proxy_manager_for(proxy, **more, assert_fingerprint=fingerprint)

    return Pinned()


async def in_thread(call: Callable[[], T]) -> T:
    """As asyncio.to_thread, in a thread that nobody waits for: an interruption passes at once, and
    a server that does not answer cannot keep the program from ending."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.done():  # given up meanwhile
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def body() -> None:
        result: T | None = None
        failed: BaseException | None = None
        try:
            result = call()
        except BaseException as error:  # whatever it is, it is raised where it is waited for
            failed = error
        with suppress(RuntimeError):  # the loop is closed: whoever waited has gone
            loop.call_soon_threadsafe(settle, result, failed)

    threading.Thread(target=body, daemon=True, name="proxmox").start()
    return await done


def _translated(
    error: BaseException, url: str, path: str, api: Api, secret: Secret
) -> FleetstopError:
    """Most specific first. Foreign text is scrubbed: a server may say back what it was told."""
    if isinstance(error, FleetstopError):
        return error
    if isinstance(error, SystemExit | ImportError):
        return RemoteFailed(
            f"{url}: proxmoxer cannot be used here: the package requests is missing or broken",
            hint="pip install --force-reinstall proxmoxer requests",
        )
    import requests
    from proxmoxer import AuthenticationError, ResourceException

    if isinstance(error, ResourceException):
        said = secret.hidden_in(str(error.content or "").strip())
        return _answered(error.status_code, said, _fields(error.errors, secret), url, path, api)
    if isinstance(error, AuthenticationError):
        return LoginRefused(f"{url}: the login was refused")
    if isinstance(error, requests.exceptions.SSLError | ssl.SSLError):
        return _certificate(secret.hidden_in(str(error)), url, api)
    if isinstance(error, requests.exceptions.ConnectTimeout):
        return HostUnreachable(f"{url}: no connection within {READ_S:.0f} s")
    if isinstance(error, requests.exceptions.Timeout):
        return HostUnreachable(f"{url}: connected, and no answer within {READ_S:.0f} s")
    if isinstance(error, requests.exceptions.TooManyRedirects):
        return _odd(url, "a redirection elsewhere")
    if isinstance(error, requests.exceptions.ProxyError):
        return HostUnreachable(
            f"{url}: the proxy of $HTTPS_PROXY did not let us through",
            hint="NO_PROXY=HOST keeps it out of the way",
        )
    broken = requests.exceptions.ConnectionError | requests.exceptions.ChunkedEncodingError
    if isinstance(error, broken):
        return HostUnreachable(f"{url}: {_why(secret.hidden_in(str(error)))}")
    if isinstance(error, KeyError | ValueError | TypeError | AttributeError):
        return _odd(url, "JSON of another kind")
    return RemoteFailed(f"{url}: proxmoxer failed with {type(error).__name__}")


def _fields(errors: object, secret: Secret) -> str:
    """`vmid: invalid format`, of what a 400 says field by field."""
    if not isinstance(errors, dict):
        return ""
    told = {key: each for key, each in errors.items() if isinstance(each, str)}
    return secret.hidden_in("; ".join(f"{key}: {each.strip()}" for key, each in told.items()))


def _answered(code: int, said: str, fields: str, url: str, path: str, api: Api) -> FleetstopError:
    words = plain(said)
    if code == 401:
        return LoginRefused(
            f"{url}: the token {plain(api.token_id)} was refused: {words or 'no reason given'}",
            hint="on a node: pveum user token list USER@REALM; is it expired, is the secret whole?",
        )
    if code == 403:
        return PrivilegeMissing(f"{url}: {path}: {words or 'not permitted'}")
    if code in _NODE_CODES:
        return NodeUnreachable(f"{words or 'no reason given'} ({code})")
    more = f" ({plain(fields)})" if fields else ""
    return RemoteFailed(f"{url}: {path}: {code} {words}{more}".rstrip())


def _certificate(said: str, url: str, api: Api) -> FleetstopError:
    if "ingerprint" in said:
        got = _GOT.search(said)
        shows = f"shows {_pairs(got[1])}, " if got else "shows another certificate, "
        return CertificateRefused(
            f"{url}: {shows}not the pinned {api.fingerprint}; nothing was sent to it",
            hint=f"if the certificate was renewed, `{_CERTIFICATE}` on that node says the new one",
        )
    if "NO_CERTIFICATE" in said or "PEM" in said:
        return BadConfig(f"api: ca: {plain(api.ca or '')}: no certificate in it")
    if "doesn't match" in said or "not valid for" in said or "mismatch" in said:
        return CertificateRefused(
            f"{url}: its certificate is for another name or address; nothing was sent to it",
            hint=f"write the url with a name that is in it, or pin it: fingerprint: as "
            f"`{_CERTIFICATE}` says there",
        )
    if "CERTIFICATE_VERIFY_FAILED" in said or "certificate verify failed" in said:
        by = f"{plain(api.ca)} (api: ca)" if api.ca else "a CA that this machine knows"
        expired = "has expired" in said
        why = "has expired" if expired else f"is not signed by {by}"
        return CertificateRefused(
            f"{url}: its certificate {why}; nothing was sent to it",
            hint="pvecm updatecerts --force, on that node" if expired else _PIN,
        )
    return HostUnreachable(f"{url}: no TLS there: {_why(said)}")


def _pairs(digits: str) -> str:
    return ":".join(digits[at : at + 2] for at in range(0, len(digits), 2)).upper()


def _odd(url: str, what: str) -> FleetstopError:
    return RemoteFailed(
        f"{url}: answers {what}, as no Proxmox API does",
        hint="is it a reverse proxy's page? The url is that of the web interface, without a path",
    )


def _why(said: str) -> str:
    """The system's own words out of what requests and urllib3 wrap around them."""
    found = re.search(r"\[Errno -?\d+\] ([^'\")\]]+)", said)
    if found:
        return found[1].strip().lower()
    for sign, words in (
        ("NameResolutionError", "no such host name"),
        ("RemoteDisconnected", "it hung up without an answer"),
        ("Connection aborted", "the connection broke off"),
        ("IncompleteRead", "the answer broke off"),
        ("WRONG_VERSION_NUMBER", "it does not speak TLS"),
    ):
        if sign in said:
            return words
    return "no connection"
