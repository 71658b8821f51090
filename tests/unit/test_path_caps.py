"""γ and branch mean the same for every policy: whatever the tree, no path longer than γ below the root is ever sent,
nor more children of a node than asked for.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.edge.control.base import Control, DraftBounds, Expand, Send, Wait
from outrider.edge.control.proportional import MOST_GAMMA
from outrider.edge.drafting import CONTROLS, Drafting
from outrider.harness import virtual_time
from outrider.shared.errors import Reason
from outrider.shared.messages import Commit, TokenHash
from outrider.shared.token_tree import DraftTree, Node
from support.refusal import refused

STOP = 9
PROBABILITIES = st.sampled_from([1.0, 0.99, 0.9, 0.5, 0.3, 0.1, 0.01])
WAITING = ("fixed", "proportional")


def depth(tree: DraftTree, node: Node) -> int:
    return node.position - tree.root.position


def sent(tree: DraftTree) -> list[Node]:
    return [node for node in tree.root.subtree() if node is not tree.root and node.node_id]


def run_to_wait(control: Control, tree: DraftTree, bounds: DraftBounds, branch: int, data: st.DataObject) -> None:
    """Follow the policy until it waits; what it drafts below comes from `data`, confident more often than not."""
    proposals = st.lists(st.tuples(st.integers(4, STOP), PROBABILITIES), max_size=branch, unique_by=lambda p: p[0])
    for count in range(10_000):
        match control.next_step(tree, bounds):
            case Expand(nodes, children):
                assert children <= branch
                for node in nodes:
                    node.expanded = True
                    for token, probability in data.draw(proposals) if count < 20 else ():
                        tree.add(node, token, math.log(probability))
                control.on_drafted(len(nodes), 0.008)
            case Send(nodes):
                tree.compose(nodes)
            case Wait():
                return
    raise AssertionError("the policy never waits")


def commit(control: Control, tree: DraftTree, path: list[int], data: st.DataObject) -> None:
    tokens = (*path, data.draw(st.integers(4, STOP)))
    whole = TokenHash([*tree.committed, *tokens]).value
    load_percent = data.draw(st.integers(0, 100))
    message = Commit(
        tree.committed_length, 0, tokens, tree.committed_length + len(tokens), whole, load_percent=load_percent
    )
    tree.commit(message)
    control.on_commit(message)


def accepted_path(tree: DraftTree, data: st.DataObject) -> list[int]:
    """Some way down the tree, not past a stop id."""
    path: list[int] = []
    node = tree.root
    while node.children and STOP not in path and data.draw(st.booleans()):
        children = list(node.children.values())
        node = children[data.draw(st.integers(0, len(children) - 1))]
        path.append(node.token)
    return path


@pytest.mark.parametrize("control", CONTROLS)
@given(
    gamma=st.integers(1, 6),
    branch=st.integers(1, 3),
    pace=st.sampled_from(["patient", "eager"]),
    window=st.integers(24, 40),
    max_branches=st.integers(0, 4),
    end=st.integers(1, 30),
    data=st.data(),
)
@settings(max_examples=60, deadline=None)
def test_no_path_longer_than_gamma_is_ever_sent(
    control: str, gamma: int, branch: int, pace: str, window: int, max_branches: int, end: int, data: st.DataObject
) -> None:
    async def main() -> None:
        policy = Drafting(control=control, gamma=gamma, branch=branch, pace=pace).make_control()
        # The article's policy sets γ itself, between limits of its own, and starts at the one given.
        most = MOST_GAMMA if control == "proportional" else gamma
        tree = DraftTree(())
        # From a tree that others have grown, unsent, with nodes anywhere.
        for _ in range(data.draw(st.integers(0, 12))):
            nodes = [node for node in tree.root.subtree() if node.token != STOP]
            parent = nodes[data.draw(st.integers(0, len(nodes) - 1))]
            tree.add(parent, data.draw(st.integers(4, STOP)), math.log(data.draw(PROBABILITIES)))
        bounds = DraftBounds(window, max_branches, frozenset({STOP}), end)
        for _ in range(4):
            run_to_wait(policy, tree, bounds, branch, data)
            assert all(depth(tree, node) <= most for node in sent(tree))
            if control not in WAITING:
                for node in tree.root.subtree():
                    assert sum(1 for child in node.children.values() if child.node_id) <= branch
            tree.check_integrity()
            if tree.committed_length >= end - 1 or STOP in tree.committed:
                return
            commit(policy, tree, accepted_path(tree, data), data)

    virtual_time.run(main())


@pytest.mark.parametrize("control", [name for name in CONTROLS if name not in WAITING])
@pytest.mark.parametrize("pace", ["patient", "eager"])
@pytest.mark.parametrize("gamma", [1, 3, 7, None])
def test_a_sure_drafter_is_followed_as_far_as_gamma_allows(control: str, pace: str, gamma: int | None) -> None:
    """A chain of sure guesses: what is sent is γ long, and without γ all there is."""
    tree = DraftTree(())
    node = tree.root
    for position in range(12):
        node.expanded = True
        node = tree.add(node, 10 + position)
    node.expanded = True
    policy = Drafting(control=control, gamma=gamma, pace=pace).make_control()
    bounds = DraftBounds(64, 4, frozenset({STOP}), 99)
    while isinstance(step := policy.next_step(tree, bounds), Send):
        tree.compose(step.nodes)
    assert isinstance(step, Wait)
    live = [depth(tree, node) for node in sent(tree)]
    if gamma is None and control == "learned":
        assert len(live) >= 6, "it may try a cap of its own"
    elif gamma is None:
        assert len(live) > 7
    else:
        assert live == list(range(1, gamma + 1))


@pytest.mark.parametrize("control", CONTROLS)
def test_a_gamma_past_the_window_is_refused(control: str) -> None:
    policy = Drafting(control=control, gamma=9 if control != "proportional" else 1, branch=2).make_control()
    policy.check_fits(18)
    with refused(Reason.USAGE, "window of"):
        policy.check_fits(8)


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize(("gamma", "branch"), [(0, 1), (1, 0), (-1, 1), (5, -2), ("3", 1), (True, 1), (2.0, 1)])
def test_what_is_no_number_from_one_is_refused(control: str, gamma: object, branch: object) -> None:
    with refused(Reason.USAGE, "expected a whole number, at least 1"):
        Drafting(control=control, gamma=gamma, branch=branch).make_control()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("drafting", "expected"),
    [
        (Drafting(control="fixed"), (5, 1)),
        (Drafting(control="proportional"), (5, 1)),
        (Drafting(), (None, 3)),
        (Drafting(gamma=4, branch=2), (4, 2)),
        (Drafting(control="fixed", gamma=4, branch=2), (4, 2)),
    ],
)
def test_settings_say_what_is_in_effect(drafting: Drafting, expected: tuple[int | None, int]) -> None:
    settings = drafting.settings()
    assert (settings["gamma"], settings["branch"]) == expected
