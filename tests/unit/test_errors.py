"""The table of errors: complete, made of real status codes, and consistent about who is to blame."""

from __future__ import annotations

import pickle

import grpc
import pytest

from outrider.shared.errors import ERROR_TABLE, OutriderError, Reason

EVERY = pytest.mark.parametrize("reason", list(Reason))


def test_every_reason_has_a_row_and_every_row_a_reason() -> None:
    assert set(ERROR_TABLE) == set(Reason)


@EVERY
def test_row_names_a_real_status_an_exit_code_and_a_sentence(reason: Reason) -> None:
    spec = ERROR_TABLE[reason]
    assert spec.status in grpc.StatusCode.__members__
    assert spec.status not in {"OK", "UNKNOWN"}
    # 1 says that a comparison differs, or that there is none.
    assert spec.exit_code in range(2, 6) or (spec.exit_code, reason) == (1, Reason.MEASUREMENT_INVALID)
    assert spec.public.endswith(".")
    assert reason.value == reason.name


@EVERY
def test_what_a_peer_answers_ends_a_command_with_3_unless_it_was_unavailable(reason: Reason) -> None:
    error = OutriderError(reason, from_peer=True)
    if error.status == "UNAVAILABLE":
        assert error.exit_code == ERROR_TABLE[reason].exit_code
    else:
        assert error.exit_code == 3


@EVERY
def test_what_fails_here_ends_a_command_with_the_code_of_its_row(reason: Reason) -> None:
    assert OutriderError(reason).exit_code == ERROR_TABLE[reason].exit_code


@pytest.mark.parametrize("from_peer", [False, True])
def test_an_unreachable_verifier_is_exit_code_4(from_peer: bool) -> None:
    assert OutriderError(Reason.VERIFIER_UNREACHABLE, from_peer=from_peer).exit_code == 4


@pytest.mark.parametrize(
    ("reason", "exit_code"),
    [(Reason.USAGE, 2), (Reason.SAMPLING_INVALID, 2), (Reason.MODEL_CORRUPT, 5), (Reason.VOCABULARY_MISMATCH, 5)],
)
def test_own_mistakes_and_own_files_keep_their_codes(reason: Reason, exit_code: int) -> None:
    assert OutriderError(reason, "why").exit_code == exit_code


def test_a_message_is_the_public_sentence_and_then_the_detail() -> None:
    public = ERROR_TABLE[Reason.PORT_IN_USE].public
    assert OutriderError(Reason.PORT_IN_USE).message == str(OutriderError(Reason.PORT_IN_USE)) == public
    error = OutriderError(Reason.PORT_IN_USE, "port = 1.", retry_after_s=2.0)
    assert error.message == f"{public} port = 1."
    assert str(error) == "port = 1."
    assert (error.retry_after_s, error.from_peer) == (2.0, False)


def test_an_error_comes_whole_out_of_another_process() -> None:
    error = OutriderError(Reason.FILE_UNREADABLE, "a.npz: gone.", from_peer=True, retry_after_s=2.5)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is OutriderError
    assert (copy.reason, copy.detail, copy.from_peer, copy.retry_after_s, str(copy)) == (
        Reason.FILE_UNREADABLE, "a.npz: gone.", True, 2.5, "a.npz: gone.",
    )  # fmt: skip
