"""A bank of hostile manifests: one builder per case, each with a word of how it is refused.

``PLAIN`` are refused from a directory that is trusted as it is, ``SIGNED`` from one that others can
write, where a key must have signed. Used by test_hostile_manifests.py. A case changes a manifest
that is right; what it returns is the whole file ``manifests/gpu-1.json``.
"""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from prewarm.store.manifest_text import canonical_json
from prewarm.store.signing import SigningKey

Signed = dict[str, Any]


@dataclass(frozen=True)
class Good:
    """A manifest that is right, the key that is trusted, and another."""

    signed: Signed
    key: SigningKey
    other: SigningKey

    def file(self, signed: object = None, key: SigningKey | None = None) -> bytes:
        """The whole file, signed as it stands whatever stands there."""
        text = _text(self.signed if signed is None else signed)
        signature = (key or self.key).sign(text)
        return b'{"signatures":' + _text([signature]) + b',"signed":' + text + b"}\n"

    def raw(self, old: bytes, new: bytes) -> bytes:
        """The file with a text replaced before it is signed."""
        text = _text(self.signed)
        assert text.count(old) == 1, old
        text = text.replace(old, new)
        return b'{"signatures":' + _text([self.key.sign(text)]) + b',"signed":' + text + b"}\n"

    def changed(self, *path: str | int, to: object) -> bytes:
        """The file with one value replaced before it is signed."""
        signed = copy.deepcopy(self.signed)
        place: Any = signed
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = to
        return self.file(signed)


Build = Callable[[Good], bytes]


@dataclass(frozen=True)
class Case:
    build: Build
    told: str


def _text(value: object) -> bytes:
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    ).encode(errors="surrogatepass")  # fmt: skip


def _nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = {"a": value}
    return value


def _entry(good: Good, **changes: object) -> Signed:
    return {**good.signed["entries"][0], **changes}


ENTRY = ("entries", 0)
MODEL = b'"model":"minilm/v1"'
COLD = b'"cold_s":12.3'
MIB = 1 << 20


def _body(good: Good, **keys: object) -> bytes:
    return canonical_json({"signatures": [], "signed": good.signed, **keys})


#: Bytes that are no manifest at all.
_FORMS: dict[str, Case] = {
    "empty": Case(lambda good: b"", "no JSON|no manifest"),
    "text": Case(lambda good: b"manifest", "no JSON|no manifest"),
    "page of a proxy": Case(lambda good: b"<html>503</html>", "no JSON|no manifest"),
    "gzip": Case(lambda good: gzip.compress(good.file()), "no JSON|no manifest"),
    "UTF-16": Case(lambda good: good.file().decode().encode("utf-16"), "no JSON|no manifest"),
    "byte order mark": Case(lambda good: b"\xef\xbb\xbf" + good.file(), "no JSON|no manifest"),
    "zeros": Case(lambda good: bytes(5000), "no JSON|no manifest"),
    "cut in half": Case(lambda good: good.file()[: len(good.file()) // 2], "no JSON|no manifest"),
    "cut by a byte": Case(lambda good: good.file()[:-2], "no JSON|no manifest|not signed by"),
    "written twice": Case(lambda good: good.file() * 2, "no JSON|no manifest|not signed by"),
    "garbage behind": Case(lambda good: good.file() + b"}", "no JSON|no manifest|not signed by"),
    "null": Case(lambda good: b"null", "no manifest"),
    "a list": Case(lambda good: b"[]", "no manifest"),
    "a number": Case(lambda good: b"1e400", "no JSON|no manifest"),
    "what is signed alone": Case(lambda good: canonical_json(good.signed), "no manifest"),
    "without signatures": Case(
        lambda good: canonical_json({"signed": good.signed}), "no manifest"
    ),
    "with a third key": Case(lambda good: _body(good, more=1), "no manifest"),
    "100,000 brackets": Case(lambda good: b"[" * 100_000, "no JSON|no manifest"),
    "over the limit": Case(lambda good: b" " * (65 * MIB), "is larger than 67,108,864 bytes"),
}  # fmt: skip

#: What even a trusted key must not sign.
_VALUES: dict[str, Case] = {
    "another format": Case(lambda good: good.changed("format", to=2), "found 2, expected 1"),
    "format as text": Case(lambda good: good.changed("format", to="1"), "found '1', expected 1"),
    "format as truth": Case(lambda good: good.changed("format", to=True), "found True"),
    "signed is a list": Case(lambda good: good.file([]), "format: found None"),
    "signed is a text": Case(lambda good: good.file("x"), "format: found None"),
    "comma left out": Case(lambda good: good.raw(MODEL, MODEL * 2), "no JSON"),
    "model twice": Case(
        lambda good: good.raw(MODEL, MODEL + b"," + MODEL), "the key 'model' stands twice"
    ),
    "builder twice": Case(
        lambda good: good.raw(b'"builder":"gpu-1"', b'"builder":"x","builder":"gpu-1"'),
        "the key 'builder' stands twice",
    ),
    "NaN": Case(lambda good: good.raw(COLD, b'"cold_s":NaN'), "NaN is no JSON number"),
    "Infinity": Case(lambda good: good.raw(COLD, b'"cold_s":Infinity'), "is no JSON number"),
    "1e999": Case(lambda good: good.raw(COLD, b'"cold_s":1e999'), "1e999 is no JSON number"),
    "1e999 in the proof": Case(
        lambda good: good.raw(b'"proof":{', b'"proof":{"a":[-1e999],'), "is no JSON number"
    ),
    "number of 5,000 digits": Case(
        lambda good: good.raw(COLD, b'"cold_s":' + b"9" * 5000), "no JSON"
    ),
    "negative seconds": Case(lambda good: good.raw(COLD, b'"cold_s":-1'), "found -1"),
    "negative size": Case(
        lambda good: good.changed(*ENTRY, "bundle", "size_bytes", to=-1), "size_bytes: found -1"
    ),
    "size as a float": Case(
        lambda good: good.changed(*ENTRY, "bundle", "size_bytes", to=1.5), "size_bytes"
    ),
    "size as truth": Case(
        lambda good: good.changed(*ENTRY, "bundle", "files", to=True), "files: found True"
    ),
    "digest that climbs": Case(
        lambda good: good.changed(*ENTRY, "bundle", "sha256", to="../../../etc/passwd"), "sha256"
    ),
    "digest in capitals": Case(
        lambda good: good.changed(*ENTRY, "bundle", "sha256", to="A" * 64), "sha256"
    ),
    "digest with a line end": Case(
        lambda good: good.changed(*ENTRY, "bundle", "sha256", to="a" * 64 + "\n"), "no JSON|sha256"
    ),
    "no bundle": Case(lambda good: good.changed(*ENTRY, "bundle", to=None), "bundle: found None"),
    "status that is not published": Case(
        lambda good: good.changed(*ENTRY, "status", to="failed"), "status: found 'failed'"
    ),
    "partial without a reason": Case(
        lambda good: good.changed(*ENTRY, "status", to="partial"), "why it is only partial"
    ),
    "unknown environment": Case(
        lambda good: good.changed(*ENTRY, "environment", to="elsewhere"), "one of `environments`"
    ),
    "same model twice": Case(
        lambda good: good.changed("entries", to=[_entry(good)] * 2), "each model once"
    ),
    "unknown key": Case(
        lambda good: good.changed("entries", to=[_entry(good, shell="sh -c …")]), "unknown key"
    ),
    "entry that is a text": Case(lambda good: good.changed("entries", to=["x"]), "a table"),
    "entries that are a table": Case(lambda good: good.changed("entries", to={}), "a list"),
    "500 wrong entries": Case(
        lambda good: good.changed("entries", to=["x" * 10_000] * 500), r"and [\d,]+ more"
    ),
    "facts that are numbers": Case(
        lambda good: good.changed("environments", to={"0123456789abcdef": {"torch": 2}}), "a text"
    ),
    "time that is none": Case(
        lambda good: good.changed("generated_at", to="2027-13-45T99:00:00.000Z"), "generated_at"
    ),
    "generation below zero": Case(lambda good: good.changed("generation", to=-1), "generation"),
    "builder of another name": Case(
        lambda good: good.changed("builder", to="gpu-2"), "another's name"
    ),
    "builder that climbs": Case(
        lambda good: good.changed("builder", to="../gpu-1"), "another's name"
    ),
    "proof without a bottom": Case(
        lambda good: good.changed(*ENTRY, "proof", to=_nested(300)), "deeper than 32 levels"
    ),
    "proof of 50,000 levels": Case(
        lambda good: good.raw(b'"proof":{', b'"proof":{"x":' + b"[" * 50_000 + b"]" * 50_000),
        "no JSON",
    ),
    "half a surrogate pair": Case(
        lambda good: good.raw(MODEL, rb'"model":"minilm/\ud800"'), "no terminal can show"
    ),
    "half a surrogate pair as bytes": Case(
        lambda good: good.raw(MODEL, b'"model":"minilm/\xed\xa0\x80"'), "no JSON"
    ),
    "model that clears the screen": Case(
        lambda good: good.raw(MODEL, rb'"model":"minilm\u001b[2J"'), "no terminal can show"
    ),
    "alias with a line end": Case(
        lambda good: good.changed(*ENTRY, "aliases", to=["a\nwarm"]), "no terminal can show"
    ),
    "reason with a carriage return": Case(
        lambda good: good.changed(*ENTRY, "reason", to="\rprewarm: all is well"), "no terminal"
    ),
    "NUL in a variable": Case(
        lambda good: good.changed(*ENTRY, "variables", to={"A": "a\0b"}), "no terminal can show"
    ),
    "turned writing in a fact": Case(
        lambda good: good.changed("environments", to={"0123456789abcdef": {"cxx": "a\u202eb"}}),
        "no terminal can show",
    ),
    "endless empty lists": Case(
        lambda good: good.raw(b'"proof":{', b'"proof":{"x":[' + b"[]," * (16 * MIB) + b"0],"),
        "it holds over",
    ),
    "endless numbers": Case(
        lambda good: good.raw(b'"proof":{', b'"proof":{"x":[' + b"999," * (12 * MIB) + b"0],"),
        "it holds over",
    ),
    "endless keys": Case(
        lambda good: good.raw(b'"proof":{', b'"proof":{"x":[' + b'{"a":0},' * (6 * MIB) + b"0],"),
        "it holds over",
    ),
}  # fmt: skip


def _with_signatures(good: Good, signatures: object) -> bytes:
    return b'{"signatures":' + _text(signatures) + b',"signed":' + _text(good.signed) + b"}\n"


def _signature(good: Good, **changes: object) -> dict[str, object]:
    return {**good.key.sign(_text(good.signed)), **changes}


#: What is refused where a key must have signed, beside all the others.
_SIGNATURES: dict[str, Case] = {
    "unsigned": Case(lambda good: _with_signatures(good, []), "is not signed; run"),
    "signed by another key": Case(
        lambda good: good.file(key=good.other), "is not signed by a trusted key"
    ),
    "another's signature under the trusted name": Case(
        lambda good: _with_signatures(
            good, [{**good.other.sign(_text(good.signed)), "keyid": good.key.keyid}]
        ),
        "is not signed by a trusted key",
    ),
    "signature over something else": Case(
        lambda good: _with_signatures(good, [good.key.sign(b"something else")]), "not signed by"
    ),
    "changed after it was signed": Case(
        lambda good: good.file().replace(MODEL, b'"model":"minilm/v2"'), "not signed by"
    ),
    "another signature in its place": Case(
        lambda good: _with_signatures(good, [_signature(good, sig="A" * 86 + "==")]),
        "not signed by",
    ),
    "empty signature": Case(
        lambda good: _with_signatures(good, [_signature(good, sig="")]), "not signed by"
    ),
    "signature that is no base64": Case(
        lambda good: _with_signatures(good, [_signature(good, sig="no base64!")]), "not signed by"
    ),
    "signature that is a number": Case(
        lambda good: _with_signatures(good, [_signature(good, sig=5)]), "no manifest"
    ),
    "signature that is not ASCII": Case(
        lambda good: _with_signatures(good, [_signature(good, keyid="ü")]), "no manifest"
    ),
    "signatures that are a table": Case(
        lambda good: _with_signatures(good, _signature(good)), "no manifest"
    ),
    "10,000 signatures": Case(
        lambda good: _with_signatures(good, [_signature(good)] * 10_000), "no manifest"
    ),
    "key id that clears the screen": Case(
        lambda good: _with_signatures(good, [_signature(good, keyid="\x1b[2J")]), "not signed by"
    ),
    "signed, then indented": Case(
        lambda good: json.dumps(json.loads(good.file()), indent=1).encode(), "no manifest"
    ),
    "signed, then spaced": Case(
        lambda good: good.file().replace(b'"format":1', b'"format": 1'), "not signed by"
    ),
    "signed part of a part": Case(
        lambda good: b'{"signatures":' + _text([good.key.sign(_text({}))])
        + b',"signed":{},"signed":' + _text(good.signed) + b"}\n",
        "not signed by",
    ),
    "endless lists of a stranger": Case(
        lambda good: b'{"signatures":[],"signed":[' + b"[]," * (20 * MIB) + b"0]}",
        "is not signed; run",
    ),
}  # fmt: skip

PLAIN: dict[str, Case] = {**_FORMS, **_VALUES}
SIGNED: dict[str, Case] = {**_FORMS, **_VALUES, **_SIGNATURES}
