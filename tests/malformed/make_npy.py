#!/usr/bin/env python3
"""Writes the hostile and broken numpy files of tests/malformed/npy, each with the text that opening it must give (empty:
it must open).

usage: tests/malformed/make_npy.py

Deterministic; run it again after a change and commit what it wrote.
"""
import io
import struct
import zipfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "npy"


def npy(dictionary, data=b"", major=1, length=None):
    """A npy file. length: what the header says its length is, when it lies."""
    if isinstance(dictionary, str):
        dictionary = dictionary.encode("utf-8" if major == 3 else "latin-1")
    start = 10 if major == 1 else 12
    dictionary += b" " * (-(start + len(dictionary) + 1) % 64) + b"\n"
    size = struct.pack("<H" if major == 1 else "<I", len(dictionary) if length is None else length)
    return b"\x93NUMPY" + bytes([major, 0]) + size + dictionary + data


def header(descr="'<f4'", order="False", shape="(2,)"):
    return "{'descr': %s, 'fortran_order': %s, 'shape': %s, }" % (descr, order, shape)


def npz(*members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data, method in members:
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.compress_type = method
            archive.writestr(info, data)
    return out.getvalue()


def main():
    eight = bytes(8)
    good = npy(header(), eight)
    files = {
        # the file around the header
        "ends-after-magic.npy": (good[:7], "does not begin with"),
        "ends-in-length.npy": (good[:9], "ends inside the header's length"),
        "ends-in-header.npy": (good[:60], "the header takes 118 bytes, 50 are left"),
        "ends-in-data.npy": (good[:-3], "need 8 bytes, 5 are left"),
        "version-9.npy": (good[:6] + b"\x09" + good[7:], "npy version 9.0"),
        "header-of-4-gigabytes.npy": (npy(header(), eight, 2, 0xFFFFFFFF), "header of 4294967295 bytes"),
        "header-length-zero.npy": (npy(header(), eight, 1, 0), "expected '{'"),
        "header-runs-into-data.npy": (npy(header(), b"x" * 8, 1, 126), "something stands behind the dictionary"),
        # the dictionary
        "not-a-dictionary.npy": (npy("__import__('os')", eight), "expected '{'"),
        "without-descr.npy": (npy("{'fortran_order': False, 'shape': (2,)}", eight), "'descr' is missing"),
        "without-shape.npy": (npy("{'descr': '<f4', 'fortran_order': False}", eight), "'shape' is missing"),
        "key-twice.npy": (npy("{'descr': '<f4', 'descr': '<f8'}", eight), "stands there twice"),
        "unknown-key.npy": (npy("{'descr': '<f4', 'evil': ()}", eight), "unknown key 'evil'"),
        "string-without-end.npy": (npy("{'descr': '<f4", eight), "string without an end"),
        "string-ends-in-backslash.npy": (npy("{'descr': '\\", eight, 1, 12), "string without an end"),
        "nul-in-name.npy": (npy(header("[('a\\x00b', '<f4')]"), eight), "NUL in a string"),
        "bad-escape.npy": (npy(header("'\\q'"), eight), "unknown escape"),
        "surrogate-escape.npy": (npy(header("'\\ud800'"), eight), "is no character"),
        "expression-in-shape.npy": (npy(header(shape="(1+1,)"), eight), "expected ',' or ')' in the shape"),
        # shapes
        "negative-axis.npy": (npy(header(shape="(-2,)"), eight), "negative number"),
        "axis-over-64-bits.npy": (npy(header(shape="(18446744073709551618,)"), eight), "number too large"),
        "product-wraps-to-8.npy": (npy(header(shape="(4611686018427387905, 4)"), eight), "more than 2^64 bytes"),
        "product-wraps-to-0.npy": (npy(header(shape="(4294967296, 4294967296)"), eight), "more than 2^64 bytes"),
        "too-many-axes.npy": (npy(header(shape="(" + "1," * 65 + ")"), eight), "more than 64 axes"),
        "shape-larger-than-file.npy": (npy(header(shape="(1099511627776,)"), eight), "need 4398046511104 bytes, 8 are left"),
        "huge-but-empty.npy": (npy(header(shape="(4611686018427387904, 4611686018427387904, 0)")), ""),
        "most-axes.npy": (npy(header(shape="(" + "1," * 63 + "2)"), eight), ""),
        # types
        "type-unknown.npy": (npy(header("'<q4'"), eight), "'<q4', which this program does not know"),
        "type-empty.npy": (npy(header("''"), eight), "which this program does not know"),
        "type-f3.npy": (npy(header("'<f3'"), eight), "'<f3', which this program does not know"),
        "type-size-overflows.npy": (npy(header("'|V99999999999999999999'"), eight), "which this program does not know"),
        "text-size-overflows.npy": (npy(header("'<U4294967295'", shape="(4294967296,)"), eight), "more than 2^64 bytes"),
        "objects.npy": (npy(header("'|O'"), b"\x80\x04cos\nsystem\n."), "array of Python objects"),
        "objects-in-record.npy": (npy(header("[('a', '<f4'), ('b', '|O')]"), eight), "array of Python objects"),
        "strings.npy": (npy(header("'<U1'"), eight), "text, not numbers"),
        # records
        "record-too-deep.npy": (npy(header("[('a', " * 20 + "'<f4'" + ")]" * 20), eight), "nested more than 8 deep"),
        "tuples-too-deep.npy": (npy("{'descr': " + "(" * 2000, eight, 2), "nested more than 8 deep"),
        "record-size-overflows.npy": (
            npy(header("[('a', '<f8', (4611686018427387904, 2)), ('b', '<f8')]", shape="(1,)"), eight),
            "record too large",
        ),
        "record-sum-overflows.npy": (
            npy(header("[('a', '<f8', (576460752303423488,)), ('b', '<f8', (576460752303423488,))]"), eight),
            "record too large",
        ),
        "record-without-fields.npy": (npy(header("[]"), eight), "records without a field"),
        "record-of-padding.npy": (npy(header("[('', '|V4')]"), eight), "records without a field"),
        "record-uneven.npy": (npy(header("[('a', '<f4'), ('b', '|i1')]"), bytes(10)), "4 bytes stand 5 bytes apart"),
        "record-too-many-fields.npy": (npy(header("[" + "('a','i1')," * 5000 + "]"), eight, 2), "more than 4096 fields"),
        "record-rank-over-64.npy": (
            npy(header("[('a', '<f4', (" + "1," * 40 + "))]", shape="(" + "1," * 40 + ")"), eight),
            "has 80 axes",
        ),
        "record-empty-axis.npy": (npy(header("[('a', '<f4', (0,)), ('b', '<f4')]"), eight), ""),
        # npz
        "one-bad-member.npz": (
            npz(("a.npy", good, 0), ("b.npy", good[:-3], 8), ("c.npy", good, 8)),
            "need 8 bytes, 5 are left",
        ),
        "member-not-npy-inside.npz": (npz(("a.npy", b"hello", 0), ("b.npy", good, 0)), "does not begin with"),
        "object-member.npz": (npz(("a.npy", npy(header("'|O'"), b"."), 0), ("b.npy", good, 0)), "array of Python objects"),
        "same-name-twice.npz": (npz(("a.npy", good, 0), ("a.npy", npy(header(), b"12345678"), 0)), "another member of this name"),
    }
    FOLDER.mkdir(exist_ok=True)
    for name, (data, message) in files.items():
        (FOLDER / name).write_bytes(data)
        (FOLDER / (name + ".expect")).write_text(message + "\n" if message else "")


if __name__ == "__main__":
    main()
