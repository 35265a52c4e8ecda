#!/usr/bin/env python3
"""Makes tests/malformed/safetensors: each file is wrong in the one way its name says, with the expected words beside it."""
import json
import struct
from pathlib import Path

HERE = Path(__file__).parent / "safetensors"
HERE.mkdir(exist_ok=True)


def write(name, data, expect):
    (HERE / name).write_bytes(data)
    (HERE / (name + ".expect")).write_text(expect + ("\n" if expect else ""))


def file(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


EIGHT = struct.pack("<2f", 1.0, 2.0)

write("good.safetensors", file({"x": entry()}, EIGHT), "")
write("padded-header.safetensors", file(json.dumps({"x": entry()}).encode() + b"   ", EIGHT), "")
write("empty-file.safetensors", b"", "is empty")
write("seven-bytes.safetensors", b"\0" * 7, "its first bytes are not a safetensors header")
write("bad-magic.safetensors", b"NOTATENSORFILE\0\1\2\3" * 4, "its first bytes are not a safetensors header")
write("truncated-header.safetensors", file({"x": entry()}, EIGHT)[:40], "truncated: the header has")
write("header-only.safetensors", file({"x": entry()}), "truncated: needs 8 bytes")
write("truncated-data.safetensors", file({"x": entry(), "y": entry(offsets=(8, 16))}, EIGHT + b"\0" * 4), "y: at byte")
write("header-length-near-2-64.safetensors", file({"x": entry()}, EIGHT, 2**64 - 1), "not a safetensors header")
write("header-length-too-long.safetensors", file({"x": entry()}, EIGHT, 10**9), "truncated: the header has 1000000000 bytes")
write("json-garbage.safetensors", file(b'{"x": {"dtype": "F32", "shape": [2', EIGHT), "ends")
write("json-not-object-inside.safetensors", file({"x": 3}, EIGHT), "an object for the tensor")
write("trailing-bytes-in-header.safetensors", file(json.dumps({"x": entry()}).encode() + b" {}", EIGHT), "expected the end of the text")
write("unknown-dtype.safetensors", file({"x": entry("F128")}, EIGHT), 'dtype "F128" is not known')
write("no-shape.safetensors", file({"x": {"dtype": "F32", "data_offsets": [0, 8]}}, EIGHT), "the tensor has no shape")
write("no-dtype.safetensors", file({"x": {"shape": [2], "data_offsets": [0, 8]}}, EIGHT), "the tensor has no dtype")
write("negative-shape.safetensors", file({"x": entry(shape=(-2,))}, EIGHT), "x: at byte")
write("fractional-shape.safetensors", file({"x": entry(shape=(2.5,))}, EIGHT), "x: at byte")
write("shape-overflow.safetensors", file({"x": entry(shape=(2**40, 2**40))}, EIGHT), "more than 2^63 elements")
write("bytes-overflow.safetensors", file({"x": entry("F64", (2**62,))}, EIGHT), "is larger than any file")
write("too-many-axes.safetensors", file({"x": entry(shape=[1] * 100)}, EIGHT), "more than 64 axes")
write("span-too-long.safetensors", file({"x": entry(offsets=(0, 9))}, EIGHT + b"\0"), "span 9 bytes, its shape and dtype need 8")
write("span-backwards.safetensors", file({"x": entry(offsets=(8, 0))}, EIGHT), "before they begin")
write("offset-near-2-64.safetensors", file({"x": entry(offsets=(2**64 - 8, 2**64 - 1))}, EIGHT), "outside the file")
write("offset-past-2-64.safetensors", file({"x": entry(offsets=(2**64, 2**64 + 8))}, EIGHT), "x: at byte")
write("overlap.safetensors", file({"x": entry(), "y": entry(offsets=(4, 12))}, EIGHT + EIGHT[:4]), "shares 4 bytes with")
write("hole.safetensors", file({"x": entry(), "y": entry(offsets=(12, 20))}, EIGHT + b"\0" * 4 + EIGHT), "belong to no tensor")
write("trailing-data.safetensors", file({"x": entry()}, EIGHT + b"extra"), "5 bytes at the end")
write("duplicate-name.safetensors",
      file(b'{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"x":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}',
           EIGHT * 2), "two tensors have this name")
write("invalid-utf8-name.safetensors", file(b'{"a\xff":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', EIGHT), "UTF-8")
write("nul-in-name.safetensors", file(b'{"a\\u0000b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', EIGHT), "NUL")
write("escape-in-name.safetensors", file({"\x1b[2J\u202e": entry()}, EIGHT), "")
write("lone-surrogate-name.safetensors", file(b'{"\\ud800":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', EIGHT), "surrogate")
write("deep-json.safetensors", file(b"{\"x\":" + b"[" * 5000, EIGHT), "nested deeper")
write("good-beside-bad.safetensors", file({"bad": entry("F99"), "good": entry()}, EIGHT), 'bad: at byte')
write("metadata-not-strings.safetensors", file({"__metadata__": {"n": 3, "l": [1, 2]}, "x": entry()}, EIGHT), "")
write("metadata-not-object.safetensors", file({"__metadata__": 3, "x": entry()}, EIGHT), "an object for __metadata__")
write("git-lfs-pointer.safetensors",
      b"version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 12345\n", "git lfs pull")
write("web-page.safetensors", b"<!DOCTYPE html><html><body>404</body></html>", "failed download")

shards = HERE.parent / "shards"
shards.mkdir(exist_ok=True)


def index(name, weight_map, expect):
    (shards / name).write_text(json.dumps({"metadata": {"total_size": 8}, "weight_map": weight_map}))
    (shards / (name + ".expect")).write_text(expect + "\n")


(shards / "part-1.safetensors").write_bytes(file({"x": entry()}, EIGHT))
(shards / "part-1.safetensors.expect").write_text("")
index("missing-shard.index.json", {"x": "part-1.safetensors", "y": "part-2.safetensors"}, "missing shard with 1 tensor,")
index("lacking-tensor.index.json", {"x": "part-1.safetensors", "z": "part-1.safetensors"}, "which lacks it")
index("unnamed-tensor.index.json", {}, "")
index("traversal.index.json", {"x": "../safetensors/good.safetensors"}, "missing shard")
index("absolute.index.json", {"x": "/etc/passwd"}, "missing shard")
(shards / "unnamed-tensor.index.json").unlink()
(shards / "unnamed-tensor.index.json.expect").unlink()
(shards / "weight-map-not-object.index.json").write_text('{"weight_map": {"x": 5}}')
(shards / "weight-map-not-object.index.json.expect").write_text("a file name\n")
