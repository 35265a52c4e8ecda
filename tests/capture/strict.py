"""A reader of safetensors that is as strict as the format's own library, written from its rules and sharing nothing with
tsleuth: what the library refuses, this refuses.

The rules: 8 bytes of length, at most 100,000,000; that many bytes of UTF-8 that are one JSON object, with white space
around it alone; "__metadata__" at most once, strings to strings; each other key a tensor with a known dtype, a shape of
whole numbers and two data_offsets; sorted by offsets they begin at 0, follow each other without gap or overlap, span what
shape and dtype say, and end with the file. A name that stands there twice counts as its last entry, as the library has it.

Where that library and numpy are installed it is asked as well: what passes here and not there is an error of the rules.

usage: strict.py FILE...    says what is wrong, exit status 1 when anything is
"""
import json
import os
import sys
from collections import Counter

try:
    import numpy  # noqa: F401  the library hands out its arrays
    import safetensors
except ImportError:
    safetensors = None

BITS = {"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
        "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32,
        "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64}
SPARE = "__tsleuth_spare__"


class Refused(Exception):
    pass


def whole(number):
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 1 << 64


def no_constant(text):
    raise Refused(f"{text} is no JSON")


class File:
    """One opened file: `names` in order of offsets, `tensors`, `metadata`, `spare` (bytes), `repeated` (names given twice).
    With may_trail, bytes behind the last tensor are let pass; `trailing` says how many."""

    def __init__(self, path, may_trail=False):
        self.path = path
        self.handle = open(path, "rb")
        size = os.fstat(self.handle.fileno()).st_size
        head = self.handle.read(8)
        if len(head) < 8:
            raise Refused("shorter than 8 bytes")
        length = int.from_bytes(head, "little")
        if length > 100_000_000:
            raise Refused("header too large")
        header = self.handle.read(length)
        if len(header) < length:
            raise Refused("header longer than the file")
        if not header.startswith(b"{"):
            raise Refused("header does not begin with {")
        self.repeated = []
        try:
            content = json.loads(header.decode("utf-8"), object_pairs_hook=self.object, parse_constant=no_constant)
        except ValueError as error:
            raise Refused(f"header: {error}") from None
        self.start = 8 + length
        self.metadata = content.pop("__metadata__", {})
        if not all(isinstance(value, str) for value in self.metadata.values()):
            raise Refused("metadata that are no strings")
        self.tensors = content
        end = 0
        for name, info in sorted(content.items(), key=lambda item: item[1]["data_offsets"]):
            if info.get("dtype") not in BITS:
                raise Refused(f"{name}: dtype {info.get('dtype')}")
            if not all(whole(number) for number in info["shape"] + info["data_offsets"]):
                raise Refused(f"{name}: numbers")
            begin, after = info["data_offsets"]
            if begin != end or after < begin:
                raise Refused(f"{name}: begins at {begin}, the one before ends at {end}")
            bits = BITS[info["dtype"]]
            for number in info["shape"]:
                bits *= number
            if bits % 8 or bits // 8 != after - begin:
                raise Refused(f"{name}: {after - begin} bytes for {info['shape']} {info['dtype']}")
            end = after
        self.trailing = size - self.start - end
        if self.trailing < 0 or (self.trailing and not may_trail):
            raise Refused(f"tensors end at {self.start + end}, the file at {size}")
        if safetensors and not self.trailing:
            with safetensors.safe_open(str(path), framework="numpy") as library:
                assert sorted(library.keys()) == sorted(content), f"{path}: the library sees other tensors"
        spare = self.tensors.pop(SPARE, None)
        self.spare = spare["data_offsets"][1] - spare["data_offsets"][0] if spare else 0
        self.names = [name for name, _ in sorted(self.tensors.items(), key=lambda item: item[1]["data_offsets"])]

    def object(self, pairs):
        content = dict(pairs)
        if len(content) != len(pairs):
            again = {name for name, times in Counter(name for name, _ in pairs).items() if times > 1}
            if "__metadata__" in again:
                raise Refused("__metadata__ twice")
            self.repeated += sorted(again)
        return content

    def bytes(self, name):
        begin, end = self.tensors[name]["data_offsets"]
        self.handle.seek(self.start + begin)
        data = self.handle.read(end - begin)
        if len(data) != end - begin:
            raise Refused(f"{name}: cut off")
        return data

    def note(self, name):
        return json.loads(self.metadata.get(f"tsleuth.note.{name}", "{}"))

    def close(self):
        self.handle.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def main():
    wrong = 0
    for path in sys.argv[1:]:
        try:
            with File(path) as file:
                print(f"{path}: {len(file.names)} tensors, spare {file.spare}, repeated {file.repeated}")
        except (Refused, OSError) as error:
            wrong = 1
            print(f"{path}: {error}")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
