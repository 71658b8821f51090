"""Hardware profiles: what ships is whole and sourced, the formulas hold, and bad files are refused by place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from outrider.harness.profiles import DrafterProfile, load_drafters, load_links, load_targets, pick
from outrider.shared.errors import Reason
from support.refusal import refused

GOOD = """
[mine]
description = "a target"
base_ms = { value = 30, source = "measured" }
row_ms = { value = 0.2, source = "measured" }
free_rows = { value = 64, source = "assumption: half" }
session_ms = { value = 0, source = "measured" }
"""


def test_what_ships_is_whole_and_every_value_has_a_source() -> None:
    assert list(load_targets()) == ["70b-4xa100-40ms", "70b-4xa100-25ms", "70b-4xa100-limit", "1.5b-on-4xa100"]
    assert {"phone-7b", "phone-1.5b", "laptop-7b", "laptop-1.5b", "desktop-7b", "desktop-1.5b", "lookup"} == set(
        load_drafters()
    )
    rtts_ms = {name: link.values.rtt_ms for name, link in load_links().items()}
    assert rtts_ms == {
        "steady": 20, "loopback": 0.1, "wifi": 5, "5g": 20, "4g": 60, "intercontinental": 150, "satellite": 600,
    }  # fmt: skip
    for profiles in (load_targets(), load_drafters(), load_links()):
        for profile in profiles.values():
            given = profile.values.model_fields_set - {"up_ms", "down_ms"} | (
                {"rtt_ms"} if "up_ms" in profile.values.model_fields_set else set()
            )
            assert set(profile.sources) == given, profile.name


def test_a_pass_is_free_of_rows_up_to_a_bound_and_pays_for_sessions() -> None:
    target = pick(load_targets(), "70b-4xa100-25ms").values
    assert target.pass_ms(1) == target.pass_ms(90) == 25
    assert target.pass_ms(190) == pytest.approx(25 + 100 * 0.19)
    assert target.pass_ms(50, sessions=50) == pytest.approx(25 + 49 * 0.04)
    limit = pick(load_targets(), "70b-4xa100-limit").values
    assert [limit.pass_ms(rows) for rows in (1, 400)] == pytest.approx([17.2, 400 * 0.19], abs=0.15), "a roofline"


def test_a_phone_slows_down_to_its_share_of_speed() -> None:
    phone = pick(load_drafters(), "phone-1.5b").values
    steps_ms = [phone.draft_ms(1, busy_s) for busy_s in (0, 60, 150, 240, 3600)]
    assert steps_ms == pytest.approx([36.6, 36.6, 36.6 / 0.8, 36.6 / 0.6, 36.6 / 0.6])
    assert phone.draft_ms(101, 240) == pytest.approx((36.6 + 100 * 5) / 0.6), "a prompt"
    assert DrafterProfile(token_ms=8, prompt_token_ms=1).draft_ms(1, 3600) == 8


def test_assumptions_are_told_apart() -> None:
    phone = pick(load_drafters(), "phone-1.5b")
    assert "token_ms" not in phone.assumptions
    assert "prompt_token_ms" in phone.assumptions


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (lambda text: text.replace("row_ms", "rowms"), ("mine", "row_ms", "rowms")),
        (lambda text: text.replace('base_ms = { value = 30, source = "measured" }', ""), ("mine", "base_ms")),
        (lambda text: text.replace("value = 30", "value = -30"), ("base_ms", "-30")),
        (lambda text: text.replace('{ value = 30, source = "measured" }', "30"), ("base_ms", "source")),
        (lambda text: text.replace('30, source = "measured"', '30, source = " "'), ("base_ms", "source")),
        (lambda text: text.replace('30, source = "measured"', "30, source = 5"), ("base_ms", "source")),
        (lambda text: text.replace("value = 30", 'value = 30, unit = "ms"'), ("base_ms", "source")),
        (lambda text: text.replace(', source = "measured"', ""), ("base_ms", "source")),
        (lambda text: text.replace("description", "#"), ("mine", "description")),
        (lambda text: text + "[", ("mine.toml",)),
        (lambda text: "speed = 1\n" + text, ("speed", "table")),
    ],
)
def test_a_bad_file_is_refused_with_file_key_and_reason(
    tmp_path: Path, change: Callable[[str], str], parts: tuple[str, ...]
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    assert load_targets(path)["mine"].values.pass_ms(65) == pytest.approx(30.2)
    path.write_text(change(GOOD))
    with refused(Reason.USAGE, str(path), *parts):
        load_targets(path)


def test_a_missing_file_and_an_unknown_name_are_refused(tmp_path: Path) -> None:
    with refused(Reason.USAGE, "none.toml"):
        load_targets(tmp_path / "none.toml")
    with refused(Reason.USAGE, "'6g'", "5g"):
        pick(load_links(), "6g")


def test_throttling_without_its_times_is_refused(tmp_path: Path) -> None:
    values: dict[str, Any] = {"token_ms": 8, "prompt_token_ms": 1, "throttle_loss": 0.4}
    path = tmp_path / "d.toml"
    path.write_text(
        '[d]\ndescription = "d"\n' + "".join(f'{k} = {{ value = {v}, source = "s" }}\n' for k, v in values.items())
    )
    with refused(Reason.USAGE, "throttle_full_s"):
        load_drafters(path)


def test_a_link_reads_its_trace_from_beside_its_file(tmp_path: Path) -> None:
    (tmp_path / "walk.csv").write_text("time_s,rtt_ms\n0,40\n10,60\n")
    path = tmp_path / "links.toml"
    path.write_text('[walk]\ndescription = "w"\ntrace = { value = "walk.csv", source = "recorded" }\n')
    assert load_links(path)["walk"].values.rtt_ms == 50
    path.write_text('[walk]\ndescription = "w"\ntrace = { value = "no.csv", source = "recorded" }\n')
    with refused(Reason.USAGE, "no.csv"):
        load_links(path)
