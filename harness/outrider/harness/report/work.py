"""What a token takes: passes of the target, guesses that it accepts, bytes, and money."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from outrider.harness.report.bar_chart import bar_chart
from outrider.harness.report.compare import Spread, figures, money_per_million, tokens_per_pass, weigh
from outrider.harness.report.groups import Group
from outrider.harness.report.parts import Figure, LegendItem, Section, Table, legend
from outrider.harness.report.svg import swatch
from outrider.harness.report.view import View, dot_figure, per_token_column
from outrider.harness.report.words import (
    DRAFT_ONLY,
    PRODUCT,
    SERIES,
    STOP_AND_WAIT,
    STREAMING,
    number,
)

MAX_HISTOGRAMS = 6
# Bars of a histogram; what lies beyond the last shares its bar.
MAX_BARS = 12
RANGE_NOTE = (
    "A mark is the figure over all cells of a group, weighed by tokens; the line through it reaches from its lowest to "
    "its highest cell."
)
# The device drafts in these; in the others it only shows what arrives.
DRAFTING_DEVICE = (PRODUCT, STOP_AND_WAIT, "rtt_zero", "oracle", DRAFT_ONLY)


def passes(view: View) -> Section:
    """Tokens per pass of the target, and how many guesses its passes accepted."""
    groups = view.groups("rtt_ms")
    names = [name for name in (PRODUCT, STOP_AND_WAIT) if name in view.series]
    columns = {name: _tokens_per_pass_column(name) for name in names}
    figure, left_out = dot_figure(view, groups, "Tokens per pass", "tokens per pass", columns, legend(names, "mark"))
    kept, histograms_left_out = view.shown(groups, MAX_HISTOGRAMS)
    lead = ["A pass of plain streaming yields one token.", RANGE_NOTE, *left_out]
    if histograms_left_out:
        lead.append(
            f"Guesses accepted are drawn for {len(kept)} of {len(groups)} groups, chosen likewise; "
            "the others are in the sweep file."
        )
    drawn = [_histogram(group, names) for group in kept]
    return Section("passes", "Tokens per pass", tuple(lead), (figure, *drawn))


def _tokens_per_pass_column(series: str) -> Callable[[Group], Spread | None]:
    return lambda group: tokens_per_pass(group.rows, series)


def _histogram(group: Group, names: Sequence[str]) -> Figure:
    title = f"Guesses accepted by a pass: {group.label}"
    totals = {name: total for name in names if sum(total := _summed(group, name))}
    longest = max(map(len, totals.values()), default=0)
    table = Table(
        title,
        ("accepted", *(f"{SERIES[name]}, passes" for name in totals)),
        tuple(
            (str(index), *(f"{total[index]:,}" if index < len(total) else "0" for total in totals.values()))
            for index in range(longest)
        ),
    )
    if not totals:
        return Figure(title, (), (), table, "No pass was counted.")
    bars = min(longest, MAX_BARS)
    labels = [str(index) for index in range(bars)]
    if longest > bars:
        labels[-1] += "+"
    shares = {name: _shares(total, bars) for name, total in totals.items()}
    label = f"Share of passes by guesses accepted, {group.label}; the table below holds the numbers."
    drawing = bar_chart(label, "guesses accepted", "% of passes", labels, shares)
    return Figure(title, (drawing,), legend(list(totals), "bar"), table)


def _summed(group: Group, series: str) -> list[int]:
    """The histogram over all cells of a group."""
    found = [entry.accepted_histogram for row in group.rows if (entry := figures(row, series)) is not None]
    length = max(map(len, found), default=0)
    return [sum(histogram[index] for histogram in found if index < len(histogram)) for index in range(length)]


def _shares(total: Sequence[int], bars: int) -> list[float]:
    """Percent of passes a bar; the last takes what lies beyond."""
    heads = [*total[: bars - 1], sum(total[bars - 1 :])] if len(total) >= bars else [*total]
    return [100 * head / sum(total) for head in heads] + [0.0] * (bars - len(heads))


def traffic(view: View) -> Section:
    """Bytes that travel for each token."""
    names = {"up": "up", "down": "down", "streaming": "down, plain streaming"}
    columns = {
        "up": per_token_column(PRODUCT, "bytes_up_per_token"),
        "down": per_token_column(PRODUCT, "bytes_down_per_token"),
        "streaming": per_token_column(STREAMING, "bytes_down_per_token"),
    }
    if STREAMING not in view.series:
        del columns["streaming"]
    items = [LegendItem(swatch(key, "mark"), names[key]) for key in columns]
    figure, left_out = dot_figure(
        view, view.groups("rtt_ms"), "Bytes per token", "bytes per token", columns, items, series_names=names
    )
    lead = ("Serialised messages of the protocol, without what HTTP/2 and below add.", RANGE_NOTE, *left_out)
    return Section("traffic", "Bytes per token", lead, (figure,))


def money(view: View, accelerator_price: float, device_price: float) -> Section:
    """What a million tokens cost at prices per hour."""
    unit = "money per million tokens"

    def column(series: str) -> Callable[[Group], Spread | None]:
        return lambda group: _money(group, series, accelerator_price, device_price)

    columns = {name: column(name) for name in view.series}
    figure, left_out = dot_figure(
        view, view.groups("rtt_ms"), "Money per million tokens", unit, columns, legend(view.series, "mark")
    )
    example = money_per_million(accelerator_price, 10)
    lead = [
        f"An accelerator at {number(accelerator_price)} an hour, in whatever currency: price per hour × accelerator ms "
        "per token ÷ 3,600,000 ms per hour × 1,000,000 tokens. "
        f"Ten accelerator milliseconds a token cost {number(example)}.",
    ]
    if device_price:
        drafting = ", ".join(SERIES[name] for name in DRAFTING_DEVICE if name in view.series)
        lead.append(
            f"A device at {number(device_price)} an hour is added where it drafts ({drafting}), for the whole time of "
            "the answer: device price per hour × ms per token ÷ 3,600,000 × 1,000,000."
        )
    lead += [sentence for sentence in (view.solo_words, RANGE_NOTE, *left_out) if sentence]
    return Section("money", "Money", tuple(lead), (figure,))


def _money(group: Group, series: str, accelerator_price: float, device_price: float) -> Spread | None:
    priced: list[tuple[float, int]] = []
    for row in group.rows:
        found = figures(row, series)
        if found is None or found.accelerator_ms_per_token is None or not found.tokens:
            continue
        cost = money_per_million(accelerator_price, found.accelerator_ms_per_token)
        if device_price and series in DRAFTING_DEVICE:
            if found.ms_per_token is None:
                continue
            cost += money_per_million(device_price, found.ms_per_token)
        priced.append((cost, found.tokens))
    return weigh(priced)
