"""Where a deployment's starts are told: to the builder whose bundles they are, if it listens.

Only looks whether a socket is there. Who reads manifests from a builder reports to it; who reads a
directory reports to a builder on the same machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prewarm.config import SOCKET_NAME, Settings
from prewarm.deploy.address import Address, unix_endpoint

#: Where the service of this machine listens, if it is one of systemd's.
_OF_THE_SERVICE = Path("/run/prewarm") / SOCKET_NAME


@dataclass(frozen=True, slots=True)
class ReportsTo:
    """A builder that takes start reports, and the file with the token that it asks for over TCP."""

    address: str
    token_file: Path | None = None

    def to_dict(self) -> dict[str, str | None]:
        """Return it as it stands in ``env.json``."""
        token_file = None if self.token_file is None else str(self.token_file.absolute())
        return {"to": self.address, "token_file": token_file}


def reports_to(address: Address, settings: Settings | None) -> ReportsTo | None:
    """Return the builder that is told of starts from what ``address`` publishes, if any is."""
    token_file = settings.token_file if settings is not None else None
    if not isinstance(address, Path):
        return ReportsTo(str(address), token_file)
    places = [_OF_THE_SERVICE]
    if settings is not None:
        own = [settings.socket] if settings.socket is not None else []
        places = [*own, settings.state_dir / SOCKET_NAME, *places]
    for place in places:
        if _is_socket(place):
            return ReportsTo(str(unix_endpoint(place.absolute())))
    return None


def _is_socket(path: Path) -> bool:
    try:
        return path.is_socket()
    except OSError:
        return False
