"""What to make of where an answer's time went: one sentence, chosen from what was measured. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.edge.profile import Split

# A draft step per guess over a pass: up to the first drafting is cheap, above the second it is too slow to wait for.
CHEAP_RATIO, DEAR_RATIO = 0.2, 0.3
# Below that, a gain over streaming is none.
LEAST_GAIN = 1.03
LEAST_PASSES = 4
# Of the time after the first token: a part that takes as much stands out.
LARGE_SHARE = 0.35
LARGE_QUEUE_SHARE = 0.2
LOW_ALPHA = 0.5
# A pass over guesses that takes so many times as long as one over a single token eats up what it saves.
DEAR_ROWS = 1.5


@dataclass(frozen=True, slots=True)
class Measured:
    """What is known of an answer of `tokens` tokens in `seconds`, of which any answer needs `prompt_s` for its prompt.
    `split` is of the time after the first token. `guess_ms` is a draft step over the guesses sent of it, `pass_ms` a
    pass; `streaming_ms` is what the verifier alone takes for a token. None is not known.
    """

    split: Split
    seconds: float
    prompt_s: float
    tokens: int
    passes: int
    drafted: int
    alpha: float
    guess_ms: float | None
    pass_ms: float | None
    streaming_ms: float | None
    has_drafter: bool
    is_eager: bool

    @property
    def draft_verify_ratio(self) -> float | None:
        """Of a guess over a pass."""
        return self.guess_ms / self.pass_ms if self.guess_ms is not None and self.pass_ms else None

    @property
    def streaming_s(self) -> float | None:
        """What the answer would have taken without guesses, an estimate."""
        return None if self.streaming_ms is None else self.prompt_s + self.tokens * self.streaming_ms / 1000

    @property
    def gain(self) -> float | None:
        """How many times as fast as streaming it was, an estimate."""
        return self.streaming_s / self.seconds if self.streaming_s is not None and self.seconds else None

    @property
    def tokens_per_pass(self) -> float:
        """Tokens of the answer a pass."""
        return self.tokens / self.passes if self.passes else 0.0

    def share(self, part_s: float) -> float:
        """Of the time after the first token."""
        return part_s / self.split.whole_s if self.split.whole_s else 0.0


def advise(measured: Measured) -> str:
    """One sentence: how the answer compares with streaming, why, and what could be done."""
    if measured.passes < LEAST_PASSES:
        return f"Too short to tell: {measured.passes} passes; ask for a longer answer."
    if measured.drafted == 0:
        return _without_guesses(measured)
    verdict, cause = _verdict(measured), _cause(measured)
    text = f"{verdict}: {cause}" if verdict else cause
    return text[0].upper() + text[1:] + "."


def _verdict(measured: Measured) -> str:
    gain, streaming_s = measured.gain, measured.streaming_s
    if gain is None or streaming_s is None:
        return ""
    times = f"{measured.seconds:.2f} s against an estimated {streaming_s:.2f} s"
    if gain >= LEAST_GAIN:
        return f"about {gain:.2f} times as fast as the verifier's own streaming would have been ({times})"
    return f"no faster than the verifier's own streaming would have been ({times})"


def _cause(measured: Measured) -> str:
    split = measured.split
    link, queue, drafting = (
        measured.share(part_s) for part_s in (split.link_only_s, split.queue_only_s, split.draft_only_s)
    )
    if queue >= LARGE_QUEUE_SHARE and queue >= max(link, drafting):
        return f"{queue:.0%} of the time is the verifier's queue, so it is full; {_when_full(measured)}"
    is_gain = measured.gain is not None and measured.gain >= LEAST_GAIN
    if not is_gain and measured.alpha < LOW_ALPHA:
        return (
            f"only {measured.alpha:.0%} of the positions checked had a right guess; another --drafter may do better,"
            " but some kinds of text cannot be guessed"
        )
    rows = _cost_of_rows(measured)
    if not is_gain and rows >= DEAR_ROWS and _lost_to_rows_s(measured) >= max(split.draft_only_s, split.link_only_s):
        return (
            f"a pass over guesses takes {rows:.1f} times as long as one over a single token, as on a CPU; that saves"
            f" passes ({measured.tokens_per_pass:.1f} tokens each), and time only on an accelerator"
        )
    if link >= LARGE_SHARE and link >= drafting:
        return f"{link:.0%} of the time is waiting for the link; {_against_distance(measured)}"
    if drafting >= LARGE_SHARE and not (is_gain and _is_cheap(measured)):
        return f"{drafting:.0%} of the time is drafting with nothing in flight{_ratio_words(measured)}; {_draft_less()}"
    return _nothing_stands_out(measured, is_gain)


def _nothing_stands_out(measured: Measured, is_gain: bool) -> str:
    passing = measured.share(measured.split.pass_only_s)
    if passing >= LARGE_SHARE and not is_gain:
        return f"{passing:.0%} of the time is the target's passes, so it is as fast as the target allows"
    per_pass = f"{measured.tokens_per_pass:.1f} tokens a pass"
    if is_gain:
        return f"{per_pass}{_ratio_words(measured)}; the guesses are worth their time"
    return f"{per_pass}, and no part of the time stands out; {_draft_less()}"


def _without_guesses(measured: Measured) -> str:
    """No guess went out: there was no drafter, or none in time."""
    link, passing = (measured.share(part_s) for part_s in (measured.split.link_only_s, measured.split.pass_only_s))
    if measured.has_drafter:
        return f"No guess was sent, so this was the target's own streaming{_ratio_words(measured)}; {_draft_less()}."
    if link >= LARGE_SHARE and not measured.is_eager:
        return f"Nothing was guessed and each token waited for the link ({link:.0%} of the time): use --pace eager."
    return (
        f"Nothing was guessed: this was the target's own streaming, {passing:.0%} of it waiting for passes and"
        f" {link:.0%} for the link; it is as fast as the target allows without a drafter."
    )


def _when_full(measured: Measured) -> str:
    if measured.is_eager:
        return "--pace patient asks it for fewer passes"
    return "only fewer answers at a time or a larger verifier would help"


def _against_distance(measured: Measured) -> str:
    if measured.is_eager:
        return "only a nearer verifier would help"
    return "use --control ratio --pace eager, with which the verifier never waits for it, or a nearer verifier"


def _draft_less() -> str:
    return "a smaller --drafter or lookup would be quicker"


def _ratio_words(measured: Measured) -> str:
    ratio = measured.draft_verify_ratio
    if ratio is None:
        return ""
    return f", and a guess costs {ratio:.2f} of a pass" + (", too slow to wait for" if ratio > DEAR_RATIO else "")


def _is_cheap(measured: Measured) -> bool:
    ratio = measured.draft_verify_ratio
    return ratio is not None and ratio <= CHEAP_RATIO


def _cost_of_rows(measured: Measured) -> float:
    """A pass of the answer over one of streaming; 1 if that is not known."""
    return measured.pass_ms / measured.streaming_ms if measured.pass_ms and measured.streaming_ms else 1.0


def _lost_to_rows_s(measured: Measured) -> float:
    """Seconds that passes took beyond what as many of streaming would have."""
    if not measured.pass_ms or not measured.streaming_ms:
        return 0.0
    return measured.passes * (measured.pass_ms - measured.streaming_ms) / 1000
