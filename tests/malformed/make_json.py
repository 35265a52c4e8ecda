#!/usr/bin/env python3
"""Writes the broken and hostile JSON dumps and sidecars of tests/malformed/json, each with the text that opening it must
give (empty: it must open).

usage: tests/malformed/make_json.py

Deterministic; run it again after a change and commit what it wrote.
"""
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "json"


def main():
    many = ", ".join(["0.5"] * 15000)  # more than the bid looks at
    files = {
        # dumps
        "cut-in-number.json": ('{"a": [1, 2], "b": [3.5, 4.2', "the JSON ends at byte 28, after 1 of its values"),
        "cut-in-name.json": ('{"a": [1, 2], "b', 'ends at byte 16, behind "a"'),
        "cut-before-list.json": ('{"a": [1, 2], "b":', "the JSON ends at byte 18, after 0 of its values"),
        "cut-in-description.json": ('{"a": {"shape": [2, 2], "dtype": "f32", "data": [1, 2, 3, ',
                                    "the JSON ends at byte 58, after 3 of its values"),
        "word-far-down.json": ('{"a": [%s, x]}' % many, "expected a value after ','"),
        "text-behind.json": ('{"a": [%s]} and more' % many, "expected the end of the text"),
        "ragged.json": ('{"a": [[1, 2], [3]], "b": [1]}', "its lists differ in length, so they have no shape"),
        "list-beside-number.json": ('{"a": [1, [2]], "b": [1]}', "its lists differ in length"),
        "bool-among-numbers.json": ('{"a": [1, true], "b": [1]}', "true and false stand among its numbers"),
        "object-among-numbers.json": ('{"a": [1, {"b": 2}], "b": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]}',
                                      "its lists hold objects beside numbers"),
        "lists-too-deep.json": ('{"a": %s1%s, "b": [1]}' % ("[" * 100, "]" * 100),
                                "its lists are nested deeper than this program goes"),
        "objects-too-deep.json": ('%s[1]%s' % ('{"a": ' * 20, "}" * 20), "objects are nested deeper"),
        "nul-in-name.json": ('{"a\\u0000b": [1, 2], "c": [3, 4]}', "expected a string without NUL characters"),
        "lone-surrogate.json": ('{"\\ud800": [1, 2], "c": [3, 4]}', "expected surrogates in pairs"),
        "name-too-long.json": ('{"%s": [1, 2], "c": [%s]}' % ("n" * 5000, many[:20000] + "5"),
                               "its name is longer than 4096 bytes"),
        "null-among-numbers.json": ('{"a": [1, null, 3]}', "1 of its values are null: read as nan"),
        "shape-too-small.json": ('{"a": {"shape": [2], "data": [1, 2, 3]}}', "its shape has room for 2"),
        "shape-too-large.json": ('{"a": {"shape": [4294967296, 4294967296], "data": [1, 2, 3]}}', ""),
        "shape-of-text.json": ('{"a": {"shape": ["2"], "data": [1, 2]}}', ""),
        "dtype-differs.json": ('{"a": {"dtype": "uint8", "shape": [2], "data": [1, 300]}}',
                               "dtype says uint8, but not all of its values are such"),
        "data-is-text.json": ('{"a": {"shape": [2], "dtype": "f32", "data": "AAAA"}, "b": [1, 2, 3, 4, 5, 6, 7, 8, 9]}',
                              'its raw file "AAAA" cannot be opened'),
        "same-name-twice.json": ('{"a": [1, 2], "a": [3, 4]}', ""),
        # sidecars; they name themselves as the raw file, so that nothing else need stand here
        "raw-missing.json": ('{"dtype": "f32", "shape": [2]}', "no raw file stands beside it"),
        "raw-outside.json": ('{"dtype": "f32", "shape": [2], "file": "../json/raw-outside.json"}', "cannot be opened"),
        "raw-absolute.json": ('{"dtype": "f32", "shape": [2], "file": "/etc/hostname"}', "cannot be opened"),
        "raw-too-short.json": ('{"dtype": "f32", "shape": [200], "file": "raw-too-short.json"}',
                               "dtype and shape need 800 from byte 0 on"),
        "raw-offset-behind.json": ('{"dtype": "u8", "shape": [2], "offset": 18446744073709551615, '
                                   '"file": "raw-offset-behind.json"}', "from byte 18446744073709551615 on"),
        "raw-too-long.json": ('{"dtype": "u8", "shape": [2], "file": "raw-too-long.json"}',
                              "bytes more than dtype and shape need"),
        "raw-shape-overflows.json": ('{"dtype": "u8", "shape": [4294967296, 4294967296], '
                                     '"file": "raw-shape-overflows.json"}', "more than 2^63 elements"),
        "raw-shape-negative.json": ('{"dtype": "u8", "shape": [-1], "file": "raw-shape-negative.json"}',
                                    "its shape is not of whole numbers"),
        "raw-100-axes.json": ('{"dtype": "u8", "shape": [%s], "file": "raw-100-axes.json"}' % ", ".join(["1"] * 100),
                              "more axes than this program goes up to"),
        "raw-strides-few.json": ('{"dtype": "u8", "shape": [2, 2], "strides": [1], "file": "raw-strides-few.json"}',
                                 "it has 2 axes and 1 strides"),
        "raw-strides-outside.json": ('{"dtype": "u8", "shape": [2, 2], "strides": [9223372036854775807, 1], '
                                     '"file": "raw-strides-outside.json"}', "strides reach further than any file"),
        "raw-strides-long.json": ('{"dtype": "u8", "shape": [2, 2], "strides": [1000, 1], '
                                  '"file": "raw-strides-long.json"}', "dtype and shape need 1002 from byte 0 on"),
        "raw-strides-before.json": ('{"dtype": "u8", "shape": [2], "strides": [-1], "file": "raw-strides-before.json"}',
                                    "negative strides reach 1 bytes before the start"),
        "raw-no-offset.json": ('{"tensors": [{"name": "a", "dtype": "u8", "shape": [2], "file": "raw-no-offset.json"}, '
                               '{"name": "b", "dtype": "u8", "shape": [2], "offset": 2, '
                               '"file": "raw-no-offset.json"}]}', "shares its raw file with other tensors"),
        "raw-dtype-unknown.json": ('{"tensors": [{"name": "a", "dtype": "posit", "shape": [2], "file": "x"}, '
                                   '{"name": "b", "dtype": "u8", "shape": [2], "file": "raw-dtype-unknown.json"}]}',
                                   "its raw file \"x\" cannot be opened"),
    }
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.iterdir():
        old.unlink()
    for name, (data, expected) in files.items():
        (FOLDER / name).write_bytes(data.encode())
        (FOLDER / (name + ".expect")).write_text(expected + "\n" if expected else "")


main()
