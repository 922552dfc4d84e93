"""Many hosts in one process: SSH servers on addresses of loopback that answer with recorded bytes.

    python -m tests.fakes.swarm KEYS PORT COUNT     prints `ready`, serves until stdin ends

KEYS holds `host` (a private key) and `client.pub`. Host N is 127.1.A.B, see `address`; what it is
like is `kind(N)`. Every host runs the same job, as it was recorded in tests/samples/proc.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal, TypeAlias

import asyncssh

Kind: TypeAlias = Literal["well", "dead", "slow", "no_ssh", "babbles", "floods", "hangs_up"]
SAMPLES = Path(__file__).parents[1] / "samples/proc"
END = b"#fleetstop-end\n"
SLOW_S = 1.5
FLOOD = 64
SLOW = 23
ODD: dict[int, Kind] = {
    7: "dead",
    41: "no_ssh",
    59: "babbles",
    71: "floods",
    97: "hangs_up",
}
Answer: TypeAlias = tuple[bytes, int]


def kind(number: int) -> Kind:
    """Of two hundred, five are dead or talk garbage, and one is slow."""
    return "slow" if number % 200 == SLOW else ODD.get(number % 200, "well")


def address(number: int) -> str:
    return f"127.1.{number // 250}.{number % 250 + 1}"


class _Recorded:
    def __init__(self) -> None:
        name = "{}_run_sh_pipe.bin"
        self.said = {
            verb: (SAMPLES / name.format(verb)).read_bytes() for verb in ("look", "argv", "detail")
        }

    def answer(self, verb: str) -> Answer:
        if verb == "hello":
            return b"pid=4242\nstart=1\nuid=0\nhz=100\nuptime=2875.06\nhidden=\n", 0
        if verb == "gpus":
            return b"", 30
        return (self.said[verb], 0) if verb in self.said else (b"", 1)


def shell_of(
    number: int, recorded: _Recorded
) -> Callable[[asyncssh.SSHServerProcess[bytes]], Awaitable[None]]:
    """The far end of one session, which speaks as boot.sh does; or does not."""
    like = kind(number)

    async def serve(process: asyncssh.SSHServerProcess[bytes]) -> None:
        if like == "babbles":
            process.stdout.write(b"Welcome!\r\n\x1b[2J\xff\xfe no shell here\n" * 3)
            process.exit(0)
            return
        if like == "floods":
            while not process.stdin.at_eof():
                process.stdout.write(b"x" * 65536)
                await process.stdout.drain()
            process.exit(0)
            return
        while (line := await process.stdin.readline()) and line != END:
            pass
        if like == "hangs_up":
            process.channel.get_connection().abort()
            return
        process.stdout.write(b"\nready\n")
        while words := (await process.stdin.readline()).split():
            await asyncio.sleep(SLOW_S if like == "slow" else 0)
            data, status = recorded.answer(words[1].decode())
            process.stdout.write(data + b"\n" + words[0] + b" %d\n" % status)
        process.exit(0)

    return serve


async def _no_ssh(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"\0" * 4096)
    writer.close()


async def serve(keys: Path, port: int, count: int) -> None:
    recorded, key = _Recorded(), asyncssh.read_private_key(keys / "host")
    for number in range(count):
        like = kind(number)
        if like == "no_ssh":
            await asyncio.start_server(_no_ssh, address(number), port)
        elif like != "dead":
            await asyncssh.listen(
                address(number), port, server_host_keys=[key], encoding=None,
                authorized_client_keys=str(keys / "client.pub"), line_editor=False,
                process_factory=shell_of(number, recorded),
            )  # fmt: skip
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
