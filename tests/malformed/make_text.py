#!/usr/bin/env python3
"""Writes the broken and hostile text files of tests/malformed/text, each with the text that opening it must give (empty:
it must open).

usage: tests/malformed/make_text.py

Deterministic; run it again after a change and commit what it wrote.
"""
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "text"


def dump(*lines, name="x", shape="(2, 3)"):
    return "\n".join([f"# Tensor: {name}", f"# Shape: {shape}", *lines, ""])


def halves(*lines):
    return dump("# Data (first 100 elements as hex and converted):", *lines, name="x (FP16 format)", shape="3")


def main():
    six = [f"{i}.5" for i in range(6)]
    numbers = "".join(f"{i}.25\n" for i in range(1, 812))
    files = {
        # dumps with a header
        "word-among-values.txt": (dump("# Data:", "1.0", "two"), 'line 5: "two" is not a number'),
        "number-with-tail.txt": (dump("# Data:", "1.0", "2.0f"), 'line 5: "2.0f" is not a number'),
        "value-cut-off.txt": (dump("# Data:", "1.0", "2.0")[:-2], "the dump ends after 1 values, inside a number"),
        "values-missing.txt": (dump("# Data:", "1.0", "2.0"), "the dump ends after 2 values: it was cut off"),
        "values-too-many.txt": (dump("# Data:", *six, "7"), "has 7 values, but its shape has room for 6"),
        "header-alone.txt": (dump("# Data:"), "a header and no values"),
        "nul-in-name.txt": (dump("# Data:", *six, name="a\0b"), "line 1: the header holds a NUL byte"),
        "shape-of-words.txt": (dump("# Data:", *six, shape="two by three"), 'shape "two by three" cannot be read'),
        "shape-too-large.txt": (dump("# Data:", *six, shape="4294967296x4294967296"), "cannot be read"),
        "shape-number-too-large.txt": (dump("# Data:", *six, shape="18446744073709551616"), "cannot be read"),
        "shape-of-100-axes.txt": (dump("# Data:", *six, shape="x".join(["1"] * 100)), "cannot be read"),
        "shape-with-zero-and-huge.txt": (dump("# Data:", shape="4294967296x4294967296x0"), ""),
        "shape-negative.txt": (dump("# Data:", *six, shape="(-2, 3)"), "cannot be read"),
        "total-differs.txt": (dump("# Total elements: 7", "# Data:", *six), "says 7 elements in total"),
        "max-differs.txt": (dump("# Max: 9.0", "# Data:", *six), "the header says max 9"),
        "dtype-differs.txt": (dump("# Dtype: int64", "# Data:", *six), "the header says int64, but"),
        "dtype-unknown.txt": (dump("# Dtype: posit16", "# Data:", *six), ""),
        "sample-cut-off.txt": (dump("# Data:", "# First 2 elements:", "1", "2", "# Last 2 elements:", "3",
                                    shape="5000"), "the dump ends after 3 values"),
        "promises-too-much.txt": (dump("# Data:", "# First 9223372036854775807 elements:", *six,
                                       "# Last 9223372036854775807 elements:"), ""),
        "header-of-many-lines.txt": (dump(*(f"# Key {i}: value" for i in range(3000)), "# Data:", *six), ""),
        "hex-too-long.txt": (halves("0x3c00 (1.0)", "0x13c00 (1.0)"), "line 5: expected the bits of an fp16 number"),
        "hex-too-short.txt": (halves("0x3c0 (1.0)", "0x3c00 (1.0)"), "line 4: expected the bits of an fp16 number"),
        "hex-not-hex.txt": (halves("1.0", "0x3c00"), "line 4: expected the bits of an fp16 number"),
        "hex-beside-other-number.txt": (halves("0x3c00 (1.0)", "0x3f80 (1.0)", "0x0000 (0.0)"),
                                        "1 numbers differ from the fp16 bits beside them, first at element 1"),
        # plain numbers
        "word-far-down.txt": (numbers + "abc\n5\n", 'line 812: "abc" is not a number'),
        "binary-far-down.txt": (numbers.encode() + b"\0\xff\xfe\n", "line 812: "),
        "utf-16.txt": ("1.5\n2.5\n".encode("utf-16-le").join([b"\xff\xfe", b""]), "is UTF-16 text"),
        "utf-16-big.txt": (b"\xfe\xff" + "# Tensor: x\n# Shape: 1\n1\n".encode("utf-16-be"), "is UTF-16 text"),
        "decimal-commas.csv": ("1,5;2,5\n3,5;4,5\n", "both , and ; stand between numbers"),
        "field-missing.csv": ("1,2,3\n4,,6\n", "line 2: a number is missing between two separators"),
        "digits-without-end.txt": ("1\n2\n" + "1" * 60000 + "\n0." + "0" * 30000 + "1\n", ""),
        "exponents-without-end.txt": ("1\n2\n1e" + "9" * 5000 + "\n1e-" + "9" * 5000 + "\n0x1p" + "9" * 5000 + "\n", ""),
        "ragged-brackets.txt": ("[[1. 2.]\n [3.]]\n", "line 2: the bracketed lists differ in length"),
        "list-beside-number.txt": ("[1. [2. 3.]]\n", "the bracketed lists differ in length"),
        "brackets-cut-off.txt": ("[[1. 2.]\n [3.", "ends inside 2 open brackets: it was cut off"),
        "list-cut-off.txt": ("[[1, 2], [3,", "the JSON ends at byte 12, after 3 of its values"),
        "call-cut-off.txt": ("tensor([1., 2.]", "before the closing parenthesis: it was cut off"),
        "brackets-too-deep.txt": ("[" * 300 + "1" + "]" * 300, "brackets nest deeper than 64 levels"),
        "spaces-in-deep-brackets.txt": ("[" * 100 + "1. 2." + "]" * 100, "brackets nest deeper than 64 levels"),
        "two-lists.txt": ("[1. 2.]\n[3. 4.]\n", "line 2: more text follows the bracketed list"),
        "bool-among-numbers.txt": ("[True 1. 2.]\n", "true and false stand among numbers"),
    }
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.iterdir():
        old.unlink()
    for name, (data, expected) in files.items():
        (FOLDER / name).write_bytes(data.encode() if isinstance(data, str) else data)
        (FOLDER / (name + ".expect")).write_text(expected + "\n" if expected else "")


main()
