"""The page as a whole: well-formed, self-contained, escaped, complete, and the same for the same input."""

from __future__ import annotations

import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from outrider.shared import cli
from unit.harness_report.sample_sweep import HEADER, Json, figures, grid, timeline, write_sweep

VOID = {"meta", "link", "br", "img", "input", "hr"}
NBSP = "\N{NO-BREAK SPACE}"
EVIL = "<script>alert('1')</script>\"'&"
Capture = pytest.CaptureFixture[str]


class Page(HTMLParser):
    """What a page says, with a check that every element is closed where it must be."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.source = text
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), (tag, names)
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> without a start"
        assert self.open.pop() == tag, (tag, self.open, self.getpos())

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"[ \n]+", " ", " ".join(self.words)).replace(NBSP, " ")

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)

    def cells(self) -> list[str]:
        """Texts of table cells, in order."""
        return [word.strip() for word in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", self.source, re.DOTALL)]


def make(tmp_path: Path, lines: list[Json], *arguments: str, header: Json = HEADER) -> Page:
    sweep = write_sweep(tmp_path / "sweep.jsonl", lines, header)
    out = tmp_path / "report.html"
    assert cli.main(["report", str(sweep), "--out", str(out), *arguments]) == 0
    return Page(out.read_text("utf-8"))


def write_timeline(tmp_path: Path, content: Json) -> str:
    path = tmp_path / "timeline.json"
    path.write_text(json.dumps(content), "utf-8")
    return str(path)


FULL = grid(rtt_ms=(5, 40, 150), draft_ms=(4, 8), target_ms=(25,), sessions=(1, 4))


def test_a_full_page_is_well_formed_and_accessible(tmp_path: Path) -> None:
    page = make(tmp_path, FULL, "--timeline", write_timeline(tmp_path, timeline()))
    assert page.source.lstrip().startswith("<!DOCTYPE html>")
    by_tag = dict(page.elements)
    assert by_tag["html"]["lang"] == "en"
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in page.elements
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert max(Counter(ids).values()) == 1
    links = [attrs["href"] for tag, attrs in page.elements if tag == "a"]
    assert links
    assert all(link and link.removeprefix("#") in ids for link in links)
    drawings = [attrs for tag, attrs in page.elements if tag == "svg"]
    assert all(a.get("aria-hidden") == "true" or (a["role"] == "img" and a["aria-label"]) for a in drawings)
    assert page.count("figure") == page.count("figcaption") == page.count("details") > 8
    assert page.count("main") == page.count("h1") == 1
    assert page.count("table") == page.count("caption")
    assert all(attrs.get("scope") in {"row", "col"} for tag, attrs in page.elements if tag == "th")


def test_nothing_is_loaded_and_nothing_runs(tmp_path: Path) -> None:
    page = make(tmp_path, FULL, "--timeline", write_timeline(tmp_path, timeline()))
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form"} & {t for t, _ in page.elements}
    for _, attrs in page.elements:
        assert not {name for name in attrs if name.startswith("on") or name in {"src", "srcset", "style", "xlink:href"}}
        assert (attrs.get("href") or "#").startswith("#")
    assert not re.search(r"https?:|//[a-z]|url\(|@import|@font-face", page.source)


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    assert make(tmp_path, FULL).source == make(tmp_path, FULL).source


def test_numbers_of_the_input_are_on_the_page(tmp_path: Path) -> None:
    (line,) = grid(rtt_ms=(20,))
    line["result"] |= {
        "ms_per_token": 17.31, "ttft_ms": 171.9, "gap_ms": {"p50": 51.07, "p95": 61.07, "p99": 71.07},
        "passes_per_token": 0.2131, "tokens_per_pass": 4.693, "target_ms_per_token": 8.524,
        "accelerator_ms_per_token": 8.613, "draft_ms_wasted_per_token": 3.219, "bytes_up_per_token": 7.347,
        "bytes_down_per_token": 12.81, "alpha": 0.7654, "answers": 31, "tokens": 4321,
        "accepted_histogram": [911, 822, 733],
    }  # fmt: skip
    line["result"]["baselines"]["oracle"]["ms_per_token"] = 9.137
    cells = make(tmp_path, [line]).cells()
    for text in (
        "17.31", "171.9", "51.07", "61.07", "71.07", "0.2131", "4.693", "8.524", "8.613", "3.219", "7.347", "12.81",
        "0.7654", "31", "4,321", "911", "822", "733", "9.137",
    ):  # fmt: skip
        assert text in cells, text


def test_texts_of_the_files_are_escaped(tmp_path: Path) -> None:
    lines = grid(rtt_ms=(5, 40))
    for line in lines:
        line["cell"]["device"] = EVIL
        line["cell"][EVIL] = EVIL
        line["result"]["settings"] |= {EVIL: EVIL, "clock": EVIL, "seed": [EVIL]}
        line["result"]["baselines"]["stop_and_wait"]["settings"]["gamma"] = EVIL
    lines[1]["cell"]["device"] = f"{EVIL} 2"
    events = timeline(200) | {"prompt_id": EVIL, "settings": {EVIL: EVIL}}
    events["commits"][0]["tokens"] = [EVIL]
    header = {**HEADER, "scenario": {EVIL: EVIL}, "note": EVIL}
    arguments = ["--timeline", write_timeline(tmp_path, events), "--title", EVIL]
    page = make(tmp_path, lines, *arguments, header=header)
    assert "<script" not in page.source
    assert page.count("script") == 0
    assert page.text.count("<script>alert('1')</script>") > 15
    assert not any("alert" in name for _, attrs in page.elements for name in attrs)


def test_the_summary_says_where_splitting_wins(tmp_path: Path) -> None:
    def cell(rtt_ms: float, ms: float, streaming: float | None = 40.0) -> Json:
        baselines = {"streaming": figures(streaming, 40.0, 1.0), "colocated": figures(16.0, 12.0, 3.0)}
        return {"cell": {"rtt_ms": rtt_ms}, "result": {**figures(ms, 10.0, 4.0), "baselines": baselines}}

    page = make(tmp_path, [cell(5, 20.0), cell(50, 30.0), cell(80, 60.0), cell(90, 70.0, None)])
    assert (
        "Of 3 cells, splitting beats plain streaming in 2 and loses in 1. Best: 2.00× its speed at RTT 5 ms. "
        "Worst: 0.67× its speed at RTT 80 ms. Up to 50 ms of round trip all cells win, from 80 ms on none does. "
        "1 cell cannot be compared"
    ) in page.text
    assert "Splitting loses to co-located drafting in all 4 cells. Best: 0.80× its speed at RTT 5 ms." in page.text
    assert "A token takes 25% of the accelerator time that it takes with the target alone (streaming)." in page.text
    # From 30 at 50 ms to 60 at 80 ms: 40 is reached after a third.
    assert "60" in page.cells()
    assert "faster 5 to 60 ms; slower 60 to 80 ms" in page.text
    assert "As fast as streaming at 60 ms." in page.source


def test_an_empty_sweep_says_so(tmp_path: Path) -> None:
    page = make(tmp_path, [])
    assert "The sweep holds no cells" in page.text
    assert "No timeline was given" in page.text
    assert page.count("figure") == 0
    assert "custom" in page.cells()


def test_one_cell_has_a_page_without_lines(tmp_path: Path) -> None:
    page = make(tmp_path, grid(rtt_ms=(20,)))
    assert "The sweep holds 1 cell." in page.text
    assert "Splitting is 2.54× as fast as plain streaming." in page.text
    assert page.count("polyline") == 0
    assert "No cells differ in their number of sessions only." in page.text


def test_a_single_round_trip_time_is_drawn_as_dots(tmp_path: Path) -> None:
    page = make(tmp_path, grid(draft_ms=(4, 8)))
    assert page.count("polyline") == 0
    assert "Where a group has one round trip time only" in page.text
    assert "draft 4 ms" in page.text


def test_an_axis_that_nobody_knew_is_named(tmp_path: Path) -> None:
    lines = grid(rtt_ms=(5, 40)) + grid(rtt_ms=(5, 40))
    for index, line in enumerate(lines):
        line["cell"]["weather"] = "rain" if index < 2 else "sun"
    assert "weather rain" in make(tmp_path, lines).text


def test_measures_without_meaning_are_dashes(tmp_path: Path) -> None:
    nothing = figures(None, 0.0, None, passes_per_token=None, accelerator_ms_per_token=None, alpha=None)
    nothing |= {"target_ms_per_token": None, "bytes_up_per_token": None, "bytes_down_per_token": None}
    nothing |= {"ttft_ms": None, "draft_ms_wasted_per_token": None, "accepted_histogram": [], "tokens": 0}
    result = {**nothing, "baselines": {"streaming": nothing, "colocated": nothing}}
    lines = [{"cell": {"rtt_ms": rtt, "sessions": s}, "result": result} for rtt in (5, 20) for s in (1, 4)]
    page = make(tmp_path, lines)
    assert "No cell has a speed of plain streaming to compare with." in page.text
    assert "No cell of this group has a time per token." in page.text
    assert "No pass was counted." in page.text
    assert page.cells().count("–") > 20
    assert "None" not in page.text
    assert "nan" not in page.text


def test_what_is_left_out_of_drawings_is_said_and_stands_in_tables(tmp_path: Path) -> None:
    drafts = tuple(range(1, 21))
    page = make(tmp_path, grid(rtt_ms=(5, 40), draft_ms=drafts))
    assert "Drawn are the 12 of 20 groups that are nearest to the base scenario" in page.text
    assert "; 8 more are in the tables of numbers only." in page.text
    assert "Drawn are the 16 of 20 groups" in page.text
    assert "Guesses accepted are drawn for 6 of 20 groups" in page.text
    assert page.count("polyline") == 12 * 8
    table = page.source.split("Milliseconds per token of all groups")[2].split("</table>")[0]
    assert table.count("<tr>") == 1 + 2 * 20


def test_the_text_of_the_draft_alone_is_never_passed_off_as_the_targets(tmp_path: Path) -> None:
    page = make(tmp_path, FULL)
    figures_of_page = re.findall(r"<figure.*?</figure>", page.source, re.DOTALL)
    named = [part for part in figures_of_page if "draft alone*" in part]
    assert len(named) >= 4
    assert all("is not the target" in part for part in named)
    without = [{**line, "result": {**line["result"], "baselines": {}}} for line in FULL]
    assert "draft alone" not in make(tmp_path, without).text


def test_money_follows_the_formula(tmp_path: Path) -> None:
    (line,) = grid(rtt_ms=(20,))
    line["result"] |= {"accelerator_ms_per_token": 9.0, "ms_per_token": 18.0}
    page = make(tmp_path, [line], "--accelerator-price-per-hour", "16", "--draft-price", "0.5")
    money = page.source.split("<caption>Money per million tokens")[1].split("</table>")[0]
    # 16 × 9 ÷ 3.6 and the device: 0.5 × 18 ÷ 3.6. Streaming takes 40 ms and no device.
    assert "<td>42.5</td><td>177.8</td>" in money
    assert "price per hour × accelerator ms per token ÷ 3,600,000 ms per hour × 1,000,000 tokens" in page.text
    plain = make(tmp_path, [line], "--accelerator-price-per-hour", "16")
    assert "<td>40</td><td>177.8</td>" in plain.source
    assert "A device at" not in plain.text


def test_ways_that_ran_alone_are_named_where_sessions_share(tmp_path: Path) -> None:
    lines = grid(sessions=(1, 4))
    for line in lines:
        line["result"]["baselines"]["streaming"]["sessions"] = 1
    sentence = "With one session alone, however many share the accelerator elsewhere: streaming."
    assert make(tmp_path, lines).text.count(sentence) == 3
    assert sentence not in make(tmp_path, lines[:1]).text


def test_accelerator_time_is_compared_under_the_same_load(tmp_path: Path) -> None:
    lines = grid(sessions=(1, 4))
    for line in lines:
        line["result"]["accelerator_ms_per_token"] = 10.0
        line["result"]["baselines"]["batched"]["accelerator_ms_per_token"] = 20.0 * line["cell"]["sessions"]
    assert "A token takes 12% to 50% of the accelerator time that it takes with the target alone (batched)" in (
        make(tmp_path, lines).text
    )


def test_sessions_are_drawn_where_they_vary(tmp_path: Path) -> None:
    page = make(tmp_path, grid(sessions=(1, 4, 16)))
    assert "Accelerator time per token against sessions" in page.source
    assert "Visible gaps, 95th percentile against sessions" in page.source


def test_only_the_first_part_of_a_long_timeline_is_drawn(tmp_path: Path) -> None:
    path = write_timeline(tmp_path, timeline(4000))
    page = make(tmp_path, [], "--timeline", path, "--timeline-ms", "400")
    assert "Shown are the first 400 of 4,000 ms" in page.text
    drawing = page.source.split("<figure")[1]
    assert drawing.count('<g class="s-pass">') == 1 + 4
    # Five passes: the one that a strip's end cuts is drawn in both.
    assert len(re.findall(r"<title>pass, 30 to 70 ms: 4 rows, 0 accepted</title>", drawing)) == 1
    assert "pass, 350 to 390 ms" in drawing
    assert "draft, 392" not in drawing
    assert "draft, 400 to 408 ms" not in drawing
    # Five rounds of 9 drafts, 4 flights and a pass; four commits of theirs come before the cut.
    assert "74 of 750 events" in page.text
    assert drawing.split("</figure>")[0].count("<tr>") == 1 + 74
    assert "1,500" not in page.text
    whole = make(tmp_path, [], "--timeline", path, "--timeline-ms", "5000")
    assert "Shown are the first" not in whole.text
    assert "4,000" in whole.text


def test_timeline_without_events_says_so(tmp_path: Path) -> None:
    content = timeline() | {"drafts": [], "flights": [], "passes": [], "commits": []}
    assert "The timeline holds no event." in make(tmp_path, [], "--timeline", write_timeline(tmp_path, content)).text


def test_how_it_was_made_is_told(tmp_path: Path) -> None:
    page = make(tmp_path, FULL, header={**HEADER, "command": "outrider sweep --fast"})
    for text in ("virtual", "outrider sweep --fast", "sweep.jsonl", "outrider-sweep, version 1", "varies", "greedy"):
        assert text in page.cells(), text
    assert re.search(r"report made by outrider \d", re.sub(r"\s+", " ", page.text))


def test_drawings_stay_inside_and_texts_fit(tmp_path: Path) -> None:
    lines = grid(rtt_ms=(1, 2, 3, 250), draft_ms=(4,), sessions=(1, 2, 3, 64))
    for line in lines:
        line["cell"]["device"] = "a device with a name that is far too long for the width of a telephone's screen"
    lines[0]["cell"]["device"] = "other"
    page = make(tmp_path, lines, "--timeline", write_timeline(tmp_path, timeline()))
    for tag, attrs in page.elements:
        for name in ("x", "x1", "x2", "cx") if tag in {"text", "line", "rect"} else ():
            assert 0 <= float(attrs.get(name) or 0) <= 340, (tag, attrs)
        if tag == "rect" and attrs["class"] == "bar":
            assert float(attrs["x"] or 0) + float(attrs["width"] or 0) <= 340
            assert float(attrs["height"] or 0) > 0
    titles = re.findall(r'class="halo">([^<]*)<title>', page.source)
    assert any(title.endswith("…") for title in titles)
    assert all(len(title) * 6.4 <= 340 for title in titles)


# -- the command -----------------------------------------------------------------------------------------------


def test_json_says_what_was_written(tmp_path: Path, capsys: Capture) -> None:
    page = make(tmp_path, FULL, "--json")
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert answer == {
        "out": str(tmp_path / "report.html"),
        "bytes": len(page.source.encode()),
        "cells": 12,
        "faster_than_streaming": 8,
        "faster_than_colocated": 4,
    }


def test_a_refused_file_leaves_no_page(tmp_path: Path, capsys: Capture) -> None:
    (line,) = grid(rtt_ms=(20,))
    del line["result"]["alpha"]
    sweep = write_sweep(tmp_path / "a.jsonl", [line])
    assert cli.main(["report", str(sweep), "--out", str(tmp_path / "a.html"), "--json"]) == 5
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["reason"] == "FILE_UNREADABLE"
    assert "line 2: result.alpha: Field required" in error["message"]
    assert not (tmp_path / "a.html").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--accelerator-price-per-hour", "-1"],
        ["--accelerator-price-per-hour", "nan"],
        ["--draft-price", "inf"],
        ["--timeline-ms", "0"],
        ["--timeline-ms", "nan"],
    ],
)
def test_prices_and_lengths_that_are_none_are_refused(tmp_path: Path, arguments: list[str], capsys: Capture) -> None:
    sweep = write_sweep(tmp_path / "a.jsonl", [])
    assert cli.main(["report", str(sweep), "--out", str(tmp_path / "a.html"), *arguments]) == 2
    assert arguments[0].strip("-") in capsys.readouterr().err
