#!/usr/bin/env python3
"""Writes the hostile and broken zip files of tests/malformed/zip, each with the message that opening it must give.

usage: tests/malformed/make_zip.py

Deterministic; run it again after a change and commit what it wrote. Wherever the directory itself is sound a good member
stands beside the bad one, so that a test can see that it is not hidden.
"""
import struct
import zlib
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "zip"
STORED, DEFLATED = 0, 8
MAX16, MAX32, MAX64 = 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


def tensor(value):
    """A safetensors file of one number."""
    header = b'{"value":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + struct.pack("<f", value)


def deflate(data):
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


class Entry:
    """A member: what is packed, and what the headers say about it where that is not the truth."""

    def __init__(self, name, data, method=STORED, packed=None, **lies):
        self.name = name if isinstance(name, bytes) else name.encode()
        self.packed = packed if packed is not None else deflate(data) if method == DEFLATED else data
        self.method, self.flags, self.made_by, self.attributes = method, 0, 20, 0
        self.crc, self.size, self.packed_size = zlib.crc32(data), len(data), len(self.packed)
        self.extra, self.offset, self.name_length, self.signature = b"", None, len(self.name), b"PK\1\2"
        self.local_signature = b"PK\3\4"
        for key, value in lies.items():
            assert hasattr(self, key), key
            setattr(self, key, value)

    def local(self):
        return self.local_signature + struct.pack("<HHHHHIIIHH", 20, self.flags, self.method, 0, 0x21, self.crc,
                                                  len(self.packed), min(self.size, MAX32), len(self.name), 0) \
            + self.name + self.packed

    def central(self, offset):
        return self.signature + struct.pack(
            "<HHHHHHIIIHHHHHII", self.made_by, 20, self.flags, self.method, 0, 0x21, self.crc,
            min(self.packed_size, MAX32), min(self.size, MAX32), self.name_length, len(self.extra), 0, 0, 0,
            self.attributes, offset if self.offset is None else self.offset) + self.name + self.extra


def archive(*entries, count=None, directory_size=None, directory_offset=None, wide=None, comment=b""):
    """wide: the fields of a zip64 record that differ from the truth, as a dict; then the record is written."""
    data, central = b"", b""
    for entry in entries:
        central += entry.central(len(data))
        data += entry.local()
    count = len(entries) if count is None else count
    size = len(central) if directory_size is None else directory_size
    offset = len(data) if directory_offset is None else directory_offset
    end = b""
    if wide is not None:
        record = len(data) + len(central)
        end = b"PK\6\6" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, wide.get("count", count), wide.get("count", count),
                                      wide.get("size", size), wide.get("offset", offset))
        end += b"PK\6\7" + struct.pack("<IQI", 0, wide.get("record", record), 1)
        count, size, offset = MAX16, MAX32, MAX32
    end += b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, count, count, size, offset, len(comment)) + comment
    return data + central + end


GOOD = Entry("good.safetensors", tensor(1.0))
EVIL = "evil.safetensors"


def nested(depth):
    data = tensor(2.0)
    name = "inner.safetensors"
    for level in range(depth):
        data = archive(Entry(name, data))
        name = f"level{level}.zip"
    return data


def covering():
    """An entry that claims everything up to the directory, good member included."""
    good = Entry("good.safetensors", tensor(1.0))
    evil = Entry(EVIL, tensor(2.0))
    span = len(evil.packed) + len(good.local())
    evil.size = evil.packed_size = span
    return archive(evil, good)


def bomb():
    """The construction of overlapping bombs in small: many entries over one kernel of compressed zeros."""
    kernel = Entry("0.safetensors", bytes(40000), DEFLATED)
    copies = [Entry(f"{i}.safetensors", bytes(40000), DEFLATED, packed=b"", packed_size=kernel.packed_size, offset=0)
              for i in range(1, 5)]
    data = kernel.local()
    central = kernel.central(0) + b"".join(copy.central(0) for copy in copies)
    good = Entry("good.safetensors", tensor(1.0))
    central += good.central(len(data))
    data += good.local()
    return data + central + b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 6, 6, len(central), len(data), 0)


def link(target):
    return Entry("link.safetensors", target, made_by=3 << 8 | 20, attributes=0o120777 << 16)


def wide_field(*values):
    return struct.pack("<HH", 1, 8 * len(values)) + b"".join(struct.pack("<Q", value) for value in values)


def files():
    data = tensor(2.0)
    whole = archive(GOOD, Entry(EVIL, data))
    yield "truncated-directory", whole[:-40], "it is truncated"
    yield "truncated-in-data", whole[:60], "it is truncated"
    yield "directory-outside-file", archive(GOOD, directory_size=100000), "says the directory has 100000 bytes"
    yield "directory-offset-outside", archive(GOOD, directory_offset=MAX32 - 1), "only"
    yield "directory-cut-by-name", archive(GOOD, Entry(EVIL, data, name_length=5000)), "longer than the directory"
    yield "directory-not-entries", archive(GOOD, Entry(EVIL, data, signature=b"PK\7\7")), "is no directory entry"
    yield "count-65534", archive(GOOD, count=65534), "counts 65534 entries, the directory holds 1"
    yield "count-million-zip64", archive(GOOD, wide={"count": 1000000}), "counts 1000000 entries"
    yield "count-2-64-zip64", archive(GOOD, wide={"count": MAX64}), "counts 18446744073709551615 entries"
    yield "zip64-directory-size-2-64", archive(GOOD, wide={"size": MAX64}), "says the directory has"
    yield "zip64-directory-offset-2-64", archive(GOOD, wide={"offset": MAX64 - 10}), "says the directory has"
    lost = archive(GOOD, wide={"record": MAX64}).replace(b"PK\6\6", b"PK\6\0")
    yield "zip64-record-missing", lost, "zip64 locator"
    yield "zip64-fine", archive(GOOD, wide={}), ""
    yield "comment-fine", archive(GOOD, comment=b"PK\5\6 is not the end" + bytes(30)), ""

    yield "overlap-same-place", archive(GOOD, Entry(EVIL, GOOD.packed, packed=b"", packed_size=len(GOOD.packed),
                                                    offset=0)), "overlaps another member"
    yield "overlap-covering", covering(), "overlaps another member"
    yield "overlap-bomb", bomb(), "overlaps another member"
    yield "header-outside-file", archive(GOOD, Entry(EVIL, data, offset=MAX32 - 1)), "lies outside the file"
    yield "header-missing", archive(GOOD, Entry(EVIL, data, local_signature=b"JUNK")), "has no header at byte"
    yield "data-runs-into-directory", archive(GOOD, Entry(EVIL, data, size=1000, packed_size=1000)), \
        "do not end before the directory"
    yield "size-2-64-stored", archive(GOOD, Entry(EVIL, data, size=MAX64, packed_size=MAX64,
                                                  extra=wide_field(MAX64, MAX64))), "do not end before the directory"
    yield "size-2-64-deflated", archive(GOOD, Entry(EVIL, data, DEFLATED, size=MAX64, extra=wide_field(MAX64))), \
        "more than deflate can hold"
    yield "size-over-ratio", archive(GOOD, Entry(EVIL, data, DEFLATED, size=len(deflate(data)) * 1032 + 1)), \
        "more than deflate can hold"
    yield "offset-2-64", archive(GOOD, Entry(EVIL, data, offset=MAX32, extra=wide_field(MAX64 - 20))), \
        "lies outside the file"
    yield "zip64-field-missing", archive(GOOD, Entry(EVIL, data, size=MAX32, packed_size=MAX32)), "lacks the zip64 field"
    yield "zip64-field-short", archive(GOOD, Entry(EVIL, data, size=MAX32, packed_size=MAX32,
                                                   extra=struct.pack("<HHI", 1, 4, 7))), "lacks the zip64 field"
    yield "stored-two-sizes", archive(GOOD, Entry(EVIL, data, size=len(data) - 4)), "is stored without compression"

    yield "crc-wrong", archive(GOOD, Entry(EVIL, data, DEFLATED, crc=1)), "its checksum is wrong"
    yield "deflate-garbage", archive(GOOD, Entry(EVIL, data, DEFLATED, packed=b"\x07" + bytes(range(200)))), \
        "its compressed data is corrupt"
    yield "deflate-truncated", archive(GOOD, Entry(EVIL, data, DEFLATED, packed=deflate(data)[:-6])), \
        "its compressed data is corrupt"
    yield "deflate-longer", archive(GOOD, Entry(EVIL, data, DEFLATED, size=len(data) - 1)), "unpacks to more than"
    yield "deflate-shorter", archive(GOOD, Entry(EVIL, data, DEFLATED, size=len(data) + 1)), \
        f"unpacks to {len(data)} bytes"

    yield "path-dotdot", archive(GOOD, Entry("../../evil.safetensors", data)), "its path leaves the archive"
    yield "path-dotdot-inside", archive(GOOD, Entry("a/../../evil.safetensors", data)), "its path leaves the archive"
    yield "path-absolute", archive(GOOD, Entry("/tmp/evil.safetensors", data)), "its path leaves the archive"
    yield "path-drive", archive(GOOD, Entry("C:\\evil.safetensors", data)), "its path leaves the archive"
    yield "path-backslash-dotdot", archive(GOOD, Entry("..\\evil.safetensors", data)), "its path leaves the archive"
    yield "path-backslash-fine", archive(GOOD, Entry("folder\\other.safetensors", data)), ""
    yield "name-nul", archive(GOOD, Entry(b"evil.safetensors\0.txt", data)), "has a NUL character in its name"
    yield "name-terminal-escape", archive(GOOD, Entry(b"\x1b]0;evil\x07\x1b[2J.safetensors", data)), ""
    yield "name-not-utf8", archive(GOOD, Entry(b"\xff\xfe\x80.safetensors", data)), ""
    yield "name-twice", archive(Entry("good.safetensors", tensor(9.0)), GOOD), "stands in the archive again"
    yield "symbolic-link", archive(GOOD, link(b"/etc/passwd")), "is a symbolic link to /etc/passwd"
    yield "nested", nested(12), "archives nested more than"
    yield "encrypted", archive(GOOD, Entry(EVIL, data, flags=1)), "is encrypted"
    yield "encrypted-aes", archive(GOOD, Entry(EVIL, data, 99)), "is encrypted"
    yield "method-zstd", archive(GOOD, Entry(EVIL, data, 93)), "uses compression method 93 (zstd), which is not supported"
    yield "method-unknown", archive(GOOD, Entry(EVIL, data, 4242)), "uses compression method 4242, which"


def main():
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.iterdir():
        old.unlink()
    for name, data, expected in files():
        (FOLDER / f"{name}.zip").write_bytes(data)
        (FOLDER / f"{name}.zip.expect").write_text(expected + "\n" if expected else "")


if __name__ == "__main__":
    main()
