"""Scenario files: options over them, profiles by name or as tables, and refusals that name file, key and reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from outrider.harness.recording.store import read_recording, write_recording
from outrider.harness.simulation.scenario import changed, read_scenario, resolve, shipped_recordings
from outrider.harness.simulation.simulate import clock_of, on_virtual_clock, settings_of
from outrider.shared.errors import OutriderError, Reason
from support.refusal import refused


def write(folder: Path, text: str) -> Path:
    path = folder / "scenario.toml"
    path.write_text(text, "utf-8")
    return path


def copy_recording(source: str, folder: Path, **header: Any) -> None:
    recording = read_recording(shipped_recordings("greedy") / f"{source}.npz")
    recording = type(recording)(
        recording.header.model_copy(update=header),
        recording.prompt_ids,
        recording.answer_ids,
        recording.draft,
        recording.target,
        recording.branches,
    )
    write_recording(recording, folder / f"{source}.npz")


def test_options_change_single_values_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, 'target = "70b-4xa100-25ms"\nrtt_ms = 60\ncategory = ["code"]\ngamma = 3\n')
    scenario = read_scenario(path, {"rtt_ms": 20.0, "sessions": 2})
    setup = resolve(scenario)
    assert (setup.target.base_ms, setup.link.rtt_ms, setup.sessions, setup.drafting.gamma) == (25, 20, 2, 3)
    assert {recording.header.category for recording in setup.recordings} == {"code"}


def test_single_times_are_put_into_profiles() -> None:
    setup = resolve(
        read_scenario(None, {"target_ms": 33.0, "draft_ms": 16.0, "rtt_ms": 50.0, "link": "5g", "limit": 1})
    )
    assert setup.target.base_ms == 33
    assert setup.device.token_ms == 16
    assert setup.device.prompt_token_ms == pytest.approx(1.4)
    assert (setup.link.rtt_ms, setup.link.jitter, setup.link.up_mbit) == (50, "exponential", 20)


def test_profiles_may_be_tables_or_files_of_ones_own(tmp_path: Path) -> None:
    profiles = tmp_path / "mine"
    profiles.mkdir()
    (profiles / "drafters.toml").write_text(
        '[watch]\ndescription = "a watch"\n'
        'token_ms = { value = 200, source = "measured" }\nprompt_token_ms = { value = 20, source = "measured" }\n'
    )
    path = write(
        tmp_path,
        'profiles = "mine"\ndevice = "watch"\nlimit = 1\n'
        "[target]\nbase_ms = 12\nrow_ms = 0.1\nfree_rows = 32\nsession_ms = 0\n"
        "[link]\nrtt_ms = 7\nup_mbit = 1\n",
    )
    setup = resolve(read_scenario(path, {}))
    assert (setup.device.token_ms, setup.target.base_ms) == (200, 12)
    assert (setup.link.rtt_ms, setup.link.up_mbit) == (7, 1)


def test_a_recorded_trace_stands_in_for_the_delay(tmp_path: Path) -> None:
    (tmp_path / "walk.csv").write_text("time_s,rtt_ms\n0,10\n5,90\n10,10\n")
    setup = resolve(read_scenario(write(tmp_path, 'trace = "walk.csv"\nlimit = 1\n'), {}))
    assert setup.link.rtt_ms == 50
    with refused(Reason.USAGE, "rtt_ms beside a trace"):
        resolve(read_scenario(write(tmp_path, 'trace = "walk.csv"\nrtt_ms = 5\n'), {}))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("gama = 5", ("scenario.toml", "gama", "Extra inputs")),
        ("rtt_ms = -20", ("scenario.toml", "rtt_ms = -20", "greater than or equal to 0")),
        ("draft_ms = nan", ("scenario.toml", "draft_ms")),
        ("target_ms = 0", ("scenario.toml", "target_ms = 0", "greater than 0")),
        ('sessions = "many"', ("scenario.toml", "sessions = 'many'")),
        ("sessions = 0", ("scenario.toml", "sessions = 0")),
        ('pace = "hasty"', ("scenario.toml", "pace = 'hasty'")),
        ('baselines = ["luck"]', ("scenario.toml", "luck")),
        ("[target]\nbase_ms = 40", ("scenario.toml", "target", "row_ms", "Field required")),
        ("[link]\nup_ms = -1", ("scenario.toml", "link", "up_ms = -1")),
        ("[link]\njitters = 1", ("scenario.toml", "link", "jitters")),
        ("target = 40", ("scenario.toml", "target = 40")),
        ("rtt_ms = ", ("scenario.toml", "Invalid value")),
        ("sessions = true", ("scenario.toml", "sessions = True", "valid integer")),
        ('sessions = "4"', ("scenario.toml", "sessions = '4'", "valid integer")),
        ("sessions = 1001", ("scenario.toml", "sessions = 1001", "less than or equal to 1000")),
        ("rtt_ms = true", ("scenario.toml", "rtt_ms = True", "valid number")),
        ("rtt_ms = 1e308", ("scenario.toml", "rtt_ms = 1e+308", "less than or equal to 3600000")),
        ("target_ms = 1e308", ("scenario.toml", "target_ms = 1e+308")),
        ('draft_ms = "8"', ("scenario.toml", "draft_ms = '8'")),
        ("[link]\nrtt_ms = true", ("scenario.toml", "link", "rtt_ms = True")),
        ("[link]\nrtt_ms = 0x" + 6000 * "f", ("scenario.toml", "link", "a very long int")),
        ('[link]\nup_mbit = "5"', ("scenario.toml", "link", "up_mbit = '5'")),
        ("[device]\ntoken_ms = false\nprompt_token_ms = 1", ("scenario.toml", "device", "token_ms = False")),
        ("seed = " + 6000 * "9", ("scenario.toml", "digits")),
        ("seed = 0x" + 6000 * "f", ("scenario.toml", "seed", "a very long int")),
        ("seed = " + 5000 * "[" + 5000 * "]", ("scenario.toml", "nested too deeply")),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, text: str, parts: tuple[str, ...]) -> None:
    with refused(Reason.USAGE, *parts):
        read_scenario(write(tmp_path, text), {})


def test_what_is_wrong_in_an_option_is_not_said_of_the_file(tmp_path: Path) -> None:
    with refused(Reason.USAGE, "option: rtt_ms = -1"):
        read_scenario(write(tmp_path, "rtt_ms = 3"), {"rtt_ms": -1.0})
    with refused(Reason.USAGE, "option: gamma = 0"):
        changed(read_scenario(None, {}), {"gamma": 0})


@pytest.mark.parametrize("key", ["target", "device", "link", "cloud_drafter"])
def test_a_profile_that_does_not_exist_is_refused_with_those_that_do(key: str) -> None:
    with refused(Reason.USAGE, "'nowhere'", "there are"):
        resolve(read_scenario(None, {key: "nowhere", "limit": 1}))


def test_a_device_without_a_model_only_looks_up() -> None:
    with refused(Reason.USAGE, "device = 'lookup' has no model", "set drafter = 'lookup'"):
        resolve(read_scenario(None, {"device": "lookup", "limit": 1}))
    setup = resolve(read_scenario(None, {"device": "lookup", "drafter": "lookup", "limit": 1}))
    assert setup.device.token_ms == 0


def test_a_profile_without_a_number_it_needs_is_refused_with_file_and_key(tmp_path: Path) -> None:
    (tmp_path / "targets.toml").write_text('[t]\ndescription = "x"\nbase_ms = { value = 1, source = "s" }\n')
    with refused(Reason.USAGE, str(tmp_path / "targets.toml"), "row_ms", "Field required"):
        resolve(read_scenario(None, {"profiles": str(tmp_path), "target": "t"}))
    with refused(Reason.USAGE, "profiles", "no such folder"):
        resolve(read_scenario(None, {"profiles": str(tmp_path / "missing")}))


def test_recordings_of_another_model_are_refused(tmp_path: Path) -> None:
    with refused(Reason.FILE_UNREADABLE, "target model qwen2.5-coder-1.5b, expected llama"):
        resolve(read_scenario(None, {"target_model": "llama"}))
    copy_recording("code-01", tmp_path)
    draft = read_recording(tmp_path / "code-01.npz").header.draft
    copy_recording("code-02", tmp_path, draft=draft.model_copy(update={"name": "another"}))
    with refused(Reason.FILE_UNREADABLE, "code-02", "differ in draft"):
        resolve(read_scenario(None, {"recordings": str(tmp_path)}))


def test_recordings_of_another_version_cut_short_or_missing_are_refused(tmp_path: Path) -> None:
    copy_recording("code-01", tmp_path, version=2)
    with refused(Reason.FILE_UNREADABLE, "code-01.npz", "recording version 2, this program reads 1"):
        resolve(read_scenario(None, {"recordings": str(tmp_path)}))
    path = tmp_path / "code-01.npz"
    copy_recording("code-01", tmp_path)
    path.write_bytes(path.read_bytes()[:-200])
    with refused(Reason.FILE_UNREADABLE, "code-01.npz", "cut short"):
        resolve(read_scenario(None, {"recordings": str(tmp_path)}))
    with refused(Reason.FILE_UNREADABLE, "no recording of prompt nobody"):
        resolve(read_scenario(None, {"prompts": ("nobody",)}))
    with refused(Reason.FILE_UNREADABLE, "no recording of category cooking"):
        resolve(read_scenario(None, {"category": ("cooking",)}))
    with refused(Reason.FILE_UNREADABLE, "no such folder"):
        resolve(read_scenario(None, {"recordings": str(tmp_path / "nothing")}))


def test_whole_numbers_are_numbers(tmp_path: Path) -> None:
    scenario = read_scenario(write(tmp_path, "rtt_ms = 20\ndraft_ms = 8\n[link]\nup_ms = 1\nup_mbit = 5\n"), {})
    assert (scenario.rtt_ms, scenario.draft_ms) == (20.0, 8.0)


def test_a_byte_order_mark_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "links.toml").write_text(
        '\ufeff[far]\ndescription = "far"\nup_ms = { value = 9, source = "s" }\n', "utf-8"
    )
    path = write(tmp_path, '\ufeffprofiles = "."\nlink = "far"\nlimit = 1\n')
    assert resolve(read_scenario(path, {})).link.up_ms == 9


def test_a_links_table_may_name_its_trace(tmp_path: Path) -> None:
    (tmp_path / "walk.csv").write_text("time_s,rtt_ms\n0,10\n5,90\n10,10\n")
    path = write(tmp_path, 'limit = 1\n[link]\ntrace = "walk.csv"\njitter = "uniform"\njitter_ms = 2\n')
    link = resolve(read_scenario(path, {})).link
    assert (link.rtt_ms, link.jitter_ms) == (50, 2)
    with refused(Reason.USAGE, "none.csv"):
        read_scenario(write(tmp_path, '[link]\ntrace = "none.csv"\n'), {})


def test_errors_do_not_repeat_what_is_long(tmp_path: Path) -> None:
    text = "[link]\ntrace = [" + ", ".join(f"[{n}, -1]" for n in range(2000)) + "]\n"
    with pytest.raises(OutriderError) as caught:
        read_scenario(write(tmp_path, text), {})
    assert "link.trace.0.1 = -1" in caught.value.detail
    assert "1995 more problems" in caught.value.detail
    assert len(caught.value.detail) < 1500
    with pytest.raises(OutriderError) as caught:
        read_scenario(
            write(tmp_path, f'link = {{ trace = [[0, 1], [1, "{5000 * "x"}"]], jitter = "{5000 * "y"}" }}'), {}
        )
    assert len(caught.value.detail) < 1000


def test_settings_tell_of_a_trace_what_it_takes_to_know_it_again(tmp_path: Path) -> None:
    (tmp_path / "walk.csv").write_text("time_s,rtt_ms\n" + "".join(f"{n},{n % 7}\n" for n in range(3000)))
    scenario = read_scenario(write(tmp_path, 'trace = "walk.csv"\nlimit = 1\n'), {})
    setup = resolve(scenario)
    settings = settings_of(scenario, setup)
    trace = settings["link"]["trace"]
    assert (trace["path"], trace["points"], len(trace["sha256"])) == (str(tmp_path / "walk.csv"), 3000, 64)
    assert len(json.dumps(settings)) < 5000


def test_on_the_virtual_clock_nothing_is_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    def probed() -> tuple[str, ...]:
        raise AssertionError("probed")

    monkeypatch.setattr("outrider.harness.netem.missing", probed)
    for emulator in ("proxy", "auto"):
        scenario = read_scenario(None, {"emulator": emulator, "limit": 1})
        assert clock_of(scenario, resolve(scenario)) is on_virtual_clock
    scenario = read_scenario(None, {"emulator": "netem", "limit": 1})
    with refused(Reason.USAGE, "on the virtual clock nothing is emulated"):
        clock_of(scenario, resolve(scenario))
