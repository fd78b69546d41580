from __future__ import annotations

import pytest

from prewarm.serve.conditional import best_encoding, has_already


@pytest.mark.parametrize(
    ("header", "has"),
    [
        (None, False), ("", False), ('"a"', True), ('W/"a"', True), ("*", True),
        ('"b", "a"', True), ('"b"', False), ("a", False), ('"a-gzip"', False),
    ],
)  # fmt: skip
def test_a_reader_has_it_if_it_names_its_tag(header: str | None, has: bool) -> None:
    assert has_already(header, '"a"') is has


@pytest.mark.parametrize(
    ("header", "encoding"),
    [
        (None, None), ("", None), ("identity", None), ("br", None),
        ("gzip", "gzip"), ("GZIP;q=0.5", "gzip"), ("gzip, zstd;q=0.1", "zstd"), ("*", "zstd"),
        ("zstd;q=0, *", "gzip"), ("zstd;q=0, gzip;q=0.000", None), ("gzip;q=rubbish", "gzip"),
    ],
)  # fmt: skip
def test_the_best_encoding_that_the_reader_takes(header: str | None, encoding: str | None) -> None:
    assert best_encoding(header) == encoding
