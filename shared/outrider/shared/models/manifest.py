"""The list of known models: what each file is, how it is recognised, and where it can be had.

Knows nothing of the network or of what is on this machine.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any


@dataclass(frozen=True, slots=True)
class UrlSource:
    """The whole file under one address. `provenance` is shown to the user."""

    provenance: str
    url: str


@dataclass(frozen=True, slots=True)
class Part:
    """One slice of the file: `size` bytes, stored as `member` of the wheel of `package`."""

    package: str
    version: str
    member: str
    size: int


@dataclass(frozen=True, slots=True)
class PackageSource:
    """The file cut into the data of several wheels, in order. `provenance` is shown to the user."""

    provenance: str
    parts: tuple[Part, ...]


Source = UrlSource | PackageSource


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One model. `size` (bytes) and `sha256` (lower-case hex) decide whether a file is it."""

    name: str
    title: str
    licence: str
    file_name: str
    size: int
    sha256: str
    roles: tuple[str, ...]
    sources: tuple[Source, ...]


Manifest = Mapping[str, ModelSpec]


def parse_manifest(text: str) -> Manifest:
    """Read a manifest in TOML; the order of models and sources is kept.

    An unknown or missing key raises TypeError or KeyError: the manifest is ours, so that is a bug.
    """
    specs = [_model(table) for table in tomllib.loads(text)["models"]]
    manifest = {spec.name: spec for spec in specs}
    assert len(manifest) == len(specs), "two models share a name"
    assert len({spec.file_name for spec in specs}) == len(specs), "two models share a file name"
    return manifest


@cache
def packaged_manifest() -> Manifest:
    """The manifest that ships with Outrider."""
    return parse_manifest(resources.files(__package__).joinpath("manifest.toml").read_text("utf-8"))


def _model(table: dict[str, Any]) -> ModelSpec:
    sources = tuple(_source(source, table["size"]) for source in table.pop("sources"))
    return ModelSpec(roles=tuple(table.pop("roles")), sources=sources, **table)


def _source(table: dict[str, Any], size: int) -> Source:
    match table.pop("kind"):
        case "url":
            return UrlSource(**table)
        case "packages":
            return _packages(size=size, **table)
        case kind:
            raise ValueError(f"unknown kind of source: {kind}")


def _packages(*, provenance: str, package: str, version: str, member: str, part_size: int, size: int) -> PackageSource:
    parts = tuple(
        Part(
            package=package.format(n=index + 1, i=index),
            version=version,
            member=member.format(n=index + 1, i=index),
            size=min(part_size, size - index * part_size),
        )
        for index in range(-(-size // part_size))
    )
    return PackageSource(provenance, parts)
