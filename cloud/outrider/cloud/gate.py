"""Who is calling: by bearer token, by client certificate, or nobody in particular. Callers without a token are turned
away before anything is read of what they send.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc

from outrider.cloud.principal import ANONYMOUS, Principal
from outrider.cloud.tokens import TokenFile
from outrider.shared.errors import OutriderError, Reason

AUTHORIZATION = "authorization"
_SCHEME = "bearer"
_HEALTH = "/grpc.health.v1.Health/"

Refuse = Callable[[Any, OutriderError], Awaitable[object]]


class Gate:
    """Tells principals. With `tokens` each call needs one; with `client_certificates` the handshake saw to one."""

    def __init__(self, tokens: TokenFile | None = None, *, client_certificates: bool = False) -> None:
        self._tokens = tokens
        self._client_certificates = client_certificates

    def principal(self, context: Any) -> Principal:
        """Whose call `context` (a servicer context) is; raises UNAUTHENTICATED."""
        if self._tokens is not None:
            return self.bearer(context.invocation_metadata())
        if self._client_certificates:
            return _subject(context.auth_context())
        return ANONYMOUS

    def bearer(self, metadata: Sequence[tuple[str, str | bytes]] | None) -> Principal:
        """Whose token the metadata of a call holds, anonymous where none is asked for; raises UNAUTHENTICATED."""
        if self._tokens is None:
            return ANONYMOUS
        found = [value for key, value in metadata or () if key == AUTHORIZATION]
        if len(found) == 1 and isinstance(found[0], str):
            scheme, _, token = found[0].partition(" ")
            name = self._tokens.name_of(token) if scheme.lower() == _SCHEME else None
            if name is not None:
                return Principal(name)
        raise OutriderError(Reason.UNAUTHENTICATED, "It takes a bearer token that is in force.")


class TokenInterceptor(grpc.aio.ServerInterceptor):
    """Lets calls with a token through to whatever serves them; asking for the verifier's health needs none."""

    def __init__(self, gate: Gate, refuse: Refuse) -> None:
        """`refuse` ends the call of a servicer context with an error."""
        self._gate = gate
        self._refuse = refuse

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """See `grpc.aio.ServerInterceptor`."""
        if not handler_call_details.method.startswith(_HEALTH):
            try:
                self._gate.bearer(handler_call_details.invocation_metadata)
            except OutriderError as error:
                return self._refusal(error)
        return await continuation(handler_call_details)

    def _refusal(self, error: OutriderError) -> Any:
        async def refuse(_: object, context: Any) -> None:
            await self._refuse(context, error)

        # Whatever kind of call it is: a handler of streams reads nothing by itself.
        return grpc.stream_stream_rpc_method_handler(refuse)


def _subject(auth_context: Any) -> Principal:
    """The subject of the client's certificate, or its alternative names where it has no subject."""
    # A subject begins with the kind of its first part ("CN="), so that no alternative name looks like one.
    for key, prefix in (("x509_subject", ""), ("x509_subject_alternative_name", "names ")):
        values = [value.decode("utf-8", "backslashreplace") for value in auth_context.get(key, ()) if value]
        if values:
            return Principal(prefix + ",".join(values))
    raise OutriderError(Reason.UNAUTHENTICATED, "The client certificate names nobody.")
