"""Certificates and keys that do not fit together are told of by name before anybody connects, without a question on
the terminal and without a word of what the files hold.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from outrider.shared.access import Tls, read_access
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.tls_files import read_authorities, read_pair
from support.certificates import Authority, Pair
from support.refusal import refused


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority") / "a")


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    return authority.for_verifier()


def test_a_pair_and_its_authority_are_read_as_they_are(authority: Authority, pair: Pair) -> None:
    assert read_pair(pair.cert, pair.key) == (pair.cert.read_bytes(), pair.key.read_bytes())
    assert read_authorities(authority.cert) == authority.cert.read_bytes()


def garbage(pair: Pair, _: Pair, folder: Path) -> Pair:
    (folder / "garbage").write_bytes(b"no PEM at all\xff")
    return Pair(folder / "garbage", pair.key)


def with_a_password(pair: Pair, _: Pair, folder: Path) -> Pair:
    key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
    locked = folder / "locked.key"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"password"),
        )
    )
    return Pair(pair.cert, locked)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda pair, other, _: Pair(pair.cert, other.key),
        lambda pair, _other, _: Pair(pair.key, pair.cert),
        lambda pair, _other, folder: Pair(folder / "nothing", pair.key),
        lambda pair, _other, folder: Pair(folder, pair.key),
        garbage,
        with_a_password,
    ],
    ids=["of another", "swapped", "missing", "folder", "garbage", "password"],
)
def test_what_is_no_pair_is_refused_and_not_repeated(
    authority: Authority, pair: Pair, tmp_path: Path, wrong: Callable[[Pair, Pair, Path], Pair]
) -> None:
    made = wrong(pair, authority.for_device("other"), tmp_path)
    with pytest.raises(OutriderError) as caught:
        read_pair(made.cert, made.key)
    assert caught.value.reason is Reason.FILE_UNREADABLE
    assert str(made.cert) in caught.value.message
    for line in pair.key.read_text().splitlines()[1:-1]:
        assert line not in caught.value.message


def test_what_holds_no_authority_is_refused(pair: Pair, tmp_path: Path) -> None:
    for path in (pair.key, tmp_path / "nothing"):
        with refused(Reason.FILE_UNREADABLE, str(path)):
            read_authorities(path)


def test_a_device_needs_both_halves_of_its_pair(authority: Authority, pair: Pair) -> None:
    for half in (Tls(cert=pair.cert), Tls(key=pair.key)):
        with refused(Reason.USAGE, "key"):
            read_access(half, None)
    assert read_access(Tls(authority.cert, pair.cert, pair.key), None).credentials is not None
    assert read_access(None, None).credentials is None


@pytest.mark.parametrize("content", [b"", b"\n", b"two words", b"one\ntwo", b"x" * 513, b"\xff\xfe", b"a\x00b"])
def test_a_file_without_one_token_is_refused_and_not_repeated(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with refused(Reason.FILE_UNREADABLE, f"{path}: expected one token and nothing else."):
        read_access(None, path)
    with refused(Reason.FILE_UNREADABLE, "No such file"):
        read_access(None, tmp_path / "nothing")


def test_a_token_is_what_stands_in_its_file_and_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("  a-Token.of_it~+/==\n")
    access = read_access(None, path)
    assert access.token == "a-Token.of_it~+/=="
    assert "a-Token" not in repr(access)
