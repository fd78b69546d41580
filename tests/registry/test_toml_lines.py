from __future__ import annotations

from prewarm.registry.toml_lines import line_of, lines_of_keys

TEXT = '''# a comment = with
title = "x # no comment"
text = """
key = 'inside a string'
[table]
"""
raw = \'\'\'
[[other]]\'\'\'

[model]
kwargs = { a = 1, b = { c = [
  1,
  { d = "}" },
] } }
"quoted.key" = 1
dotted . name = 2

[[shapes]]
name = "a"
[[shapes]]
name = "b"
inputs.x = { dtype = "int64",
             shape = ["n",
                      "m"] }
[shapes.inputs.y]
dtype = "int64"
'''


def test_every_key_has_its_line():
    lines = lines_of_keys(TEXT)
    assert lines[("title",)] == 2
    assert lines[("text",)] == 3
    assert lines[("raw",)] == 7
    assert lines[("model",)] == 10
    assert lines[("model", "kwargs", "b", "c", 1, "d")] == 13
    assert lines[("model", "quoted.key")] == 15
    assert lines[("model", "dotted", "name")] == 16
    assert lines[("shapes", 0)] == 18
    assert lines[("shapes", 1, "name")] == 21
    assert lines[("shapes", 1, "inputs", "x", "shape", 1)] == 24
    assert lines[("shapes", 1, "inputs", "y", "dtype")] == 26
    assert ("table",) not in lines
    assert ("other", 0) not in lines


def test_a_key_that_is_not_there_gets_the_line_of_what_is_around_it():
    lines = lines_of_keys(TEXT)
    assert line_of(lines, ("shapes", 1, "sizes", 3)) == 20
    assert line_of(lines, ("compile", "dynamic")) is None


def test_text_that_is_no_toml_ends():
    for text in ("[", "a = [", "a = {", 'a = "', "= = =", "a = [ ] ] }", "[[", "a = { , }", "\0"):
        lines_of_keys(text)
