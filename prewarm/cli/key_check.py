"""Doctor's check of the signing key: the public one, which deployments elsewhere need to trust."""

from __future__ import annotations

from prewarm.cli.finding import Finding
from prewarm.config import Settings
from prewarm.errors import ConfigError
from prewarm.store.signing import public_key

_CHECK = "signing key"


def check_key(settings: Settings) -> Finding:
    """Tell the public key of this builder."""
    try:
        public = public_key(settings.state_dir, settings.signing_key)
    except ConfigError as error:
        exposed = error.code == "key_exposed"
        step = "then hooks elsewhere take its public key with --trust"
        return Finding(_CHECK, "fail" if exposed else "warn", str(error), step)
    if public is None:
        return Finding(_CHECK, "ok", "none yet; the first scan makes it")
    return Finding(_CHECK, "ok", public)
