"""The frontier of a tree: whatever the tree, what it offers may be expanded and sent, and something gets done."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.edge.control.base import DraftBounds, Expand, Send, Wait
from outrider.edge.control.frontier import Frontier, Thresholds, survey
from outrider.edge.control.ratio import CHILDREN, MAX_TEXTS, RatioControl
from outrider.shared.messages import Commit, TokenHash
from outrider.shared.token_tree import DraftTree, Node, VerifierTree

STOP = 9
WIDE = DraftBounds(window=256, max_branches=64, stop_ids=frozenset({STOP}), end=1000)
THRESHOLDS = Thresholds(expand=0.1, send=0.2)
PROBABILITIES = st.sampled_from([1.0, 0.9, 0.5, 0.5, 0.3, 0.1, 0.01, 1e-9])


def grown(*branches: tuple[list[int], list[float]]) -> DraftTree:
    """A tree of paths, each given by its tokens and the probability of each step; all nodes but leaves are expanded."""
    tree = DraftTree((1,))
    for tokens, probabilities in branches:
        node = tree.root
        for token, probability in zip(tokens, probabilities, strict=True):
            node.expanded = True
            node = tree.add(node, token, math.log(probability))
    return tree


def at(tree: DraftTree, *tokens: int) -> Node:
    node = tree.root
    for token in tokens:
        node = node.children[token]
    return node


def send(tree: DraftTree, *paths: tuple[int, ...]) -> None:
    tree.compose([at(tree, *path) for path in paths])


def commit(tree: DraftTree, tokens: list[int]) -> None:
    length = tree.committed_length + len(tokens)
    tree.commit(Commit(tree.committed_length, 0, tuple(tokens), length, TokenHash([1, *tree.committed, *tokens]).value))


def opened(frontier: Frontier, tree: DraftTree) -> list[tuple[float, list[int]]]:
    return [(round(probability, 6), tree.path(node)) for probability, node in frontier.open]


def unsent(frontier: Frontier, tree: DraftTree) -> list[list[int]]:
    return [tree.path(node) for _, node in frontier.unsent]


def test_a_bare_root_is_open_and_nothing_is_unsent() -> None:
    tree = DraftTree((1,))
    frontier = survey(tree, WIDE, THRESHOLDS)
    assert (opened(frontier, tree), frontier.unsent) == ([(1.0, [])], [])


def test_open_nodes_come_by_the_probability_of_their_path() -> None:
    tree = grown(([2, 3], [0.6, 0.5]), ([4], [0.4]), ([2, 5], [0.6, 0.4]))
    frontier = survey(tree, WIDE, THRESHOLDS)
    assert opened(frontier, tree) == [(0.4, [4]), (0.3, [2, 3]), (0.24, [2, 5])]


def test_probabilities_count_from_the_root() -> None:
    tree = grown(([2, 3], [0.3, 0.5]))
    commit(tree, [2])
    assert opened(survey(tree, WIDE, THRESHOLDS), tree) == [(0.5, [3])]


def test_nodes_below_a_threshold_are_neither_expanded_nor_sent() -> None:
    tree = grown(([2], [0.75]), ([3], [0.15]), ([4], [0.05]))
    frontier = survey(tree, WIDE, THRESHOLDS)
    assert opened(frontier, tree) == [(0.75, [2]), (0.15, [3])]
    assert unsent(frontier, tree) == [[2]]


def test_the_roots_likeliest_child_is_sent_however_unlikely_and_expanded_then() -> None:
    tree = grown(([3], [0.001]), ([2], [0.002]))
    frontier = survey(tree, WIDE, THRESHOLDS)
    assert (frontier.open, unsent(frontier, tree)) == ([], [[2]])
    send(tree, (2,))
    frontier = survey(tree, WIDE, THRESHOLDS)
    assert (opened(frontier, tree), frontier.unsent) == ([(0.002, [2])], [])


def test_a_node_that_only_a_lookup_continued_is_still_open_and_its_children_are_sent() -> None:
    tree = grown(([2, 3], [0.9, 0.9]))
    tree.root.expanded = at(tree, 2).expanded = False
    frontier = survey(tree, WIDE, THRESHOLDS)
    assert opened(frontier, tree) == [(1.0, []), (0.9, [2]), (0.81, [2, 3])]
    assert unsent(frontier, tree) == [[2], [2, 3]]


def test_unsent_nodes_come_by_probability_and_parents_first() -> None:
    tree = grown(([5, 6], [0.4, 0.8]), ([2, 3, 4], [0.6, 0.6, 1.0]))
    assert unsent(survey(tree, WIDE, THRESHOLDS), tree) == [[2], [5], [2, 3], [2, 3, 4], [5, 6]]


def test_what_is_sent_is_not_sent_again() -> None:
    tree = grown(([2, 3, 4], [0.6, 0.9, 0.9]), ([5], [0.4]))
    send(tree, (2,), (2, 3))
    assert unsent(survey(tree, WIDE, THRESHOLDS), tree) == [[2, 3, 4], [5]]


@pytest.mark.parametrize("max_branches", [0, 1, 2, 3])
def test_side_branches_that_fit_a_pass_go_to_the_likeliest(max_branches: int) -> None:
    tree = grown(([2, 3], [0.5, 0.6]), ([2, 4], [0.5, 0.4]), ([5, 6], [0.45, 0.5]), ([5, 7], [0.45, 0.49]))
    bounds = DraftBounds(window=64, max_branches=max_branches, stop_ids=frozenset(), end=99)
    first, second, third = [[5], [5, 6]], [[5, 7]], [[2, 4]]
    sides = [*first, *second, *third][: (0, 2, 3, 4)[max_branches]]
    sent = unsent(survey(tree, bounds, THRESHOLDS), tree)
    assert sorted(sent) == sorted([[2], [2, 3], *sides])


def test_room_in_the_window_is_not_kept_for_what_cannot_be_sent() -> None:
    """Below a side branch that does not fit hang likely nodes; the one place left goes to what can be sent."""
    tree = grown(([2, 3], [0.6, 0.5]), ([2, 4, 5], [0.6, 0.49, 1.0]), ([6, 7], [0.4, 0.6]))
    send(tree, (2,), (2, 3), (6,))
    bounds = DraftBounds(window=4, max_branches=1, stop_ids=frozenset(), end=99)
    assert unsent(survey(tree, bounds, THRESHOLDS), tree) == [[6, 7]]


def test_a_full_window_sends_nothing() -> None:
    tree = grown(([2, 3], [0.9, 0.9]))
    send(tree, (2,))
    full = DraftBounds(window=1, max_branches=9, stop_ids=frozenset(), end=99)
    frontier = survey(tree, full, THRESHOLDS)
    assert (len(frontier.open), frontier.unsent) == (1, [])


@pytest.mark.parametrize("end", range(1, 7))
def test_nothing_is_opened_or_sent_from_the_last_token_on(end: int) -> None:
    """Also where the tree was grown further before the verifier said where the answer ends."""
    tree = grown(([2, 3, 4, 5], [0.9, 0.9, 0.9, 0.9]))
    frontier = survey(tree, DraftBounds(64, 9, frozenset(), end), THRESHOLDS)
    assert unsent(frontier, tree) == [[2], [2, 3], [2, 3, 4], [2, 3, 4, 5]][: end - 1]
    assert len(frontier.open) == (end > 5)


def test_a_stop_id_is_sent_and_not_opened() -> None:
    tree = grown(([STOP], [0.9]))
    frontier = survey(tree, WIDE, THRESHOLDS)
    assert (frontier.open, unsent(frontier, tree)) == ([], [[STOP]])


@st.composite
def trees(draw: st.DrawFn) -> DraftTree:
    """Nodes anywhere, expanded or not, some of them sent; some grown by a lookup below unexpanded ones."""
    tree = DraftTree((1,))
    for _ in range(draw(st.integers(0, 25))):
        nodes = [node for node in tree.root.subtree() if node is tree.root or node.token != STOP]
        parent = nodes[draw(st.integers(0, len(nodes) - 1))]
        parent.expanded = draw(st.integers(0, 9)) > 0
        tree.add(parent, draw(st.integers(4, STOP)), math.log(draw(PROBABILITIES)))
    for node in tree.root.subtree():
        parent_sent = node.parent is tree.root or (node.parent is not None and node.parent.node_id)
        if parent_sent and draw(st.booleans()):
            tree.compose([node])
    if draw(st.booleans()) and tree.root.children:
        children = list(tree.root.children)
        commit(tree, [children[draw(st.integers(0, len(children) - 1))]])
    return tree


def branches_in_a_pass(tree: DraftTree) -> int:
    """What the verifier needs for what is sent: the fewest side branches with which a snapshot leaves nothing out."""
    verifier = VerifierTree((1,), tree.committed, window=999, stop_ids=frozenset())
    nodes = sorted((node for node in tree.root.subtree() if node.node_id and node is not tree.root), key=node_id)
    index_of = {node: number + 1 for number, node in enumerate(nodes)}
    copy = DraftTree((1,), tree.committed)
    copies = {tree.root: copy.root}
    for node in nodes:
        assert node.parent is not None
        copies[node] = copy.add(copies[node.parent], node.token)
    verifier.grow(copy.compose([copies[node] for node in nodes]))
    assert verifier.live_count == len(index_of)
    return next(n for n in range(999) if len(verifier.snapshot(999, n, 10**6).nodes) == len(nodes))


def node_id(node: Node) -> int:
    return node.node_id


@given(
    tree=trees(),
    window=st.integers(1, 30),
    max_branches=st.integers(0, 6),
    end=st.integers(1, 12),
    least=st.tuples(PROBABILITIES, PROBABILITIES),
)
@settings(max_examples=300, deadline=None)
def test_whatever_the_tree_what_is_offered_may_be_expanded_and_sent(
    tree: DraftTree, window: int, max_branches: int, end: int, least: tuple[float, float]
) -> None:
    bounds = DraftBounds(window, max_branches, frozenset({STOP}), end)
    thresholds = Thresholds(expand=min(least), send=max(least))
    live_before, branches_before = tree.live_count, branches_in_a_pass(tree)
    frontier = survey(tree, bounds, thresholds)
    assert [probability for probability, _ in frontier.open] == sorted((p for p, _ in frontier.open), reverse=True)
    base = tree.root.log_probability
    for probability, node in (*frontier.open, *frontier.unsent):
        assert tree.is_live(node)
        assert probability == pytest.approx(math.exp(node.log_probability - base))
    for probability, node in frontier.open:
        assert not node.expanded
        assert bounds.may_expand(node, tree)
        assert node is tree.root or node.node_id or probability >= thresholds.expand
    roots_best = max((child.log_probability for child in tree.root.children.values()), default=0.0)
    root_is_bare = not any(child.node_id for child in tree.root.children.values())
    for probability, node in frontier.unsent:
        assert node.parent is not None
        assert node.position < end - 1
        assert node.parent is tree.root or node.parent.token != STOP
        is_roots_best = root_is_bare and node.parent is tree.root and node.log_probability == roots_best
        assert probability >= thresholds.send or is_roots_best
    tree.compose([node for _, node in frontier.unsent])
    tree.check_integrity()
    assert tree.live_count <= max(window, live_before)
    assert branches_in_a_pass(tree) <= max(max_branches, branches_before)
    if root_is_bare and tree.root.children and tree.root.position < end - 2 and live_before < window:
        assert any(child.node_id for child in tree.root.children.values()), "the root's likeliest child is sent"
    again = survey(tree, bounds, thresholds)
    assert not again.unsent, "what is worth sending was sent at once"


@given(tree=trees(), window=st.integers(1, 20), max_branches=st.integers(0, 5), end=st.integers(2, 30), data=st.data())
@settings(max_examples=150, deadline=None)
def test_every_step_expands_or_sends_and_between_two_commits_an_end_is_reached(
    tree: DraftTree, window: int, max_branches: int, end: int, data: st.DataObject
) -> None:
    control = RatioControl(eager=data.draw(st.booleans()))
    bounds = DraftBounds(window, max_branches, frozenset({STOP}), end)
    proposals = st.lists(st.tuples(st.integers(4, STOP), PROBABILITIES), max_size=CHILDREN, unique_by=lambda p: p[0])
    for _ in range(data.draw(st.integers(1, 5))):
        for count in range(10_000):
            step = control.next_step(tree, bounds)
            match step:
                case Expand():
                    assert 0 < len(step.nodes) <= MAX_TEXTS
                    assert len(set(step.nodes)) == len(step.nodes)
                    for node in step.nodes:
                        assert not node.expanded
                        assert bounds.may_expand(node, tree)
                        node.expanded = True
                        # What is proposed ever less surely comes to an end.
                        for token, probability in data.draw(proposals) if count < 20 else ():
                            tree.add(node, token, math.log(probability))
                    # Texts and times as they come, also none at all and ever shorter ones.
                    control.on_drafted(len(step.nodes), data.draw(st.sampled_from([0.0, 0.001, 0.01, 5.0])))
                case Send():
                    assert step.nodes
                    tree.compose(step.nodes)
                case Wait():
                    break
            tree.check_integrity()
        else:
            raise AssertionError("the policy never waits")
        if tree.committed_length >= end:
            return
        path: list[int] = []
        node = tree.root
        while len(node.children) > 0 and data.draw(st.booleans()):
            children = list(node.children.values())
            node = children[data.draw(st.integers(0, len(children) - 1))]
            path.append(node.token)
        commit(tree, [*path, data.draw(st.integers(4, STOP))])
