"""Both replicas of the tree, fed by each other over streams with any delay, interleaving, duplication of commits and
cuts, end with the target's own text. The target is a fixed sequence; drafts are right or wrong at random.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.shared.errors import OutriderError, Reason
from outrider.shared.messages import Commit, Grow
from outrider.shared.token_tree import NO_NODE, DraftTree, Node, VerifierTree

PROMPT = (7, 8, 9)
STOP = 0
ALPHABET = 4


def target_token(position: int, seed: int) -> int:
    """The target's choice at a position; never the stop id."""
    return random.Random(seed * 1_000_003 + position).randrange(1, ALPHABET)


@dataclass
class Edge:
    """The edge's policy at random: grow anywhere below the root, right or wrong, sent now or later or never."""

    tree: DraftTree
    window: int
    seed: int
    rng: random.Random

    def draft(self) -> None:
        nodes = list(self.tree.root.subtree())
        node = self.rng.choice(nodes)
        if node is not self.tree.root and node.token == STOP:
            return
        right = target_token(node.position + 1, self.seed)
        token = right if self.rng.random() < 0.6 else self.rng.randrange(0, ALPHABET)
        self.tree.add(node, token)

    def grow(self) -> Grow | None:
        chosen: list[Node] = []
        room = self.window - self.tree.live_count
        for node in self.tree.root.subtree():
            parent = node.parent
            if node is self.tree.root or node.node_id or parent is None:
                continue
            parent_known = parent is self.tree.root or parent.node_id or parent in chosen
            if parent_known and len(chosen) < room and self.rng.random() < 0.7:
                chosen.append(node)
        credit = self.rng.choice([0, 0, self.tree.committed_length + 1, self.tree.committed_length + 3])
        return self.tree.compose(chosen, credit) if chosen or credit else None


@dataclass
class Cloud:
    """The session's use of its tree: snapshot, walk, commit; late nodes may arrive in between."""

    tree: VerifierTree
    seed: int
    length: int
    run_to: int = 0
    snapshot_children: dict[tuple[int, int], Node] | None = None
    begun_at: int = 0

    def begin_pass(self, max_nodes: int, max_branches: int) -> None:
        snapshot = self.tree.snapshot(max_nodes, max_branches, self.length)
        self.begun_at = self.tree.committed_length
        self.snapshot_children = {
            (parent, node.token): node for node, parent in zip(snapshot.nodes, snapshot.parents, strict=True)
        }
        self._index_of = {id(node): i for i, node in enumerate(snapshot.nodes)}

    def end_pass(self) -> Commit:
        assert self.snapshot_children is not None
        at, path, correction = -1, [], []
        position = self.begun_at
        while position < self.length:
            token = target_token(position, self.seed)
            position += 1
            child = self.snapshot_children.get((at, token))
            if child is None:
                correction = [token]
                break
            path.append(child)
            at = self._index_of[id(child)]
        self.snapshot_children = None
        base = self.tree.committed_length
        self.tree.advance([*(node.token for node in path), *correction])
        return Commit(
            base,
            path[-1].node_id if path else NO_NODE,
            tuple(correction),
            self.tree.committed_length,
            self.tree.hash,
        )


@dataclass
class World:
    """Two replicas and the two directions of the stream between them."""

    seed: int
    rng: random.Random
    window: int
    length: int
    up: deque[Grow] = field(default_factory=deque)
    down: deque[Commit] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.edge = Edge(DraftTree(PROMPT), self.window, self.seed, self.rng)
        self.cloud = self._fresh_cloud([])

    def _fresh_cloud(self, committed: list[int]) -> Cloud:
        tree = VerifierTree(PROMPT, committed, window=self.window, stop_ids=frozenset({STOP}))
        return Cloud(tree, self.seed, self.length)

    def step(self) -> None:
        match self.rng.randrange(8):
            case 0 | 1:
                self.edge.draft()
            case 2:
                grow = self.edge.grow()
                if grow is not None:
                    self.up.append(grow)
            case 3:
                self.deliver_up()
            case 4 | 5:
                self.work()
            case 6:
                self.deliver_down()
            case 7:
                if self.rng.random() < 0.05:
                    self.cut()
        self.check()

    def deliver_up(self) -> None:
        if self.up:
            grow = self.up.popleft()
            self.cloud.tree.grow(grow)
            self.cloud.run_to = max(self.cloud.run_to, grow.run_to)

    def work(self) -> None:
        if self.cloud.snapshot_children is not None:
            self.down.append(self.cloud.end_pass())
        elif self.cloud.tree.committed_length < self.length and (
            self.cloud.tree.live_count or self.cloud.tree.committed_length < self.cloud.run_to
        ):
            self.cloud.begin_pass(self.rng.randrange(1, 9), self.rng.randrange(0, 4))

    def deliver_down(self) -> None:
        if not self.down:
            return
        commit = self.down.popleft()
        self.edge.tree.commit(commit)
        if self.rng.random() < 0.1:
            # A commit that comes twice is refused and changes nothing.
            before = list(self.edge.tree.committed)
            with pytest.raises(OutriderError) as refused:
                self.edge.tree.commit(commit)
            assert refused.value.reason is Reason.PEER_VIOLATION
            assert self.edge.tree.committed == before

    def cut(self) -> None:
        """The stream breaks: what is on the way is lost, the edge opens another with what it has."""
        self.up.clear()
        self.down.clear()
        self.edge.tree.restart_ids()
        self.cloud = self._fresh_cloud(self.edge.tree.committed)

    def check(self) -> None:
        self.edge.tree.check_integrity()
        self.cloud.tree.check_integrity()
        expected = [target_token(i, self.seed) for i in range(self.length)]
        committed = self.cloud.tree.committed
        assert committed == expected[: len(committed)]
        assert self.edge.tree.committed == committed[: len(self.edge.tree.committed)]
        assert self.cloud.tree.live_count <= self.edge.tree.live_count
        assert self.edge.tree.live_count <= self.window

    def finish(self) -> None:
        """Let everything arrive, and ask until the answer is complete."""
        for _ in range(100 * self.length):
            while self.up:
                self.deliver_up()
            self.work()
            while self.down:
                self.deliver_down()
            if self.edge.tree.committed_length == self.length:
                break
            if self.cloud.snapshot_children is None and not self.cloud.tree.live_count:
                self.up.append(self.edge.tree.compose([], self.edge.tree.committed_length + 1))
            self.check()
        assert self.edge.tree.committed == self.cloud.tree.committed
        assert self.edge.tree.committed == [target_token(i, self.seed) for i in range(self.length)]
        assert self.edge.tree.hash == self.cloud.tree.hash


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    window=st.integers(1, 12),
    length=st.integers(1, 30),
    steps=st.integers(0, 400),
)
def test_replicas_converge_to_the_targets_text_under_any_schedule(
    seed: int, window: int, length: int, steps: int
) -> None:
    world = World(seed, random.Random(seed), window, length)
    for _ in range(steps):
        world.step()
    world.finish()


def kept_subtrees(tree: DraftTree | VerifierTree) -> set[tuple[int, ...]]:
    return {tuple(tree.path(node)) for node in tree.root.subtree() if node is not tree.root and node.node_id}


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(0, 200))
def test_replicas_hold_the_same_sent_nodes_once_all_has_arrived(seed: int, steps: int) -> None:
    world = World(seed, random.Random(seed), 12, 40)
    for _ in range(steps):
        world.step()
    while world.up:
        world.deliver_up()
    if world.cloud.snapshot_children is not None:
        world.work()
    while world.down:
        world.deliver_down()
    assert kept_subtrees(world.edge.tree) == kept_subtrees(world.cloud.tree)
