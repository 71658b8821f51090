"""The edge agent: connects a drafter, a verifier and the target's tokenizer, and answers prompts with them."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from outrider.edge.access import Tls, read_access
from outrider.edge.answer import Answer, AnswerSetup
from outrider.edge.chat_template import ChatTemplate, Message
from outrider.edge.chunks import Chunk, ChunkAssembler, Result
from outrider.edge.drafters.base import Drafter
from outrider.edge.drafters.scripted import ScriptedDrafter
from outrider.edge.drafters.spec import DEFAULT_DRAFTER, make_drafter
from outrider.edge.drafting import LOOKUP, NO_DRAFTER, Drafting
from outrider.edge.experiment import AnswerRecord, Arm, Arms, Experiment
from outrider.edge.guesses.corpus import load_corpus
from outrider.edge.guesses.experience import Experience, kept
from outrider.edge.guesses.sources import Sources, open_sources
from outrider.edge.link import VerifierClient
from outrider.edge.target_tokenizer import fetch_tokenizer
from outrider.edge.tokenizer import PlainTokenizer
from outrider.shared.corpus_index import CorpusIndex
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.messages import FEATURE_GAPS, FinishReason, Open, VerifierInfo
from outrider.shared.sampling.options import Sampling
from outrider.shared.token_tree import Origin

OPEN_TRIES = 4


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """Per-answer options beside sampling. `prefix_of` names an earlier session (`Result.session_id`) whose cached
    prefix the verifier may take over; `stop_ids` end the answer beside the target's own; `want_gaps` asks for the
    distance between the two best scores at each token.
    """

    prefix_of: str = ""
    stop_ids: frozenset[int] = frozenset()
    want_gaps: bool = False


@dataclass(slots=True)
class Agent:
    """Answers prompts through one verifier. Make it with `connect`; several answers may run at once."""

    info: VerifierInfo
    drafting: Drafting
    tokenizer: PlainTokenizer
    chat_template: ChatTemplate
    _arms: Arms = field(repr=False)
    _client: VerifierClient = field(repr=False)
    _drafters: dict[str, Drafter] = field(repr=False)
    _experience: Experience = field(repr=False)
    _corpus: CorpusIndex | None = field(repr=False)

    @classmethod
    @contextlib.asynccontextmanager
    async def connect(
        cls,
        verifier: str,
        drafter: str = DEFAULT_DRAFTER,
        *,
        experiment: Experiment | None = None,
        state: Path | str | None = None,
        tls: Tls | None = None,
        token_file: Path | str | None = None,
        **drafting: object,
    ) -> AsyncIterator[Agent]:
        """An agent for the verifier at HOST:PORT; further arguments are the fields of `Drafting`. With an `experiment`
        a share of the requests is drafted another way. `state` is a file (there may be none yet) that holds what
        earlier agents have learned; what this one has learned is in it when the agent is closed. With `tls` the
        connection is encrypted and the verifier proves who it is; `token_file` holds the token that it asks for.

        Raises VERIFIER_UNREACHABLE, UNAUTHENTICATED, VOCABULARY_MISMATCH, USAGE, FILE_UNREADABLE, and what loading the
        drafter raises.
        """
        try:
            how = Drafting(drafter=drafter, **drafting)  # type: ignore[arg-type]
        except TypeError as error:
            raise OutriderError(Reason.USAGE, f"{error}.") from None
        how.make_control()
        arms = Arms(how, experiment)
        path = None if state is None else Path(state)
        experience = Experience() if path is None else await asyncio.to_thread(Experience.load, path)
        client = VerifierClient(verifier, access=await asyncio.to_thread(read_access, tls, token_file))
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(client.close)
            info = await client.get_info()
            arms.check_fits(info.limits.window)
            tokenizer, chat_template = await fetch_tokenizer(client, info)
            drafters: dict[str, Drafter] = {}
            for spec in how.models:
                made = await make_drafter(spec, info)
                stack.push_async_callback(made.close)
                if made.name in drafters:
                    raise OutriderError(Reason.USAGE, f"--drafter {drafter!r}: {made.name} is named twice.")
                drafters[made.name] = made
            corpus = None
            if how.corpus is not None:
                corpus = await asyncio.to_thread(load_corpus, how.corpus, tokenizer)
            await stack.enter_async_context(kept(experience, path))
            yield cls(info, how, tokenizer, chat_template, arms, client, drafters, experience, corpus)

    @property
    def draft_model(self) -> str:
        """Names of what drafts, joined by +, "none" without."""
        return "+".join(self._drafters) or NO_DRAFTER

    def streaming(self) -> Agent:
        """This agent without guesses: the verifier never waits. For as long as this one is connected."""
        alone = replace(self.drafting, drafter=NO_DRAFTER, pace="eager")
        return replace(self, drafting=alone, _arms=Arms(alone, None))

    async def stream(
        self,
        messages: str | Sequence[Message],
        sampling: Sampling | None = None,
        options: AnswerOptions | None = None,
    ) -> AsyncGenerator[Chunk, None]:
        """Answer a conversation (a text is a conversation of one user message) as chunks of final text.

        The last chunk has no text and holds the `Result`. Leaving the iteration early cancels the answer.
        """
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        prompt_ids = self.chat_template.prompt_ids(messages)
        async with contextlib.aclosing(self.stream_ids(prompt_ids, sampling, options)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def answer(
        self,
        messages: str | Sequence[Message],
        sampling: Sampling | None = None,
        options: AnswerOptions | None = None,
    ) -> Result:
        """The whole answer to a conversation; see `stream`."""
        result: Result | None = None
        async for chunk in self.stream(messages, sampling, options):
            result = chunk.result
        assert result is not None, "the last chunk holds the result"
        return result

    async def stream_ids(
        self,
        prompt_ids: Sequence[int],
        sampling: Sampling | None = None,
        options: AnswerOptions | None = None,
    ) -> AsyncGenerator[Chunk, None]:
        """Continue `prompt_ids`; see `stream`. A verifier without a free session is asked again, a few times."""
        sampling = sampling or Sampling()
        options = options or AnswerOptions()
        seed = secrets.randbits(64) if sampling.seed is None else sampling.seed
        request = Open(
            prompt_ids=tuple(prompt_ids),
            sampling=sampling,
            seed=seed,
            max_tokens=sampling.max_tokens,
            prefix_of=options.prefix_of,
            stop_ids=tuple(sorted(options.stop_ids)),
            required_features=(FEATURE_GAPS,) if options.want_gaps else (),
            want_gaps=options.want_gaps,
        )
        # Checked here too: a drafter must not see them, whatever a verifier would say.
        self.tokenizer.vocabulary.check_ids(request.prompt_ids, "prompt")
        self.tokenizer.vocabulary.check_ids(sampling.logit_bias, "logit_bias")
        picked = self._arms.pick()
        arm = replace(picked, drafting=picked.drafting.under(self.info.limits))
        with self._arms.record(arm, self.info.model, self._draft_model(arm)) as record:
            async with contextlib.aclosing(self._decode(request, arm, record)) as chunks:
                async for chunk in chunks:
                    record.result = chunk.result
                    yield chunk

    async def _decode(self, request: Open, arm: Arm, record: AnswerRecord) -> AsyncGenerator[Chunk, None]:
        scripted = [drafter for drafter in self._drafters_of(arm).values() if isinstance(drafter, ScriptedDrafter)]
        if scripted:
            reference = await self._reference(request, arm)
            for drafter in scripted:
                drafter.references[request.prompt_ids] = reference
        for tries_left in reversed(range(OPEN_TRIES)):
            sources = self._open_sources(request, arm)
            record.answer = Answer(self._setup(request, arm), self._client.open_stream(), sources)
            try:
                async with contextlib.aclosing(self._assemble(record.answer, request, arm)) as chunks:
                    async for chunk in chunks:
                        yield chunk
            except OutriderError as error:
                if error.reason is not Reason.CAPACITY_EXHAUSTED or not tries_left:
                    raise
                await asyncio.sleep(error.retry_after_s or 1.0)
            else:
                return

    async def _assemble(self, answer: Answer, request: Open, arm: Arm) -> AsyncGenerator[Chunk, None]:
        assembler = ChunkAssembler(self.tokenizer.vocabulary, self._stop_ids(request), request.sampling.stop)
        async with contextlib.aclosing(answer.committed()) as commits:
            async for tokens in commits:
                for chunk in assembler.push(tokens):
                    yield chunk
                if assembler.stopped:
                    break
            for chunk in assembler.flush():
                yield chunk
        reason = FinishReason.STOP if assembler.stopped else answer.finish_reason or FinishReason.CANCELLED
        result = Result(
            text=assembler.text,
            token_ids=assembler.token_ids,
            finish_reason=reason.value,
            session_id=answer.session_id,
            stats=self._report(answer, assembler, request, arm),
            committed_ids=list(answer.tree.committed),
            gaps=answer.gaps,
            profile=answer.stats.profile,
        )
        yield Chunk("", [], Origin.CLOUD, result)

    def _report(self, answer: Answer, assembler: ChunkAssembler, request: Open, arm: Arm) -> dict[str, object]:
        return {
            "prompt_tokens": len(request.prompt_ids),
            **answer.stats.report(len(assembler.token_ids), assembler.drafted_count),
            "seed": request.seed,
            "model": self.info.model,
            "draft_model": self._draft_model(arm),
            "numerics": self.info.numerics,
            **arm.stats,
            "settings": self._settings(request, arm),
        }

    def _settings(self, request: Open, arm: Arm) -> dict[str, object]:
        sampling = request.sampling.model_dump(mode="json") | {"seed": request.seed}
        return {
            "sampling": sampling,
            **arm.drafting.settings(),
            "verifier": dict(self.info.settings) | {"engine": self.info.engine, "revision": self.info.revision},
        }

    def _drafters_of(self, arm: Arm) -> dict[str, Drafter]:
        return self._drafters if arm.drafting.models else {}

    def _draft_model(self, arm: Arm) -> str:
        names = list(self._drafters_of(arm))
        return "+".join([*names, LOOKUP] if arm.drafting.has_lookup else names) or NO_DRAFTER

    def _open_sources(self, request: Open, arm: Arm) -> Sources:
        return open_sources(
            self._drafters_of(arm),
            request,
            self.tokenizer.vocabulary.size,
            self._experience,
            arm.drafting.guess_options(),
            lookup=arm.drafting.has_lookup,
            corpus=None if arm.drafting.corpus is None else self._corpus,
        )

    def _setup(self, request: Open, arm: Arm) -> AnswerSetup:
        # What an answer without guesses takes says nothing of how to guess.
        bandit = None if arm.drafting.drafter == NO_DRAFTER else self._experience.bandit
        return AnswerSetup(
            request=request,
            limits=self.info.limits,
            stop_ids=self._stop_ids(request),
            control=arm.drafting.make_control(bandit),
            eager=arm.drafting.is_eager,
            may_change_pace=arm.drafting.may_change_pace,
        )

    def _stop_ids(self, request: Open) -> frozenset[int]:
        return self.info.stop_ids | frozenset(request.stop_ids)

    async def _reference(self, request: Open, arm: Arm) -> list[int]:
        """The target's own answer, for a drafter that is told it."""
        alone = Arm(replace(arm.drafting, drafter=NO_DRAFTER))
        answer = Answer(self._setup(request, alone), self._client.open_stream(), Sources.none())
        async with contextlib.aclosing(answer.committed()) as commits:
            async for _ in commits:
                pass
        return list(answer.tree.committed)
