"""The version of the installed software."""

from __future__ import annotations

from importlib import metadata


def software_version() -> str:
    """The version of the `outrider` distribution, or "unknown" where it is not installed as one."""
    try:
        return metadata.version("outrider")
    except metadata.PackageNotFoundError:
        return "unknown"
