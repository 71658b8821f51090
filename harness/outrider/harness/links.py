"""What a network does to messages: delay, jitter, bandwidth, stalls and cuts, as pure functions of seed, direction and
time, so that two programs that send at different moments meet the same link. It moves nothing itself.
"""

from __future__ import annotations

import bisect
import csv
import math
from collections.abc import Collection, Mapping
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from outrider.shared.errors import OutriderError, Reason

# Far beyond every network, and small enough that sums and products of what is allowed stay numbers.
MAX_MS = 3_600_000.0
MAX_S = 1e9
MAX_TRACE_POINTS = 100_000
MAX_SHOWN = 80
MAX_PROBLEMS = 5

# Strict: no texts and no truth values for numbers; whole numbers are numbers, too.
Milliseconds = Annotated[float, Field(ge=0, le=MAX_MS, strict=True)]
PositiveMilliseconds = Annotated[float, Field(gt=0, le=MAX_MS, strict=True)]
SlotMilliseconds = Annotated[float, Field(ge=0.001, le=MAX_MS, strict=True)]
Seconds = Annotated[float, Field(ge=0, le=MAX_S, strict=True)]
Megabits = Annotated[float, Field(ge=0.001, le=1e9, strict=True)]

# HTTP/2 DATA frame 9, gRPC prefix 5, TCP with timestamps 32, IPv4 20.
MESSAGE_OVERHEAD_BYTES = 66

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


class Direction(StrEnum):
    """From the edge to the cloud, or back."""

    UP = "up"
    DOWN = "down"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Stall(_Frozen):
    """Nothing leaves for `length_ms` from `at_s` on, and again `every_s` later if that is given."""

    at_s: Seconds
    length_ms: PositiveMilliseconds
    every_s: Annotated[float, Field(ge=0.001, le=MAX_S, strict=True)] | None = None
    direction: Literal["up", "down", "both"] = "both"

    @model_validator(mode="after")
    def _ends_before_the_next(self) -> Stall:
        if self.every_s is not None and self.every_s * 1000 <= self.length_ms:
            raise ValueError(f"every_s = {self.every_s:g} is not longer than length_ms = {self.length_ms:g}")
        return self

    def window_after(self, time_s: float) -> tuple[float, float] | None:
        """Begin and end, in seconds, of the first stall that ends after `time_s`."""
        begin, length = self.at_s, self.length_ms / 1000
        if self.every_s is not None:
            begin += self.every_s * max(0, math.floor((time_s - begin - length) / self.every_s))
            while begin + length <= time_s:
                begin += self.every_s
        return (begin, begin + length) if begin + length > time_s else None


class Cut(_Frozen):
    """All streams break at `at_s` and what flies is lost; for `outage_ms` new ones break at once.

    Each side learns of it after its `..._notice_ms`: 0 where the connection is reset; a link that falls silent is
    noticed by the edge's keepalive after 25 000. One side without notice makes a half-open stream.
    """

    at_s: Seconds
    outage_ms: Milliseconds = 0
    edge_notice_ms: Milliseconds = 0
    cloud_notice_ms: Milliseconds = 0
    kind: Literal["rst", "fin"] = "rst"


class LinkProfile(_Frozen):
    """A link between one edge and the cloud. Give `rtt_ms` for equal delays, or `up_ms` and `down_ms` one way.

    Jitter keeps the mean: `uniform` adds −jitter_ms to +jitter_ms, `exponential` jitter_ms·(E − 1); one draw holds for
    `jitter_slot_ms`. A message that leaves in a slot of `loss_slot_ms` is lost with `loss_probability` and comes
    `loss_stall_ms` late (about one retransmission timeout); those behind it wait. Without `…_mbit` the rate has no
    bound. `overhead_bytes` come on top of each message. `trace` holds (time_s, rtt_ms), linear in between, repeated
    from its beginning, in place of the fixed delays; the ratio of up_ms to down_ms splits it.
    """

    up_ms: Milliseconds = 0
    down_ms: Milliseconds = 0
    jitter: Literal["none", "uniform", "exponential"] = "none"
    jitter_ms: Milliseconds = 0
    jitter_slot_ms: SlotMilliseconds = 10
    up_mbit: Megabits | None = None
    down_mbit: Megabits | None = None
    loss_probability: Annotated[float, Field(ge=0, lt=1, strict=True)] = 0
    loss_stall_ms: Milliseconds = 0
    loss_slot_ms: SlotMilliseconds = 1
    overhead_bytes: Annotated[int, Field(ge=0, le=1 << 20, strict=True)] = MESSAGE_OVERHEAD_BYTES
    stalls: tuple[Stall, ...] = ()
    cuts: tuple[Cut, ...] = ()
    trace: Annotated[tuple[tuple[Seconds, Milliseconds], ...], Field(max_length=MAX_TRACE_POINTS)] = ()

    @classmethod
    def of_rtt(cls, rtt_ms: float, **options: Any) -> LinkProfile:
        """A link with half of `rtt_ms` each way."""
        return cls(up_ms=rtt_ms / 2, down_ms=rtt_ms / 2, **options)

    @model_validator(mode="before")
    @classmethod
    def _split_rtt(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and "rtt_ms" in values:
            values = dict(values)
            rtt_ms = values.pop("rtt_ms")
            if "up_ms" in values or "down_ms" in values:
                raise ValueError("rtt_ms beside up_ms or down_ms: give one of them")
            if isinstance(rtt_ms, bool) or not isinstance(rtt_ms, int | float) or not abs(rtt_ms) <= MAX_MS:
                raise ValueError(f"rtt_ms = {shown(rtt_ms)}: expected a number up to {MAX_MS:g}")
            values["up_ms"] = values["down_ms"] = rtt_ms / 2
        return values

    @model_validator(mode="after")
    def _is_possible(self) -> LinkProfile:
        if self.jitter != "none" and not self.trace and self.jitter_ms > min(self.up_ms, self.down_ms):
            raise ValueError(f"jitter_ms = {self.jitter_ms:g} would make delays negative")
        if self.jitter == "none" and self.jitter_ms:
            raise ValueError(f"jitter_ms = {self.jitter_ms:g} without a jitter")
        if bool(self.loss_probability) != bool(self.loss_stall_ms):
            raise ValueError("loss_probability and loss_stall_ms belong together")
        times = [time_s for time_s, _ in self.trace]
        if self.trace and (len(times) < 2 or times[0] != 0 or times != sorted(set(times))):
            raise ValueError("a trace begins at time 0, rises, and has at least two points")
        return self

    @property
    def rtt_ms(self) -> float:
        """Mean round trip without stalls, in milliseconds."""
        if not self.trace:
            return self.up_ms + self.down_ms
        area = sum((t1 - t0) * (a + b) / 2 for (t0, a), (t1, b) in zip(self.trace, self.trace[1:], strict=False))
        return area / self.trace[-1][0]

    def steady(self) -> LinkProfile:
        """The same mean delays and rates without jitter, losses, stalls, cuts and trace."""
        share = _up_share(self)
        return LinkProfile(
            up_ms=self.rtt_ms * share,
            down_ms=self.rtt_ms * (1 - share),
            up_mbit=self.up_mbit,
            down_mbit=self.down_mbit,
            overhead_bytes=self.overhead_bytes,
        )


def make_link_profile(options: Mapping[str, Any], origin: str) -> LinkProfile:
    """Build a `LinkProfile`, or raise USAGE that names `origin`, the key, its value and what was expected."""
    try:
        return LinkProfile.model_validate(options)
    except ValidationError as error:
        raise OutriderError(Reason.USAGE, f"{origin}: {describe_problems(error)}") from None


def describe_problems(error: ValidationError, tags: Collection[str] = ()) -> str:
    """Key, value and reason of the first problems, cut where long; `tags` are steps of a place that name no key."""
    problems = error.errors(include_url=False)
    texts = []
    for problem in problems[:MAX_PROBLEMS]:
        key = ".".join(str(part) for part in problem["loc"] if part not in tags) or "table"
        texts.append(f"{_cut(key)} = {shown(problem['input'])}: {problem['msg']}")
    if len(problems) > MAX_PROBLEMS:
        texts.append(f"and {len(problems) - MAX_PROBLEMS} more problems")
    return "; ".join(texts)


def shown(value: object) -> str:
    """A value as an error shows it, cut where it is long."""
    try:
        return _cut(repr(value))
    except ValueError:
        # A whole number of thousands of digits.
        return f"a very long {type(value).__name__}"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"


def load_trace(path: Path) -> tuple[tuple[float, float], ...]:
    """Points (time_s, rtt_ms) of a CSV file with exactly these two columns, two points at least; blank lines at its end
    are skipped. Raises USAGE with file, line and reason.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(islice(csv.reader(file), MAX_TRACE_POINTS + 1000))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise OutriderError(Reason.USAGE, f"{path}: {error}.") from None
    while rows and not any(cell.strip() for cell in rows[-1]):
        rows.pop()
    if not rows or [name.strip() for name in rows[0]] != ["time_s", "rtt_ms"]:
        raise OutriderError(Reason.USAGE, f"{path}:1: expected the columns time_s,rtt_ms.")
    points: list[tuple[float, float]] = []
    for number, row in enumerate(rows[1:], start=2):
        try:
            time_s, rtt_ms = (float(cell) for cell in row)
        except ValueError:
            raise OutriderError(Reason.USAGE, f"{path}:{number}: expected two numbers, got {shown(row)}.") from None
        # Not a number is in no range.
        for name, value, most in (("time_s", time_s, MAX_S), ("rtt_ms", rtt_ms, MAX_MS)):
            if not 0 <= value <= most:
                text = f"{path}:{number}: {name} = {value:g}: expected a number from 0 to {most:g}."
                raise OutriderError(Reason.USAGE, text)
        points.append((time_s, rtt_ms))
    if not 2 <= len(points) <= MAX_TRACE_POINTS:
        found = len(points) if len(points) < 2 else "more"
        text = f"{path}: expected between 2 and {MAX_TRACE_POINTS} points, found {found}."
        raise OutriderError(Reason.USAGE, text)
    return tuple(points)


class DelayModel:
    """One direction of a link. All methods are pure functions of time."""

    def __init__(self, profile: LinkProfile, direction: Direction, seed: int) -> None:
        self._profile = profile
        is_up = direction is Direction.UP
        self._base_s = (profile.up_ms if is_up else profile.down_ms) / 1000
        share = _up_share(profile)
        self._share = share if is_up else 1 - share
        self._trace_times = [time_s for time_s, _ in profile.trace]
        self._stalls = [stall for stall in profile.stalls if stall.direction in {direction.value, "both"}]
        # One independent stream of draws for each direction and purpose.
        self._jitter_key = _mix(seed ^ _mix(2 if is_up else 3))
        self._loss_key = _mix(seed ^ _mix(4 if is_up else 5))

    def delay_s(self, time_s: float) -> float:
        """How long a message flies that has left at `time_s`."""
        profile = self._profile
        delay_s = self._trace_s(time_s) if profile.trace else self._base_s
        if profile.jitter != "none":
            uniform = _uniform(self._jitter_key, int(time_s * 1000 / profile.jitter_slot_ms))
            centred = 2 * uniform - 1 if profile.jitter == "uniform" else -math.log(uniform) - 1
            delay_s = max(0.0, delay_s + profile.jitter_ms / 1000 * centred)
        if profile.loss_probability:
            uniform = _uniform(self._loss_key, int(time_s * 1000 / profile.loss_slot_ms))
            if uniform < profile.loss_probability:
                delay_s += profile.loss_stall_ms / 1000
        return delay_s

    def departure_s(self, start_s: float, duration_s: float) -> float:
        """When a transmission that takes `duration_s` without stalls, begun at `start_s`, is through."""
        time_s, remaining_s = start_s, duration_s
        while self._stalls:
            windows = [window for stall in self._stalls if (window := stall.window_after(time_s)) is not None]
            if not windows:
                break
            begin_s, end_s = min(windows)
            if time_s + remaining_s <= begin_s:
                break
            remaining_s -= max(0.0, begin_s - time_s)
            time_s = end_s
        return time_s + remaining_s

    def _trace_s(self, time_s: float) -> float:
        times, trace = self._trace_times, self._profile.trace
        time_s %= times[-1]
        index = bisect.bisect_right(times, time_s) - 1
        (t0, before), (t1, after) = trace[index], trace[index + 1]
        return (before + (after - before) * (time_s - t0) / (t1 - t0)) / 1000 * self._share


class Channel:
    """One direction of one stream: a `DelayModel` plus what has been sent before. Messages arrive in order."""

    def __init__(self, profile: LinkProfile, direction: Direction, seed: int) -> None:
        self._model = DelayModel(profile, direction, seed)
        mbit = profile.up_mbit if direction is Direction.UP else profile.down_mbit
        self._s_per_byte = 8e-6 / mbit if mbit else 0.0
        self._busy_until_s = 0.0
        self._last_arrival_s = 0.0

    def arrival_s(self, now_s: float, size_bytes: int) -> float:
        """Send `size_bytes` now, times never falling; returns when the last of them arrives."""
        start_s = max(now_s, self._busy_until_s)
        departure_s = self._model.departure_s(start_s, size_bytes * self._s_per_byte)
        self._busy_until_s = departure_s
        self._last_arrival_s = max(self._last_arrival_s, departure_s + self._model.delay_s(departure_s))
        return self._last_arrival_s


def _up_share(profile: LinkProfile) -> float:
    total = profile.up_ms + profile.down_ms
    return profile.up_ms / total if total else 0.5


def _mix(value: int) -> int:
    """The finaliser of splitmix64."""
    z = value & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def _uniform(key: int, slot: int) -> float:
    """The draw number `slot` of a stream, between 0 and 1, both excluded."""
    return ((_mix(key + (slot + 1) * _GOLDEN) >> 11) + 0.5) / (1 << 53)
