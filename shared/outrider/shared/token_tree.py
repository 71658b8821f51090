"""The replicated token tree: nodes of guessed tokens below the last committed one, and the two operations `grow` and
`commit` that keep both ends alike. Pure: no clock, no wire, no model.

Where a node stands follows from its path and the committed text alone, never from the order of arrival, so any
delay between the two ends leads both to the same tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from outrider.shared.errors import OutriderError, Reason
from outrider.shared.messages import Commit, Grow, TokenHash

NO_NODE = 0


class Node:
    """One guessed token. `position` is its index in the answer; `node_id` is 0 until the node is sent.

    `log_probability` is the drafters' estimate, natural log, that the whole path down to this node is right. `expanded`
    and `looked_up` say whose children it has: the draft models', a lookup's; `said` is what they said, for whoever
    asked them.
    """

    __slots__ = (
        "children",
        "expanded",
        "log_probability",
        "looked_up",
        "node_id",
        "parent",
        "position",
        "said",
        "token",
    )

    def __init__(self, token: int, parent: Node | None, position: int) -> None:
        self.token = token
        self.parent = parent
        self.position = position
        self.node_id = NO_NODE
        self.children: dict[int, Node] = {}
        self.log_probability = 0.0
        self.expanded = False
        self.looked_up = False
        self.said: Any = None

    def subtree(self) -> Iterator[Node]:
        """This node and all below it, parents first."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children.values()))


class Origin(StrEnum):
    """Where a token of the answer came from: a guess that a pass accepted, the target in place of a wrong guess, the
    target by itself, where no guess had been sent or the right one came too late, or the drafter alone, while no
    verifier could be reached: such a token is not final.
    """

    DRAFTED = "drafted"
    CORRECTED = "corrected"
    CLOUD = "cloud"
    UNVERIFIED = "unverified"


@dataclass(frozen=True, slots=True)
class CommittedToken:
    """A token that has become final, unless its origin says otherwise."""

    token: int
    origin: Origin


class TokenTree:
    """What both replicas share: the committed answer ids, the root, and the move of the root along tokens.

    The root stands for the last committed token (before the first one: for the last prompt id).
    """

    def __init__(self, prompt_ids: Sequence[int], committed_ids: Sequence[int] = ()) -> None:
        self.committed: list[int] = list(committed_ids)
        self._hash = TokenHash(prompt_ids)
        self._hash.extend(self.committed)
        last = next((ids[-1] for ids in (self.committed, prompt_ids) if ids), 0)
        self.root = Node(last, None, len(self.committed) - 1)
        self._live: dict[int, Node] = {}

    @property
    def committed_length(self) -> int:
        """Number of committed answer tokens."""
        return len(self.committed)

    @property
    def hash(self) -> int:
        """CRC-32 over prompt and committed ids."""
        return self._hash.value

    @property
    def live_count(self) -> int:
        """Number of nodes that were sent and may still become text."""
        return len(self._live)

    def path(self, node: Node) -> list[int]:
        """Tokens from below the root down to `node`."""
        tokens: list[int] = []
        current: Node | None = node
        while current is not None and current is not self.root:
            tokens.append(current.token)
            current = current.parent
        return tokens[::-1]

    def is_live(self, node: Node) -> bool:
        """Whether `node` is the root or still hangs below it."""
        current: Node | None = node
        while current is not None and current.position >= self.root.position:
            if current is self.root:
                return True
            current = current.parent
        return False

    def advance(self, tokens: Iterable[int]) -> list[Node | None]:
        """Commit `tokens`: move the root along them, keep what hangs below and drop the rest.

        Returns, for each token, the node that held it, or None where none did.
        """
        held: list[Node | None] = []
        fresh = list(tokens)
        for token in fresh:
            child = self.root.children.get(token)
            for rival in self.root.children.values():
                if rival is not child:
                    self._forget(rival)
            if child is None:
                self.root = Node(token, None, self.root.position + 1)
            else:
                self._live.pop(child.node_id, None)
                child.parent = None
                self.root = child
            held.append(child)
        self.committed.extend(fresh)
        self._hash.extend(fresh)
        return held

    def check_integrity(self) -> None:
        """Assert the invariants of the tree; cheap enough for tests to call after every step."""
        assert self.root.position == self.committed_length - 1
        assert self.root.parent is None
        assert not self.committed or self.root.token == self.committed[-1]
        sent = 0
        for node in self.root.subtree():
            for token, child in node.children.items():
                assert child.parent is node
                assert child.token == token
                assert child.position == node.position + 1
                assert node is self.root or not child.node_id or 0 < node.node_id < child.node_id
            if node is not self.root and node.node_id:
                sent += 1
                assert self._live[node.node_id] is node
        assert sent == len(self._live)

    def _forget(self, node: Node) -> None:
        for dropped in node.subtree():
            self._live.pop(dropped.node_id, None)


class DraftTree(TokenTree):
    """The edge's replica: nodes are added unsent, composed into `Grow` messages, and follow commits."""

    def __init__(self, prompt_ids: Sequence[int], committed_ids: Sequence[int] = ()) -> None:
        super().__init__(prompt_ids, committed_ids)
        self._next_id = 1

    def add(self, parent: Node, token: int, log_probability: float = 0.0) -> Node:
        """The child of `parent` with `token`, made if there is none (drafters merge). Log-probabilities add up
        along the path; of two estimates for one node the higher one counts.
        """
        child = parent.children.get(token)
        log_path = parent.log_probability + log_probability
        if child is None:
            child = parent.children[token] = Node(token, parent, parent.position + 1)
            child.log_probability = log_path
        child.log_probability = max(child.log_probability, log_path)
        return child

    def revise(self, node: Node, log_probability: float) -> None:
        """Take the step from its parent to `node` to be this likely (natural log); what hangs below follows."""
        assert node.parent is not None, "the root is certain"
        change = node.parent.log_probability + log_probability - node.log_probability
        for below in node.subtree():
            below.log_probability += change

    def compose(self, nodes: Sequence[Node], run_to: int = 0) -> Grow:
        """Give ids to the unsent `nodes` (parents sent earlier or earlier in the list) and pack them."""
        first_id = self._next_id
        parents: list[int] = []
        for node in nodes:
            parent = node.parent
            assert parent is not None, "the root is never sent"
            assert node.node_id == NO_NODE, "a node is sent once"
            assert parent is self.root or parent.node_id, "a parent is sent before its children"
            parents.append(NO_NODE if parent is self.root else parent.node_id)
            node.node_id = self._next_id
            self._live[node.node_id] = node
            self._next_id += 1
        return Grow(first_id, self.committed_length, tuple(parents), tuple(n.token for n in nodes), run_to)

    def commit(self, commit: Commit) -> list[CommittedToken]:
        """Follow the verifier's commit; returns the tokens it made final.

        Raises PEER_VIOLATION, and changes nothing, if the commit does not continue this replica.
        """
        accepted = self._path_to_accepted(commit)
        tokens = [*accepted, *commit.tokens]
        expected = TokenHash()
        expected.value = self.hash
        expected.extend(tokens)
        if commit.committed_length != self.committed_length + len(tokens) or commit.hash != expected.value:
            raise OutriderError(
                Reason.PEER_VIOLATION,
                f"commit to length {commit.committed_length}, hash {commit.hash:08x}; this side has "
                f"{self.committed_length} + {len(tokens)}, hash {expected.value:08x}.",
            )
        committed = self._with_origins(tokens, len(accepted))
        self.advance(tokens)
        return committed

    def restart_ids(self) -> None:
        """Forget what was sent: a new stream knows no node. All kept nodes are unsent again."""
        for node in self._live.values():
            node.node_id = NO_NODE
        self._live.clear()
        self.root.node_id = NO_NODE
        self._next_id = 1

    def _with_origins(self, tokens: list[int], accepted_count: int) -> list[CommittedToken]:
        committed: list[CommittedToken] = []
        node: Node | None = self.root
        for index, token in enumerate(tokens):
            rivals = node.children if node is not None else {}
            node = rivals.get(token)
            came_late = node is not None and node.node_id
            if index < accepted_count:
                origin = Origin.DRAFTED
            elif not came_late and any(rival.node_id for rival in rivals.values()):
                origin = Origin.CORRECTED
            else:
                origin = Origin.CLOUD
            committed.append(CommittedToken(token, origin))
        return committed

    def _path_to_accepted(self, commit: Commit) -> list[int]:
        if commit.base != self.committed_length:
            raise OutriderError(
                Reason.PEER_VIOLATION, f"commit from length {commit.base}, expected {self.committed_length}."
            )
        if commit.accepted_node == NO_NODE:
            return []
        node = self._live.get(commit.accepted_node)
        if node is None:
            raise OutriderError(Reason.PEER_VIOLATION, f"commit accepts unknown node {commit.accepted_node}.")
        return self.path(node)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The nodes a pass looks at, parents first: `parents[i]` is an earlier index, or -1 for the root."""

    nodes: tuple[Node, ...]
    parents: tuple[int, ...]

    @property
    def tokens(self) -> tuple[int, ...]:
        """Token of each node."""
        return tuple(node.token for node in self.nodes)


class VerifierTree(TokenTree):
    """The cloud's replica: grown by messages, moved by its own passes.

    `window` bounds the live nodes; `stop_ids` end an answer, so nothing may hang below them.
    """

    def __init__(
        self,
        prompt_ids: Sequence[int],
        committed_ids: Sequence[int],
        *,
        window: int,
        stop_ids: frozenset[int],
    ) -> None:
        super().__init__(prompt_ids, committed_ids)
        self.window = window
        self._stop_ids = stop_ids
        self._highest_id = 0
        self._highest_base = 0
        # Nodes the text has covered but whose ids the edge may still name: id -> index in the answer.
        self._committed_ids: dict[int, int] = {}

    def grow(self, grow: Grow) -> int:
        """Add the nodes of one message; returns how many became live.

        Raises GROW_MALFORMED, PARENT_UNKNOWN, CHILD_DUPLICATE, CHILD_OF_STOP or WINDOW_EXCEEDED; the tree may
        then hold part of the message, which is of no consequence as the stream ends.
        """
        self._check_header(grow)
        self._forget_committed_before(grow.base)
        live_before = self.live_count
        for index, (parent_id, token) in enumerate(zip(grow.parents, grow.tokens, strict=True)):
            node_id = grow.first_id + index
            if parent_id >= node_id:
                raise OutriderError(
                    Reason.PARENT_UNKNOWN, f"node {node_id} names parent {parent_id}, which was not sent."
                )
            self._highest_id = node_id
            self._add(node_id, parent_id, token, grow.base)
        return self.live_count - live_before

    def snapshot(self, max_nodes: int, max_branches: int, end: int) -> Snapshot:
        """The first live nodes that a pass can take: at most `max_nodes`, at most `max_branches` leaves beside
        the first one, none at answer index `end` or beyond. Closed under ancestors; first children first.
        """
        nodes: list[Node] = []
        parents: list[int] = []
        index_of: dict[Node, int] = {self.root: -1}
        branches = 0
        for node in sorted(self._live.values(), key=lambda n: (n.position, n.node_id)):
            parent_index = index_of.get(node.parent) if node.parent is not None else None
            if parent_index is None or node.position >= end:
                continue
            if len(nodes) == max_nodes:
                break
            is_branch = parent_index in parents
            if is_branch and branches == max_branches:
                continue
            branches += is_branch
            index_of[node] = len(nodes)
            nodes.append(node)
            parents.append(parent_index)
        return Snapshot(tuple(nodes), tuple(parents))

    def restart(self, base: int) -> None:
        """Forget all nodes and ids: another stream begins, whose edge has the first `base` committed tokens."""
        self.root = Node(self.root.token, None, self.root.position)
        self._live.clear()
        self._committed_ids.clear()
        self._highest_id = 0
        self._highest_base = base

    def advance(self, tokens: Iterable[int]) -> list[Node | None]:
        """Commit `tokens`, remembering the ids of nodes that become text until the edge's base passes them."""
        first = self.committed_length
        held = super().advance(tokens)
        for offset, node in enumerate(held):
            if node is not None and node.node_id:
                self._committed_ids[node.node_id] = first + offset
        return held

    def _check_header(self, grow: Grow) -> None:
        if grow.first_id != self._highest_id + 1:
            raise OutriderError(Reason.GROW_MALFORMED, f"first_id = {grow.first_id}, expected {self._highest_id + 1}.")
        if not self._highest_base <= grow.base <= self.committed_length:
            raise OutriderError(
                Reason.GROW_MALFORMED,
                f"base = {grow.base}, expected {self._highest_base} to {self.committed_length}.",
            )
        self._highest_base = grow.base

    def _forget_committed_before(self, base: int) -> None:
        for node_id in [i for i, position in self._committed_ids.items() if position < base]:
            del self._committed_ids[node_id]

    def _add(self, node_id: int, parent_id: int, token: int, base: int) -> None:
        if parent_id == NO_NODE:
            position = base
        elif parent_id in self._committed_ids:
            position = self._committed_ids[parent_id] + 1
        else:
            parent = self._live.get(parent_id)
            if parent is not None:
                self._attach(node_id, parent, token)
            return
        if position == self.committed_length:
            self._attach(node_id, self.root, token)
        elif self.committed[position] == token:
            if position in self._committed_ids.values():
                raise OutriderError(Reason.CHILD_DUPLICATE, f"node {node_id} repeats token {token}.")
            self._committed_ids[node_id] = position

    def _attach(self, node_id: int, parent: Node, token: int) -> None:
        if parent is not self.root and parent.token in self._stop_ids:
            raise OutriderError(Reason.CHILD_OF_STOP, f"node {node_id} hangs below stop token {parent.token}.")
        if token in parent.children:
            raise OutriderError(Reason.CHILD_DUPLICATE, f"node {node_id} repeats token {token}.")
        if self.live_count >= self.window:
            raise OutriderError(Reason.WINDOW_EXCEEDED, f"node {node_id} is one over the {self.window} allowed.")
        node = parent.children[token] = Node(token, parent, parent.position + 1)
        node.node_id = node_id
        self._live[node_id] = node
