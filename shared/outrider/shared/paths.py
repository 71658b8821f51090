"""Where Outrider keeps its data on this machine; the one place that reads the environment for it."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

APP_NAME = "outrider"
HOME_VARIABLE = "OUTRIDER_HOME"


def cache_dir() -> Path:
    """Folder for what can be fetched or built again: models, wheels. `$OUTRIDER_HOME` overrides the platform's."""
    return _home() or Path(platformdirs.user_cache_dir(APP_NAME, appauthor=False))


def _home() -> Path | None:
    value = os.environ.get(HOME_VARIABLE)
    return Path(value).expanduser().absolute() if value else None
