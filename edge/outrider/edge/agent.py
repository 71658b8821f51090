"""The edge agent: connects a drafter, a verifier and the target's tokenizer, and answers prompts with them."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from outrider.edge.answer import CUT_SHORT, Answer, AnswerSetup
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
from outrider.edge.interrupted import AnswerInterrupted
from outrider.edge.link import VerifierClient
from outrider.edge.recovery import Patience, Recovery
from outrider.edge.resume_handle import ResumeHandle
from outrider.edge.target_tokenizer import fetch_tokenizer
from outrider.edge.tokenizer import PlainTokenizer
from outrider.edge.verifiers import GrpcVerifiers
from outrider.shared.access import Tls, is_loopback, read_access
from outrider.shared.corpus_index import CorpusIndex
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.messages import FEATURE_GAPS, FinishReason, Open, VerifierInfo
from outrider.shared.sampling.options import Sampling
from outrider.shared.token_tree import CommittedToken, Origin

INTERRUPTED = "interrupted"
_INTERRUPTING = CUT_SHORT | {Reason.TARGET_DIFFERS}
FALLBACKS = ("stop", "local")
# What such drafters say they have from the verifier.
SCRIPTED = "scripted:"


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
    """Answers prompts through a verifier, or through the next one where that fails. Make it with `connect`; several
    answers may run at once.
    """

    info: VerifierInfo
    drafting: Drafting
    tokenizer: PlainTokenizer
    chat_template: ChatTemplate
    _arms: Arms = field(repr=False)
    _verifiers: GrpcVerifiers = field(repr=False)
    _patience: Patience = field(repr=False)
    _drafters: dict[str, Drafter] = field(repr=False)
    _experience: Experience = field(repr=False)
    _corpus: CorpusIndex | None = field(repr=False)
    _goes_on_alone: bool = field(repr=False)

    @classmethod
    @contextlib.asynccontextmanager
    async def connect(
        cls,
        verifier: str | Sequence[str],
        drafter: str = DEFAULT_DRAFTER,
        *,
        patience_s: float = Patience().limit_s,
        fallback: str = FALLBACKS[0],
        experiment: Experiment | None = None,
        state: Path | str | None = None,
        tls: Tls | None = None,
        token_file: Path | str | None = None,
        plaintext: bool = False,
        **drafting: object,
    ) -> AsyncIterator[Agent]:
        """An agent for the verifier at HOST:PORT, or for several that serve the same target: the first one that answers
        is used as long as it can be reached. An answer whose verifiers are all gone waits `patience_s` seconds for one
        to come back and is interrupted then; with the `fallback` "local" the drafter goes on with it meanwhile, see
        `Chunk`. Such an agent may even begin without a verifier, if one has been reached from this device before.
        Further arguments are the fields of `Drafting`. With an `experiment` a share of the requests is drafted another
        way. `state` is a file (there may be none yet) that holds what earlier agents have learned; what this one has
        learned is in it when the agent is closed. With `tls` the connection is encrypted and the verifier proves who it
        is; `token_file` holds the token that it asks for. Without TLS prompts leave this machine only as `plaintext`.

        Raises VERIFIER_UNREACHABLE, UNAUTHENTICATED, VOCABULARY_MISMATCH, USAGE, FILE_UNREADABLE, and what loading the
        drafter raises.
        """
        try:
            how = Drafting(drafter=drafter, **drafting)  # type: ignore[arg-type]
        except TypeError as error:
            raise OutriderError(Reason.USAGE, f"{error}.") from None
        how.make_control()
        if fallback not in FALLBACKS:
            raise OutriderError(Reason.USAGE, f"--fallback {fallback!r}: expected one of {', '.join(FALLBACKS)}.")
        goes_on_alone = fallback == "local"
        if goes_on_alone and all(model.startswith(SCRIPTED) for model in how.models):
            raise OutriderError(Reason.USAGE, f"--fallback local: --drafter {drafter!r} cannot go on alone.")
        arms = Arms(how, experiment)
        path = None if state is None else Path(state)
        experience = Experience() if path is None else await asyncio.to_thread(Experience.load, path)
        access = await asyncio.to_thread(read_access, tls, token_file)
        addresses = [verifier] if isinstance(verifier, str) else verifier
        for address in addresses:
            if tls is None and not plaintext and not is_loopback(address):
                text = (
                    f"{address} is not this machine: expected --tls, or --plaintext if all on the way may read along."
                )
                raise OutriderError(Reason.USAGE, text)
        clients = [VerifierClient(address, access=access) for address in addresses]
        if not clients:
            raise OutriderError(Reason.USAGE, "no verifier is named.")
        async with contextlib.AsyncExitStack() as stack:
            verifiers = await stack.enter_async_context(GrpcVerifiers.reached(clients, may_be_away=goes_on_alone))
            info = verifiers.info
            arms.check_fits(info.limits.window)
            tokenizer, chat_template = await fetch_tokenizer(verifiers.current, info)
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
            patience = Patience(limit_s=patience_s)
            yield cls(
                info,
                how,
                tokenizer,
                chat_template,
                arms,
                verifiers,
                patience,
                drafters,
                experience,
                corpus,
                goes_on_alone,
            )

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
        """Continue `prompt_ids`; see `stream`. A verifier without a free session is asked again, a few times.

        Raises AnswerInterrupted when no verifier can be reached any more.
        """
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
            target_digest=self.info.target_digest,
        )
        async with contextlib.aclosing(self._stream(request)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def resume(self, handle: ResumeHandle) -> AsyncGenerator[Chunk, None]:
        """Go on with an interrupted answer: all of it as chunks, first what is known already; see `stream`.

        Raises TARGET_DIFFERS if this agent's verifier would answer otherwise.
        """
        async with contextlib.aclosing(self._stream(handle.request(self.info))) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _stream(self, request: Open) -> AsyncGenerator[Chunk, None]:
        # Checked here too: a drafter must not see them, whatever a verifier would say.
        self.tokenizer.vocabulary.check_ids(request.prompt_ids, "prompt")
        self.tokenizer.vocabulary.check_ids(request.committed_ids, "committed")
        self.tokenizer.vocabulary.check_ids(request.stop_ids, "stop_ids")
        self.tokenizer.vocabulary.check_ids(request.sampling.logit_bias, "logit_bias")
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
        record.answer = self._answer(request, arm, self._open_sources(request, arm))
        async with contextlib.aclosing(self._assemble(record.answer, request, arm)) as chunks:
            async for chunk in chunks:
                yield chunk

    def _answer(self, request: Open, arm: Arm, sources: Sources) -> Answer:
        link = self._verifiers.open_stream()
        return Answer(self._setup(request, arm), link, sources, Recovery(self._verifiers, self._patience))

    async def _assemble(self, answer: Answer, request: Open, arm: Arm) -> AsyncGenerator[Chunk, None]:
        assembler = ChunkAssembler(self.tokenizer.vocabulary, self._stop_ids(request), request.sampling.stop)
        for chunk in assembler.push([CommittedToken(token, Origin.CLOUD) for token in request.committed_ids]):
            yield chunk
        try:
            async with contextlib.aclosing(answer.committed()) as commits:
                async for tokens in commits:
                    for chunk in assembler.push(tokens):
                        yield chunk
                    if assembler.stopped:
                        break
                    if assembler.stopped_ahead:
                        answer.stop_alone()
                for chunk in assembler.flush(unverified=answer.is_unverified):
                    yield chunk
        except OutriderError as error:
            # What there is of an answer is not to be lost, whatever ends it.
            has_begun = bool(answer.tree.committed or assembler.token_ids)
            if isinstance(error, AnswerInterrupted) or not (has_begun or error.reason in _INTERRUPTING):
                raise
            for chunk in assembler.take_back():
                yield chunk
            partial = self._result(answer, assembler, request, arm, INTERRUPTED)
            raise AnswerInterrupted(error, self._handle(answer, request), partial) from error
        reason = FinishReason.STOP if assembler.stopped else answer.finish_reason or FinishReason.CANCELLED
        yield Chunk("", [], Origin.CLOUD, self._result(answer, assembler, request, arm, reason.value))

    def _result(self, answer: Answer, assembler: ChunkAssembler, request: Open, arm: Arm, reason: str) -> Result:
        return Result(
            text=assembler.text,
            token_ids=assembler.token_ids,
            finish_reason=reason,
            session_id=answer.session_id,
            stats=self._report(answer, assembler, request, arm),
            committed_ids=list(answer.tree.committed),
            gaps=answer.gaps,
            profile=answer.stats.profile,
            handle=self._handle(answer, request) if answer.is_unverified else None,
        )

    def _handle(self, answer: Answer, request: Open) -> ResumeHandle:
        return ResumeHandle.of(request, tuple(answer.tree.committed), self.info)

    def _report(self, answer: Answer, assembler: ChunkAssembler, request: Open, arm: Arm) -> dict[str, object]:
        return {
            "prompt_tokens": len(request.prompt_ids),
            **answer.stats.report(len(assembler.token_ids), assembler.drafted_count),
            "verified": not answer.is_unverified,
            "unverified_tokens": assembler.unverified_count,
            "retractions": [{"position": r.text_length, "withdrawn": r.withdrawn} for r in assembler.retracts],
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
            goes_on_alone=self._goes_on_alone,
            vocabulary_size=self.tokenizer.vocabulary.size,
        )

    def _stop_ids(self, request: Open) -> frozenset[int]:
        return self.info.stop_ids | frozenset(request.stop_ids)

    async def _reference(self, request: Open, arm: Arm) -> list[int]:
        """The target's own answer, for a drafter that is told it."""
        alone = Arm(replace(arm.drafting, drafter=NO_DRAFTER))
        answer = self._answer(request, alone, Sources.none())
        async with contextlib.aclosing(answer.committed()) as commits:
            async for _ in commits:
                pass
        return list(answer.tree.committed)
