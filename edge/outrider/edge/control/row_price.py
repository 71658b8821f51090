"""What one more row in a pass costs, learned from what commits say of their passes, and so how likely a guess has to be
to be worth its row. One for all answers of a verifier.

A row is worth it if the tokens that it may bring cost less that way than they do on average:
probability >= (cost of a row) * (tokens per pass) / (time of a pass). What a row costs is seen in two ways:

- How full a pass was. Beyond the free rows, time grows with rows: time = free + slope * (load - 1), load being rows
  over free rows. So a row's cost times all rows, over the time, is slope * load / time, whoever's rows those are, and
  everybody's tokens per row are taken to be what they are here.
- How many rows of one's own there were, where that alone makes passes longer whatever the verifier says of its load.
"""

from __future__ import annotations

from collections.abc import Sequence

from outrider.shared.messages import Commit

FREE_PERCENT, MOST_PERCENT = 50, 100
# Shares of the past that a commit leaves: of how full passes are, and of what they cost.
KEPT_LOAD, KEPT_COST = 0.9, 0.95
# Until it is seen: what twice the free rows cost over a pass within them, and how many such passes that counts as.
FIRST_SLOPE, FIRST_WEIGHT = 0.5, 0.1
# How many squared rows the guess counts as that one's own rows cost nothing.
NOTHING_WEIGHT = 4.0
# Guesses for one pass: at first, at most and at least, and how the number changes with each commit.
FIRST_NODES, MOST_NODES, LEAST_NODES = 8.0, 64.0, 2.0
MORE, FEWER = 1.5, 0.6
# How many times as long as the shortest of late a pass has to be to be long; and what a commit adds to that shortest.
LONG, LONGER = 1.6, 1.005


class RowPrice:
    """Running means over commits, which `observe` takes in."""

    def __init__(self) -> None:
        self._load_share: float | None = None
        self._most_nodes = FIRST_NODES
        self._shortest_s = float("inf")
        self._free_s: float | None = None
        self._over = self._over_time = 0.0
        # Of passes, rows beside the first and seconds: sums of products.
        self._pp = self._pn = self._nn = self._ps = self._ns = 0.0
        self._tokens = self._rows = self._seconds = 0.0

    @property
    def most_nodes(self) -> int:
        """Guesses for one pass at most. It begins with few and takes more as long as passes with free rows stay short;
        where they do not, rows are dear before anything else has shown it (a target on a CPU).
        """
        return int(self._most_nodes)

    @property
    def least_probability(self) -> float:
        """What a node's path has to have; 0 where rows cost nothing."""
        by_load = 0.0 if self._load_share is None else self._load_share * self._tokens / self._rows
        return max(by_load, self.least_first_probability)

    @property
    def least_first_probability(self) -> float:
        """What a guess at the very next token has to have: it is sent unless it makes the answer itself slower."""
        return self._node_s() * self._tokens / self._seconds if self._seconds else 0.0

    def observe(self, commits: Sequence[Commit], nodes: int) -> None:
        """These passes held about `nodes` nodes of this session together."""
        passes, seconds = len(commits), sum(commit.pass_ns for commit in commits) / 1e9
        self._pp = KEPT_COST * self._pp + passes * passes
        self._pn = KEPT_COST * self._pn + passes * nodes
        self._nn = KEPT_COST * self._nn + nodes * nodes
        self._ps = KEPT_COST * self._ps + passes * seconds
        self._ns = KEPT_COST * self._ns + nodes * seconds
        self._tokens = KEPT_COST * self._tokens + sum(commit.committed_length - commit.base for commit in commits)
        self._rows = KEPT_COST * self._rows + passes + nodes
        self._seconds = KEPT_COST * self._seconds + seconds
        for commit in commits:
            self._allow(commit)
            share = self._share_of_load(commit.load_percent, commit.pass_ns / 1e9)
            old = share if self._load_share is None else self._load_share
            self._load_share = KEPT_LOAD * old + (1 - KEPT_LOAD) * share

    def _allow(self, commit: Commit) -> None:
        pass_s = commit.pass_ns / 1e9
        self._shortest_s = min(pass_s, LONGER * self._shortest_s)
        if commit.load_percent > FREE_PERCENT or pass_s <= LONG * self._shortest_s:
            self._most_nodes = min(MOST_NODES, self._most_nodes * MORE)
        else:
            self._most_nodes = max(LEAST_NODES, self._most_nodes * FEWER)

    def _node_s(self) -> float:
        """Seconds that a node of one's own adds to a pass: least squares, drawn towards nothing."""
        determinant = self._pp * (self._nn + NOTHING_WEIGHT) - self._pn * self._pn
        return max(0.0, (self._pp * self._ns - self._pn * self._ps) / determinant) if determinant > 0 else 0.0

    def _share_of_load(self, load_percent: int, pass_s: float) -> float:
        """Which share of the pass's time one per cent more rows would make longer by one per cent, 0..1."""
        over = load_percent / FREE_PERCENT - 1
        if over <= 0 and pass_s > 0:
            self._free_s = pass_s if self._free_s is None else KEPT_COST * self._free_s + (1 - KEPT_COST) * pass_s
        if over < 0 or pass_s <= 0:
            return 0.0
        free_s = pass_s / (1 + FIRST_SLOPE * over) if self._free_s is None else self._free_s
        over_s = max(0.0, pass_s - free_s)
        # A pass that is said to be as full as can be said may be fuller: then the slope is less.
        if load_percent < MOST_PERCENT or self._slope_s(free_s) > over_s:
            self._over = KEPT_COST * self._over + over * over
            self._over_time = KEPT_COST * self._over_time + over * over_s
        return min(1.0, (over_s + self._slope_s(free_s)) / pass_s)

    def _slope_s(self, free_s: float) -> float:
        """Seconds that as many rows again as are free add to a pass."""
        return (self._over_time + FIRST_WEIGHT * FIRST_SLOPE * free_s) / (self._over + FIRST_WEIGHT)
