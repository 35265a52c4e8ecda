#!/usr/bin/env python3
"""Writes the hostile and broken ONNX files of tests/malformed/onnx, each with the text that opening it must give (empty:
it must open).

usage: tests/malformed/make_onnx.py

Deterministic; run it again after a change and commit what it wrote.
"""
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "onnx"


def varint(value):
    value &= 0xFFFFFFFFFFFFFFFF
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def number(field, value):
    return varint(field << 3) + varint(value)


def data(field, payload):
    payload = payload.encode() if isinstance(payload, str) else payload
    return varint(field << 3 | 2) + varint(len(payload)) + payload


def tensor(name, kind, dims, *rest):
    return b"".join(number(1, dim) for dim in dims) + number(2, kind) + data(8, name) + b"".join(rest)


def model(graph, *rest):
    return number(1, 8) + data(7, graph) + data(8, number(2, 17)) + b"".join(rest)


def external(location, **entries):
    out = data(13, data(1, "location") + data(2, location))
    for key, value in entries.items():
        out += data(13, data(1, key) + data(2, value))
    return out + number(14, 1)


def node(op, name, output, *attributes):
    return data(1, data(2, output) + data(3, name) + data(4, op) + b"".join(data(5, a) for a in attributes))


def initializer(*args):
    return data(5, tensor(*args))


GOOD = initializer("good", 2, [1], data(9, b"\x05"))


def nested(depth):
    graph = GOOD
    for _ in range(depth):
        graph = node("If", "n", "y", data(1, "b") + data(6, graph))
    return graph


def main():
    four = bytes(4)
    whole = model(GOOD)
    files = {
        # the file
        "cut-in-graph.onnx": (whole[:-8], "truncated: field 7"),
        "cut-in-last-initializer.onnx": (
            number(1, 8) + b"\x3a\xff\x7f" + GOOD + b"\x2a\xff\x3f" + tensor("w", 1, [4096]),
            "truncated: field 7",
        ),
        "unknown-fields-inside.onnx": (model(GOOD + number(18, 5) + data(17, "new")), ""),
        "graph-twice.onnx": (model(GOOD, data(7, GOOD)), ""),
        # tensors
        "type-unknown.onnx": (model(initializer("t", 99, [1], data(9, four)) + GOOD), "has type 99"),
        "type-missing.onnx": (model(data(5, number(1, 1) + data(8, "t") + data(9, four)) + GOOD), "has type 0"),
        "type-over-32-bits.onnx": (
            model(initializer("t", 0x100000001, [1], data(9, four)) + GOOD),
            "has type 4294967297",
        ),
        "strings.onnx": (model(initializer("t", 8, [1], data(6, "hello")) + GOOD), "holds strings"),
        "raw-short.onnx": (model(initializer("t", 1, [2], data(9, four)) + GOOD), "raw_data has 4 bytes, shape and type need 8"),
        "raw-long.onnx": (model(initializer("t", 2, [2], data(9, four)) + GOOD), "raw_data has 4 bytes, shape and type need 2"),
        "no-data.onnx": (model(initializer("t", 1, [2]) + GOOD), "has no data"),
        "negative-axis.onnx": (model(initializer("t", 1, [-1], data(9, four)) + GOOD), "negative axis length -1"),
        "product-wraps-to-1.onnx": (
            model(initializer("t", 2, [7, 0x6DB6DB6DB6DB6DB7], data(9, b"\x00")) + GOOD),
            "more than 2^63 elements",
        ),
        "bytes-wrap-to-4.onnx": (
            model(initializer("t", 1, [0x4000000000000001], data(9, four)) + GOOD),
            "more than 2^63 elements",
        ),
        "too-many-axes.onnx": (model(initializer("t", 1, [1] * 65, data(9, four)) + GOOD), "more than 64 axes"),
        "huge-but-empty.onnx": (model(initializer("t", 1, [1 << 62, 1 << 62, 0]) + GOOD), ""),
        "name-with-nul.onnx": (model(initializer("t\0t", 1, [1], data(9, four)) + GOOD), "NUL byte"),
        "name-too-long.onnx": (model(initializer("t" * 70000, 1, [1], data(9, four)) + GOOD), "a name of 70000 bytes"),
        "wrong-typed-field.onnx": (
            model(initializer("t", 7, [1], number(5, 1)) + GOOD),
            "numbers are in int32_data, those of type int64 belong in int64_data",
        ),
        "too-few-numbers.onnx": (
            model(initializer("t", 7, [3], data(7, b"\x01\x02")) + GOOD),
            "int64_data holds 2 numbers, shape and type need 3",
        ),
        "numbers-claimed.onnx": (
            model(initializer("t", 7, [1 << 40], data(7, b"\x01\x02")) + GOOD),
            "int64_data holds 2 numbers, shape and type need 1099511627776",
        ),
        "number-out-of-range.onnx": (
            model(initializer("t", 10, [1], number(5, 65536)) + GOOD),
            "number 0 is 65536, which does not fit 16 bits",
        ),
        "number-without-end.onnx": (
            model(initializer("t", 7, [1], data(7, b"\x01\x80")) + GOOD),
            "ends inside a number",
        ),
        "number-over-64-bits.onnx": (
            model(initializer("t", 7, [1], data(7, b"\xff" * 9 + b"\x7f")) + GOOD),
            "more than 64 bits",
        ),
        "floats-not-whole.onnx": (
            model(initializer("t", 1, [1], data(4, b"\x01\x02\x03")) + GOOD),
            "3 bytes of packed numbers",
        ),
        "initializer-cut.onnx": (model(data(5, number(2, 1) + b"\x4a\x64") + GOOD), "field 9 takes 100 bytes, 0 are left"),
        "wire-type-7.onnx": (model(data(5, b"\x0f") + GOOD), "has wire type 7"),
        "field-zero.onnx": (model(data(5, b"\x00\x00") + GOOD), "field number 0 does not exist"),
        "length-over-63-bits.onnx": (
            model(data(5, b"\x4a" + b"\xff" * 9 + b"\x01") + GOOD),
            "takes 18446744073709551615 bytes",
        ),
        "segment.onnx": (
            model(initializer("t", 1, [1], data(3, number(1, 0) + number(2, 1)), data(9, four)) + GOOD),
            "one segment of a tensor",
        ),
        # external data
        "external-missing.onnx": (model(initializer("t", 1, [1], external("nowhere.bin")) + GOOD), "external data \"nowhere.bin\""),
        "external-leaves-folder.onnx": (
            model(initializer("t", 1, [1], external("../npy/objects.npy")) + GOOD),
            "external data \"../npy/objects.npy\"",
        ),
        "external-absolute.onnx": (model(initializer("t", 1, [1], external("/etc/passwd")) + GOOD), "external data \"/etc/passwd\""),
        "external-no-location.onnx": (model(initializer("t", 1, [1], number(14, 1)) + GOOD), "external data without a location"),
        "external-is-folder.onnx": (model(initializer("t", 1, [1], external(".")) + GOOD), "external data \".\""),
        "external-itself-too-short.onnx": (
            model(initializer("t", 1, [1], external("external-itself-too-short.onnx", offset="100000")) + GOOD),
            "needed are 4 from byte 100000",
        ),
        "external-offset-wraps.onnx": (
            model(initializer("t", 1, [1], external("external-offset-wraps.onnx", offset="18446744073709551614")) + GOOD),
            "needed are 4 from byte 18446744073709551614",
        ),
        "external-offset-negative.onnx": (
            model(initializer("t", 1, [1], external("external-offset-negative.onnx", offset="-4")) + GOOD),
            "\"-4\" is not a number of bytes",
        ),
        "external-length-lies.onnx": (
            model(initializer("t", 1, [1], external("external-length-lies.onnx", length="8")) + GOOD),
            "external data of 8 bytes, shape and type need 4",
        ),
        # nodes
        "graphs-too-deep.onnx": (model(nested(200)), "nested more than 16 deep"),
        "graphs-deep.onnx": (model(nested(16)), ""),
        "sparse-without-indices.onnx": (
            model(data(15, data(1, tensor("t", 1, [1], data(9, four)))) + GOOD),
            "sparse tensor without its indices",
        ),
        "constant-string.onnx": (
            model(node("Constant", "n", "c", data(1, "value_string") + data(4, "hello")) + GOOD),
            "a constant string",
        ),
        "node-cut.onnx": (model(data(1, b"\x12\x50abc") + GOOD), "field 2 takes 80 bytes, 3 are left"),
        "attribute-cut.onnx": (model(node("Constant", "n", "c", b"\x2a\x50abc") + GOOD), "field 5 takes 80 bytes, 3 are left"),
        "two-floats-for-one.onnx": (
            model(node("Constant", "n", "c", data(1, "value_int") + number(3, 1) + number(3, 2)) + GOOD),
            "2 numbers, expected one",
        ),
    }
    FOLDER.mkdir(exist_ok=True)
    for name, (content, message) in files.items():
        (FOLDER / name).write_bytes(content)
        (FOLDER / (name + ".expect")).write_text(message + "\n" if message else "")


if __name__ == "__main__":
    main()
