"""Settings: precedence, sources named in errors, defaults with and without a home."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from prewarm.config import SYSTEM_CACHE, SYSTEM_STATE, load_settings
from prewarm.errors import ConfigError


def test_a_flag_beats_a_variable_which_beats_the_file_which_beats_the_default(
    tmp_path: Path,
) -> None:
    file = tmp_path / "config.toml"
    file.write_text('registry = "models"\ncache_dir = "/from/file"\nsettle_s = 7\n')
    environ = {
        "HOME": "/home/me",
        "PREWARM_CONFIG": str(file),
        "PREWARM_CACHE_DIR": "/from/variable",
        "PREWARM_SETTLE_S": "5",
    }

    settings = load_settings({"cache_dir": Path("/from/flag")}, environ)

    assert settings.cache_dir == Path("/from/flag")
    assert settings.settle_s == 5
    assert settings.registry == tmp_path / "models", "relative to the file that names it"
    assert settings.state_dir == Path("/home/me/.local/state/prewarm")


def test_without_a_home_the_system_directories_are_used() -> None:
    settings = load_settings({}, {})

    assert (settings.cache_dir, settings.state_dir) == (SYSTEM_CACHE, SYSTEM_STATE)


def test_systemd_directories_and_xdg_are_followed() -> None:
    environ = {"HOME": "/h", "CACHE_DIRECTORY": "/var/cache/x:/other", "XDG_STATE_HOME": "/s"}

    settings = load_settings({}, environ)

    assert settings.cache_dir == Path("/var/cache/x")
    assert settings.state_dir == Path("/s/prewarm")


def test_the_builder_defaults_to_a_name_that_is_a_file_name() -> None:
    builder = load_settings({}, {}).builder

    assert builder
    assert "/" not in builder
    assert not builder.startswith(".")


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({"PREWARM_SETTLE_S": "soon"}, "PREWARM_SETTLE_S: 'soon' is no number of seconds"),
        ({"PREWARM_GRACE_S": "-1"}, "PREWARM_GRACE_S: '-1' is no number of seconds"),
        ({"PREWARM_GRACE_S": "inf"}, "PREWARM_GRACE_S: 'inf' is no number of seconds"),
        ({"PREWARM_BUILDER": "../x"}, "PREWARM_BUILDER: '../x' is no builder name"),
        ({"PREWARM_CHILD_MEMORY_BYTES": "much"}, "PREWARM_CHILD_MEMORY_BYTES: 'much' is no size"),
        ({"PREWARM_CACHE_LIMIT_BYTES": "-1"}, "PREWARM_CACHE_LIMIT_BYTES: '-1' is no size"),
        ({"PREWARM_LOGS_LIMIT_BYTES": "all"}, "PREWARM_LOGS_LIMIT_BYTES: 'all' is no size"),
        ({"PREWARM_UNUSED_S": "never"}, "PREWARM_UNUSED_S: 'never' is no number of seconds"),
        ({"PREWARM_CPU_WORKERS": "0"}, "PREWARM_CPU_WORKERS: '0' is no count"),
        ({"PREWARM_CPU_WORKERS": "two"}, "PREWARM_CPU_WORKERS: 'two' is no count"),
        ({"PREWARM_GPU_BUSY_PERCENT": "101"}, "PREWARM_GPU_BUSY_PERCENT: '101' is no percentage"),
        ({"PREWARM_GPU_BUSY_PERCENT": "nan"}, "PREWARM_GPU_BUSY_PERCENT: 'nan' is no percentage"),
        ({"PREWARM_CONFIG": "/nowhere.toml"}, "PREWARM_CONFIG: /nowhere.toml is no file"),
        ({"PREWARM_REGISTRY": "~/models"}, "PREWARM_REGISTRY: ~/models needs HOME"),
    ],
)
def test_a_wrong_value_is_told_with_its_source(environ: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings({}, environ)

    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("settle_secs = 1\n", "settle_secs: unknown key; did you mean `settle_s`?"),
        ("registry = [\n", "cannot be read as TOML"),
        ("grace_s = true\n", "grace_s: True is no number of seconds"),
        ("registry = 3\n", "registry: 3 is no path"),
    ],
)
def test_a_wrong_file_is_told_with_its_path(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "c.toml"
    file.write_text(text)

    with pytest.raises(ConfigError) as caught:
        load_settings({"config": file}, {})

    assert str(file) in str(caught.value)
    assert told in str(caught.value)


def test_sizes_take_bytes_and_units() -> None:
    def memory(value: str) -> int | None:
        return load_settings({}, {"PREWARM_CHILD_MEMORY_BYTES": value}).child_memory_bytes

    assert memory("1000") == 1000
    assert memory("2K") == 2048
    assert memory("3GiB") == 3 << 30


def test_counts_and_shares_are_numbers_of_any_kind(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("cpu_workers = 3\ngpu_busy_percent = 12.5\n")
    settings = load_settings({"config": file}, {})
    assert (settings.cpu_workers, settings.gpu_busy_percent) == (3, 12.5)
    settings = load_settings({}, {"PREWARM_GPU_BUSY_PERCENT": "100"})
    assert (settings.cpu_workers, settings.gpu_busy_percent) == (1, 100.0)


def test_limits_are_sizes_or_none(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('cache_limit_bytes = 0\nlogs_limit_bytes = "2G"\nunused_s = 86400\n')

    settings = load_settings({"config": file}, {"PREWARM_LOGS_LIMIT_BYTES": "0"})
    default = load_settings({}, {})

    assert (settings.cache_limit_bytes, settings.logs_limit_bytes) == (0, 0)
    assert settings.unused_s == 86_400
    assert (default.cache_limit_bytes, default.unused_s) == (0, 0)
    assert default.logs_limit_bytes == 256 << 20
    assert load_settings({}, {"PREWARM_CACHE_LIMIT_BYTES": "20G"}).cache_limit_bytes == 20 << 30


@pytest.mark.skipif(os.getuid() != 0, reason="root makes what another user cannot enter")
def test_a_configuration_that_is_closed_to_the_user_is_nobodys() -> None:
    with tempfile.TemporaryDirectory(prefix="prewarm-test-") as name:
        Path(name).chmod(0o700)
        os.seteuid(65534)
        try:
            settings = load_settings({}, {"HOME": "/h", "XDG_CONFIG_HOME": name})
            with pytest.raises(ConfigError, match="is no file that can be read"):
                load_settings({"config": Path(name) / "c.toml"}, {})
        finally:
            os.seteuid(0)

    assert settings.cache_dir == Path("/h/.cache/prewarm")


def test_keys_and_files_of_keys_may_be_given_in_each_place(tmp_path: Path) -> None:
    key = "ed25519:" + "A" * 43 + "="
    file = tmp_path / "config.toml"
    file.write_text(f'trust = ["keys.pub", "{key}"]\nmanifest = "http://b"\n')
    environ = {"PREWARM_CONFIG": str(file)}

    assert load_settings({}, environ).trust == (str(tmp_path / "keys.pub"), key)
    assert load_settings({}, environ).manifest == "http://b"
    environ |= {"PREWARM_TRUST": f"/k, {key}", "PREWARM_MANIFEST": "cache"}
    assert load_settings({}, environ).trust == ("/k", key)
    assert load_settings({}, environ).manifest == str(Path.cwd() / "cache")
    assert load_settings({"trust": ("/f",)}, environ).trust == ("/f",)
    assert load_settings({"trust": ()}, environ).trust == ("/k", key), "no flag was given"


@pytest.mark.parametrize("value", ["1", "[1]", '{ a = "b" }'])
def test_a_trust_that_is_no_list_of_texts_is_told(tmp_path: Path, value: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f"trust = {value}\n")

    with pytest.raises(ConfigError, match=r"config\.toml: trust: .* is no list of keys"):
        load_settings({"config": file}, {})
