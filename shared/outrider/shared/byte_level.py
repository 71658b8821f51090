"""The byte-to-character table of byte-level BPE (GPT-2, `encoder.py`), by which vocabularies spell bytes as text."""

from __future__ import annotations

from functools import cache


@cache
def byte_of_character() -> dict[str, int]:
    """Maps each of the 256 stand-in characters to the byte it stands for."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    table = {chr(byte): byte for byte in plain}
    shifted = (byte for byte in range(256) if byte not in set(plain))
    table.update({chr(256 + index): byte for index, byte in enumerate(shifted)})
    return table


def decode_piece(text: str) -> bytes:
    """The bytes that a byte-level BPE piece spells; a character outside the table stands for its own UTF-8."""
    table = byte_of_character()
    try:
        return bytes([table[character] for character in text])
    except KeyError:
        return text.encode()
