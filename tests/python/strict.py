"""Reads safetensors as strictly as the format's own library, and knows nothing of the package under test."""
import json
import os
import struct

try:
    import numpy  # noqa: F401  the library hands out its arrays
    import safetensors
except ImportError:
    safetensors = None

SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4,
         "U32": 4, "F32": 4, "F64": 8, "I64": 8, "U64": 8}
SPARE = "__tsleuth_spare__"
LETTERS = {"F64": "d", "F32": "f", "F16": "e", "I64": "q", "I32": "i", "I16": "h", "I8": "b", "U8": "B", "BOOL": "?",
           "U16": "H", "U32": "I", "U64": "Q"}


class Refused(Exception):
    pass


def _once(pairs):
    """No name twice, but for the room of a trace that is being written, which may: the later one counts."""
    keys = [key for key, _ in pairs if key != SPARE]
    if len(set(keys)) != len(keys):
        raise Refused("a key stands twice")
    return dict(pairs)


class Tensor:
    def __init__(self, dtype, shape, data, offset):
        self.dtype, self.shape, self.data, self.offset = dtype, tuple(shape), data, offset

    def values(self):
        count = len(self.data) // SIZES[self.dtype]
        if self.dtype == "BF16":
            halves = struct.unpack(f"<{count}H", self.data)
            return [struct.unpack("<f", struct.pack("<I", half << 16))[0] for half in halves]
        return list(struct.unpack(f"<{count}{LETTERS[self.dtype]}", self.data))


def load(path, aligned=True):
    """({name: Tensor} in the order of the header, metadata)"""
    with open(path, "rb") as file:
        return _parse(file, path, aligned)


def _parse(file, path, aligned):
    length = os.fstat(file.fileno()).st_size
    if length < 8:
        raise Refused("shorter than a header")
    size = struct.unpack("<Q", file.read(8))[0]
    if size > 100_000_000 or 8 + size > length:
        raise Refused(f"a header of {size} bytes")
    text = file.read(size).decode("utf-8")
    if not text.startswith("{"):
        raise Refused("the header does not begin with {")
    header = json.loads(text, object_pairs_hook=_once)
    metadata = header.pop("__metadata__", {})
    if not all(isinstance(key, str) and isinstance(value, str) for key, value in metadata.items()):
        raise Refused("metadata that is not text")
    at = 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        if set(entry) != {"dtype", "shape", "data_offsets"}:
            raise Refused(f"{name} has {sorted(entry)}")
        begin, end = entry["data_offsets"]
        need = SIZES[entry["dtype"]]
        for extent in entry["shape"]:
            need *= extent
        if begin != at or end - begin != need:
            raise Refused(f"{name} lies at {begin} to {end}; expected {at} to {at + need}")
        if aligned and (8 + size + begin) % SIZES[entry["dtype"]]:
            raise Refused(f"{name} is not aligned")
        at = end
    if at != length - 8 - size:
        raise Refused(f"{length - 8 - size - at} bytes belong to no tensor")
    if safetensors:  # where the library is installed, it must agree
        with safetensors.safe_open(str(path), framework="numpy") as library:
            if sorted(library.keys()) != sorted(header):
                raise Refused("the library sees other tensors")
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        file.seek(8 + size + begin)
        data = b"" if name == SPARE else file.read(end - begin)  # megabytes of nothing
        tensors[name] = Tensor(entry["dtype"], entry["shape"], data, begin)
    return tensors, metadata
