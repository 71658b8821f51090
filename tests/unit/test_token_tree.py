"""The replicated token tree: the rules that make both replicas converge, one by one and then over random schedules."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.shared.errors import Reason
from outrider.shared.messages import Commit, Grow, TokenHash
from outrider.shared.token_tree import NO_NODE, DraftTree, Node, Origin, TokenTree, VerifierTree
from support.refusal import refused

PROMPT = (5, 6, 7)
STOP = 99


def make_cloud(committed: Sequence[int] = (), window: int = 64) -> VerifierTree:
    return VerifierTree(PROMPT, committed, window=window, stop_ids=frozenset({STOP}))


def chain(first_id: int, base: int, tokens: Sequence[int], below: int = NO_NODE) -> Grow:
    parents = (below, *range(first_id, first_id + len(tokens) - 1))[: len(tokens)]
    return Grow(first_id, base, parents, tuple(tokens))


def live_paths(tree: TokenTree) -> set[tuple[int, ...]]:
    """Paths from the root of all nodes that were sent and are live."""
    return {tuple(tree.path(node)) for node in tree.root.subtree() if node is not tree.root and node.node_id}


def state_of(tree: TokenTree) -> tuple[Any, ...]:
    nodes = [(tree.path(node), node.node_id, node.position) for node in tree.root.subtree()]
    return tree.committed.copy(), tree.hash, tree.live_count, nodes


def make_commit(tree: TokenTree, tokens: Sequence[int], accepted: Node | None = None, **changes: int) -> Commit:
    """The commit that continues `tree` by the path to `accepted` and then `tokens`."""
    everything = [*(tree.path(accepted) if accepted else ()), *tokens]
    fields: dict[str, Any] = {
        "base": tree.committed_length,
        "accepted_node": accepted.node_id if accepted else NO_NODE,
        "committed_length": tree.committed_length + len(everything),
        "hash": TokenHash([*PROMPT, *tree.committed, *everything]).value,
    }
    return Commit(tokens=tuple(tokens), **fields | changes)


# Growing the verifier's replica.


def test_chain_and_siblings_hang_where_their_parents_say() -> None:
    tree = make_cloud()
    assert tree.grow(Grow(1, 0, (0, 1, 2, 1, 0), (10, 11, 12, 13, 14))) == 5
    assert live_paths(tree) == {(10,), (10, 11), (10, 11, 12), (10, 13), (14,)}
    assert tree.live_count == 5
    tree.check_integrity()


def test_a_late_node_equal_to_a_committed_token_is_committed_and_its_children_are_live() -> None:
    tree = make_cloud()
    tree.advance([10, 11])
    assert tree.grow(chain(1, 0, [10, 11, 12, 13])) == 2
    assert live_paths(tree) == {(12,), (12, 13)}
    tree.check_integrity()
    # The ids of the covered nodes can still be named: by a child in the same place and by one that is late itself.
    assert tree.grow(Grow(5, 0, (2, 1), (14, 15))) == 1
    assert live_paths(tree) == {(12,), (12, 13), (14,)}


def test_children_of_dead_parents_are_dropped_without_a_word() -> None:
    tree = make_cloud()
    tree.grow(chain(1, 0, [10, 11]))
    tree.advance([20])
    assert tree.live_count == 0
    assert tree.grow(Grow(3, 0, (2, 3, 0), (12, 13, 14))) == 0
    assert tree.grow(chain(6, 1, [30], below=4)) == 0
    assert tree.grow(chain(7, 1, [40])) == 1
    assert live_paths(tree) == {(40,)}
    tree.check_integrity()


def test_status_does_not_depend_on_whether_nodes_or_commit_arrive_first() -> None:
    grow = Grow(1, 0, (0, 1, 2, 0, 4, 1), (10, 11, 12, 20, 21, 13))
    early, late = make_cloud(), make_cloud()
    early.grow(grow)
    early.advance([10, 11])
    late.advance([10, 11])
    late.grow(grow)
    assert live_paths(early) == live_paths(late) == {(12,)}
    # What still can be named is the same too.
    more = Grow(7, 0, (1, 2, 6, 5, 3), (15, 16, 17, 18, 19))
    assert early.grow(more) == late.grow(more) == 2
    assert live_paths(early) == live_paths(late) == {(12,), (12, 19), (16,)}


def test_a_parent_that_was_never_sent_is_refused() -> None:
    for parent in (1, 2, 7):
        tree = make_cloud()
        with refused(Reason.PARENT_UNKNOWN, f"parent {parent}"):
            tree.grow(Grow(1, 0, (parent,), (10,)))
    tree = make_cloud()
    tree.grow(chain(1, 0, [10]))
    with refused(Reason.PARENT_UNKNOWN):
        tree.grow(Grow(2, 0, (0, 4), (11, 12)))


@pytest.mark.parametrize("first_id", [0, 1, 2, 4, 100])
def test_ids_are_dense_from_one(first_id: int) -> None:
    tree = make_cloud()
    tree.grow(chain(1, 0, [10, 11]))
    before = state_of(tree)
    with refused(Reason.GROW_MALFORMED, f"first_id = {first_id}", "expected 3"):
        tree.grow(chain(first_id, 0, [12]))
    assert state_of(tree) == before
    assert tree.grow(chain(3, 0, [12])) == 1


def test_an_id_is_used_up_by_a_dead_node() -> None:
    tree = make_cloud([1])
    assert tree.grow(chain(1, 0, [10])) == 0
    with refused(Reason.GROW_MALFORMED):
        tree.grow(chain(1, 1, [10]))
    assert tree.grow(chain(2, 1, [10])) == 1


def test_base_is_at_most_the_committed_length_and_never_goes_back() -> None:
    tree = make_cloud([1, 2, 3])
    with refused(Reason.GROW_MALFORMED, "base = 4", "0 to 3"):
        tree.grow(chain(1, 4, [10]))
    tree.grow(chain(1, 2, [3]))
    with refused(Reason.GROW_MALFORMED, "base = 1", "2 to 3"):
        tree.grow(chain(2, 1, [10]))
    tree.grow(Grow(2, 3))
    with refused(Reason.GROW_MALFORMED, "base = 2", "3 to 3"):
        tree.grow(chain(2, 2, [10]))


def test_parent_zero_is_the_root_that_the_edge_saw_at_its_base() -> None:
    tree = make_cloud([1, 2])
    assert tree.grow(Grow(1, 0, (0, 0), (1, 9))) == 0  # covered by the text, and dead
    assert tree.grow(Grow(3, 1, (0, 3), (2, 30))) == 1  # the text's second token, and its child
    assert tree.grow(Grow(5, 2, (0,), (40,))) == 1
    assert live_paths(tree) == {(30,), (40,)}


def test_duplicate_children_are_refused_among_live_nodes() -> None:
    for parents in ((0, 0), (0, 1, 1)):
        tree = make_cloud()
        tokens = (10, 10) if len(parents) == 2 else (10, 11, 11)
        with refused(Reason.CHILD_DUPLICATE):
            tree.grow(Grow(1, 0, parents, tokens))
    tree = make_cloud()
    assert tree.grow(Grow(1, 0, (0, 0, 1, 2), (10, 11, 12, 12))) == 4, "one token below two parents is no duplicate"


def test_duplicate_children_are_refused_among_committed_nodes() -> None:
    held = make_cloud()
    held.grow(chain(1, 0, [10]))
    held.advance([10])
    with refused(Reason.CHILD_DUPLICATE, "node 2", "10"):
        held.grow(chain(2, 0, [10]))
    late = make_cloud()
    late.advance([10, 11])
    with refused(Reason.CHILD_DUPLICATE, "node 3", "11"):
        late.grow(Grow(1, 0, (0, 1, 1), (10, 11, 11)))


def test_nothing_hangs_below_a_stop_token() -> None:
    tree = make_cloud()
    assert tree.grow(chain(1, 0, [10, STOP])) == 2, "the stop token itself is a leaf like any other"
    with refused(Reason.CHILD_OF_STOP, "node 3", str(STOP)):
        tree.grow(chain(3, 0, [11], below=2))


def test_a_prompt_that_ends_with_a_stop_id_can_be_answered() -> None:
    tree = VerifierTree((1, STOP), (), window=4, stop_ids=frozenset({STOP}))
    assert tree.grow(chain(1, 0, [10])) == 1


def test_the_window_bounds_live_nodes_only() -> None:
    tree = make_cloud(window=3)
    assert tree.grow(chain(1, 0, [10, 11, 12])) == 3
    with refused(Reason.WINDOW_EXCEEDED, "node 4", "3"):
        tree.grow(chain(4, 0, [13]))
    tree = make_cloud(window=2)
    tree.grow(Grow(1, 0, (0, 1), (10, 11)))
    tree.advance([10])
    assert tree.grow(chain(3, 0, [12], below=1)) == 1, "a committed node has left the window"
    tree.advance([20])
    assert tree.grow(Grow(4, 0, (3, 3, 3), (1, 2, 3))) == 0, "dead nodes are not counted"
    assert tree.grow(Grow(7, 2, (0, 0), (1, 2))) == 2


def test_committed_ids_are_forgotten_once_a_base_has_passed_them() -> None:
    tree = make_cloud()
    tree.grow(chain(1, 0, [10, 11, 12]))
    tree.advance([10, 11, 12])
    assert tree.grow(chain(4, 2, [13], below=3)) == 1, "position 2 is not yet passed"
    assert tree.grow(chain(5, 2, [12], below=2)) == 0, "position 1 is passed: node 2 stands for nothing any more"
    assert tree.grow(chain(6, 3, [14], below=3)) == 0
    assert live_paths(tree) == {(13,)}
    assert tree.grow(chain(7, 3, [14])) == 1


def test_message_that_cannot_be_whole_is_refused_by_length() -> None:
    with pytest.raises(ValueError, match="zip"):
        make_cloud().grow(Grow(1, 0, (0,), (10, 11)))


# What a pass may look at.


def test_snapshot_takes_first_children_first_and_is_closed_under_ancestors() -> None:
    tree = make_cloud()
    tree.grow(Grow(1, 0, (0, 1, 2, 0, 4, 1), (10, 11, 12, 20, 21, 13)))
    snapshot = tree.snapshot(max_nodes=64, max_branches=64, end=100)
    assert snapshot.tokens == (10, 20, 11, 21, 13, 12)
    assert snapshot.parents == (-1, -1, 0, 1, 0, 2)


def test_snapshot_without_branches_is_the_first_chain() -> None:
    tree = make_cloud()
    tree.grow(Grow(1, 0, (0, 0, 1, 3, 2), (10, 20, 11, 12, 21)))
    assert tree.snapshot(64, 0, 100).tokens == (10, 11, 12)
    assert tree.snapshot(64, 1, 100).tokens == (10, 20, 11, 21, 12)


def test_snapshot_ends_before_the_end_of_the_answer() -> None:
    tree = make_cloud([1, 2])
    tree.grow(chain(1, 2, [10, 11, 12]))
    assert [tree.snapshot(64, 64, end).tokens for end in (2, 3, 4, 9)] == [(), (10,), (10, 11), (10, 11, 12)]


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_snapshot_holds_as_much_as_its_limits_allow(data: st.DataObject) -> None:
    tree = make_cloud()
    count = data.draw(st.integers(0, 14))
    places = [data.draw(st.integers(0, i)) for i in range(count)]
    tree.grow(Grow(1, 0, tuple(places), tuple(range(10, 10 + count))))
    limits = data.draw(st.tuples(st.integers(0, 15), st.integers(0, 5), st.integers(0, 15)))
    max_nodes, max_branches, end = limits
    snapshot = tree.snapshot(max_nodes, max_branches, end)
    assert len(snapshot.nodes) == len(snapshot.parents) <= max_nodes
    assert all(parent < index for index, parent in enumerate(snapshot.parents))
    for node, parent in zip(snapshot.nodes, snapshot.parents, strict=True):
        assert node.parent is (tree.root if parent == -1 else snapshot.nodes[parent])
        assert node.position < end
    leaves = len(snapshot.nodes) - len({p for p in snapshot.parents if p >= 0})
    assert leaves <= max_branches + 1
    left_out = [n for n in tree.root.subtree() if n is not tree.root and n not in snapshot.nodes]
    if len(snapshot.nodes) < max_nodes:
        inside = {tree.root, *snapshot.nodes}
        for node in left_out:
            if node.parent in inside and node.position < end:
                taken = any(n.parent is node.parent for n in snapshot.nodes)
                assert taken and leaves == max_branches + 1, "left out although it fits"


# The edge's replica.


def test_composed_ids_and_parents_follow_the_order_of_sending() -> None:
    tree = DraftTree(PROMPT, [1])
    first = tree.add(tree.root, 10)
    second, sibling = tree.add(first, 11), tree.add(tree.root, 20)
    assert tree.compose([first, sibling], run_to=3) == Grow(1, 1, (0, 0), (10, 20), 3)
    assert tree.compose([second]) == Grow(3, 1, (1,), (11,))
    assert tree.compose([], run_to=9) == Grow(4, 1, run_to=9)
    assert tree.live_count == 3
    tree.commit(make_commit(tree, [], accepted=first))
    third = tree.add(second, 12)
    assert tree.compose([third, tree.add(tree.root, 13)]) == Grow(4, 2, (3, 0), (12, 13))


def test_drafters_merge_and_the_better_estimate_counts() -> None:
    tree = DraftTree(PROMPT)
    node = tree.add(tree.root, 10, -2.0)
    assert tree.add(tree.root, 10, -1.0) is node
    assert tree.add(tree.root, 10, -3.0) is node
    assert node.log_probability == -1.0
    assert tree.add(node, 11, -0.5).log_probability == -1.5
    assert [child.token for child in tree.root.children.values()] == [10]


def test_commit_walks_through_sent_and_unsent_children() -> None:
    tree = DraftTree(PROMPT)
    first = tree.add(tree.root, 10)
    second = tree.add(first, 11)
    unsent = tree.add(second, 12)
    below = tree.add(unsent, 13)
    tree.compose([first, second])
    tree.commit(make_commit(tree, [12], accepted=second))
    assert tree.root is unsent and tree.root.parent is None
    assert tree.committed == [10, 11, 12]
    assert tree.root.children == {13: below}
    assert tree.live_count == 0
    tree.check_integrity()
    assert tree.compose([below]) == Grow(3, 3, (0,), (13,))


def test_commit_of_a_token_that_nobody_guessed_gives_a_bare_root() -> None:
    tree = DraftTree(PROMPT)
    node = tree.add(tree.root, 10)
    tree.add(node, 11)
    tree.compose([node])
    tree.commit(make_commit(tree, [20, 21]))
    assert (tree.root.token, tree.root.position, tree.root.children) == (21, 1, {})
    assert tree.live_count == 0
    assert not tree.is_live(node)
    tree.check_integrity()


def test_unsent_siblings_survive_a_commit_above_them_and_die_beside_it() -> None:
    tree = DraftTree(PROMPT)
    first = tree.add(tree.root, 10)
    beside = tree.add(tree.root, 20)
    below = tree.add(first, 11)
    spare = tree.add(first, 30)
    tree.compose([first, below])
    tree.commit(make_commit(tree, [], accepted=first))
    assert set(tree.root.children.values()) == {below, spare}
    assert tree.is_live(spare) and not tree.is_live(beside)
    # The spare becomes the root: a correction that was foreseen.
    kept = tree.add(spare, 31)
    tree.commit(make_commit(tree, [30]))
    assert tree.root is spare and tree.root.children == {31: kept}


def test_a_commit_without_its_node_carries_all_tokens_and_follows_them_all_the_same() -> None:
    tree = DraftTree(PROMPT)
    first = tree.add(tree.root, 10)
    second = tree.add(first, 11)
    tree.compose([first, second])
    committed = tree.commit(make_commit(tree, [10, 11, 12]))
    assert {c.origin for c in committed} == {Origin.CLOUD}, "no pass accepted them"
    assert tree.committed == [10, 11, 12]


def test_origins_tell_accepted_guesses_corrections_and_the_clouds_own_tokens_apart() -> None:
    tree = DraftTree(PROMPT)
    first = tree.add(tree.root, 10)
    second = tree.add(first, 11)
    tree.add(first, 30)  # foreseen, but never sent
    tree.compose([first, second])
    committed = tree.commit(make_commit(tree, [30, 31], accepted=first))
    assert [(c.token, c.origin) for c in committed] == [
        (10, Origin.DRAFTED),
        (30, Origin.CORRECTED),
        (31, Origin.CLOUD),
    ]
    tree.add(tree.root, 40)
    assert [c.origin for c in tree.commit(make_commit(tree, [40]))] == [Origin.CLOUD], "an unsent guess is no draft"


@pytest.mark.parametrize(
    "changes",
    [
        {"hash": 1},
        {"base": 0},
        {"base": 2},
        {"committed_length": 3},
        {"committed_length": 5},
        {"accepted_node": 3},
        {"accepted_node": 4},
        {"accepted_node": 2},
    ],
)
def test_a_commit_that_does_not_continue_this_replica_changes_nothing(changes: dict[str, int]) -> None:
    tree = DraftTree(PROMPT, [1])
    nodes = [tree.add(tree.root, 10)]
    nodes += [tree.add(nodes[0], 11), tree.add(tree.root, 20)]
    tree.compose(nodes[:2])
    tree.add(nodes[1], 12)
    before = state_of(tree)
    good = make_commit(tree, [12, 13], accepted=nodes[0])
    with refused(Reason.PEER_VIOLATION):
        tree.commit(make_commit(tree, [12, 13], accepted=nodes[0], **changes))
    assert state_of(tree) == before
    assert [c.token for c in tree.commit(good)] == [10, 12, 13]


def test_a_commit_cannot_accept_a_node_that_has_died() -> None:
    tree = DraftTree(PROMPT)
    node = tree.add(tree.root, 10)
    tree.compose([node])
    tree.commit(make_commit(tree, [20]))
    with refused(Reason.PEER_VIOLATION, "unknown node 1"):
        tree.commit(make_commit(tree, [], accepted_node=1))


def test_restarted_ids_begin_at_one_and_keep_what_was_drafted() -> None:
    tree = DraftTree(PROMPT)
    first = tree.add(tree.root, 10)
    second = tree.add(first, 11)
    spare = tree.add(first, 30)
    tree.compose([first, second])
    tree.commit(make_commit(tree, [], accepted=first))
    tree.restart_ids()
    assert tree.live_count == 0
    assert [n.node_id for n in (first, second, spare)] == [NO_NODE] * 3
    tree.check_integrity()
    grow = tree.compose([second, spare])
    assert grow == Grow(1, 1, (0, 0), (11, 30))
    cloud = make_cloud(tree.committed)
    assert cloud.grow(grow) == 2


def test_the_hash_is_that_of_prompt_and_committed_ids_whoever_computes_it() -> None:
    tree = DraftTree(PROMPT, [1, 2])
    other = DraftTree((*PROMPT, 1), [2])
    cloud = make_cloud([1, 2])
    assert tree.hash == other.hash == cloud.hash == TokenHash([*PROMPT, 1, 2]).value
    cloud.advance([3])
    assert cloud.hash == TokenHash([*PROMPT, 1, 2, 3]).value != tree.hash


# Both together.


class Schedule:
    """An edge and a cloud with a queue each way; the target's text is `text`, so tokens agree now and then."""

    def __init__(self, text: Sequence[int], window: int) -> None:
        self.text = list(text)
        self.window = window
        self.edge = DraftTree(PROMPT)
        self.cloud = make_cloud(window=window)
        self.up: deque[Grow] = deque()
        self.down: deque[Commit] = deque()
        self.received: list[int] = []

    def draft(self, choice: int) -> None:
        """Add a guess somewhere."""
        nodes = [n for n in self.edge.root.subtree() if n.position < len(self.text)]
        if nodes:
            node = nodes[choice % len(nodes)]
            right = self.text[node.position + 1 :][:1] or [0]
            self.edge.add(node, right[0] if choice % 3 else choice // 7 % 3)

    def send(self, choice: int) -> None:
        """Send some unsent nodes whose parents are sent, as many as the window allows."""
        nodes: list[Node] = []
        for node in self.edge.root.subtree():
            room = self.edge.live_count + len(nodes) < self.window
            sendable = node.parent is self.edge.root or node.parent in nodes or (node.parent and node.parent.node_id)
            if node is not self.edge.root and not node.node_id and sendable and room and len(nodes) <= choice % 5:
                nodes.append(node)
        self.up.append(self.edge.compose(nodes))

    def deliver_up(self, _: int) -> None:
        if self.up:
            self.cloud.grow(self.up.popleft())

    def deliver_down(self, _: int) -> None:
        if self.down:
            self.received += [c.token for c in self.edge.commit(self.down.popleft())]

    def run_pass(self, choice: int) -> None:
        """Walk a snapshot along the text; then, now and then, decode on without nodes."""
        base = self.cloud.committed_length
        snapshot = self.cloud.snapshot(choice % 9, choice % 4, len(self.text))
        left = self.text[base:]
        parent, accepted = -1, NO_NODE
        tokens: list[int] = []
        while left:
            token = left.pop(0)
            tokens.append(token)
            places = zip(snapshot.nodes, snapshot.parents, strict=True)
            hits = [i for i, (node, above) in enumerate(places) if above == parent and node.token == token]
            if not hits:
                break
            parent, accepted = hits[0], snapshot.nodes[hits[0]].node_id
        depth = len(self.cloud.path(snapshot.nodes[parent])) if accepted else 0
        more = left[: choice // 11 % 3]
        if not tokens:
            return
        self.cloud.advance([*tokens, *more])
        length, value = self.cloud.committed_length, self.cloud.hash
        self.down.append(Commit(base, accepted, (*tokens[depth:], *more), length, value))

    def check(self) -> None:
        self.edge.check_integrity()
        self.cloud.check_integrity()
        assert self.cloud.live_count <= self.edge.live_count <= self.window
        assert self.text[: self.cloud.committed_length] == self.cloud.committed
        assert self.edge.committed == self.received == self.text[: self.edge.committed_length]


@given(text=st.lists(st.integers(0, 2), min_size=1, max_size=40), window=st.integers(1, 12), seed=st.integers(0, 2**32))
@settings(max_examples=300, deadline=None)
def test_replicas_converge_and_the_clouds_window_is_bounded_by_the_edges(
    text: list[int], window: int, seed: int
) -> None:
    schedule = Schedule(text, window)
    acts: list[Callable[[int], None]] = [*[schedule.draft] * 5, *[schedule.send] * 3]
    acts += [schedule.deliver_up, schedule.deliver_up, schedule.deliver_down, schedule.run_pass]
    random = Random(seed)
    for _ in range(120):
        random.choice(acts)(random.randrange(1000))
        schedule.check()
    while schedule.up or schedule.down:
        schedule.deliver_up(0)
        schedule.deliver_down(0)
        schedule.check()
    assert schedule.edge.committed == schedule.cloud.committed
    assert schedule.edge.hash == schedule.cloud.hash
    assert live_paths(schedule.edge) == live_paths(schedule.cloud)
