"""Servers that stall, trickle, redirect, lie or flood: each is refused with one line, in time.

Nothing is written outside the reader's own places, and memory stays bounded. Real sockets; the
deadline is an argument. What hostile bundles hold is another bank's: tests/store.
"""

from __future__ import annotations

import datetime
import gzip
import ipaddress
import json
import os
import ssl
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from prewarm.deploy.address import address_of
from prewarm.deploy.hook import run_hook
from prewarm.deploy.outcome import Outcome, Wanted
from prewarm.errors import PrewarmError
from prewarm.store.bundle import BundleInfo, bundle_path
from prewarm.store.manifest import manifest_path
from prewarm.store.manifest_text import canonical_json
from prewarm.store.signing import SigningKey, load_or_create_key

from .conftest import Publisher
from .hostile import Call, Handler, Hostile, hostile


class Bed:
    """A published model, its key, and hooks that are pointed at a hostile server."""

    def __init__(self, root: Path, facts: dict[str, str | None]) -> None:
        self.root = root
        self.publish = Publisher(root / "builder", facts)
        (root / "builder").mkdir()
        self.info: BundleInfo = self.publish()
        self.key: SigningKey = load_or_create_key(root / "builder" / "state")
        self.manifest = manifest_path(self.publish.cache_dir, "gpu-1").read_bytes().rstrip()
        self.body = b'{"manifests":[' + self.manifest + b"]}\n"
        self.bundle = bundle_path(self.publish.cache_dir, self.info.sha256).read_bytes()
        (root / "home").mkdir()
        self.victim = root / "victim"
        self.victim.write_bytes(b"mine")

    @property
    def place(self) -> Path:
        return self.root / "home" / "prewarm" / "hook"

    @property
    def part(self) -> Path:
        return self.place / "downloads" / f"{self.info.sha256}.part"

    def leave_part(self, content: bytes) -> None:
        for directory in (self.place, self.part.parent):
            directory.mkdir(parents=True, exist_ok=True)
            directory.chmod(0o755)
        self.part.write_bytes(content)

    def hook(self, url: str, **changes: Any) -> Outcome:
        wanted: dict[str, Any] = {
            "models": ("minilm/v1",),
            "into": self.root / "D",
            "manifest": address_of(url),
            "interpreter": (),
            "on_miss": "fail",
            "trust": (self.key.public,),
            "timeout_s": 20.0,
        }
        environ = dict(os.environ) | {"XDG_CACHE_HOME": str(self.root / "home")}
        return run_hook(Wanted(**(wanted | changes)), environ)

    def refused(self, handler: Handler, **changes: Any) -> PrewarmError:
        """Run a hook that must be refused; nothing is left of what was sent."""
        with hostile(handler) as server:
            return self.refused_by(server, **changes)

    def refused_by(self, server: Hostile, **changes: Any) -> PrewarmError:
        with pytest.raises(PrewarmError) as caught:
            self.hook(server.url, **changes)
        told = str(caught.value)
        assert told.isprintable(), told
        assert len(told) < 1000
        self.check_untouched()
        return caught.value

    def check_untouched(self) -> None:
        assert {path.name for path in self.root.iterdir()} <= {"builder", "home", "victim", "D"}
        assert self.victim.read_bytes() == b"mine"
        assert not list(self.root.glob("D/[0-9a-f]*")), "a tree was made"
        assert not list(self.place.glob("bundles/*/*/*")), "it was taken for a bundle"

    def with_bundle(self, handler: Handler) -> Handler:
        """Answer the manifest rightly, and bundles as the handler says."""

        def handle(call: Call) -> None:
            if call.path == "/v1/manifest":
                call.answer(self.body)
            else:
                handler(call)

        return handle

    def signed(self, **values: Any) -> bytes:
        """Return the answer with a manifest that the right key has signed."""
        signed = json.loads(self.manifest)["signed"] | values
        body = {"signatures": [self.key.sign(canonical_json(signed))], "signed": signed}
        return b'{"manifests":[' + canonical_json(body) + b"]}\n"


@pytest.fixture
def bed(tmp_path: Path, present_facts: dict[str, str | None]) -> Bed:
    return Bed(tmp_path, present_facts)


# -- how a manifest is answered

HTML = b"<html>It works!</html>"
GZIP = gzip.compress(bytes(10_000_000))


def redirecting(location: str, status: str = "302 Found") -> Handler:
    return lambda call: call.answer(status=status, location=location)


LATE: dict[str, Handler] = {
    "says nothing": lambda call: call.stall(),
    "stalls in a header": lambda call: (call.send(b"HTTP/1.1 200 OK\r\nx: "), call.stall())[1],
    "stalls in the body": lambda call: (call.answer(b"{", length=9), call.stall())[1],
    "trickles its headers": lambda call: call.trickle(b"HTTP/1.1 200 OK\r\n" + b"x" * 10_000),
    "trickles its body": lambda call: (
        call.send(b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n"),
        call.trickle(b"x"),
    )[1],
    "trickles chunks": lambda call: (
        call.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"),
        call.trickle(b"1\r\nx\r\n"),
    )[1],
    "continues for ever": lambda call: call.flood(b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
}

ODD: dict[str, tuple[Handler, str]] = {
    "hangs up": (lambda call: None, "unreachable"),
    "hangs up in its headers": (lambda call: call.send(b"HTTP/1.1 200 OK\r\nx:"), "bad_answer"),
    "hangs up in the body": (lambda call: call.answer(b'{"mani', length=900), "bad_answer"),
    "speaks another protocol": (lambda call: call.send(b"SSH-2.0-x\r\n" * 9), "unreachable"),
    "speaks to the terminal": (
        lambda call: call.send(b"HTTP/1.1 \x1b[2Jall is well\r\n\r\n"),
        "unreachable",
    ),
    "is signed for the terminal": (
        lambda call: call.answer(
            b'{"manifests":[{"signatures":[{"keyid":"\\u001b[2J","sig":""}],"signed":{}}]}'
        ),
        "not_trusted",
    ),
    "sends no status": (lambda call: call.send(HTML), "unreachable"),
    "sends a strange status": (lambda call: call.answer(status="999999 X"), "unreachable"),
    "sends headers for ever": (
        lambda call: (call.send(b"HTTP/1.1 200 OK\r\n"), call.flood(b"a: b\r\n" * 100))[1],
        "unreachable",
    ),
    "sends one header for ever": (
        lambda call: (call.send(b"HTTP/1.1 200 OK\r\na: "), call.flood(b"b" * 10_000))[1],
        "unreachable",
    ),
    "fails": (lambda call: call.answer(HTML, status="500 Oops"), "bad_answer"),
    "forbids as a page": (lambda call: call.answer(HTML, status="403 Forbidden"), "bad_answer"),
    "forbids in a strange way": (
        lambda call: call.answer(b'{"error":{"code":"rm","message":"-rf"}}', status="403 No"),
        "bad_answer",
    ),
    "forbids with colours": (
        lambda call: call.answer(
            b'{"error":{"code":"forbidden","message":"\\u001b[2J\\nprewarm: all is well"}}',
            status="403 No",
        ),
        "forbidden",
    ),
    "nests its error": (
        lambda call: call.answer(b'{"error":' + b"[" * 9000, status="403 No"),
        "bad_answer",
    ),
    "has nothing new though nothing is there": (
        lambda call: call.answer(status="304 Not Modified"),
        "bad_answer",
    ),
    "has no content": (lambda call: call.answer(status="204 No Content"), "bad_answer"),
    "redirects to itself": (redirecting("/v1/manifest"), "bad_answer"),
    "redirects to another host": (redirecting("http://localhost/v1/manifest"), "bad_answer"),
    "redirects to another port": (redirecting("http://127.0.0.1:1/"), "bad_answer"),
    "redirects to another scheme": (redirecting("file:///etc/passwd"), "bad_answer"),
    "redirects without a host": (redirecting("http:///v1/manifest"), "bad_answer"),
    "redirects to no address": (redirecting("http://[::1/"), "bad_answer"),
    "redirects to nowhere": (lambda call: call.answer(status="301 Moved"), "bad_answer"),
    "redirects to a user": (redirecting("http://127.0.0.1@localhost/"), "bad_answer"),
    "promises too much": (lambda call: call.answer(b"{}", length=1 << 40), "bad_answer"),
    "promises more than it sends": (lambda call: call.answer(b"{}", length=3), "bad_answer"),
    "breaks a chunk": (
        lambda call: call.send(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n"
        ),
        "unreachable",
    ),
    "sends a chunk of its own size": (
        lambda call: call.send(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"f" * 70_000
        ),
        "unreachable",
    ),
    "sends gzip": (lambda call: call.answer(GZIP, content_encoding="gzip"), "bad_answer"),
    "sends zstd": (lambda call: call.answer(b"x", content_encoding="zstd"), "bad_answer"),
    "sends several": (lambda call: call.answer(b"x", content_encoding="br, gzip"), "bad_answer"),
    "sends a page": (lambda call: call.answer(HTML), "bad_answer"),
    "sends nothing": (lambda call: call.answer(), "bad_answer"),
    "sends another table": (lambda call: call.answer(b'{"manifest":[]}'), "bad_answer"),
    "sends an empty list": (lambda call: call.answer(b'{"manifests":[]}'), "no_manifest"),
    "sends zeros": (lambda call: call.answer(bytes(1000)), "bad_answer"),
    "nests without end": (
        lambda call: call.answer(b'{"manifests":[' + b"[" * 1_000_000 + b"]}"),
        "bad_manifest",
    ),
    "sends very many": (
        lambda call: call.answer(b'{"manifests":[' + b',{"signatures":[' * 9_000 + b"]}"),
        "bad_answer",
    ),
}


@pytest.mark.parametrize("how", LATE)
def test_a_server_that_is_late_is_left(bed: Bed, how: str) -> None:
    error = bed.refused(LATE[how], timeout_s=0.3)

    assert (error.code, error.exit_code) == ("timed_out", 5)


@pytest.mark.parametrize("how", ODD)
def test_an_odd_answer_is_refused(bed: Bed, how: str) -> None:
    handler, code = ODD[how]

    error = bed.refused(handler)

    assert (error.code, error.exit_code) == (code, 5), error


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "br, gzip"])
def test_an_encoding_is_refused_whatever_is_in_it(bed: Bed, encoding: str) -> None:
    error = bed.refused(lambda call: call.answer(bed.body, content_encoding=encoding))

    assert error.code == "bad_answer"
    assert f"answers in {encoding}, which was not asked for" in str(error)


def test_the_end_of_a_flood_is_the_limit(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    def flood(call: Call) -> None:
        call.send(b"HTTP/1.1 200 OK\r\n\r\n")
        call.flood(b'{"manifests":[' + b" " * 100_000)

    monkeypatch.setattr("prewarm.deploy.builder.LARGEST_MANIFEST_BYTES", 4 << 20)
    tracemalloc.start()
    try:
        error = bed.refused(flood)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert error.code == "bad_answer"
    assert "more than the limit of 4,194,304 bytes" in str(error)
    assert peak_bytes < 16 << 20


def test_nobody_is_asked_whom_a_redirect_names(bed: Bed) -> None:
    with (
        hostile(lambda call: call.answer(bed.body)) as other,
        hostile(redirecting(f"http://127.0.0.1:{other.port}/v1/manifest")) as server,
    ):
        error = bed.refused_by(server)
        assert other.calls == []

    assert error.code == "bad_answer"
    assert "redirects to http://127.0.0.1:" in str(error)


def test_a_redirect_on_the_same_host_is_followed_and_keeps_the_token(
    bed: Bed, tmp_path: Path
) -> None:
    def handle(call: Call) -> None:
        if call.path.startswith("/v1"):
            call.answer(status="307 There", location="/there" + call.path)
        else:
            call.answer(bed.body if call.path.endswith("manifest") else bed.bundle)

    token = tmp_path / "builder" / "token"
    token.write_text("secret\n")
    with hostile(handle) as server:
        assert bed.hook(server.url, token_file=token).misses == ()
        assert {call.headers["authorization"] for call in server.calls} == {"Bearer secret"}


# -- TLS


@pytest.fixture
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ssl.SSLContext, Path]]:
    """A server's side of TLS for 127.0.0.1, and the authority to trust for it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "prewarm test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "cert.pem"
    file.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    yield context, file


def test_https_needs_a_certificate_that_holds(
    bed: Bed, certificate: tuple[ssl.SSLContext, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    context, file = certificate

    def handle(call: Call) -> None:
        call.answer(bed.body if call.path == "/v1/manifest" else bed.bundle)

    with hostile(handle, context) as server:
        error = bed.refused_by(server)
        assert error.code == "unreachable"
        assert "its certificate does not hold" in str(error)
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        assert bed.hook(server.url).misses == ()


def test_https_is_never_left_for_http(
    bed: Bed, certificate: tuple[ssl.SSLContext, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    context, file = certificate
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    with (
        hostile(lambda call: call.answer(bed.body)) as plain,
        hostile(redirecting(f"{plain.url}/v1/manifest"), context) as server,
    ):
        assert bed.refused_by(server).code == "bad_answer"
        assert plain.calls == []


def test_http_may_be_left_for_https_on_the_same_host(
    bed: Bed, certificate: tuple[ssl.SSLContext, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    context, file = certificate
    monkeypatch.setenv("SSL_CERT_FILE", str(file))

    def handle(call: Call) -> None:
        call.answer(bed.body if call.path == "/v1/manifest" else bed.bundle)

    with hostile(handle, context) as secure:

        def upgrade(call: Call) -> None:
            call.answer(status="308 Secure", location=secure.url + call.path)

        with hostile(upgrade) as plain:
            assert bed.hook(plain.url).misses == ()


# -- what a manifest says


def test_an_unsigned_manifest_is_refused(bed: Bed) -> None:
    body = canonical_json({"signatures": [], "signed": json.loads(bed.manifest)["signed"]})

    error = bed.refused(lambda call: call.answer(b'{"manifests":[' + body + b"]}"))

    assert error.code == "not_trusted"
    assert "is not signed; run `prewarm doctor`" in str(error)


def test_one_signed_by_another_key_is_refused(bed: Bed, tmp_path: Path) -> None:
    trust = (load_or_create_key(tmp_path / "builder" / "other").public,)

    assert bed.refused(lambda call: call.answer(bed.body), trust=trust).code == "not_trusted"


@pytest.mark.parametrize("at", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_flipped_byte_is_refused(bed: Bed, at: float) -> None:
    position = int(len(bed.body) * at)
    flipped = bytearray(bed.body)
    flipped[position] ^= 1

    error = bed.refused(lambda call: call.answer(bytes(flipped)))

    assert error.code in ("not_trusted", "bad_manifest")


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"format": 2}, "format: found 2"),
        ({"entries": 1}, "entries: found 1"),
        ({"entries": [{}]}, "is missing"),
        ({"environments": {}}, "one of `environments`"),
        ({"generated_at": "tomorrow"}, "generated_at"),
        ({"extra": "x"}, "extra: unknown key"),
    ],
)
def test_a_signed_one_of_another_format_is_refused(
    bed: Bed, values: dict[str, Any], told: str
) -> None:
    body = bed.signed(**values)

    error = bed.refused(lambda call: call.answer(body))

    assert error.code == "bad_manifest"
    assert told in str(error)


def test_a_strangers_endless_lists_are_not_parsed(bed: Bed) -> None:
    body = b'{"manifests":[{"signatures":[],"signed":{"entries":[' + b"{}," * 4_000_000 + b"{}]}}]}"
    tracemalloc.start()
    try:
        error = bed.refused(lambda call: call.answer(body))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert error.code == "not_trusted"
    assert peak_bytes < 4 * len(body), "a list of so many tables takes 20 times as much"


def test_of_one_builder_the_newest_counts_whatever_is_sent_along(bed: Bed) -> None:
    bed.publish("gpt2", {"inductor/g/f": b"g"})
    newer = manifest_path(bed.publish.cache_dir, "gpu-1").read_bytes().rstrip()
    for parts in ([bed.manifest, newer], [newer, bed.manifest]):
        body = b'{"manifests":[' + b",".join(parts) + b"]}"
        info = bed.publish.entries[1]["bundle"]
        data = bundle_path(bed.publish.cache_dir, info["sha256"]).read_bytes()
        with hostile(lambda call: call.answer(body if "man" in call.path else data)) as server:  # noqa: B023
            assert bed.hook(server.url, models=("gpt2",)).misses == ()


def test_a_bundle_that_no_disk_holds_is_told_before(bed: Bed) -> None:
    entry = json.loads(bed.manifest)["signed"]["entries"][0]
    for size in ("size_bytes", "unpacked_bytes"):
        body = bed.signed(entries=[entry | {"bundle": entry["bundle"] | {size: 1 << 60}}])
        with hostile(lambda call: call.answer(body)) as server:  # noqa: B023
            assert bed.refused_by(server).code == "no_space"
            assert [call.path for call in server.calls] == ["/v1/manifest"]


# -- how a bundle is answered

BUNDLE_LATE: dict[str, Handler] = {
    "says nothing": lambda call: call.stall(),
    "stalls in the body": lambda call: (call.answer(b"x", length=None), call.stall())[1],
    "trickles": lambda call: (call.answer(length=None), call.trickle(b"x"))[1],
}

BUNDLE_ODD: dict[str, tuple[Handler, str]] = {
    "hangs up": (lambda call: None, "unreachable"),
    "says it is longer": (lambda call: call.answer(b"x", length=1 << 40), "bad_answer"),
    "says it is shorter": (lambda call: call.answer(b"x", length=1), "bad_answer"),
    "has it not": (
        lambda call: call.answer(
            b'{"error":{"code":"no_bundle","message":"gone"}}', status="404 Not Found"
        ),
        "no_bundle",
    ),
    "fails": (lambda call: call.answer(HTML, status="500 Oops"), "bad_answer"),
    "sends a part of its own": (
        lambda call: call.answer(b"x", status="206 Part", content_range="bytes 0-0/1"),
        "bad_answer",
    ),
    "sends nothing new": (lambda call: call.answer(status="304 Not Modified"), "bad_answer"),
    "sends gzip": (lambda call: call.answer(GZIP, content_encoding="gzip"), "bad_answer"),
    "redirects elsewhere": (redirecting("http://localhost:1/"), "bad_answer"),
    "redirects to itself": (lambda call: redirecting(call.path)(call), "bad_answer"),
    "floods": (
        lambda call: (call.answer(length=None), call.flood(b"x" * 100_000))[1],
        "bad_answer",
    ),
    "floods in chunks": (
        lambda call: (
            call.answer(length=None, transfer_encoding="chunked"),
            call.flood(b"2710\r\n" + b"x" * 10_000 + b"\r\n"),
        )[1],
        "bad_answer",
    ),
}


@pytest.mark.parametrize("how", BUNDLE_LATE)
def test_a_bundle_that_is_late_is_given_up(bed: Bed, how: str) -> None:
    error = bed.refused(bed.with_bundle(BUNDLE_LATE[how]), timeout_s=1.0)

    assert (error.code, error.exit_code) == ("timed_out", 3)


@pytest.mark.parametrize("how", BUNDLE_ODD)
def test_an_odd_answer_is_no_bundle(bed: Bed, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prewarm.deploy.download._PAUSE_S", 0.0)
    handler, code = BUNDLE_ODD[how]

    error = bed.refused(bed.with_bundle(handler))

    assert (error.code, error.exit_code) == (code, 3), error


def test_other_content_of_the_right_length_is_refused_and_not_kept(bed: Bed) -> None:
    other = bytes(len(bed.bundle))

    error = bed.refused(bed.with_bundle(lambda call: call.answer(other)))

    assert (error.code, error.exit_code) == ("corrupt", 3)
    assert not bed.part.exists()


# -- going on where it broke off


def ranged(bed: Bed, most: int, answers: Callable[[Call, int], bool] | None = None) -> Handler:
    """Send at most so many bytes at a time, then hang up."""

    def handle(call: Call) -> None:
        size = len(bed.bundle)
        start = int(call.headers.get("range", "bytes=0-")[6:-1])
        if answers is not None and answers(call, start):
            return
        part = bed.bundle[start : start + most]
        if start:
            assert call.headers["if-range"] == f'"{bed.info.sha256}"'
            where = f"bytes {start}-{size - 1}/{size}"
            call.answer(part, status="206 P", length=size - start, content_range=where)
        else:
            call.answer(part, length=size)

    return bed.with_bundle(handle)


def ranges(server: Hostile) -> list[str | None]:
    return [call.headers.get("range") for call in server.calls if call.path != "/v1/manifest"]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prewarm.deploy.download._PAUSE_S", 0.0)


@pytest.mark.usefixtures("at_once")
def test_a_download_goes_on_where_it_broke_off(bed: Bed) -> None:
    third = len(bed.bundle) // 3 + 1
    with hostile(ranged(bed, third)) as server:
        assert bed.hook(server.url).misses == ()

        assert ranges(server) == [None, f"bytes={third}-", f"bytes={2 * third}-"]


@pytest.mark.usefixtures("at_once")
def test_the_next_hook_goes_on_too(bed: Bed) -> None:
    half = len(bed.bundle) // 2

    def breaks(call: Call, start: int) -> bool:
        return start > 0

    error = bed.refused(ranged(bed, half, breaks))
    assert error.code == "unreachable"
    assert bed.part.read_bytes() == bed.bundle[:half]

    with hostile(ranged(bed, len(bed.bundle))) as server:
        assert bed.hook(server.url).misses == ()
        assert ranges(server) == [f"bytes={half}-"]
    assert not bed.part.exists()


RESUMED_ODDLY: dict[str, Handler] = {
    "another range": lambda call: call.answer(
        b"x", status="206 P", content_range="bytes 0-0/1", length=1
    ),
    "a range of another file": lambda call: call.answer(
        b"x", status="206 P", content_range="bytes 10-10/11", length=1
    ),
    "no range at all": lambda call: call.answer(b"x", status="206 P", length=1),
    "a range that is not there": lambda call: call.answer(
        status="416 R", content_range="bytes */1"
    ),
}


@pytest.mark.parametrize("how", RESUMED_ODDLY)
def test_a_server_that_cannot_go_on_is_asked_for_the_whole(bed: Bed, how: str) -> None:
    bed.leave_part(bed.bundle[:10])

    def answers(call: Call, start: int) -> bool:
        if start:
            RESUMED_ODDLY[how](call)
        return start > 0

    with hostile(ranged(bed, len(bed.bundle), answers)) as server:
        assert bed.hook(server.url).misses == ()
        assert ranges(server) == ["bytes=10-", None]


def test_a_server_that_sends_the_whole_instead_of_a_part_is_fine(bed: Bed) -> None:
    bed.leave_part(b"something else")

    with hostile(bed.with_bundle(lambda call: call.answer(bed.bundle))) as server:
        assert bed.hook(server.url).misses == ()


@pytest.mark.parametrize("size", [10, None, 1_000_000])
def test_a_part_that_somebody_filled_with_something_else_is_fetched_anew(
    bed: Bed, size: int | None
) -> None:
    bed.leave_part(bytes(size or len(bed.bundle)))

    with hostile(ranged(bed, len(bed.bundle))) as server:
        assert bed.hook(server.url).misses == ()
        assert ranges(server)[-1] is None


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "directory"])
def test_a_part_that_is_no_file_of_ones_own_is_not_written(bed: Bed, kind: str) -> None:
    bed.leave_part(b"")
    bed.part.unlink()
    if kind == "link":
        bed.part.symlink_to(bed.victim)
    elif kind == "hard link":
        bed.part.hardlink_to(bed.victim)
    elif kind == "pipe":
        os.mkfifo(bed.part)
    else:
        bed.part.mkdir()

    error = bed.refused(bed.with_bundle(lambda call: call.answer(bed.bundle)))

    assert error.code == "not_writable"


def test_another_user_can_leave_no_part(bed: Bed) -> None:
    bed.leave_part(b"x")
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(bed.part, 1234, 1234)

    error = bed.refused(bed.with_bundle(lambda call: call.answer(bed.bundle)))

    assert error.code == "not_writable"


# -- how a wish is answered

WISHES: dict[str, Handler] = {
    "a page": lambda call: call.answer(HTML),
    "a list": lambda call: call.answer(b"[]"),
    "nothing": lambda call: None,
    "a redirect": redirecting("/v1/requests", "307 There"),
    "a flood": lambda call: (call.answer(length=None), call.flood(b'{"status":"' * 9000))[1],
    "silence": lambda call: call.stall(),
    "a strange status": lambda call: call.answer(
        b'{"status":"\\u001b[2J","reason":null,"code":null}'
    ),
    "warm, though it is not": lambda call: call.answer(
        b'{"status":"warm","reason":"","code":null}'
    ),
}


def test_a_builder_that_does_not_wait_is_not_asked_without_a_pause(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prewarm.deploy.waiting._LOOK_S", 0.2)

    def handle(call: Call) -> None:
        call.answer(bed.body if call.method == "GET" else b'{"status":"queued","reason":null}')

    with hostile(handle) as server:
        bed.refused_by(server, models=("unknown",), wait_s=0.5)
        assert len([call for call in server.calls if call.method == "POST"]) <= 5


@pytest.mark.parametrize("how", WISHES)
def test_a_wish_that_is_answered_oddly_ends_with_what_is_published(
    bed: Bed, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prewarm.deploy.builder._MORE_S", 0.2)
    monkeypatch.setattr("prewarm.deploy.waiting._LOOK_S", 0.05)

    def handle(call: Call) -> None:
        if call.method == "POST":
            WISHES[how](call)
        else:
            call.answer(bed.body)

    error = bed.refused(handle, models=("unknown",), wait_s=0.5)

    assert error.exit_code in (3, 5), error
