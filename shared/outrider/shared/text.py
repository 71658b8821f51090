"""What counts as text."""

from __future__ import annotations


def is_text(text: str) -> bool:
    """Whether `text` is valid Unicode. Bytes that are no UTF-8 reach a program as lone surrogates, which are not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
