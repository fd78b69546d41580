"""What holds for every test: nobody's real state is touched."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _no_real_state(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Point every default directory at a place that cannot be made.

    And forget prewarm's variables.
    """
    import os

    for name in list(os.environ):
        if name.startswith("PREWARM_") or name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/no-cache-in-tests")
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null/no-state-in-tests")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/dev/null/no-config-in-tests")
    yield
