"""A builder that answers over HTTP or its Unix socket, as a source of manifests and bundles.

Owns the questions and what is made of the answers. Nothing that it says is believed but what a
trusted key has signed; the socket of root's or of the reader's own process is trusted as a
directory of theirs is.

- Where the builder cannot be reached, its last answer that was kept is taken, with a warning: a
  deployment whose directory is right starts warm all the same.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prewarm.deploy.address import Endpoint
from prewarm.deploy.deadline import Deadline
from prewarm.deploy.http_client import Answer, Question, as_json, asked, printable
from prewarm.deploy.keep import Keep, Memory
from prewarm.deploy.outcome import Tell
from prewarm.deploy.private import BundleFile
from prewarm.deploy.published import Manifests, Refusal
from prewarm.deploy.source import News, Wished
from prewarm.errors import ConfigError, ManifestUnavailable, NotWarm
from prewarm.store.manifest import LARGEST_MANIFEST_BYTES, Manifest
from prewarm.store.manifest_envelope import split_manifests
from prewarm.store.manifest_signed import plain_manifest, signed_manifest

#: An answer to a wish holds one entry with its proof.
_WISH_BYTES = 4 << 20
#: How long the builder may think about a question that it was asked to wait with, beside that.
_MORE_S = 10.0

_LONGEST_TOKEN = 4096

#: What makes the last answer better than none.
_AWAY = frozenset({"unreachable", "timed_out", "busy", "too_many"})
_BUSY = frozenset({"busy", "too_many"})
_MOST_BUSY = 5
_BUSY_PAUSE_S = 0.5


class Builder:
    """What answers at an endpoint, for one hook."""

    def __init__(
        self,
        endpoint: Endpoint,
        keys: Sequence[str],
        keep: Keep,
        deadline: Deadline,
        tell: Tell,
        *,
        token_file: Path | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._keys = keys
        self._keep = keep
        self._deadline = deadline
        self._tell = tell
        self._token = None if endpoint.scheme == "unix" else _token(token_file)
        self._news = News(keep, str(endpoint))

    def where(self) -> str:
        """Return its address."""
        return str(self._endpoint)

    def manifests(self) -> Manifests:
        """Ask for what is published.

        Raises:
            ManifestUnavailable: it cannot be had, or is not trusted.
        """
        if self._endpoint.scheme != "unix" and not self._keys:
            raise self._no_key()
        memory = self._news.load()
        kept = self._keep.answer(self._news.source, memory)
        try:
            body, as_is = self._ask(memory, kept)
        except ManifestUnavailable as error:
            if kept is None or error.code not in _AWAY:
                raise
            stale = Refusal(error.code, f"{error}; going by what it published before")
            found = self._read(kept, as_is=memory.as_is)
            return self._news.admit(
                Manifests(found.manifests, (*found.refused, stale), as_is=found.as_is)
            )
        return self._news.admit(self._read(body, as_is=as_is))

    def remember(self) -> None:
        """Keep the answer and which manifests were in it."""
        self._news.remember()

    def cache_dir(self) -> Path:
        """Return where its bundles are fetched to."""
        return self._keep.place

    @contextmanager
    def at_hand(self, bundles: Sequence[BundleFile]) -> Iterator[None]:
        """Fetch bundles.

        Raises:
            NotWarm: one cannot be had, or is not what was published.
            NoSpace: it does not fit.
            NotWritable: nothing can be written.
        """
        from prewarm.deploy.download import fetched

        with fetched(bundles, self._keep, self._opened, self._deadline, self._tell):
            yield

    def wish(self, model: str, facts: dict[str, str | None] | None, wait_s: float) -> Wished:
        """Ask for a model to be taken first, and wait for it.

        Raises:
            ManifestUnavailable: it does not answer as asked; the code says why.
        """
        question = Question(
            "/v1/requests",
            method="POST",
            headers={"content-type": "application/json"},
            body=as_json({"model": model, "environment": facts, "wait_s": wait_s}),
            token=self._token,
            idle_s=wait_s + _MORE_S,
        )
        with asked(self._endpoint, question, Deadline(wait_s + _MORE_S, option="--wait")) as answer:
            if answer.status != 200:
                raise answer.refusal()
            return _wished(answer)

    # -- manifests

    def _ask(self, memory: Memory, kept: bytes | None) -> tuple[bytes | bytearray, bool]:
        """Return the answer, and whether it is trusted without a key."""
        for attempt in range(_MOST_BUSY):
            try:
                return self._ask_once(memory, kept)
            except ManifestUnavailable as error:
                if error.code not in _BUSY or attempt == _MOST_BUSY - 1:
                    raise
                self._deadline.pause(_BUSY_PAUSE_S)
        raise AssertionError("unreachable")

    def _ask_once(self, memory: Memory, kept: bytes | None) -> tuple[bytes | bytearray, bool]:
        headers = {"accept": "application/json"}
        if kept is not None and memory.etag:
            headers["if-none-match"] = memory.etag
        question = Question("/v1/manifest", headers=headers, token=self._token)
        with asked(self._endpoint, question, self._deadline) as answer:
            as_is = answer.peer_uid in (0, os.geteuid())
            if not as_is and not self._keys:
                raise self._no_key()
            if answer.status == 304 and kept is not None:
                return kept, as_is
            if answer.status != 200:
                raise answer.refusal()
            body = answer.read_all(LARGEST_MANIFEST_BYTES)
        sha256 = hashlib.sha256(body).hexdigest()
        if (sha256, as_is) != (memory.sha256, memory.as_is):
            etag = answer.header("etag")
            self._news.answered(
                body, etag=etag if len(etag) < 200 else "", sha256=sha256, as_is=as_is
            )
        return body, as_is

    def _read(self, body: bytes | bytearray, *, as_is: bool) -> Manifests:
        parts = split_manifests(body)
        if parts is None:
            raise ManifestUnavailable(
                f"{self._endpoint}: answers no list of manifests; look what answers there",
                code="bad_answer",
            )
        manifests: list[Manifest] = []
        refused: list[Refusal] = []
        for part in parts:
            try:
                if as_is:
                    manifests.append(plain_manifest(part, where=self.where()))
                else:
                    manifests.append(signed_manifest(part, self._keys, where=self.where()))
            except ManifestUnavailable as error:
                refused.append(Refusal(error.code, str(error)))
        # Of one builder only the newest: an old one may be sent along.
        newest: dict[str, Manifest] = {}
        for one in sorted(manifests, key=lambda one: (one.generated_at, one.generation)):
            newest[one.builder] = one
        return Manifests(tuple(newest.values()), tuple(refused), as_is=as_is)

    def _no_key(self) -> ManifestUnavailable:
        return ManifestUnavailable(
            f"{self._endpoint}: what comes from there is trusted by key alone, and none is given; "
            "run `prewarm doctor` on the builder for its signing key, and add --trust ed25519:KEY "
            "here (or set PREWARM_TRUST)",
            code="not_trusted",
        )

    # -- bundles

    @contextmanager
    def _opened(self, bundle: BundleFile, offset: int) -> Iterator[tuple[int, Iterator[bytes]]]:
        from prewarm.deploy.download import StartAnew

        etag = f'"{bundle.sha256}"'
        headers = {"range": f"bytes={offset}-", "if-range": etag} if offset else {}
        path = f"/v1/bundles/{bundle.sha256}"
        question = Question(path, headers=headers, token=self._token)
        with asked(self._endpoint, question, self._deadline) as answer:
            if answer.status == 200:
                _check_length(answer, bundle.size_bytes)
                yield 0, answer.pieces()
                return
            if not offset:
                raise (
                    answer.refusal()
                    if answer.status >= 400
                    else answer.wrong(f"answers a bundle with status {answer.status}")
                )
            last = bundle.size_bytes - 1
            whole = f"bytes {offset}-{last}/{bundle.size_bytes}"
            if answer.status != 206 or answer.header("content-range") != whole:
                raise StartAnew
            _check_length(answer, bundle.size_bytes - offset)
            yield offset, answer.pieces()


def _wished(answer: Answer) -> Wished:
    try:
        table: Any = json.loads(answer.read_all(_WISH_BYTES))
        texts = [table[name] for name in ("status", "reason")]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise answer.wrong("answers a request with something else") from error
    return Wished(*(printable(one) if isinstance(one, str) else "" for one in texts))


def _check_length(answer: Answer, size_bytes: int) -> None:
    if answer.length is not None and answer.length != size_bytes:
        raise NotWarm(
            f"{answer.endpoint}: would send {answer.length:,} bytes of a bundle that has "
            f"{size_bytes:,} left; look what answers there",
            code="bad_answer",
        )


def _token(file: Path | None) -> str | None:
    """Return the token in a file; None where there is none to use.

    Raises:
        ConfigError: it holds no token.
    """
    if file is None:
        return None
    try:
        with file.open("rb") as opened:
            text = opened.read(_LONGEST_TOKEN).decode("ascii", "replace").strip()
    except OSError:
        # The service's own, named in the configuration of the machine: reading from here needs
        # none, and where it does the builder says so.
        return None
    if not text or not text.isascii() or not text.isprintable():
        raise ConfigError(f"token_file {file}: holds no token")
    return text
