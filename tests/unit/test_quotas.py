"""The operator's file of quotas: what it says for whom, and that what is wrong is named by file, key and value."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.cloud.principal import ANONYMOUS, Principal
from outrider.cloud.quotas import Quota, read_quotas
from outrider.shared.errors import Reason
from support.refusal import refused

GOOD = """
[default]
sessions = 2
live_nodes = 128

[principals.phone]
weight = 3
sessions = 4

[principals."CN=lab,O=University"]
tokens_per_s = 50
burst_tokens = 200.5
"""


def test_a_principal_has_what_its_section_says_and_the_rest_as_everybody(tmp_path: Path) -> None:
    path = tmp_path / "quotas.toml"
    path.write_text(GOOD)
    quotas = read_quotas(path)
    everybody = Quota(sessions=2, live_nodes=128)
    assert quotas.of(Principal("phone")) == Quota(weight=3, sessions=4, live_nodes=128)
    lab = Quota(sessions=2, live_nodes=128, tokens_per_s=50, burst_tokens=200.5)
    assert quotas.of(Principal("CN=lab,O=University")) == lab
    assert quotas.of(Principal("laptop")) == quotas.of(ANONYMOUS) == everybody


def test_without_a_word_there_is_no_limit(tmp_path: Path) -> None:
    path = tmp_path / "quotas.toml"
    path.write_text("")
    assert read_quotas(path).of(Principal("phone")) == Quota()
    assert (Quota().sessions, Quota().live_nodes, Quota().tokens_per_s, Quota().weight) == (None, None, None, 1.0)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[default]\nsesions = 2", ("default.sesions", "2")),
        ("[default]\nsessions = 0", ("default.sessions = 0",)),
        ("[default]\nsessions = 2.5", ("default.sessions = 2.5",)),
        ("[default]\nsessions = true", ("default.sessions = True",)),
        ('[default]\nweight = "3"', ("default.weight = '3'",)),
        ("[default]\nweight = 0", ("default.weight = 0",)),
        ("[default]\nweight = inf", ("default.weight = inf",)),
        ("[principals.phone]\ntokens_per_s = -1", ("principals.phone.tokens_per_s = -1",)),
        ("[principals.phone]\ntokens_per_s = nan", ("principals.phone.tokens_per_s = nan",)),
        ("[principals.phone]\nburst_tokens = 5", ("principals.phone", "burst_tokens = 5", "tokens_per_s")),
        ("[principals.phone]\nlive_nodes = 31", ("principals.phone.live_nodes = 31",)),
        (
            "[default]\nsessions = 4\n[principals.phone]\nlive_nodes = 64",
            ("principals.phone", "live_nodes = 64", "4 sessions need 128"),
        ),
        ("[phone]\nsessions = 2", ("'phone'", "[principals.NAME]")),
        ("default = 3", ("default = 3",)),
        ("[principals]\nphone = 3", ("principals.phone = 3",)),
        ("[default", ("Expected",)),
        ("x = " + "[" * 100_000, ()),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, parts: tuple[str, ...]) -> None:
    path = tmp_path / "quotas.toml"
    path.write_text(text)
    with refused(Reason.FILE_UNREADABLE, str(path), *parts):
        read_quotas(path)


def test_a_file_that_is_not_there_or_is_no_text_is_named(tmp_path: Path) -> None:
    with refused(Reason.FILE_UNREADABLE, "nowhere.toml", "No such file"):
        read_quotas(tmp_path / "nowhere.toml")
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with refused(Reason.FILE_UNREADABLE, "binary.toml"):
        read_quotas(path)
    path.write_bytes(b"#" * ((1 << 20) + 1))
    with refused(Reason.FILE_UNREADABLE, "more than 1 MiB"):
        read_quotas(path)
