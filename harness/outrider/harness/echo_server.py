"""What the probe of a link talks to: E is answered with the same bytes, U (take) with one byte, D (give) with as many
as asked for. A process of its own (`python -m outrider.harness.echo_server`) on a loopback port, until its stdin ends.
"""

from __future__ import annotations

import asyncio
import json
import sys

from outrider.harness.wall_time import run

NUMBER_BYTES = 8
CHUNK_BYTES = 16 << 10


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one connection: a letter, a size in `NUMBER_BYTES`, and for E and U that many bytes; and again."""
    try:
        while command := await reader.read(1):
            size = int.from_bytes(await reader.readexactly(NUMBER_BYTES), "big")
            match command:
                case b"E":
                    writer.write(await reader.readexactly(size))
                case b"U":
                    for start in range(0, size, CHUNK_BYTES):
                        await reader.readexactly(min(CHUNK_BYTES, size - start))
                    writer.write(b"U")
                case _:
                    writer.write(bytes(size))
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def stdin_lines() -> asyncio.StreamReader:
    """The process's standard input, to be read without blocking the loop."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def _serve() -> None:
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()[:2]
        print(json.dumps({"listening": f"{host}:{port}"}), flush=True)
        await (await stdin_lines()).read()


if __name__ == "__main__":
    run(_serve())
