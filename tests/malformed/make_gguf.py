#!/usr/bin/env python3
"""Writes the hand-made GGUF files: tests/malformed/gguf (hostile and broken ones, each with the message that opening it
must give) and tests/golden/gguf/handmade_* (good ones, whose values test_gguf.c knows by heart).

usage: tests/malformed/make_gguf.py

Deterministic; run it again after a change and commit what it wrote.
"""
import struct
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
MALFORMED = TESTS / "malformed" / "gguf"
GOLDEN = TESTS / "golden" / "gguf"

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
LETTERS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}

# ggml's numbers of element types
T_F32, T_F16, T_Q4_0, T_Q8_0, T_Q4_K = 0, 1, 2, 8, 12
T_I8, T_I16, T_I32, T_I64, T_F64, T_BF16 = 24, 25, 26, 27, 28, 30


class Writer:
    """Pieces of a file of one version and byte order."""

    def __init__(self, version=3, big=False):
        self.version = version
        self.order = ">" if big else "<"

    def pack(self, letters, *values):
        return struct.pack(self.order + letters, *values)

    def size(self, value):
        return self.pack("I" if self.version == 1 else "Q", value)

    def string(self, text):
        data = text if isinstance(text, bytes) else text.encode()
        return self.size(len(data)) + data

    def value(self, kind, value):
        if kind == STRING:
            return self.string(value)
        if kind == ARRAY:
            inner, values = value
            return self.pack("I", inner) + self.size(len(values)) + b"".join(self.value(inner, v) for v in values)
        return self.pack(LETTERS[kind], value)

    def key(self, name, kind, value):
        return self.string(name) + self.pack("I", kind) + self.value(kind, value)

    def tensor(self, name, dims, kind, offset):
        """dims as stored: fastest first."""
        return (self.string(name) + self.pack("I", len(dims)) + b"".join(self.size(d) for d in dims) +
                self.pack("IQ", kind, offset))

    def header(self, tensors, keys):
        return b"GGUF" + self.pack("I", self.version) + self.size(tensors) + self.size(keys)

    def file(self, keys=(), tensors=(), alignment=32):
        """keys: (name, kind, value). tensors: (name, dims, kind, bytes). A whole and right file."""
        head = self.header(len(tensors), len(keys)) + b"".join(self.key(*k) for k in keys)
        data, infos = b"", b""
        for name, dims, kind, content in tensors:
            infos += self.tensor(name, dims, kind, len(data))
            data += content + bytes(-len(content) % alignment)
        head += infos
        return head + bytes(-len(head) % alignment if tensors else 0) + data


def padded(head, data=b"", alignment=32):
    return head + bytes(-len(head) % alignment) + data


def halves(order, values):
    return struct.pack(f"{order}{len(values)}e", *values)


def good_tensors(w):
    order = w.order
    q4_k = w.pack("ee", 1.0, 0.5)  # d, dmin
    # Sub-blocks 0 to 3: scale 1, minimum 2; 4 to 7: scale 2, minimum 0.
    q4_k += bytes([1] * 4 + [2] * 4 + [2] * 4) + bytes([0x53] * 128)
    return [
        ("f32", (3, 2), T_F32, w.pack("6f", 1, 2, 3, 4, 5, 6)),
        ("f16", (4,), T_F16, halves(order, [0.5, -1.0, 65504.0, 2.0 ** -24])),
        ("bf16", (2, 1, 2), T_BF16, w.pack("4H", 0x3F80, 0xC000, 0x4040, 0x7F80)),
        ("f64", (2,), T_F64, w.pack("2d", 0.1, -1e300)),
        ("i8", (3,), T_I8, w.pack("3b", -128, 0, 127)),
        ("i16", (2,), T_I16, w.pack("2h", -32768, 258)),
        ("i32", (2,), T_I32, w.pack("2i", -2147483648, 16909060)),
        ("i64", (2,), T_I64, w.pack("2q", -2 ** 63, 2 ** 53 + 1)),
        ("scalar", (), T_F32, w.pack("f", 42.0)),
        ("empty", (0, 5), T_F32, b""),
        ("q8_0", (32, 2), T_Q8_0, w.pack("e32b", 0.5, *range(-16, 16)) + w.pack("e32b", -2.0, *range(32))),
        ("q4_k", (256,), T_Q4_K, q4_k),
        ("stack", (2, 3, 1, 2), T_I8, bytes(range(12))),
    ]


def good_keys(version):
    keys = [
        ("general.architecture", STRING, "handmade"),
        ("t.u8", U8, 255), ("t.i8", I8, -128), ("t.u16", U16, 65535), ("t.i16", I16, -32768),
        ("t.u32", U32, 4294967295), ("t.i32", I32, -2147483648), ("t.f32", F32, 1e-6), ("t.base", F32, 1000000.0),
        ("t.true", BOOL, 1), ("t.false", BOOL, 0), ("t.string", STRING, "grüße\n\"x\""), ("t.empty", STRING, ""),
        ("t.numbers", ARRAY, (I32, [1, -2, 3])),
        ("t.many", ARRAY, (U16, list(range(1000)))),
        ("t.tokens", ARRAY, (STRING, ["!", "\"", "#", "a\\b"] + [f"t{i}" for i in range(96)])),
        ("t.none", ARRAY, (F32, [])),
        ("t.flags", ARRAY, (BOOL, [1, 0])),
        ("t.nested", ARRAY, (ARRAY, [(I8, [1, 2]), (STRING, ["x"]), (U8, [])])),
    ]
    if version > 1:
        keys += [("t.u64", U64, 2 ** 64 - 1), ("t.i64", I64, -2 ** 63), ("t.f64", F64, 0.1),
                 ("t.inf", F64, float("inf")), ("t.nan", F32, float("nan"))]
    return keys


def write_golden():
    for name, w in (("v1", Writer(1)), ("v2", Writer(2)), ("v3", Writer(3)), ("v3_big", Writer(3, big=True)),
                    ("v2_big", Writer(2, big=True))):
        (GOLDEN / f"handmade_{name}.gguf").write_bytes(w.file(good_keys(w.version), good_tensors(w)))
    w = Writer()
    (GOLDEN / "handmade_align.gguf").write_bytes(
        w.file([("general.alignment", U32, 256)], good_tensors(w), alignment=256))
    parts = [
        [("a", (2,), T_F32, w.pack("2f", 1, 2)), ("b", (1,), T_F32, w.pack("f", 3))],
        [("c", (2, 2), T_F32, w.pack("4f", 4, 5, 6, 7))],
        [("d", (32,), T_Q8_0, w.pack("e32b", 1.0, *range(32)))],
    ]
    for i, tensors in enumerate(parts):
        keys = [("general.name", STRING, "in parts")] if i == 0 else []
        keys += [("split.no", U16, i), ("split.count", U16, 3), ("split.tensors.count", I32, 4)]
        (GOLDEN / f"handmade_split-{i + 1:05d}-of-00003.gguf").write_bytes(w.file(keys, tensors))


FILES = []


def bad(name, data, expect):
    FILES.append((name, data, expect))


def truncations():
    """One cut in each kind of field, in each kind of file."""
    for name, w in (("", Writer()), ("_v1", Writer(1)), ("_big", Writer(3, big=True))):
        s = 4 if w.version == 1 else 8

        def cut(what, data, expect):
            bad(f"cut{name}_{what}", data, "truncated: " + expect)

        header = w.header(0, 1)
        cut("magic_only", header[:4], "the header needs 4 bytes, 0 are there")
        cut("version", header[:6], "the header needs 4 bytes, 2 are there")
        cut("counts", header[:8 + s + 2], f"the header needs {s} bytes, 2 are there")
        cut("no_keys", header, "the header says 1 keys, 0 bytes are left")
        # The name is long enough for the header's count of keys to look right.
        key = header + w.string("a.long.enough.key")
        cut("key", key[:-2], "a key needs 17 bytes, 15 are there")
        cut("value_type", key + b"\0\0\0", "a value type needs 4 bytes, 3 are there")
        cut("value", key + w.pack("II", U64, 0), "a value needs 8 bytes, 4 are there")
        cut("string_length", key + w.pack("IH", STRING, 0), f"a string needs {s} bytes, 2 are there")
        cut("string", key + w.pack("I", STRING) + w.size(9) + b"12345678", "a string needs 9 bytes, 8 are there")
        array = key + w.pack("I", ARRAY)
        cut("array_type", array + b"\0\0", "an array needs 4 bytes, 2 are there")
        cut("array_count", array + w.pack("IH", U8, 0), f"an array needs {s} bytes, 2 are there")
        cut("array_values", array + w.pack("I", F32) + w.size(3) + bytes(11), "an array of 3 f32 needs")
        cut("array_strings", array + w.pack("I", STRING) + w.size(2) + w.string("one") + w.string("two")[:-1],
            "a string of an array needs 3 bytes, 2 are there")
        # A long value leaves room for the header's count of tensors to look right.
        whole = w.file([("k", STRING, "x" * 64)], [("first", (8,), T_F32, w.pack("8f", *range(8))),
                                                   ("second", (16,), T_F32, w.pack("16f", *range(16)))])
        start = 8 + 2 * s + (s + 1 + 4 + s + 64)
        end = start + (s + 5 + 4 + s + 4 + 8) + (s + 6 + 4 + s + 4 + 8)
        data = end + -end % 32
        assert len(whole) == data + 32 + 64
        listing = "the tensor directory needs "
        cut("tensor_name", whole[:start + s + 2], listing + "5 bytes, 2 are there")
        cut("tensor_rank", whole[:start + s + 5 + 2], listing + "4 bytes, 2 are there")
        cut("tensor_dims", whole[:start + s + 5 + 4 + 3], listing + f"{s} bytes, 3 are there")
        cut("tensor_type", whole[:start + s + 5 + 4 + s + 1], listing + "4 bytes, 1 are there")
        cut("tensor_offset", whole[:end - 3], listing + "8 bytes, 5 are there")
        cut("no_padding", whole[:end], "needs 32 bytes, 0 are there")
        cut("no_data", whole[:data], "needs 64 bytes, 0 are there")
        cut("second_tensor", whole[:-1], "needs 64 bytes, 63 are there")


def headers():
    w = Writer()
    bad("bad_magic", b"GGUE" + w.file()[4:], "does not begin with the magic GGUF")
    bad("version_0", b"GGUF" + struct.pack("<IQQ", 0, 0, 0), "is GGUF version 0; this program knows 1 to 3")
    bad("version_4", b"GGUF" + struct.pack("<IQQ", 4, 0, 0), "is GGUF version 4;")
    bad("version_99", b"GGUF" + struct.pack("<IQQ", 99, 0, 0), "is GGUF version 99;")
    bad("version_99_big", b"GGUF" + struct.pack(">IQQ", 99, 0, 0), "is GGUF version 99;")
    bad("version_65536", b"GGUF" + struct.pack("<IQQ", 65536, 0, 0), "is GGUF version 256;")
    bad("tensors_2_63", w.header(2 ** 63, 0) + bytes(64), "says 9223372036854775808 tensors, 64 bytes are left")
    bad("keys_2_64", w.header(0, 2 ** 64 - 1) + bytes(64), "says 18446744073709551615 keys, 64 bytes are left")
    bad("keys_one_too_many", w.file([("a", U8, 1)]).replace(struct.pack("<Q", 1), struct.pack("<Q", 2), 1), "truncated")
    bad("v1_tensors_2_32", Writer(1).header(2 ** 32 - 1, 0) + bytes(64), "says 4294967295 tensors")
    for old, magic in (("ggml", b"lmgg"), ("ggmf", b"fmgg"), ("ggjt", b"tjgg"), ("ggla", b"algg")):
        bad(f"ancestor_{old}", magic + struct.pack("<8I", 1, 32000, 4096, 256, 32, 32, 128, 2),
            f"is in the {old.upper()} format, an ancestor of GGUF; convert it with llama.cpp's")


def metadata():
    w = Writer()

    def with_key(raw, count=1):
        return w.header(0, count) + raw

    bad("key_length_2_64", with_key(w.size(2 ** 64 - 1) + bytes(32)), "a key needs 18446744073709551615 bytes")
    bad("key_length_wraps", with_key(w.size(2 ** 64 - 24) + bytes(32)), "a key needs 18446744073709551592 bytes")
    bad("string_length_2_63", with_key(w.string("k") + w.pack("IQ", STRING, 2 ** 63) + bytes(32)),
        "a string needs 9223372036854775808 bytes")
    bad("value_type_13", with_key(w.string("k") + w.pack("IQ", 13, 0)), 'key "k" has value type 13')
    bad("value_type_2_31", with_key(w.string("k") + w.pack("IQ", 2 ** 31, 0)), 'key "k" has value type 2147483648')
    bad("array_of_type_77", with_key(w.string("k") + w.pack("IIQ", ARRAY, 77, 0)), 'key "k" has value type 77')
    for kind, name in ((U8, "u8"), (F64, "f64"), (STRING, "strings"), (ARRAY, "arrays")):
        bad(f"array_2_63_{name}", with_key(w.string("k") + w.pack("IIQ", ARRAY, kind, 2 ** 63) + bytes(64)),
            f"truncated: an array of 9223372036854775808 {name} needs")
    bad("array_count_wraps", with_key(w.string("k") + w.pack("IIQ", ARRAY, U64, 2 ** 61) + bytes(64)),
        "truncated: an array of 2305843009213693952 u64 needs")
    nested = (U8, [1])
    for _ in range(40):
        nested = (ARRAY, [nested])
    bad("array_nested_40", with_key(w.key("k", ARRAY, nested)), "arrays are nested deeper than 4 levels")
    nested = (U8, [])
    for _ in range(3):
        nested = (ARRAY, [nested] * 12)
    bad("array_nested_wide", with_key(w.key("k", ARRAY, nested)), "")
    bad("key_twice", w.file([("k", U8, 1), ("k", U8, 2)]), "the key stands there twice; its first value is kept")
    bad("key_empty", w.file([("", U8, 1)]), "a key is empty")
    bad("key_nul", w.file([(b"a\0b", U8, 1)]), "a key holds a NUL byte")
    bad("key_too_long", w.file([(b"x" * 65536, U8, 1)]), "a key is longer than 65535 bytes")
    bad("key_bad_utf8", w.file([(b"\xff\xfe\xc0\x80", U8, 1)]), "")
    bad("key_terminal_escape", w.file([("\x1b]0;owned\x07\x1b[2J", STRING, "\x1b[31m\u202e")]), "")
    bad("value_nul", w.file([("k", STRING, b"a\0b"), ("l", ARRAY, (STRING, [b"\0", b"\xff"]))]), "")
    bad("alignment_0", w.file([("general.alignment", U32, 0)]), "general.alignment is 0, expected a power of two")
    bad("alignment_24", w.file([("general.alignment", U32, 24)]), "general.alignment is 24, expected a power of two")
    bad("alignment_u64", w.file([("general.alignment", U64, 32)]), "general.alignment is of value type u64, expected")
    bad("alignment_array", w.file([("general.alignment", ARRAY, (U32, [32]))]), "is of value type arrays, expected u32")
    bad("alignment_2_31",
        w.file([("general.alignment", U32, 2 ** 31)], [("t", (1,), T_F32, bytes(4))], alignment=32),
        "truncated: needs 4 bytes, 0 are there")
    bad("split_count_2_64", w.file([("split.no", U64, 0), ("split.count", U64, 2 ** 63 - 1)]),
        "split.count is 9223372036854775807, which does not go with split.no")
    bad("split_no_beyond", w.file([("split.no", U16, 7), ("split.count", U16, 3)]),
        "split.count is 3, which does not go with split.no")
    bad("split_renamed", w.file([("split.no", U16, 1), ("split.count", U16, 3)]),
        "is part 2 of 3; its name does not end in -00002-of-00003.gguf")
    bad("split-00001-of-00002", w.file([("split.no", U16, 0), ("split.count", U16, 2)]), "part 2 of 2: ")


def directory():
    w = Writer()
    data = bytes(range(64))

    def entries(*infos, content=data, keys=b"", key_count=0):
        return padded(w.header(len(infos), key_count) + keys + b"".join(infos), content)

    one = w.tensor("good", (8,), T_F32, 0)
    bad("name_length_2_64", entries(w.size(2 ** 64 - 1) + bytes(64)), "the tensor directory needs 18446744073709551615")
    bad("name_nul", entries(one, w.tensor(b"a\0b", (8,), T_F32, 32)), "has a name with a NUL byte in it")
    bad("name_bad_utf8", entries(w.tensor(b"\xed\xa0\x80\xff", (8,), T_F32, 0)), "")
    bad("name_terminal_escape", entries(w.tensor("\x1b[2J\u202eevil\r\n", (8,), T_F32, 0)), "")
    bad("name_empty", entries(w.tensor("", (8,), T_F32, 0)), "")
    bad("name_too_long", entries(w.tensor("x" * 65536, (8,), T_F32, 0)), "has a name of 65536 bytes; ggml ends at 63")
    bad("name_twice", entries(one, w.tensor("good", (8,), T_F32, 32)), "has the name of an earlier tensor")
    bad("rank_5", entries(one, w.tensor("t", (1, 1, 1, 1, 8), T_F32, 32)), "has 5 dimensions; ggml ends at 4")
    bad("rank_64", entries(one, w.tensor("t", (1,) * 64, T_F32, 32)), "has 64 dimensions; ggml ends at 4")
    bad("rank_2_32", entries(w.string("t") + w.pack("I", 2 ** 32 - 1) + bytes(64)),
        "the tensor directory is corrupt: a tensor of 4294967295 dimensions")
    bad("elements_wrap", entries(one, w.tensor("t", (2 ** 32, 2 ** 32), T_F32, 32)), "has more than 2^63 elements")
    bad("elements_wrap_to_small", entries(one, w.tensor("t", (2 ** 32, 2 ** 31, 2, 8), T_F32, 32)),
        "has more than 2^63 elements")
    bad("bytes_wrap", entries(one, w.tensor("t", (2 ** 31, 2 ** 31), T_F64, 32)), "is larger than any file")
    bad("dimension_negative", entries(one, w.tensor("t", (2 ** 64 - 1, 0), T_F32, 32)), "has more than 2^63 elements")
    bad("dimension_zero_and_huge", entries(one, w.tensor("t", (2 ** 62, 2 ** 62, 0), T_F32, 32)), "")
    bad("type_43", entries(one, w.tensor("t", (8,), 43, 32)), "has type 43, which this program does not know")
    bad("type_2_32", entries(one, w.tensor("t", (8,), 2 ** 32 - 1, 32)), "has type 4294967295, which this program")
    for number, name in ((4, "Q4_2"), (5, "Q4_3"), (31, "Q4_0_4_4"), (32, "Q4_0_4_8"), (33, "Q4_0_8_8"),
                         (36, "IQ4_NL_4_4"), (37, "IQ4_NL_4_8"), (38, "IQ4_NL_8_8")):
        bad(f"type_{number}", entries(one, w.tensor("t", (32,), number, 32)),
            f"has type {number}, which was {name} and is removed from ggml")
    bad("rows_of_33", entries(one, w.tensor("t", (33,), T_Q8_0, 32)), "has rows of 33 elements, which are not whole")
    bad("block_scalar", entries(one, w.tensor("t", (), T_Q8_0, 32)), "has rows of 1 elements, which are not whole")
    bad("offset_unaligned", entries(one, w.tensor("t", (4,), T_F32, 36)), "has offset 36, which is no multiple of the")
    bad("offset_beyond", entries(one, w.tensor("t", (8,), T_F32, 2 ** 40)), "truncated: needs 32 bytes, 0 are there")
    bad("offset_wraps", entries(one, w.tensor("t", (8,), T_F32, 2 ** 64 - 32)), "which is out of range")
    bad("offset_into_header", entries(one, w.tensor("t", (8,), T_F32, 2 ** 64 - 96)), "which is out of range")
    bad("overlap_same", entries(one, w.tensor("t", (8,), T_F32, 0)), 'shares bytes with tensor "good"')
    bad("overlap_part", entries(w.tensor("long", (16,), T_F32, 0), w.tensor("t", (8,), T_F32, 32)),
        'shares bytes with tensor "long"')
    bad("overlap_backwards", entries(w.tensor("high", (8,), T_F32, 32), w.tensor("low", (16,), T_F32, 0)),
        'shares bytes with tensor "high"')
    bad("overlap_and_beyond", entries(w.tensor("huge", (2 ** 40,), T_F32, 0), w.tensor("good", (8,), T_F32, 0)),
        "truncated: needs 4398046511104 bytes, 64 are there")
    bad("gap", entries(w.tensor("t", (8,), T_F32, 32)), "has offset 32 where ggml expects 0 and refuses the file")
    bad("backwards", entries(w.tensor("high", (8,), T_F32, 32), w.tensor("low", (8,), T_F32, 0)),
        "has offset 32 where ggml expects 0 and refuses the file")


def main():
    MALFORMED.mkdir(parents=True, exist_ok=True)
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for old in MALFORMED.iterdir():
        old.unlink()
    write_golden()
    headers()
    truncations()
    metadata()
    directory()
    assert len({name for name, _, _ in FILES}) == len(FILES)
    for name, data, expect in FILES:
        assert len(data) < 100_000, name
        (MALFORMED / f"{name}.gguf").write_bytes(data)
        (MALFORMED / f"{name}.gguf.expect").write_text(expect + "\n" if expect else "", encoding="utf-8")


if __name__ == "__main__":
    main()
