"""Manifests from where others can write: parsed only where a trusted key has signed them.

Owns how a manifest without such a signature is refused. Where it came from, and whether it is older
than one that was seen, is ``deploy``'s to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prewarm.errors import ManifestUnavailable
from prewarm.plain_text import spelt_plain
from prewarm.store.manifest_envelope import Envelope, open_envelope
from prewarm.store.manifest_files import LARGEST_MANIFEST_BYTES, named_for_builder, read_limited
from prewarm.store.manifest_values import Manifest
from prewarm.store.signing import verify
from prewarm.store.strict_json import parse_strictly

_TOLD_KEYS = 3
_TOLD_CHARACTERS = 24


def signed_manifest(data: bytes | memoryview, keys: Sequence[str], *, where: str) -> Manifest:
    """Return the manifest that one of the keys has signed.

    Raises:
        ManifestUnavailable: it is none, or none of the keys signed it.
        ConfigError: a key has no proper form.
    """
    envelope = open_envelope(data)
    if envelope is None:
        raise _no_manifest(where)
    if verify(envelope.signed, envelope.signatures, keys) is None:
        raise ManifestUnavailable(
            f"{where}: {_signed_by(envelope.signatures)}; run `prewarm doctor` on its builder for "
            "the key, and give it with --trust ed25519:KEY",
            code="not_trusted",
        )
    return _manifest(envelope, where)


def plain_manifest(data: bytes | memoryview, *, where: str) -> Manifest:
    """Return a manifest that came from where it is trusted without a key.

    Raises:
        ManifestUnavailable: it is none.
    """
    envelope = open_envelope(data)
    if envelope is None:
        raise _no_manifest(where)
    return _manifest(envelope, where)


def _manifest(envelope: Envelope, where: str) -> Manifest:
    try:
        signed = parse_strictly(bytes(envelope.signed))
        return Manifest.from_dict(signed)
    except (ValueError, RecursionError) as error:
        raise ManifestUnavailable(f"{where}: is no JSON ({error})", code="bad_manifest") from error
    except ManifestUnavailable as error:
        raise ManifestUnavailable(f"{where}: {error}", code=error.code) from None


def _no_manifest(where: str) -> ManifestUnavailable:
    return ManifestUnavailable(
        f"{where}: is no manifest (expected `signatures` and `signed` in canonical JSON)",
        code="bad_manifest",
    )


def read_signed_manifest(path: Path, keys: Sequence[str]) -> Manifest:
    """Read a manifest from a file that others can write.

    Raises:
        ManifestUnavailable: it cannot be read, is none of that builder, or none of the keys
            signed it.
        ConfigError: a key has no proper form.
    """
    manifest = signed_manifest(read_limited(path, LARGEST_MANIFEST_BYTES), keys, where=str(path))
    return named_for_builder(path, manifest)


def _signed_by(signatures: Sequence[object]) -> str:
    names = [
        spelt_plain(str(one["keyid"])[:_TOLD_CHARACTERS])
        for one in signatures
        if isinstance(one, dict)
    ]
    if not names:
        return "is not signed"
    return f"is not signed by a trusted key (signed by {', '.join(names[:_TOLD_KEYS])})"
