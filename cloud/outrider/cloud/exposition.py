"""Shows metrics over HTTP: Prometheus' own application on a small server in threads, so that a scrape keeps no answer
waiting and no slow reader keeps the scrape.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from outrider.cloud.listen import parse_listen
from outrider.shared.errors import OutriderError, Reason

# For so long, in seconds, a client may say nothing or read nothing.
CLIENT_LIMIT_S = 5.0
# At once; each has a thread.
MOST_CLIENTS = 16
OPTION = "--metrics"


def check_metrics_reach(listen: str, is_public: bool) -> None:
    """Raise LISTEN_NOT_LOOPBACK where others can reach the address and that is not meant, USAGE if it is none."""
    address = parse_listen(OPTION, listen)
    if not address.is_loopback and not is_public:
        raise OutriderError(
            Reason.LISTEN_NOT_LOOPBACK,
            f"{OPTION} {address.host} has neither; give --metrics-public if others are to read it all the same.",
        )


@contextlib.asynccontextmanager
async def exposed(registry: CollectorRegistry, listen: str) -> AsyncIterator[str]:
    """Show `registry` at HOST:PORT (port 0: a free one) inside the context; yields HOST:PORT. Raises PORT_IN_USE."""
    address = parse_listen(OPTION, listen)
    server_class = _Server6 if address.is_ipv6 else _Server
    try:
        server = make_server(address.host, address.port, make_wsgi_app(registry), server_class, _Handler)
    except OSError as error:
        raise OutriderError(Reason.PORT_IN_USE, f"{OPTION} {listen}: {error.strerror}.") from None
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True, name="metrics")
    thread.start()
    try:
        yield f"{listen.rpartition(':')[0]}:{server.server_port}"
    finally:
        await asyncio.to_thread(server.shutdown)
        server.server_close()


class _Server(ThreadingMixIn, WSGIServer):
    """A thread a request; none of them keeps the verifier from ending."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._room = threading.BoundedSemaphore(MOST_CLIENTS)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve it in a thread; one too many is hung up on."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """In that thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def server_bind(self) -> None:
        """Bind without asking the resolver for the host's name, which may take long."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has left is nobody's concern."""


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = CLIENT_LIMIT_S

    def log_message(self, format: str, *args: object) -> None:
        """Scrapes are not logged."""
