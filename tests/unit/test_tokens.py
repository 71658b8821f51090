"""The file of tokens: what lets in, what is refused without being repeated, and what a change of it does."""

from __future__ import annotations

import hashlib
import hmac
import logging
from pathlib import Path

import pytest

from outrider.cloud import tokens
from outrider.cloud.tokens import MAX_TOKENS, TokenFile, new_token
from outrider.shared.errors import OutriderError, Reason
from support.certificates import replace
from support.refusal import refused


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens"


def test_a_token_is_known_by_its_line_and_the_line_does_not_hold_it(path: Path) -> None:
    phone, laptop = new_token("phone"), new_token("lap.top_2@home-x")
    assert phone.token not in phone.line
    assert len(phone.token) == 43, "256 bits"
    path.write_text(f"# devices\n\n{phone.line}\n  {laptop.line}  # lent\n")
    known = TokenFile(path)
    assert len(known) == 2
    assert known.name_of(phone.token) == "phone"
    assert known.name_of(laptop.token) == "lap.top_2@home-x"
    for wrong in ("", phone.token[:-1], f"{phone.token}=", digest(phone.token), phone.line, "phone", "é"):
        assert known.name_of(wrong) is None


def test_a_name_may_have_two_tokens_while_they_are_exchanged(path: Path) -> None:
    old, new = new_token("phone"), new_token("phone")
    assert old.token != new.token
    path.write_text(f"{old.line}\n{new.line}\n")
    assert {TokenFile(path).name_of(made.token) for made in (old, new)} == {"phone"}


def test_a_token_is_compared_with_every_line_wherever_it_stands(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [new_token(f"d{number}") for number in range(5)]
    path.write_text("".join(f"{one.line}\n" for one in made))
    known = TokenFile(path)
    compared: list[bytes] = []

    def counting(mine: bytes, theirs: bytes) -> bool:
        compared.append(mine)
        return hmac.compare_digest(mine, theirs)

    monkeypatch.setattr(tokens, "hmac", type("hmac", (), {"compare_digest": staticmethod(counting)}))
    for token in (made[0].token, made[4].token, "nobody's"):
        compared.clear()
        known.name_of(token)
        assert len(compared) == 5


@pytest.mark.parametrize(
    "line",
    [
        "phone:s3cret-token-of-the-phone",
        "phone s3cret-token-of-the-phone",
        f"phone {digest('x')[:-1]}",
        f"phone {digest('x')} more",
        digest("x"),
        f"anonymous {digest('x')}",
        f"-x {digest('x')}",
        f"{'x' * 65} {digest('x')}",
        "phone \xff",
    ],
)
def test_a_line_that_is_none_is_refused_by_its_number_and_never_repeated(path: Path, line: str) -> None:
    path.write_bytes(f"{new_token('ok').line}\n".encode() + line.encode("latin-1") + b"\n")
    with pytest.raises(OutriderError) as caught:
        TokenFile(path)
    assert caught.value.reason is Reason.FILE_UNREADABLE
    told = caught.value.message.replace(str(path), "FILE")
    assert "FILE, line 2: expected" in told
    assert not set(line.split()).intersection(told.split())
    assert "s3cret" not in told


def test_a_file_that_is_missing_or_absurd_is_refused(path: Path) -> None:
    with refused(Reason.FILE_UNREADABLE, str(path)):
        TokenFile(path)
    path.write_text("".join(f"{new_token('x').line}\n" for _ in range(MAX_TOKENS + 1)))
    with refused(Reason.FILE_UNREADABLE, str(MAX_TOKENS)):
        TokenFile(path)
    path.write_text("#" * (2 << 20))
    with refused(Reason.FILE_UNREADABLE, "1 MiB"):
        TokenFile(path)


@pytest.mark.parametrize("name", ["", "a b", "anonymous", "x" * 65, "#x", "é"])
def test_a_name_that_no_line_may_have_gets_no_token(name: str) -> None:
    with refused(Reason.USAGE, repr(name)):
        new_token(name)


def test_a_changed_file_is_read_again_and_a_broken_one_changes_nothing(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    old, new = new_token("phone"), new_token("phone")
    path.write_text(old.line)
    known = TokenFile(path)

    def let_in() -> list[bool]:
        known.refresh()
        return [known.name_of(made.token) is not None for made in (old, new)]

    assert let_in() == [True, False]
    replace(path, new.line.encode())
    assert let_in() == [False, True]
    for broken in (b"phone s3cret", None):
        if broken is None:
            path.unlink()
        else:
            path.write_bytes(broken)
        assert let_in() == [False, True]
        assert let_in() == [False, True]
    assert caplog.text.count("stay as they were") == 2, "told once for each change"
    path.write_text(f"{old.line}\n{new.line}\n")
    assert let_in() == [True, True]
    path.write_text("# nobody\n")
    assert let_in() == [False, False]
    for secret in (old.token, new.token, "s3cret", digest(new.token)):
        assert secret not in caplog.text
