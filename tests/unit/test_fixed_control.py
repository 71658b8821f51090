"""The fixed policy: whatever the tree looks like, no path longer than γ is drafted or sent, no bound broken."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.edge.control.base import DraftBounds, Expand, Send, Wait
from outrider.edge.control.fixed import FixedControl
from outrider.shared.errors import Reason
from outrider.shared.messages import Commit, TokenHash
from outrider.shared.token_tree import DraftTree, Node
from support.refusal import refused

STOP = 9
WIDE = DraftBounds(window=256, max_branches=64, stop_ids=frozenset({STOP}), end=1000)
Draft = Callable[[list[int], int], list[int]]


def run_round(control: FixedControl, tree: DraftTree, bounds: DraftBounds, draft: Draft) -> list[Send]:
    """Follow the policy until it waits; `draft(path, count)` gives the children of the node at `path`."""
    sends: list[Send] = []
    while not isinstance(step := control.next_step(tree, bounds), Wait):
        match step:
            case Expand((node,), count):
                assert not node.expanded, "a node is expanded once"
                node.expanded = True
                for token in draft(tree.path(node), count)[:count]:
                    tree.add(node, token)
            case Send(nodes):
                assert nodes, "an empty message has nothing to check"
                tree.compose(nodes)
                sends.append(step)
        assert len(sends) <= 300, "the policy never waits"
    return sends


def commit(tree: DraftTree, tokens: list[int]) -> None:
    length = tree.committed_length + len(tokens)
    tree.commit(Commit(tree.committed_length, 0, tuple(tokens), length, TokenHash([*tree.committed, *tokens]).value))


def counting(path: list[int], count: int) -> list[int]:
    """Children numbered by depth: the first choice is even, the others are odd."""
    return [100 + 2 * len(path), *(1 + 2 * i for i in range(count - 1))]


def depth(tree: DraftTree, node: Node) -> int:
    return len(tree.path(node))


@pytest.mark.parametrize("gamma", [1, 2, 5])
def test_a_round_is_one_chain_of_gamma_in_one_message(gamma: int) -> None:
    tree = DraftTree(())
    (send,) = run_round(FixedControl(gamma), tree, WIDE, counting)
    assert [node.token for node in send.nodes] == [100 + 2 * i for i in range(gamma)]
    assert [depth(tree, node) for node in send.nodes] == list(range(1, gamma + 1))


def test_siblings_are_sent_but_not_expanded() -> None:
    tree = DraftTree(())
    (send,) = run_round(FixedControl(3, branch=3), tree, WIDE, counting)
    assert [node.token for node in send.nodes] == [100, 1, 3, 102, 1, 3, 104, 1, 3]
    for node in send.nodes:
        first = node.parent is not None and next(iter(node.parent.children.values())) is node
        assert bool(node.children) == node.expanded == (first and depth(tree, node) < 3)


def test_a_stop_id_is_a_leaf() -> None:
    tree = DraftTree(())
    (send,) = run_round(FixedControl(5), tree, WIDE, lambda path, _: [STOP if len(path) == 1 else 3])
    assert [node.token for node in send.nodes] == [3, STOP]
    assert not send.nodes[-1].expanded


def test_a_stop_id_at_the_root_is_drafted_below() -> None:
    """The prompt may end with a stop id: then it is the root, and the answer begins below it."""
    tree = DraftTree((STOP,))
    (send,) = run_round(FixedControl(2), tree, WIDE, counting)
    assert len(send.nodes) == 2


@pytest.mark.parametrize("committed", [0, 3, 4, 5])
def test_nothing_is_drafted_beyond_the_end_of_the_answer(committed: int) -> None:
    tree = DraftTree((), list(range(committed)))
    bounds = DraftBounds(window=64, max_branches=0, stop_ids=frozenset(), end=5)
    sends = run_round(FixedControl(3), tree, bounds, counting)
    # The last token comes from the pass that checks the one before it.
    useful = max(0, 4 - committed)
    assert [len(send.nodes) for send in sends] == [min(3, useful)][:useful]
    assert all(node.position < 4 for node in tree.root.subtree() if node is not tree.root)


@pytest.mark.parametrize(("max_branches", "siblings"), [(0, [0, 0, 0]), (1, [1, 0, 0]), (3, [2, 1, 0]), (9, [2, 2, 2])])
def test_siblings_are_drafted_only_as_far_as_a_pass_can_hold_them(max_branches: int, siblings: list[int]) -> None:
    tree = DraftTree(())
    bounds = DraftBounds(window=64, max_branches=max_branches, stop_ids=frozenset(), end=50)
    (send,) = run_round(FixedControl(3, branch=3), tree, bounds, counting)
    by_depth = [sum(depth(tree, node) == level for node in send.nodes) for level in (1, 2, 3)]
    assert by_depth == [1 + count for count in siblings]


def test_a_drafter_with_nothing_to_say_leaves_the_policy_waiting() -> None:
    tree = DraftTree(())
    assert run_round(FixedControl(5), tree, WIDE, lambda _path, _count: []) == []
    assert isinstance(FixedControl(5).next_step(tree, WIDE), Wait)


def test_after_a_commit_the_kept_subtree_is_filled_up_to_gamma() -> None:
    tree = DraftTree(())
    control = FixedControl(4)
    run_round(control, tree, WIDE, counting)
    commit(tree, [100])
    (send,) = run_round(control, tree, WIDE, lambda path, count: [50 + len(path)][:count])
    # Three of the four are still in flight: one more makes four again.
    assert [depth(tree, node) for node in send.nodes] == [4]


@pytest.mark.parametrize(("gamma", "branch"), [(0, 1), (1, 0), (-1, 1), (5, -2), (0, 0)])
def test_gamma_and_branch_below_one_are_refused(gamma: int, branch: int) -> None:
    with refused(Reason.USAGE, f"gamma = {gamma}, branch = {branch}"):
        FixedControl(gamma, branch)


def test_a_round_larger_than_the_window_is_refused_beforehand() -> None:
    FixedControl(4, 4).check_fits(16)
    with refused(Reason.USAGE, "window of 15"):
        FixedControl(4, 4).check_fits(15)


@given(
    gamma=st.integers(1, 5),
    branch=st.integers(1, 3),
    window=st.integers(1, 12),
    end=st.integers(1, 20),
    data=st.data(),
)
@settings(max_examples=120, deadline=None)
def test_no_tree_makes_a_path_longer_than_gamma_or_breaks_a_bound(
    gamma: int, branch: int, window: int, end: int, data: st.DataObject
) -> None:
    control = FixedControl(gamma, branch)
    tree = DraftTree(())
    # From a tree that other proposers have grown, unsent, with nodes anywhere.
    for _ in range(data.draw(st.integers(0, 6))):
        nodes = [node for node in tree.root.subtree() if node.token != STOP]
        tree.add(nodes[data.draw(st.integers(0, len(nodes) - 1))], data.draw(st.integers(6, STOP)))
    bounds = DraftBounds(window, data.draw(st.integers(0, 4)), frozenset({STOP}), end)
    tokens = st.lists(st.integers(6, STOP), max_size=branch, unique=True)
    while tree.committed_length < end and STOP not in tree.committed:
        for send in run_round(control, tree, bounds, lambda _path, _count: data.draw(tokens)):
            assert all(depth(tree, node) <= gamma for node in send.nodes)
        live = [node for node in tree.root.subtree() if node is not tree.root and node.node_id]
        assert len(live) == tree.live_count <= window
        assert all(depth(tree, node) <= gamma and node.position < end for node in live)
        assert not any(node.children for node in tree.root.subtree() if node.token == STOP and node is not tree.root)
        tree.check_integrity()
        # Accept some way down the tree, then a token of the target's own.
        path: list[int] = []
        node = tree.root
        for _ in range(data.draw(st.integers(0, gamma))):
            if node.children:
                node = list(node.children.values())[data.draw(st.integers(0, len(node.children) - 1))]
                path.append(node.token)
        commit(tree, [*path, data.draw(st.integers(6, STOP))][: end - tree.committed_length])
