#!/usr/bin/env python3
"""Writes the hostile and broken tar files, 7z files and compressed files of tests/malformed/archive, each with the
message that opening it must give.

usage: tests/malformed/make_archive.py

Deterministic; run it again after a change and commit what it wrote. A good member stands before (and in plain tar files
also behind) each bad one, so that a test can see that it is not hidden.
"""
import bz2
import gzip
import io
import lzma
import random
import struct
import tarfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "archive"
BLOCK = 512


def tensor(*values):
    """A safetensors file of one vector."""
    header = b'{"value":{"dtype":"F32","shape":[%d],"data_offsets":[0,%d]}}' % (len(values), 4 * len(values))
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + struct.pack("<%df" % len(values), *values)


def pad(data):
    return data + bytes(-len(data) % BLOCK)


def checked(header):
    """The header with its checksum filled in."""
    header = bytearray(header)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def header(name, size, kind=tarfile.REGTYPE, link=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    block = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    if isinstance(size, bytes):
        block[124:136] = size
    else:
        block[124:136] = b"%011o\0" % size
    return checked(block)


def member(name, data, kind=tarfile.REGTYPE, link=""):
    return header(name, len(data), kind, link) + pad(data)


def tar(*pieces):
    return b"".join(pieces) + bytes(2 * BLOCK)


def packed(data):
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as file:
        file.write(data)
    return out.getvalue()


def sparse(name, stored, pieces, real):
    """The old GNU form: the map stands in the header."""
    block = bytearray(header(name, len(stored), tarfile.GNUTYPE_SPARSE))
    for i, (offset, size) in enumerate(pieces):
        block[386 + 24 * i:386 + 24 * i + 24] = b"%011o\0%011o\0" % (offset, size)
    block[483:495] = (0x80 << 88 | real).to_bytes(12, "big")
    return checked(block) + pad(stored)


def zstd_garbage():
    return b"\x28\xb5\x2f\xfd\x20\x40" + bytes(range(256))


def files():
    good, late = member("good.safetensors", tensor(1.0)), member("late.safetensors", tensor(3.0))
    data = tensor(2.0)
    evil = member("evil.safetensors", data)
    yield "member-truncated.tar", good + header("evil.safetensors", 4000) + bytes(100), "the archive ends early"
    yield "header-truncated.tar", good + evil[:300], "the archive ends early"
    damaged = bytearray(evil)
    damaged[0] ^= 1
    yield "checksum-wrong.tar", tar(good, bytes(damaged), late), "the archive is damaged"
    yield "checksum-wrong-first.tar", tar(bytes(damaged)), "the archive is damaged"
    yield "size-2-62.tar", good + header("evil.safetensors", (0x80 << 88 | 1 << 62).to_bytes(12, "big")) + late, \
        "the archive ends early"
    yield "size-negative.tar", good + header("evil.safetensors", b"\xff" * 12) + late, "the archive is damaged"
    yield "size-not-octal.tar", tar(good, header("evil.safetensors", b"zzzzzzzzzzz\0"), late), "is empty"
    yield "symbolic-link.tar", tar(good, member("evil.safetensors", b"", tarfile.SYMTYPE, "/etc/passwd"), late), \
        "is a symbolic link to /etc/passwd"
    yield "hard-link-outside.tar", tar(good, member("evil.safetensors", b"", tarfile.LNKTYPE, "/etc/passwd"), late), \
        "is a hard link to /etc/passwd, which is not in the archive"
    yield "hard-link-to-itself.tar", tar(good, member("evil.safetensors", b"", tarfile.LNKTYPE, "evil.safetensors")), \
        "is a hard link to evil.safetensors"
    yield "hard-link-fine.tar", tar(good, member("other.safetensors", b"", tarfile.LNKTYPE, "./good.safetensors")), ""
    yield "device.tar", tar(good, member("evil.safetensors", b"", tarfile.CHRTYPE), late), "is a device, not a file"
    yield "pipe.tar", tar(good, member("evil.safetensors", b"", tarfile.FIFOTYPE), late), "is a named pipe, not a file"
    yield "path-dotdot.tar", tar(good, member("../evil.safetensors", data), late), "its path leaves the archive"
    yield "path-absolute.tar", tar(good, member("/tmp/evil.safetensors", data), late), "its path leaves the archive"
    yield "name-terminal-escape.tar", tar(good, member("\x1b]0;evil\x07\x1b[2J.safetensors", data), late), ""
    yield "name-twice.tar", tar(member("good.safetensors", tensor(9.0)), good), "stands in the archive again"
    yield "macos-junk.tar", tar(member("._good.safetensors", b"junk"), member("__MACOSX/x.safetensors", b"junk"),
                                member("a/.DS_Store", b"junk"), good), ""
    yield "sparse-bomb.tar", tar(good, sparse("evil.safetensors", b"", [(1 << 32, 0)], 1 << 40), late), \
        "is a sparse file with"
    hollow = tensor(*[1.0] + [0.0] * 1132 + [3.0])
    assert len(hollow) == 4608
    yield "sparse-fine.tar", tar(good, sparse("hollow.safetensors", hollow[:512] + hollow[4096:],
                                              [(0, 512), (4096, 512)], 4608), late), ""
    # libarchive gives up on the whole buffer (64 KiB) in which a compressed stream ends, so more stands between.
    long = member("long.safetensors", tensor(*[1.0] * 100000))
    noise = random.Random(1).randbytes(20000)
    yield "truncated.tar.gz", packed(tar(good, long, member("evil.safetensors", noise), late))[:-2000], \
        "the archive ends early"
    flipped = bytearray(packed(tar(good, evil)))
    flipped[60] ^= 0xFF
    yield "damaged.tar.gz", bytes(flipped), "the archive is damaged"
    yield "truncated.safetensors.gz", packed(data)[:40], "the archive ends early"
    yield "plain.safetensors.gz", packed(data), ""
    yield "plain.safetensors.bz2", bz2.compress(data), ""
    yield "plain.safetensors.xz", lzma.compress(data), ""
    yield "garbage.tar.bz2", b"BZh91AY&SY" + bytes(range(200)), "the archive is damaged"
    yield "garbage.tar.xz", b"\xfd7zXZ\0" + bytes(range(200)), "the archive is damaged"
    yield "garbage.tar.zst", zstd_garbage(), "the archive is damaged"
    yield "garbage.7z", b"7z\xbc\xaf\x27\x1c\0\4" + bytes(range(200)), "the archive is damaged"
    yield "header-only.7z", b"7z\xbc\xaf\x27\x1c\0\4", "the archive"


def main():
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.iterdir():
        old.unlink()
    for name, data, expected in files():
        (FOLDER / name).write_bytes(data)
        (FOLDER / f"{name}.expect").write_text(expected + "\n" if expected else "")


if __name__ == "__main__":
    main()
