"""Where one answer's guesses come from: drafting sessions, a lookup, and what makes chances of what they say."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from outrider.edge.drafters.base import Drafter, DraftSession
from outrider.edge.guesses.experience import Experience
from outrider.edge.guesses.guesser import Guesser, GuessOptions
from outrider.shared.corpus_index import CorpusIndex
from outrider.shared.layered_lookup import LayeredLookup
from outrider.shared.lookup import Lookup, LookupIndex
from outrider.shared.messages import Open
from outrider.shared.sampling.choose import Chooser
from outrider.shared.sampling.options import Sampling

PLAIN = GuessOptions()


@dataclass(frozen=True, slots=True)
class Sources:
    """`sessions` by name of drafter; `index` holds the prompt, None without lookups. `close` them."""

    guesser: Guesser
    sessions: Mapping[str, DraftSession] = field(default_factory=dict)
    index: Lookup | None = None

    @classmethod
    def none(cls) -> Sources:
        """No guesses at all."""
        return cls(Guesser(Experience(), (), PLAIN, ""))

    @classmethod
    def of(
        cls,
        sessions: Mapping[str, DraftSession],
        request: Open,
        experience: Experience,
        options: GuessOptions = PLAIN,
        *,
        lookup: bool = False,
        corpus: CorpusIndex | None = None,
    ) -> Sources:
        """Of open sessions and, if wanted, a lookup for the answer to `request`, which searches a `corpus` too."""
        guesser = Guesser(experience, tuple(sessions), options, _tells_apart(request.sampling))
        index: Lookup | None = None
        if lookup:
            prompt = request.prompt_ids
            index = LookupIndex(prompt) if corpus is None else LayeredLookup(prompt, corpus, experience.corpus)
        return cls(guesser, sessions, index)

    def __bool__(self) -> bool:
        """Whether there is anything that guesses."""
        return bool(self.sessions) or self.index is not None

    async def close(self) -> None:
        """Close the sessions."""
        async with contextlib.AsyncExitStack() as stack:
            for session in self.sessions.values():
                stack.push_async_callback(session.close)


def open_sources(
    drafters: Mapping[str, Drafter],
    request: Open,
    vocabulary_size: int,
    experience: Experience,
    options: GuessOptions = PLAIN,
    *,
    lookup: bool = False,
    corpus: CorpusIndex | None = None,
) -> Sources:
    """Begin drafting the answer to `request`; for the rest see `Sources.of`. Raises what a drafter raises."""
    chooser = Chooser(request.sampling, request.seed, request.prompt_ids, vocabulary_size)
    sessions = {name: drafter.open(request.prompt_ids, chooser) for name, drafter in drafters.items()}
    return Sources.of(sessions, request, experience, options, lookup=lookup, corpus=corpus)


def _tells_apart(sampling: Sampling) -> str:
    """Names the options that decide which draft temperature is best; without noise none changes a guess."""
    if sampling.temperature == 0:
        return ""
    return f"{sampling.temperature:g}/{sampling.top_k}/{sampling.top_p:g}/{sampling.min_p:g}"
