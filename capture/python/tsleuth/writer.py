"""Owns the trace file: a safetensors file that can be read at any moment while it grows.

The header is reserved larger than needed and filled up with spaces, which the format allows. The file is always longer
than its tensors; what is left over is an entry of bytes called SPARE, so that nothing belongs to no tensor. A tensor's
bytes go into the spare part first, and then one short write to the header gives them their name and shortens the spare
entry: whoever is killed in between loses that tensor alone. Only when the spare part is used up and the file becomes
longer do its length and its header disagree, for the instant between two calls of the system; the program reads it even
then. close() leaves an ordinary file without spare bytes.
"""
import errno
import json
import os
import stat
import struct
import sys

SPARE = "__tsleuth_spare__"
METADATA = "__metadata__"
PAGE = 4096
FIRST_RESERVE = 1 << 20
# The safetensors library refuses a header of more than 100,000,000 bytes.
MOST_HEADER = 100_000_000
LEAST_GROWTH = 1 << 20
MOST_GROWTH = 64 << 20
# Up to here close() writes the file anew without the reserve; beyond, a reserve of some MB does not matter.
COMPACT_BELOW = 32 << 20
COPY_PIECE = 8 << 20
# The spare entry takes this much, whatever its three numbers are.
TAIL = len(SPARE) + 110
ALIGNMENT = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2}


class TraceError(OSError):
    """The trace could not be written."""


def clean_name(name):
    """A name that UTF-8, JSON and C strings can hold."""
    name = str(name).encode("utf-8", "replace").decode("utf-8").replace("\0", "\u2400")
    return name or "unnamed"


def is_trace(path):
    """Whether the file was written by this package, or is empty: it may be written anew."""
    try:
        with open(path, "rb") as file:
            head = file.read(8)
            if not head:
                return True
            if len(head) < 8:
                return False
            size = struct.unpack("<Q", head)[0]
            text = file.read(min(size, MOST_HEADER))
        return "tsleuth.run" in json.loads(text)[METADATA]
    except (OSError, ValueError, KeyError, TypeError):
        return False


class TraceFile:
    """Not safe for threads by itself: the capture holds its lock around every call."""

    def __init__(self, path, metadata=None, reserve=FIRST_RESERVE, overwrite=False):
        if sys.byteorder != "little":
            raise TraceError("safetensors files are little-endian, and this machine is not")
        self.path = os.path.realpath(os.fspath(path))
        self.metadata = dict(metadata or {})  # strings
        self.names = []
        self.entries = {}  # name -> (dtype, shape, begin, end)
        self.end = 0  # of the tensors, from the start of the data
        self._reserve = -(-max(int(reserve), PAGE) // PAGE) * PAGE
        self._room = 0  # bytes of data that the file has, spare ones included
        self._tail_at = 0  # where the last entry ends
        self._file = None
        self._open(overwrite)

    def _open(self, overwrite):
        try:
            mode = os.stat(self.path).st_mode
        except FileNotFoundError:
            mode = None
        if mode is not None:
            if not stat.S_ISREG(mode):
                raise FileExistsError(errno.EEXIST, "is not a regular file, so no trace can be written there", self.path)
            if not overwrite and not is_trace(self.path):
                raise FileExistsError(
                    errno.EEXIST, "exists and is not a trace written by tsleuth; "
                    "give another name, or overwrite=True", self.path)
            # A reader may have the old file mapped: it keeps it.
            os.unlink(self.path)
        self._file = open(self.path, "x+b", buffering=0)
        try:
            self._grow(0)
        except OSError:
            self._file.close()
            self._file = None
            raise

    # writing

    def _write(self, at, data):
        view = memoryview(data)
        if view.ndim != 1 or view.format not in ("B", "b", "c"):
            view = view.cast("B")
        while len(view):
            piece = view[:1 << 30]
            if hasattr(os, "pwrite"):
                done = os.pwrite(self._file.fileno(), piece, at)
            else:
                self._file.seek(at)
                done = self._file.write(piece)
            at += done
            view = view[done:]

    def _tail(self):
        left = self._room - self.end
        spare = (f',"{SPARE}":{{"dtype":"U8","shape":[{left}],"data_offsets":[{self.end},{self._room}]}}'
                 if left else "")
        return spare.ljust(TAIL).encode()

    @staticmethod
    def _entry(name, dtype, shape, begin, end):
        return (f',{json.dumps(name, ensure_ascii=False)}:{{"dtype":"{dtype}","shape":{json.dumps(list(shape))},'
                f'"data_offsets":[{begin},{end}]}}').encode("utf-8")

    def _front(self, complete):
        metadata = dict(self.metadata)
        # While the file grows its entries stand in capture order, and the first name says that this order counts; the
        # complete list comes at the end.
        names = self.names if complete else self.names[:1]
        metadata["tsleuth.order"] = json.dumps(names, ensure_ascii=False)
        return ('{"' + METADATA + '":' + json.dumps(metadata, ensure_ascii=False)).encode("utf-8", "replace")

    def _entries(self, entries=None):
        entries = entries or self.entries
        return b"".join(self._entry(name, *entries[name]) for name in self.names)

    def _write_header(self):
        """The whole header, with the metadata as they are now. False when the reserve is too small for it."""
        front = self._front(False)
        body = self._entries()
        tail = self._tail()
        if 8 + len(front) + len(body) + len(tail) >= self._reserve:
            return False
        text = struct.pack("<Q", self._reserve - 8) + front + body + tail
        self._tail_at = 8 + len(front) + len(body)
        self._write(0, text.ljust(self._reserve - 1) + b"}")
        return True

    def _commit(self, entry):
        """Puts an entry and the shorter spare entry in the place of the old one. Within a page that is one step, which
        even a kill cannot halve, so both go to the next page where they would straddle two; for a moment the spare
        entry then stands twice, and readers take the later one. False when the reserve is used up."""
        text = entry + self._tail()
        at = self._tail_at
        if at // PAGE != (at + len(text) - 1) // PAGE and len(text) <= PAGE:
            at = -(-at // PAGE) * PAGE
        if at + len(text) >= self._reserve:
            return False
        self._write(at, text)
        if at != self._tail_at:
            self._write(self._tail_at, b" " * min(TAIL, at - self._tail_at))
        self._tail_at = at + len(entry)
        return True

    def _grow(self, need):
        """Room for `need` bytes more."""
        if self._room and self.end + need <= self._room:
            return
        room = self.end + need + min(max(self.end, LEAST_GROWTH), MOST_GROWTH)
        self._file.truncate(self._reserve + room)
        self._room = room
        if self._tail_at:
            self._write(self._tail_at, self._tail())
        elif not self._write_header():
            self._move(self._front(False))

    def _move(self, front):
        """A larger reserve; the data has to move."""
        need = 8 + len(front) + len(self._entries()) + 4 * PAGE
        reserve = max(4 * self._reserve, 2 * need)
        reserve = min(-(-reserve // PAGE) * PAGE, MOST_HEADER // PAGE * PAGE)
        if need > reserve:
            raise TraceError(errno.EFBIG, f"a safetensors header of more than {MOST_HEADER} bytes would be needed, which "
                             "no library reads; capture fewer tensors (include=, exclude=)", self.path)
        self._rewrite(reserve, self.names, False)

    def add(self, name, dtype, shape, data):
        """Appends a tensor: contiguous, little-endian bytes that are read here and not kept. The name must be new."""
        if name in self.entries or name in (SPARE, METADATA):
            raise ValueError(f"{name!r} is in the trace already")
        size = memoryview(data).nbytes
        self._grow(size)
        self._write(self._reserve + self.end, data)
        begin, self.end = self.end, self.end + size
        self.entries[name] = (dtype, tuple(int(n) for n in shape), begin, self.end)
        self.names.append(name)
        entry = self._entry(name, *self.entries[name])
        try:
            # The first one changes the metadata as well: its name is in the order.
            if len(self.names) == 1 or not self._commit(entry):
                if not self._write_header():
                    self._move(self._front(False))
        except OSError:
            self.names.pop()
            del self.entries[name]
            self.end = begin
            raise

    def update(self, metadata):
        """Changes the metadata; strings."""
        self.metadata.update(metadata)
        if not self._write_header():
            self._move(self._front(False))

    # writing anew

    def _copy(self, source, start, size, target):
        while size:
            source.seek(start)
            piece = source.read(min(size, COPY_PIECE))
            if not piece:
                raise TraceError(errno.EIO, "the trace became shorter while it was written", self.path)
            target.write(piece)
            start += len(piece)
            size -= len(piece)

    def _layout(self, order):
        """Where the tensors lie when their data stands in `order`."""
        entries, end = {}, 0
        for name in order:
            dtype, shape, begin, stop = self.entries[name]
            entries[name] = (dtype, shape, end, end + stop - begin)
            end += stop - begin
        return entries

    def _rewrite(self, reserve, order, closed):
        """Writes the file beside itself, data in `order`, and puts it in place in one step."""
        temporary = f"{self.path}.{os.getpid()}.tmp"
        old_start = self._reserve
        source = open(self.path, "rb", buffering=0)
        before = (self.entries, self._reserve, self._room, self._file, self._tail_at)
        try:
            with open(temporary, "wb") as target:
                target.seek(reserve)
                for name in order:
                    begin, stop = self.entries[name][2:]
                    self._copy(source, old_start + begin, stop - begin, target)
            self._file = open(temporary, "r+b", buffering=0)
            self.entries, self._reserve = self._layout(order), reserve
            if closed:
                self._write(0, struct.pack("<Q", reserve - 8) + self._closed_text(self.entries).ljust(reserve - 8))
                self._file.truncate(reserve + self.end)
            else:
                self._room = self.end + min(max(self.end, LEAST_GROWTH), MOST_GROWTH)
                self._file.truncate(self._reserve + self._room)
                if not self._write_header():
                    raise TraceError(errno.EFBIG, "the header does not fit", self.path)
            if os.name == "nt":  # an open file cannot be replaced there
                source.close()
                self._file.close()
                before[3].close()
            os.replace(temporary, self.path)
            if os.name == "nt":
                self._file = open(self.path, "r+b", buffering=0)
            before[3].close()
        except BaseException:
            if self._file is not before[3]:
                self._file.close()
            self.entries, self._reserve, self._room, self._file, self._tail_at = before
            try:
                os.unlink(temporary)
            except OSError:
                pass
            raise
        finally:
            source.close()

    def _closed_text(self, entries):
        text = self._front(True) + self._entries(entries) + b"}"
        if len(text) > MOST_HEADER - PAGE:
            text = self._front(False) + self._entries(entries) + b"}"
        return text

    def _aligned(self):
        return all(begin % ALIGNMENT.get(dtype, 1) == 0 for dtype, _, begin, _ in self.entries.values())

    def close(self):
        """Leaves an ordinary safetensors file."""
        if not self._file:
            return
        aligned = self._aligned()
        # Large elements first, as the library does: then every one is aligned.
        order = self.names if aligned else sorted(
            self.names, key=lambda name: -ALIGNMENT.get(self.entries[name][0], 1))
        text = self._closed_text(self._layout(order))
        try:
            in_place = self._closed_text(self.entries)
            fits = 8 + len(in_place) <= self._reserve
            if not (aligned and self.end > COMPACT_BELOW and fits):
                try:
                    return self._rewrite(-(-(8 + len(text)) // 64) * 64, order, True)
                except OSError:  # no space for a second copy: keep the reserve
                    if not fits:
                        raise
            self._write(8, in_place.ljust(self._reserve - 8))
            self._file.truncate(self._reserve + self.end)
        finally:
            self._file.close()
            self._file = None

    def abandon(self):
        """Leaves the file as it stands: readable, with its spare part."""
        if self._file:
            self._file.close()
            self._file = None
