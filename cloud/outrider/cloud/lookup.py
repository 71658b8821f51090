"""The verifier's own guesses: what came after the text's ending where that occurred before, beside what the edge has
sent, so that a pass has something to check even when the link is slow.
"""

from __future__ import annotations

from outrider.cloud.targets.base import ROOT_PARENT
from outrider.shared.lookup import LookupIndex

# A path is worth its rows as long as it is that likely.
LEAST_PROBABILITY = 0.3


def with_lookup(
    index: LookupIndex, tokens: tuple[int, ...], parents: tuple[int, ...], most: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The nodes of a pass (`parents` as in `SlotRows`) with up to `most` tokens from the root down that `index` holds;
    those that are among the nodes already are not repeated.
    """
    child_of = {(parent, token): i for i, (parent, token) in enumerate(zip(parents, tokens, strict=True))}
    more_tokens, more_parents = list(tokens), list(parents)
    found = index.continuation(index.ending(), most)
    node, path_probability = ROOT_PARENT, 1.0
    for token, probability in zip(found.tokens, found.probabilities, strict=True):
        path_probability *= probability
        if path_probability < LEAST_PROBABILITY:
            break
        child = child_of.get((node, token))
        if child is None:
            child = len(more_tokens)
            more_tokens.append(token)
            more_parents.append(node)
        node = child
    return tuple(more_tokens), tuple(more_parents)
