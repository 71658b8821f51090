"""Assertions of what `Engine` asks of its callers, for engines to share. They catch our own bugs, so a failure names
the slot and what stood where; nothing here depends on an engine's state beyond the numbers passed in.
"""

from __future__ import annotations

from collections.abc import Sequence

from outrider.cloud.targets.base import ROOT_PARENT, EngineSpec, SlotRows


def check_forward(rows: Sequence[SlotRows], spec: EngineSpec) -> None:
    """At most one entry a slot, and no more side branches than the engine declares."""
    assert rows, "a forward needs rows"
    slots = [r.slot for r in rows]
    assert len(set(slots)) == len(slots), f"a slot is named twice: {slots}"
    branches = sum(side_branches(r.node_parents) for r in rows)
    assert branches <= spec.max_branches, f"{branches} side branches, at most {spec.max_branches}"


def check_rows(r: SlotRows, cached_length: int, undecided: int, spec: EngineSpec, vocabulary_size: int) -> None:
    """One slot's rows: something to append, parents first, ids and positions in range, nothing left undecided."""
    where = f"slot {r.slot}"
    assert 0 <= r.slot < spec.max_slots, f"{where} of {spec.max_slots}"
    assert len(r.append) > 0, f"{where}: nothing to append"
    assert undecided == 0, f"{where}: {undecided} nodes of the last forward are undecided"
    assert len(r.node_tokens) == len(r.node_parents), f"{where}: a node lacks a token or a parent"
    assert r.want_logits or not r.node_tokens, f"{where}: nodes without logits"
    children = set(zip(r.node_parents, r.node_tokens, strict=True))
    assert len(children) == len(r.node_tokens), f"{where}: two siblings have one token"
    for node, parent in enumerate(r.node_parents):
        assert ROOT_PARENT <= parent < node, f"{where}: node {node} has parent {parent}"
    end = cached_length + len(r.append) + max(node_depths(r.node_parents), default=0)
    assert end <= spec.context_length, f"{where}: {end} positions of {spec.context_length}"
    for token in (*r.append, *r.node_tokens):
        assert 0 <= token < vocabulary_size, f"{where}: token {token} of {vocabulary_size}"


def check_path(path: Sequence[int], parents: Sequence[int], slot: int) -> None:
    """A path names nodes of the last forward, each the child of the one before, from the root."""
    above = ROOT_PARENT
    for node in path:
        assert 0 <= node < len(parents), f"slot {slot} has no node {node}"
        assert parents[node] == above, f"slot {slot}: node {node} hangs below {parents[node]}, not {above}"
        above = node


def node_depths(parents: Sequence[int]) -> list[int]:
    """Depth of each node below the last appended token; its children have 1."""
    depths: list[int] = []
    for parent in parents:
        depths.append(1 if parent == ROOT_PARENT else depths[parent] + 1)
    return depths


def side_branches(parents: Sequence[int]) -> int:
    """Number of leaves beyond the first: what a tree needs beyond a chain."""
    inner = {p for p in parents if p != ROOT_PARENT}
    return max(0, len(parents) - len(inner) - 1)
