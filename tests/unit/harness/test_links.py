"""What links do to messages: pure functions of seed, direction and time, in order, at the rate they have."""

from __future__ import annotations

import random
import statistics
from pathlib import Path
from typing import Any

import pytest

from outrider.harness.links import (
    MAX_TRACE_POINTS,
    Channel,
    Cut,
    DelayModel,
    Direction,
    LinkProfile,
    Stall,
    load_trace,
    make_link_profile,
)
from outrider.shared.errors import Reason
from support.refusal import refused

ROUGH = LinkProfile.of_rtt(
    40, jitter="exponential", jitter_ms=6, up_mbit=5, down_mbit=20, loss_probability=0.05, loss_stall_ms=240,
    stalls=(Stall(at_s=3, length_ms=100, every_s=7),),
)  # fmt: skip


def test_a_delay_depends_on_seed_direction_and_time_alone() -> None:
    times = [random.Random(5).uniform(0, 100) for _ in range(2000)]
    first, second = (DelayModel(ROUGH, Direction.UP, 7) for _ in range(2))
    forwards = {time_s: first.delay_s(time_s) for time_s in times}
    backwards = {time_s: second.delay_s(time_s) for time_s in reversed(times)}
    assert forwards == backwards
    for other in (DelayModel(ROUGH, Direction.DOWN, 7), DelayModel(ROUGH, Direction.UP, 8)):
        same = sum(other.delay_s(time_s) == forwards[time_s] for time_s in times)
        assert same < 20


def test_two_senders_meet_the_same_link_whatever_else_they_send() -> None:
    """A message that overtakes nothing arrives alike, whether or not others went before it."""
    profile = LinkProfile.of_rtt(40, jitter="uniform", jitter_ms=9)
    alone, busy = Channel(profile, Direction.UP, 3), Channel(profile, Direction.UP, 3)
    for second in range(1, 50):
        busy.arrival_s(second - 0.5, 100)
        assert busy.arrival_s(second, 100) == alone.arrival_s(second, 100)


def test_messages_arrive_in_order_and_not_before_the_least_delay() -> None:
    for seed in range(20):
        channel, now_s, last_s = Channel(ROUGH, Direction.DOWN, seed), 0.0, 0.0
        for _ in range(500):
            now_s += random.Random(seed).expovariate(100)
            arrival_s = channel.arrival_s(now_s, 300)
            assert arrival_s >= max(last_s, now_s + (20 - 6) / 1000)
            last_s = arrival_s


@pytest.mark.parametrize(("jitter", "spread_ms"), [("uniform", 6 / 3**0.5), ("exponential", 6.0)])
def test_jitter_keeps_the_mean_and_has_its_spread(jitter: str, spread_ms: float) -> None:
    """4,000 draws of a fixed seed; of other seeds, one in 16,000 strays by the four standard errors allowed."""
    profile = make_link_profile({"rtt_ms": 40, "jitter": jitter, "jitter_ms": 6}, "test")
    model = DelayModel(profile, Direction.UP, 11)
    delays_ms = [1000 * model.delay_s(slot / 100 + 0.001) for slot in range(4000)]
    assert statistics.fmean(delays_ms) == pytest.approx(20, abs=4 * spread_ms / 4000**0.5)
    assert statistics.stdev(delays_ms) == pytest.approx(spread_ms, rel=0.1)


def test_a_slot_has_one_draw() -> None:
    profile = LinkProfile.of_rtt(40, jitter="uniform", jitter_ms=9, jitter_slot_ms=50)
    model = DelayModel(profile, Direction.UP, 1)
    assert model.delay_s(0.0) == model.delay_s(0.049)
    assert model.delay_s(0.0) != model.delay_s(0.051)


def test_bandwidth_is_paid_one_message_after_the_other() -> None:
    channel = Channel(LinkProfile(up_ms=10, down_ms=1, up_mbit=8), Direction.UP, 1)
    assert channel.arrival_s(0.0, 1000) == pytest.approx(0.011)
    assert channel.arrival_s(0.0, 5000) == pytest.approx(0.016)
    assert channel.arrival_s(0.1, 1000) == pytest.approx(0.111)
    unbounded = Channel(LinkProfile(up_ms=10, down_ms=1, up_mbit=8), Direction.DOWN, 1)
    assert unbounded.arrival_s(0.0, 10**9) == pytest.approx(0.001)


def test_a_lost_message_comes_late_and_holds_up_those_behind_it() -> None:
    profile = LinkProfile.of_rtt(20, loss_probability=0.02, loss_stall_ms=220)
    channel = Channel(profile, Direction.UP, 4)
    delays_ms = [round(1000 * (channel.arrival_s(n / 100, 50) - n / 100), 6) for n in range(5000)]
    lost = [n for n, delay_ms in enumerate(delays_ms) if delay_ms == 230]
    assert 60 <= len(lost) <= 145, "100 expected, four standard deviations are 40"
    assert [delays_ms[lost[0] + i] for i in range(4)] == [230, 220, 210, 200]


def test_a_stall_holds_what_is_sent_and_interrupts_what_is_on_the_line() -> None:
    profile = LinkProfile.of_rtt(20, up_mbit=0.8, stalls=(Stall(at_s=1, length_ms=500, direction="up"),))
    up, down = (Channel(profile, direction, 1) for direction in Direction)
    assert up.arrival_s(0.8, 100) == pytest.approx(0.811)
    assert up.arrival_s(0.95, 10_000) == pytest.approx(1.56), "50 ms before the stall, 50 after"
    assert down.arrival_s(1.2, 100) == pytest.approx(1.21)
    held = Channel(profile, Direction.UP, 1)
    assert held.arrival_s(1.2, 100) == pytest.approx(1.511)
    assert held.arrival_s(1.3, 100) == pytest.approx(1.512)


def test_stalls_repeat() -> None:
    stall = Stall(at_s=3, length_ms=100, every_s=7)
    assert [stall.window_after(time_s) for time_s in (0.0, 3.05, 3.1, 700.0)] == [
        (3, 3.1),
        (3, 3.1),
        (10, 10.1),
        pytest.approx((703, 703.1)),
    ]
    assert Stall(at_s=3, length_ms=100).window_after(3.1) is None


def test_a_trace_is_interpolated_split_and_repeated(tmp_path: Path) -> None:
    path = tmp_path / "rtt.csv"
    path.write_text("time_s,rtt_ms\n0,40\n10,60\n20,20\n")
    profile = LinkProfile(up_ms=3, down_ms=1, trace=load_trace(path))
    up, down = (DelayModel(profile, direction, 1) for direction in Direction)
    assert [1000 * up.delay_s(t) for t in (0, 5, 15, 25)] == pytest.approx([30, 37.5, 30, 37.5])
    assert 1000 * down.delay_s(5) == pytest.approx(12.5)
    assert profile.rtt_ms == pytest.approx(45)
    assert profile.steady().up_ms == pytest.approx(33.75)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("time,rtt\n0,1\n", ":1"),
        ("time_s,rtt_ms\n0,1\n1,fast\n", ":3"),
        ("time_s,rtt_ms\n0,1\n1\n", ":3"),
        ("", ":1"),
        ("time_s,rtt_ms\n", ": expected between 2"),
        ("time_s,rtt_ms\n0,1\n", ": expected between 2"),
        ("time_s,rtt_ms\n0,1\n\n1,2\n", ":3"),
        ("time_s,rtt_ms\n0,1\nnan,1\n", ":3: time_s = nan"),
        ("time_s,rtt_ms\n0,1\ninf,1\n", ":3: time_s = inf"),
        ("time_s,rtt_ms\n0,1\n1e308,1\n", ":3: time_s = 1e+308"),
        ("time_s,rtt_ms\n0,nan\n1,1\n", ":2: rtt_ms = nan"),
        ("time_s,rtt_ms\n0,1\n1,inf\n", ":3: rtt_ms = inf"),
        ("time_s,rtt_ms\n0,1\n1,1e308\n", ":3: rtt_ms = 1e+308"),
        ("time_s,rtt_ms\n0,1\n1,-1\n", ":3: rtt_ms = -1"),
        ("time_s,rtt_ms\n" + "".join(f"{n},1\n" for n in range(MAX_TRACE_POINTS + 1)), ": expected between 2"),
    ],
)
def test_a_bad_trace_is_refused_with_file_and_line(tmp_path: Path, text: str, place: str) -> None:
    path = tmp_path / "rtt.csv"
    path.write_text(text)
    with refused(Reason.USAGE, f"rtt.csv{place}"):
        load_trace(path)
    with refused(Reason.USAGE, "none.csv"):
        load_trace(tmp_path / "none.csv")


def test_a_byte_order_mark_and_blank_lines_at_the_end_of_a_trace_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "rtt.csv"
    path.write_text("\ufefftime_s,rtt_ms\r\n0,1\r\n1,2\r\n\r\n  \r\n", "utf-8")
    assert load_trace(path) == ((0, 1), (1, 2))


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"rtt_ms": -1}, "up_ms"),
        ({"rtt_ms": 20, "up_ms": 5}, "rtt_ms"),
        ({"rtt_ms": "fast"}, "rtt_ms"),
        ({"rtt_ms": 20, "colour": "red"}, "colour"),
        ({"rtt_ms": 4, "jitter": "uniform", "jitter_ms": 3}, "jitter_ms"),
        ({"rtt_ms": 4, "jitter_ms": 1}, "jitter_ms"),
        ({"up_mbit": 0}, "up_mbit"),
        ({"loss_probability": 1.0, "loss_stall_ms": 1}, "loss_probability"),
        ({"loss_probability": 0.1}, "loss_stall_ms"),
        ({"up_ms": float("nan")}, "up_ms"),
        ({"stalls": [{"at_s": 1, "length_ms": 2000, "every_s": 1}]}, "every_s"),
        ({"stalls": [{"at_s": 1}]}, "length_ms"),
        ({"cuts": [{"at_s": 1, "kind": "axe"}]}, "kind"),
        ({"trace": [[0, 1], [0, 2]]}, "trace"),
        ({"trace": [[0, 1], [1, -2]]}, "trace"),
        ({"trace": [[0, 1], [float("nan"), 2]]}, "trace"),
        ({"trace": [[0, 1], [float("inf"), 2]]}, "trace"),
        ({"trace": [[0, 1], [1, 1e308]]}, "trace"),
        ({"rtt_ms": 1e308}, "rtt_ms"),
        ({"rtt_ms": 10**400}, "rtt_ms"),
        ({"rtt_ms": True}, "rtt_ms"),
        ({"rtt_ms": float("nan")}, "rtt_ms"),
        ({"up_ms": True}, "up_ms"),
        ({"up_ms": "5"}, "up_ms"),
        ({"overhead_bytes": "5"}, "overhead_bytes"),
        ({"jitter_slot_ms": 5e-324}, "jitter_slot_ms"),
        ({"up_mbit": 5e-324}, "up_mbit"),
    ],
)
def test_an_impossible_link_is_refused_by_key(options: dict[str, Any], key: str) -> None:
    with refused(Reason.USAGE, "somewhere", key):
        make_link_profile(options, "somewhere")


def test_the_steady_part_keeps_delays_and_rates_only() -> None:
    rough = ROUGH.model_copy(update={"cuts": (Cut(at_s=1),)})
    assert rough.steady() == LinkProfile.of_rtt(40, up_mbit=5, down_mbit=20)
