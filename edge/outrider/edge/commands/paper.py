"""Where the text of an answer is printed. What no verifier has seen is dim on a terminal, and a line says so where it
does not stay; elsewhere, where nothing can be taken back, it waits until it is final.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol, TextIO

from outrider.edge.chunks import Chunk
from outrider.shared.token_tree import Origin

_DIM, _PLAIN = "\033[2m", "\033[0m"
# So much of what stays is shown again, to go on from.
_SHOWN_AGAIN = 60


class Paper(Protocol):
    """Takes the chunks of one answer."""

    def put(self, chunk: Chunk) -> None:
        """Print what the chunk brings."""
        ...

    def end(self) -> None:
        """The answer ends here."""
        ...


def paper_for(stream: TextIO) -> Paper:
    """What fits the stream."""
    return Terminal(stream) if stream.isatty() else Pipe(stream)


class Terminal:
    """Shows all at once."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._text = ""

    def put(self, chunk: Chunk) -> None:
        """See `Paper.put`."""
        if chunk.retract is not None:
            self._text = self._text[: chunk.retract.text_length]
            line = self._text.rpartition("\n")[2][-_SHOWN_AGAIN:]
            taken = f"[the last {len(chunk.retract.withdrawn)} characters, which nobody had verified, are withdrawn]"
            self._stream.write(f"\n{_DIM}{taken}{_PLAIN}\n{line}")
        self._text += chunk.text
        is_dim = chunk.origin is Origin.UNVERIFIED and chunk.text
        self._stream.write(f"{_DIM}{chunk.text}{_PLAIN}" if is_dim else chunk.text)
        self._stream.flush()

    def end(self) -> None:
        """See `Paper.end`."""
        self._stream.write("\n")
        self._stream.flush()


class Pipe:
    """Prints only what stays."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._printed = 0
        # What waits: how many tokens with which text. Verified tokens are counted off from the first on.
        self._waiting: deque[tuple[int, str]] = deque()
        self._verified = 0

    def put(self, chunk: Chunk) -> None:
        """See `Paper.put`."""
        self._verified += chunk.verified
        while self._waiting and self._waiting[0][0] <= self._verified:
            count, text = self._waiting.popleft()
            self._verified -= count
            self._print(text)
        if chunk.retract is not None:
            stays = "".join(text for _, text in self._waiting)
            self._waiting.clear()
            self._print(stays[: chunk.retract.text_length - self._printed])
        if chunk.origin is Origin.UNVERIFIED:
            # Text of no token is what comes before a stop text: that has to be seen first.
            self._waiting.append((max(1, len(chunk.token_ids)), chunk.text))
            return
        if not self._waiting:
            self._verified = 0
        self._print(chunk.text)

    def end(self) -> None:
        """See `Paper.end`."""
        self._print("".join(text for _, text in self._waiting) + "\n")
        self._waiting.clear()

    def _print(self, text: str) -> None:
        self._printed += len(text)
        self._stream.write(text)
        self._stream.flush()
