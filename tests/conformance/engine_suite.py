"""What every engine must do, as one suite: subclass `EngineConformance` and give it an `engine` fixture.

The engine under test checks itself: rows of any pass are compared with rows of the same text fed alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray

from outrider.cloud.targets.base import ROOT_PARENT, Engine, SlotRows

Row = NDArray[np.float32]

GAMMA = 6
ORACLE = 3


@dataclass
class Tree:
    """Nodes as `SlotRows` takes them."""

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)

    def add(self, token: int, parent: int) -> int:
        """Add a node; returns its index."""
        self.tokens.append(token)
        self.parents.append(parent)
        return len(self.tokens) - 1

    def path_to(self, node: int) -> list[int]:
        """Nodes from the root down to `node`; empty for the root itself."""
        path: list[int] = []
        while node != ROOT_PARENT:
            path.append(node)
            node = self.parents[node]
        return path[::-1]

    def text_to(self, node: int) -> list[int]:
        """Tokens on the path to `node`."""
        return [self.tokens[n] for n in self.path_to(node)]

    def side_branches(self) -> int:
        """Leaves beyond the first."""
        return max(0, len(self.tokens) - len(set(self.parents) - {ROOT_PARENT}) - 1)

    def takes(self, token: int, parent: int) -> bool:
        """Whether a child with this token may be added."""
        return (parent, token) not in zip(self.parents, self.tokens, strict=True)


# Parents of trees that have been trouble somewhere: each shape with what it is.
SHAPES = {
    "chain": (-1, 0, 1, 2, 3, 4),
    "siblings": (-1, -1, -1, -1, -1),
    "two chains side by side": (-1, -1, 0, 1, 2, 3),
    "second chain after the first": (-1, 0, 1, -1, 3, 4),
    "fork below an inner node": (-1, 0, 0, 1, 2, 3, 4),
    "comb": (-1, 0, 0, 1, 1, 3, 3, 5, 5),
    "deep, with a late sibling of the root's child": (-1, *range(11), -1),
}


def random_tree(rng: np.random.Generator, size: int, branches: int, vocabulary_size: int) -> Tree:
    """A tree of at most `size` nodes and `branches` side branches, growing mostly downwards."""
    tree = Tree()
    for _ in range(size):
        deepest = len(tree.tokens) - 1
        parent = deepest if rng.random() < 0.6 else int(rng.integers(ROOT_PARENT, deepest + 1))
        token = int(rng.integers(vocabulary_size))
        grown = Tree([*tree.tokens, token], [*tree.parents, parent])
        if tree.takes(token, parent) and grown.side_branches() <= branches:
            tree = grown
    return tree


def right_then_wrong(truth: Sequence[int], right: int, size: int, decoy_first: bool) -> tuple[Tree, list[int]]:
    """GAMMA nodes of which the first `right` follow `truth` and the others do not; and the path of the right ones.

    With `decoy_first` a wrong sibling stands before each right node, so that the right path is a side branch.
    """
    tree, path, above = Tree(), list[int](), ROOT_PARENT
    for index in range(GAMMA):
        wrong = (truth[index] + 1) % size if index < len(truth) else 0
        if index < min(right, len(truth)):
            if decoy_first and index < 3:
                tree.add(wrong, above)
            above = tree.add(truth[index], above)
            path.append(above)
        else:
            above = tree.add(wrong, above)
    return tree, path


class EngineConformance:
    """Tests of the `Engine` contract. `engine` must be fresh, with ≥ 4 slots, ≥ 8 branches and ≥ 256 positions.

    Rows are compared bit for bit if `bit_exact`; else they may differ by less than `tolerance`, and must agree on the
    best token where the gap to the second is larger.
    """

    bit_exact: bool = True
    tolerance: float = 0.0

    def assert_same(self, actual: Row, expected: Row, where: str = "") -> None:
        """Two rows of the same text are the same row."""
        assert actual.dtype == np.float32
        assert actual.shape == expected.shape
        if self.bit_exact:
            assert np.array_equal(actual, expected), f"{where}: differ by {np.abs(actual - expected).max()}"
            return
        assert float(np.abs(actual - expected).max()) < self.tolerance, where
        second, best = np.partition(expected, -2)[-2:]
        if best - second > self.tolerance:
            assert int(actual.argmax()) == int(expected.argmax()), where

    def fresh_row(self, engine: Engine, text: Sequence[int]) -> Row:
        """Row after `text`, fed whole to the slot that is kept for this."""
        engine.rewind(ORACLE, 0)
        return engine.forward([SlotRows(ORACLE, list(text))])[0].row(ROOT_PARENT).copy()

    def run_alone(self, engine: Engine, prompt: list[int], length: int) -> tuple[list[int], list[Row]]:
        """Greedy text of `length` tokens after `prompt`, one token a pass, and the row that chose each."""
        engine.rewind(ORACLE, 0)
        text, rows, append = list[int](), list[Row](), list(prompt)
        for _ in range(length):
            row = engine.forward([SlotRows(ORACLE, append)])[0].row(ROOT_PARENT).copy()
            rows.append(row)
            append = [int(row[: engine.vocabulary.size].argmax())]
            text += append
        return text, rows

    def tokens(self, engine: Engine, count: int, seed: int = 0) -> list[int]:
        """Random ids of the vocabulary."""
        return [int(t) for t in np.random.default_rng(seed).integers(0, engine.vocabulary.size, count)]

    # What an engine says of itself

    def test_spec_and_lengths_are_as_declared(self, engine: Engine) -> None:
        spec = engine.spec
        assert spec.max_slots >= 4
        assert spec.max_branches >= 8
        assert spec.context_length >= 256
        assert (spec.numerics == "exact") == (spec.near_tie_gap == 0)
        assert not self.bit_exact or spec.numerics == "exact"
        assert [engine.cached_length(s) for s in range(4)] == [0, 0, 0, 0]
        rows = engine.forward([SlotRows(1, self.tokens(engine, 5), [1, 2], [ROOT_PARENT, ROOT_PARENT])])
        assert engine.cached_length(1) == 5
        for node in (ROOT_PARENT, 0, 1):
            row = rows[0].row(node)
            assert row.dtype == np.float32
            assert row.ndim == 1
            assert row.shape[0] >= engine.vocabulary.size
            assert np.isfinite(row[: engine.vocabulary.size]).all()
        engine.keep(1, [])
        assert engine.cached_length(1) == 5
        engine.rewind(1, 2)
        assert [engine.cached_length(s) for s in range(4)] == [0, 2, 0, 0]

    # Rows of one pass

    def test_chain_rows_equal_appending_one_token_at_a_time(self, engine: Engine) -> None:
        prompt, chain = self.tokens(engine, 9), self.tokens(engine, 8, seed=1)
        engine.forward([SlotRows(0, prompt, want_logits=False)])
        expected = [engine.forward([SlotRows(0, [t])])[0].row(ROOT_PARENT).copy() for t in chain]
        engine.forward([SlotRows(1, prompt, want_logits=False)])
        rows = engine.forward([SlotRows(1, chain[:1], chain[1:], range(ROOT_PARENT, len(chain) - 2))])[0]
        for i, row in enumerate(expected):
            self.assert_same(rows.row(i - 1), row, f"chain row {i}")

    @pytest.mark.parametrize("shape", SHAPES)
    def test_tree_rows_equal_rows_of_each_path(self, engine: Engine, shape: str) -> None:
        tree = Tree(self.tokens(engine, len(SHAPES[shape]), seed=4), list(SHAPES[shape]))
        self.check_tree(engine, self.tokens(engine, 7, seed=2), self.tokens(engine, 3, seed=3), tree)

    @pytest.mark.parametrize("seed", range(6))
    def test_random_tree_rows_equal_rows_of_each_path(self, engine: Engine, seed: int) -> None:
        rng = np.random.default_rng(seed)
        tree = random_tree(rng, 14, min(8, engine.spec.max_branches), engine.vocabulary.size)
        self.check_tree(engine, self.tokens(engine, 5, seed=2), self.tokens(engine, 1, seed=3), tree)

    def check_tree(self, engine: Engine, cached: list[int], append: list[int], tree: Tree) -> None:
        """Every row of the tree equals the row of its path alone."""
        engine.forward([SlotRows(0, cached, want_logits=False)])
        rows = engine.forward([SlotRows(0, append, tree.tokens, tree.parents)])[0]
        nodes = range(ROOT_PARENT, len(tree.tokens))
        actual = [rows.row(node).copy() for node in nodes]
        for node, row in zip(nodes, actual, strict=True):
            expected = self.fresh_row(engine, [*cached, *append, *tree.text_to(node)])
            self.assert_same(row, expected, f"node {node}")

    # Keeping and rewinding

    @pytest.mark.parametrize(
        ("shape", "node"),
        [
            ("chain", 5),
            ("chain", 2),
            ("chain", -1),
            ("siblings", 0),
            ("siblings", 3),
            ("two chains side by side", 4),
            ("two chains side by side", 5),
            ("second chain after the first", 2),
            ("second chain after the first", 5),
            ("second chain after the first", 3),
            ("fork below an inner node", 6),
            ("comb", 8),
            ("comb", 2),
            ("comb", -1),
            ("deep, with a late sibling of the root's child", 11),
            ("deep, with a late sibling of the root's child", 12),
        ],
    )
    def test_after_keep_the_slot_goes_on_like_a_fresh_one(self, engine: Engine, shape: str, node: int) -> None:
        tree = Tree(self.tokens(engine, len(SHAPES[shape]), seed=4), list(SHAPES[shape]))
        text = self.tokens(engine, 8, seed=2)
        engine.forward([SlotRows(0, text, tree.tokens, tree.parents)])
        engine.keep(0, tree.path_to(node))
        text += tree.text_to(node)
        assert 8 <= engine.cached_length(0) <= len(text)
        for step in range(2):
            text += self.tokens(engine, 1, seed=20 + step)
            follow = self.tokens(engine, 2, seed=30 + step)
            append = text[engine.cached_length(0) :]
            rows = engine.forward([SlotRows(0, append, follow, [ROOT_PARENT, 0])])[0]
            assert engine.cached_length(0) == len(text)
            actual = [rows.row(n).copy() for n in (ROOT_PARENT, 0, 1)]
            engine.keep(0, [0])
            for n, row in enumerate(actual):
                self.assert_same(row, self.fresh_row(engine, [*text, *follow[:n]]), f"step {step}, row {n}")
            text += follow[:1]

    @pytest.mark.parametrize("length", [0, 1, 2, 7, 13, 19, 20])
    def test_rewound_slot_goes_on_like_a_fresh_one(self, engine: Engine, length: int) -> None:
        text, tail = self.tokens(engine, 20), self.tokens(engine, 5, seed=5)
        engine.forward([SlotRows(0, text, tail, [ROOT_PARENT, 0, 0, ROOT_PARENT, 3])])
        engine.rewind(0, length)
        assert engine.cached_length(0) == length
        row = engine.forward([SlotRows(0, tail)])[0].row(ROOT_PARENT).copy()
        self.assert_same(row, self.fresh_row(engine, [*text[:length], *tail]))

    def test_emptied_slot_keeps_nothing_of_its_last_text(self, engine: Engine) -> None:
        for seed in range(3):
            text = self.tokens(engine, 12 - 3 * seed, seed)
            row = engine.forward([SlotRows(2, text, [1, 2], [ROOT_PARENT, 0])])[0].row(ROOT_PARENT).copy()
            engine.rewind(2, 0)
            assert engine.cached_length(2) == 0
            self.assert_same(row, self.fresh_row(engine, text))

    def test_prefill_in_chunks_equals_one_prefill(self, engine: Engine) -> None:
        text = self.tokens(engine, 61)
        for slot, cuts in ((0, (60,)), (1, (1, 2, 17, 60)), (2, (33, 60))):
            for start, end in zip((0, *cuts[:-1]), cuts, strict=True):
                engine.forward([SlotRows(slot, text[start:end], want_logits=False)])
            assert engine.cached_length(slot) == 60
        rows = [engine.forward([SlotRows(s, text[60:])])[0].row(ROOT_PARENT).copy() for s in range(3)]
        for row in rows[1:]:
            self.assert_same(row, rows[0])
        self.assert_same(rows[0], self.fresh_row(engine, text))

    def test_a_prompt_read_together_with_guesses_equals_one_read_before_them(self, engine: Engine) -> None:
        text, chain = self.tokens(engine, 90), self.tokens(engine, 5, seed=1)
        parents = range(ROOT_PARENT, len(chain) - 1)
        engine.forward([SlotRows(0, text[:-1], want_logits=False)])
        apart = engine.forward([SlotRows(0, text[-1:], chain, parents)])[0]
        expected = [apart.row(node).copy() for node in range(ROOT_PARENT, len(chain))]
        engine.keep(0, range(3))
        together = engine.forward([SlotRows(2, text[:7]), SlotRows(1, text, chain, parents)])[1]
        for node, row in enumerate(expected, ROOT_PARENT):
            self.assert_same(together.row(node), row, f"node {node}")
        engine.keep(1, range(3))
        assert engine.cached_length(1) == engine.cached_length(0)
        rows = [engine.forward([SlotRows(s, chain[3:4])])[0].row(ROOT_PARENT).copy() for s in (0, 1)]
        self.assert_same(rows[1], rows[0], "what the pass cached")

    # Speculation

    @pytest.mark.parametrize("decoy_first", [False, True], ids=["main", "side"])
    @pytest.mark.parametrize("right", range(GAMMA + 1))
    def test_right_for_n_then_wrong_equals_a_run_alone(self, engine: Engine, right: int, decoy_first: bool) -> None:
        prompt = self.tokens(engine, 6)
        truth, rows_alone = self.run_alone(engine, prompt, 60)
        text, size = list(prompt), engine.vocabulary.size
        while (done := len(text) - len(prompt)) < len(truth):
            tree, path = right_then_wrong(truth[done:], right, size, decoy_first)
            append = text[engine.cached_length(0) :]
            rows = engine.forward([SlotRows(0, append, tree.tokens, tree.parents)])[0]
            for index, node in enumerate((ROOT_PARENT, *path)):
                if done + index < len(truth):
                    self.assert_same(rows.row(node), rows_alone[done + index], f"token {done + index}")
            engine.keep(0, path)
            # The accepted tokens and the target's own next one.
            text += truth[done : done + len(path) + 1]
        assert text[len(prompt) :] == truth

    # Company

    def test_slots_in_one_pass_equal_solo_runs_whatever_neighbours_do(self, engine: Engine) -> None:
        texts = [self.tokens(engine, 48, seed) for seed in range(2)]
        solo: list[list[Row]] = []
        for text in texts:
            engine.rewind(ORACLE, 0)
            solo.append([engine.forward([SlotRows(ORACLE, [t])])[0].row(ROOT_PARENT).copy() for t in text])
        engine.rewind(ORACLE, 0)
        noise = self.tokens(engine, 200, seed=9)
        position = 0
        for step, width in enumerate([1, 3, 2, 5, 4, 1, 6, 2, 3, 5, 4, 6, 6]):
            parts = [text[position : position + width] for text in texts]
            # What `keep` gave back to be appended again, and the next token.
            due = [text[engine.cached_length(s) : position + 1] for s, text in enumerate(texts)]
            mine = [SlotRows(s, due[s], p[1:], range(ROOT_PARENT, width - 2)) for s, p in enumerate(parts)]
            neighbour = noise[step : step + 1 + 7 * (step % 3)]
            others = [
                SlotRows(2, neighbour, want_logits=False),
                SlotRows(ORACLE, noise[:2], noise[2:5], [ROOT_PARENT, ROOT_PARENT, 1]),
            ]
            rows = engine.forward([others[0], mine[0], others[1], mine[1]])
            for s, r in ((0, rows[1]), (1, rows[3])):
                for i in range(width):
                    self.assert_same(r.row(i - 1), solo[s][position + i], f"slot {s}, token {position + i}")
            engine.keep(ORACLE, [1, 2] if step % 2 else [])
            engine.rewind(2, engine.cached_length(2) // 2 if step % 4 else 0)
            if step % 3 == 2:
                engine.rewind(ORACLE, 0)
            for s in (1, 0):
                engine.keep(s, range(width - 1))
            position += width
        assert position == len(texts[0])

    # Anything in any order

    @pytest.mark.parametrize("seed", range(4))
    def test_random_operations_agree_with_rows_from_scratch(self, engine: Engine, seed: int) -> None:
        rng = np.random.default_rng(1000 + seed)
        size, texts = engine.vocabulary.size, [list[int](), list[int](), list[int]()]
        for step in range(40):
            slots = [int(s) for s in rng.permutation(3)[: rng.integers(1, 4)]]
            if rng.random() < 0.25:
                cached = engine.cached_length(slots[0])
                length = int(rng.integers(0, cached + 1))
                engine.rewind(slots[0], length)
                texts[slots[0]] = texts[slots[0]][:length]
                continue
            requests, trees = list[SlotRows](), list[Tree]()
            for slot in slots:
                texts[slot] += [int(t) for t in rng.integers(0, size, rng.integers(1, 6))]
                wanted = rng.random() < 0.8
                tree = random_tree(rng, int(rng.integers(0, 9)) * wanted, 8 // len(slots), size)
                append = texts[slot][engine.cached_length(slot) :]
                requests.append(SlotRows(slot, append, tree.tokens, tree.parents, wanted))
                trees.append(tree)
            rows = engine.forward(requests)
            found = [
                (slot, node, r.row(node).copy(), [*texts[slot], *tree.text_to(node)])
                for slot, request, tree, r in zip(slots, requests, trees, rows, strict=True)
                if request.want_logits
                for node in rng.permutation([ROOT_PARENT, *range(len(tree.tokens))])[:3].tolist()
            ]
            for slot, tree in zip(slots, trees, strict=True):
                assert engine.cached_length(slot) == len(texts[slot])
                if rng.random() < 0.2:
                    engine.rewind(slot, len(texts[slot]))
                    continue
                node = int(rng.integers(ROOT_PARENT, len(tree.tokens)))
                engine.keep(slot, tree.path_to(node))
                before, texts[slot] = len(texts[slot]), [*texts[slot], *tree.text_to(node)]
                assert before <= engine.cached_length(slot) <= len(texts[slot])
            for slot, node, row, text in found:
                self.assert_same(row, self.fresh_row(engine, text), f"step {step}, slot {slot}, node {node}")
