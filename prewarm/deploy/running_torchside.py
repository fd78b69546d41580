"""``torchside`` in a server's own process, under the name that the shim has there.

Owns which copy it is: the one that the shim has loaded already, else the installed one, so that a
process has one watcher whoever started it. Nothing of it is imported as prewarm's.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType

from prewarm.errors import ConfigError
from prewarm.present import TORCHSIDE

NAME = "prewarm_torchside"


def torchside_module(name: str) -> ModuleType:
    """Return one module of it.

    Raises:
        ConfigError: the shim that runs here is another version's.
    """
    if NAME not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            NAME, TORCHSIDE / "__init__.py", submodule_search_locations=[str(TORCHSIDE)]
        )
        assert spec is not None and spec.loader is not None
        sys.modules[NAME] = package = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(package)
    wanted = f"{NAME}.{name}"
    try:
        return importlib.import_module(wanted)
    except ModuleNotFoundError as error:
        if error.name != wanted:
            raise
        raise ConfigError(
            f"the shim that runs here ({sys.modules[NAME].__file__}) is another version's; run "
            "`prewarm hook` with this --into again",
            code="not_filled",
        ) from error
