"""The hook over a builder's HTTP: its real server on a Unix socket and on loopback."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from prewarm.deploy.address import address_of, unix_endpoint
from prewarm.deploy.hook import run_hook
from prewarm.deploy.outcome import Outcome, Wanted
from prewarm.errors import ConfigError, ManifestUnavailable, PrewarmError
from prewarm.store.bundle import bundle_path
from prewarm.store.manifest import manifest_path
from prewarm.store.signing import load_or_create_key
from prewarm.store.status import Status

from ..serve.served import HERE, TOKEN, Served
from .conftest import FILES, Publisher

Hook = Callable[..., Outcome]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path / "builder").running() as served:
        yield served


@pytest.fixture
def publish(served: Served, present_facts: dict[str, str | None]) -> Publisher:
    return Publisher(served.root, present_facts)


@pytest.fixture
def key(served: Served) -> str:
    return load_or_create_key(served.state_dir).public


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir(exist_ok=True)
    return path


@pytest.fixture
def hook(served: Served, key: str, home: Path, tmp_path: Path) -> Hook:
    address = address_of(f"http://127.0.0.1:{served.port}")

    def run(*models: str, **changes: object) -> Outcome:
        environ = dict(os.environ) | {"XDG_CACHE_HOME": str(home)}
        wanted: dict[str, object] = {
            "models": models or ("minilm/v1",),
            "into": tmp_path / "D",
            "manifest": address,
            "interpreter": (),
            "on_miss": "fail",
            "trust": (key,),
            "timeout_s": 20.0,
        }
        tell = changes.pop("tell", lambda _: None)
        return run_hook(Wanted(**(wanted | changes)), environ, tell=tell)  # type: ignore[arg-type]

    return run


def refusal(hook: Hook, **changes: object) -> PrewarmError:
    with pytest.raises(PrewarmError) as caught:
        hook(**changes)
    assert "\n" not in str(caught.value)
    return caught.value


# -- what comes over the wire


def test_a_bundle_is_fetched_and_unpacked(
    publish: Publisher, hook: Hook, home: Path, tmp_path: Path
) -> None:
    info = publish()

    outcome = hook()

    assert outcome.prepared is not None
    assert (outcome.prepared.filled, outcome.misses, outcome.warnings) == (True, (), ())
    tree = tmp_path / "D" / info.sha256[:32]
    assert {name: (tree / name).read_bytes() for name in FILES} == FILES
    kept = bundle_path(home / "prewarm" / "hook", info.sha256)
    assert kept.stat().st_size == info.size_bytes, "for other hooks of this user"
    assert not list((home / "prewarm" / "hook" / "downloads").glob("*.part"))


def test_a_second_hook_asks_only_whether_there_is_news(
    publish: Publisher, hook: Hook, served: Served, home: Path
) -> None:
    info = publish()
    hook()
    bundle_path(served.cache_dir, info.sha256).unlink()
    bundle_path(home / "prewarm" / "hook", info.sha256).unlink()
    before = {path: path.lstat().st_mtime_ns for path in home.rglob("*")}

    outcome = hook()

    assert outcome.prepared is not None
    assert not outcome.prepared.filled
    assert {path: path.lstat().st_mtime_ns for path in home.rglob("*")} == before


def test_another_directory_is_filled_from_what_was_fetched(
    publish: Publisher, hook: Hook, served: Served, tmp_path: Path
) -> None:
    info = publish()
    hook()
    bundle_path(served.cache_dir, info.sha256).unlink()

    outcome = hook(into=tmp_path / "E")

    assert outcome.prepared is not None
    assert outcome.prepared.filled


def test_what_was_fetched_and_damaged_is_fetched_again(
    publish: Publisher, hook: Hook, home: Path, tmp_path: Path
) -> None:
    info = publish()
    hook()
    kept = bundle_path(home / "prewarm" / "hook", info.sha256)
    kept.write_bytes(b"x" * info.size_bytes)

    assert hook(into=tmp_path / "E").misses == ()


def test_without_a_home_it_is_fetched_into_the_directory_and_removed_again(
    publish: Publisher, hook: Hook, home: Path, tmp_path: Path
) -> None:
    info = publish()
    shutil.rmtree(home)
    home.touch()

    assert hook().misses == ()

    hidden = tmp_path / "D" / ".prewarm"
    assert (hidden / "seen").is_dir()
    assert not bundle_path(hidden, info.sha256).exists(), "it is unpacked beside it"


def test_a_place_that_others_can_write_is_not_used(
    publish: Publisher, hook: Hook, home: Path, tmp_path: Path
) -> None:
    publish()
    place = home / "prewarm" / "hook"
    place.mkdir(parents=True)
    place.chmod(0o777)

    assert hook().misses == ()

    assert list(place.iterdir()) == []
    (tmp_path / "E" / ".prewarm").mkdir(parents=True)
    (tmp_path / "E" / ".prewarm").chmod(0o777)
    error = refusal(hook, into=tmp_path / "E")
    assert "can be written by others" in str(error)
    assert error.code == "not_writable"


def test_several_models_come_from_several_bundles(publish: Publisher, hook: Hook) -> None:
    publish("a", {"inductor/a/f": b"a"})
    publish("b", {"inductor/b/f": b"b"})

    outcome = hook("a", "b")

    assert outcome.prepared is not None
    assert (outcome.prepared.tree / "inductor/b/f").read_bytes() == b"b"


# -- trust


def test_over_tcp_a_key_is_needed_and_the_command_told(publish: Publisher, hook: Hook) -> None:
    publish()

    error = refusal(hook, trust=())

    assert (error.code, error.exit_code) == ("not_trusted", 5)
    assert "run `prewarm doctor` on the builder" in str(error)
    assert "add --trust ed25519:KEY" in str(error)


def test_another_key_is_refused(publish: Publisher, hook: Hook, tmp_path: Path) -> None:
    publish()

    error = refusal(hook, trust=(load_or_create_key(tmp_path / "other").public,))

    assert (error.code, error.exit_code) == ("not_trusted", 5)
    assert "is not signed by a trusted key" in str(error)


def test_two_keys_are_accepted_while_one_changes(
    publish: Publisher, hook: Hook, served: Served, key: str
) -> None:
    publish()
    hook()
    (served.state_dir / "signing.key").unlink()
    publish.write()
    new = load_or_create_key(served.state_dir).public
    assert new != key

    assert refusal(hook).code == "not_trusted"
    assert hook(trust=(key, new)).misses == ()
    assert hook(trust=(new,)).misses == ()


def test_the_socket_of_ones_own_process_needs_no_key(
    publish: Publisher, hook: Hook, served: Served
) -> None:
    publish()

    assert hook(manifest=unix_endpoint(served.unix_path), trust=()).misses == ()
    assert hook(manifest=served.unix_path, trust=()).misses == (), "by its path alone"


def test_the_socket_of_another_user_needs_a_key(
    publish: Publisher, hook: Hook, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish()
    monkeypatch.setattr("prewarm.deploy.http_client.peer_uid", lambda _: 1234)

    error = refusal(hook, manifest=unix_endpoint(served.unix_path), trust=())

    assert error.code == "not_trusted"
    assert hook(manifest=unix_endpoint(served.unix_path)).misses == ()


# -- replay


def test_a_manifest_older_than_one_seen_is_refused(
    publish: Publisher, hook: Hook, served: Served
) -> None:
    publish("minilm/v1")
    path = manifest_path(served.cache_dir, "gpu-1")
    old = path.read_bytes()
    publish("gpt2", {"inductor/g/f": b"g"})
    hook("gpt2")
    path.write_bytes(old)

    error = refusal(hook)

    assert (error.code, error.exit_code) == ("replayed", 5)
    assert "generation 1" in str(error)
    assert "remove " in str(error)


def test_a_local_directory_is_held_to_what_was_seen_too(
    publish: Publisher, hook: Hook, served: Served, home: Path, tmp_path: Path
) -> None:
    publish("minilm/v1")
    path = manifest_path(served.cache_dir, "gpu-1")
    old = path.read_bytes()
    publish("gpt2", {"inductor/g/f": b"g"})
    hook("gpt2", manifest=served.cache_dir)
    path.write_bytes(old)

    assert refusal(hook, manifest=served.cache_dir).code == "replayed"
    shutil.rmtree(home / "prewarm" / "hook" / "seen")
    assert hook(manifest=served.cache_dir).misses == ()


def test_without_a_home_what_was_seen_is_kept_in_the_directory(
    publish: Publisher, hook: Hook, served: Served, home: Path
) -> None:
    shutil.rmtree(home)
    home.touch()
    publish("minilm/v1")
    path = manifest_path(served.cache_dir, "gpu-1")
    old = path.read_bytes()
    publish("gpt2", {"inductor/g/f": b"g"})
    hook("gpt2")
    path.write_bytes(old)

    assert refusal(hook).code == "replayed"


# -- a builder that is away


def test_a_builder_that_is_down_is_told_at_once(hook: Hook, served: Served) -> None:
    served.server.stop(1)
    began_s = time.monotonic()

    error = refusal(hook)

    assert (error.code, error.exit_code) == ("unreachable", 5)
    assert "Connection refused" in str(error)
    assert time.monotonic() - began_s < 10
    served.start()


def test_what_was_read_before_does_when_the_builder_is_away(
    publish: Publisher, hook: Hook, served: Served, key: str, tmp_path: Path
) -> None:
    publish()
    hook()
    served.server.stop(1)

    outcome = hook()

    assert outcome.misses == ()
    [line] = outcome.warnings
    assert "cannot be reached" in line
    assert line.endswith("going by what it published before")
    assert hook(into=tmp_path / "E").misses == (), "from what was fetched"
    other = load_or_create_key(tmp_path / "other").public
    assert refusal(hook, trust=(other,)).code == "not_trusted"
    served.start()


def test_a_bundle_that_is_gone_is_told(publish: Publisher, hook: Hook, served: Served) -> None:
    info = publish()
    bundle_path(served.cache_dir, info.sha256).unlink()

    error = refusal(hook)

    assert (error.code, error.exit_code) == ("no_bundle", 3)


# -- tokens


def test_a_token_opens_what_needs_one(
    publish: Publisher, hook: Hook, served: Served, tmp_path: Path
) -> None:
    publish()
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    (tmp_path / "wrong").write_text("wrong\n")
    (tmp_path / "empty").write_text("\n")

    assert hook(token_file=tmp_path / "token").misses == ()
    assert refusal(hook, token_file=tmp_path / "wrong").code == "token_needed"
    with pytest.raises(ConfigError, match="holds no token"):
        hook(token_file=tmp_path / "empty")
    assert hook(token_file=tmp_path / "none").misses == (), "reading from here needs none"


# -- waiting


def later(publish: Publisher, served: Served, told: list[str], *models: str) -> threading.Thread:
    """Publish when a deployment is heard to wait."""

    def work() -> None:
        ends_s = time.monotonic() + 20
        while not told and time.monotonic() < ends_s:
            time.sleep(0.01)
        for model in models:
            publish(model, {f"inductor/{model}/f": model.encode()})

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_a_model_is_waited_for_and_goes_first(
    publish: Publisher, hook: Hook, served: Served
) -> None:
    publish("other")
    served.add_entry("minilm/v1", Status.QUEUED)
    told: list[str] = []
    thread = later(publish, served, told, "minilm/v1")

    outcome = hook(
        wait_s=20.0, tell=told.append, manifest=unix_endpoint(served.unix_path), trust=()
    )

    thread.join()
    assert outcome.misses == ()
    assert outcome.prepared is not None
    assert served.woken, "the builder was asked"
    assert any("minilm/v1: queued at its builder" in line for line in told)


def test_what_the_builder_gave_up_is_not_waited_for(
    publish: Publisher, hook: Hook, served: Served
) -> None:
    publish("other")
    served.add_entry("minilm/v1", Status.FAILED, reason="no \x1b[31mluck", code="raised")
    began_s = time.monotonic()

    error = refusal(hook, wait_s=60.0, manifest=unix_endpoint(served.unix_path), trust=())

    assert time.monotonic() - began_s < 20
    assert str(error) == "minilm/v1: is failed at its builder: no ?[31mluck"
    assert error.exit_code == 3


def test_without_a_token_the_model_is_only_looked_for(
    publish: Publisher, hook: Hook, served: Served
) -> None:
    publish("other")
    told: list[str] = []
    thread = later(publish, served, told, "minilm/v1")

    outcome = hook(wait_s=20.0, tell=told.append)

    thread.join()
    assert outcome.misses == ()
    [line] = outcome.warnings
    assert "needs" in line or "token" in line
    assert line.endswith("so the model was not asked for, only waited for")


def test_a_directory_is_looked_at_again(publish: Publisher, hook: Hook, served: Served) -> None:
    told: list[str] = []
    thread = later(publish, served, told, "a", "b")

    outcome = hook("a", "b", wait_s=20.0, tell=told.append, manifest=served.cache_dir, trust=())

    thread.join()
    assert outcome.misses == ()
    assert len(outcome.started) == 2


def test_a_wait_ends(publish: Publisher, hook: Hook, served: Served) -> None:
    publish("other")
    served.add_entry("minilm/v1", Status.QUEUED)
    for manifest in (served.cache_dir, unix_endpoint(served.unix_path)):
        error = refusal(hook, wait_s=0.5, manifest=manifest, trust=())
        assert (error.code, error.exit_code) == ("not_published", 3)


def test_what_is_published_for_other_environments_only_is_told_after_the_wait(
    publish: Publisher, hook: Hook, served: Served
) -> None:
    publish("minilm/v1", facts={"torch": "1.0"})
    served.add_entry("minilm/v1", Status.QUEUED, environment_id=HERE)
    began_s = time.monotonic()

    error = refusal(hook, wait_s=60.0, manifest=unix_endpoint(served.unix_path), trust=())

    assert (error.code, error.exit_code) == ("environment_differs", 4)
    assert "torch is" in str(error)
    assert time.monotonic() - began_s < 20


def test_a_builder_that_comes_up_later_is_waited_for(
    publish: Publisher, hook: Hook, served: Served
) -> None:
    publish()
    served.server.stop(1)
    told: list[str] = []

    def start() -> None:
        ends_s = time.monotonic() + 20
        while not told and time.monotonic() < ends_s:
            time.sleep(0.01)
        served.start()

    thread = threading.Thread(target=start)
    thread.start()

    outcome = hook(
        wait_s=30.0, tell=told.append, manifest=unix_endpoint(served.unix_path), trust=()
    )

    thread.join()
    assert outcome.misses == ()
    assert json.dumps(outcome.warnings) == "[]"


def test_no_token_goes_over_the_socket(served: Served, hook: Hook, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")

    with pytest.raises(ManifestUnavailable, match="holds no manifest"):
        hook(manifest=unix_endpoint(served.unix_path), token_file=tmp_path / "empty")
