"""Owns the trace file: a safetensors file that can be read at any moment while it grows.

    page 0       length | {"__metadata__":{"tsleuth.order":"offset"
    pages        ,"tsleuth.run":"..."                                   its own pages
    pages        ,"tsleuth.note.a":"..." ,"tsleuth.lost.b":"..."      } notes
    pages        ,"a":{...} ,"b":{...} ,"__tsleuth_spare__":{...}     } entries
    then         bytes of a, b, and the spare part

The header is reserved larger than needed and filled up with spaces, which the format allows. The file is always longer
than its tensors; what is left over is an entry of bytes called SPARE, so that nothing belongs to no tensor. A tensor's
bytes go into the spare part first, and then one short write to the header gives them their name and shortens the spare
entry: whoever is killed in between loses that tensor alone. No write to the header of a file that is in use crosses a
page of 4096 bytes, since a kill can come between two pages; what cannot be written so goes to a new file that takes the
old one's place in one step, or, when the trace is too large to be copied, waits for close().

Of a trace above 32 MiB, when its spare part is used up and the file becomes longer, and when it is closed, length and header
disagree for the instant between two calls of the system; the program reads it even then. A smaller one is closed by a copy
that takes its place. close() leaves an ordinary file without spare bytes.

A file that is being written is locked, as the capture header for C does it, and nobody who respects that replaces it.
"""
import errno
import json
import os
import stat
import struct
import sys
import warnings

try:
    import fcntl
except ImportError:  # not POSIX
    fcntl = None

SPARE = "__tsleuth_spare__"
METADATA = "__metadata__"
RUN = "tsleuth.run"
ORDER = "tsleuth.order"
MAGIC = b'{"__metadata__":{"tsleuth.order":"offset"'
PAGE = 4096
FIRST_RESERVE = 1 << 20
# Of a trace that is too large to be copied: room for some 100,000 tensors.
LARGE_RESERVE = 16 << 20
# The safetensors library refuses a header of more than 100,000,000 bytes.
MOST_HEADER = 100_000_000
# A hole, so it costs nothing, and a small trace never has to be made longer.
LEAST_GROWTH = 32 << 20
# Up to here the file may be copied: when its header is full, and by close(), to leave no reserve behind.
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


def _lock(file):
    """False when somebody else writes this file. A file system without locks has nobody."""
    try:
        if fcntl:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _unlock(file):
    """Not left to closing: a forked child may hold the same open file."""
    try:
        if fcntl:
            fcntl.flock(file.fileno(), fcntl.LOCK_UN)
    except OSError:
        pass


def _stands_at(file, path):
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except OSError:
        return False


def _beside(path, word):
    stem, suffix = os.path.splitext(path)
    return f"{stem}.{word}{suffix}"


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
        self._reserve = -(-max(int(reserve), 8 * PAGE) // PAGE) * PAGE
        self._room = 0  # bytes of data that the file has, spare ones included
        self._tail_at = 0  # where the last entry ends
        self._front_end = 0  # where the entries begin
        self._run_at = PAGE
        self._run_size = 0
        self._notes_at = 0
        self._owed = False  # metadata that only close() can write
        self._file = None
        self._open(overwrite)

    def _open(self, overwrite):
        wanted = self.path
        for attempt in range(100):
            if attempt:
                self.path = _beside(wanted, f"pid{os.getpid()}" + (f"-{attempt}" if attempt > 1 else ""))
            self._file = self._claim(overwrite and not attempt)
            if self._file:
                break
        else:
            raise FileExistsError(errno.EEXIST, "is being written by another program", wanted)
        if self.path != wanted:
            warnings.warn(f"tsleuth: {wanted} is being written by another program; the tensors go to {self.path}",
                          RuntimeWarning, stacklevel=4)
        try:
            self._grow(0)
        except OSError:
            self._file.close()
            self._file = None
            raise

    def _claim(self, overwrite):
        """The file at self.path, new and locked. None when somebody else is writing it."""
        for _ in range(100):
            try:
                file = open(self.path, "x+b", buffering=0)
            except FileExistsError:
                if not self._remove(overwrite):
                    return None
                continue
            if _lock(file) and _stands_at(file, self.path):
                return file
            file.close()  # another program took it for an empty one that was left behind
        return None

    def _remove(self, overwrite):
        """Takes an old trace away. False when somebody is writing it."""
        try:
            if not stat.S_ISREG(os.stat(self.path).st_mode):
                raise FileExistsError(errno.EEXIST, "is not a regular file, so no trace can be written there", self.path)
            with open(self.path, "rb") as old:
                if not _lock(old):
                    return False
                if not overwrite and not is_trace(self.path):
                    raise FileExistsError(
                        errno.EEXIST, "exists and is not a trace written by tsleuth; "
                        "give another name, or overwrite=True", self.path)
                # A reader may have the old file mapped: it keeps it.
                if fcntl and _stands_at(old, self.path):
                    os.unlink(self.path)
            if not fcntl:
                os.unlink(self.path)
        except FileNotFoundError:
            pass
        return True

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

    def _entries(self, entries=None):
        entries = entries or self.entries
        return b"".join(self._entry(name, *entries[name]) for name in self.names)

    @staticmethod
    def _note(key, value):
        return f",{json.dumps(key, ensure_ascii=False)}:{json.dumps(value, ensure_ascii=False)}".encode("utf-8", "replace")

    def _front(self):
        """The metadata as they stand in an open file, up to where the next note goes, and the size of the run's pages."""
        run = self._note(RUN, self.metadata.get(RUN, "{}"))
        run_size = -(-len(run) // PAGE) * PAGE
        notes = b"".join(self._note(key, value) for key, value in self.metadata.items() if key not in (RUN, ORDER))
        text = struct.pack("<Q", self._reserve - 8) + MAGIC
        return text.ljust(PAGE) + run.ljust(run_size) + notes, run_size

    def _write_header(self):
        """The whole header of a file that nobody relies on yet. False when the reserve is too small for it."""
        front, run_size = self._front()
        body = self._entries()
        tail = self._tail()
        front_end = -(-(len(front) + 1) // PAGE) * PAGE + self._reserve // 4 // PAGE * PAGE
        if front_end + len(body) + len(tail) >= self._reserve:
            return False
        self._run_size, self._notes_at, self._front_end = run_size, len(front), front_end
        self._tail_at = front_end + len(body)
        self._owed = False
        self._write(0, (front.ljust(front_end - 1) + b"}" + body + tail).ljust(self._reserve - 1) + b"}")
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

    def _extend(self, room):
        """Gives the file as much room as it has tensors, a hole that takes no space: so it seldom has to be made longer.
        Where that is too long for it (a limit on file sizes), as much as is needed."""
        try:
            wanted = room + max(self.end, LEAST_GROWTH)
            self._file.truncate(self._reserve + wanted)
        except OSError:
            wanted = room
            self._file.truncate(self._reserve + wanted)
        self._room = wanted

    def _grow(self, need):
        """Room for `need` bytes more."""
        if self._room and self.end <= COMPACT_BELOW < self.end + need and self._reserve < LARGE_RESERVE:
            try:
                self._move(LARGE_RESERVE)  # the last chance for it
            except OSError:  # no space for a second copy: the old reserve has to do
                pass
        if self._room and self.end + need <= self._room:
            return
        before = self._room
        self._extend(self.end + need)
        try:
            if self._tail_at:
                self._write(self._tail_at, self._tail())
        except OSError:
            self._room = before
            self._file.truncate(self._reserve + before)
            raise
        if not self._tail_at:
            while not self._write_header():
                if 4 * self._reserve > MOST_HEADER:
                    raise TraceError(errno.EFBIG, "the metadata are too long for a safetensors header", self.path)
                self._reserve *= 4
                self._extend(self.end + need)

    def _move(self, least=0):
        """A larger reserve; the data has to move."""
        need = len(self._front()[0]) + len(self._entries()) + 4 * PAGE
        reserve = max(least, 2 * need, 4 * self._reserve if not least else 0)
        reserve = min(-(-reserve // PAGE) * PAGE, MOST_HEADER // PAGE * PAGE)
        if need + reserve // 4 > reserve:
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
            if not self._commit(entry):
                self._move()
        except OSError:
            self.names.pop()
            del self.entries[name]
            self.end = begin
            raise

    def update(self, metadata):
        """Changes the metadata; strings."""
        known = set(self.metadata)
        changed = {key: value for key, value in metadata.items() if self.metadata.get(key) != value}
        self.metadata.update(changed)
        for key, value in changed.items():
            if not self._write_note(self._note(key, value), key == RUN, key in known):
                self._owed = True
        if self._owed and self.end <= COMPACT_BELOW:
            try:
                self._move(self._reserve)
            except OSError:  # close() finds another way, or the next tensor tells
                pass

    def _write_note(self, text, is_run, known):
        """False when one write within one page is not enough."""
        if is_run:
            if len(text) > PAGE or self._run_size != PAGE:
                return False
            self._write(self._run_at, text.ljust(PAGE))
            return True
        at = self._notes_at
        if at // PAGE != (at + len(text) - 1) // PAGE:
            at = -(-at // PAGE) * PAGE
        if known or len(text) > PAGE or at + len(text) >= self._front_end:
            return False
        self._write(at, text)
        self._notes_at = at + len(text)
        return True

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
        source = self._file  # not the name, under which something else may stand by now
        before = (self.entries, self._reserve, self._room, self._file, self._tail_at, self._front_end, self._run_size,
                  self._notes_at, self._owed)
        try:
            with open(temporary, "wb") as target:
                target.seek(reserve)
                for name in order:
                    begin, stop = self.entries[name][2:]
                    self._copy(source, old_start + begin, stop - begin, target)
            self._file = open(temporary, "r+b", buffering=0)
            _lock(self._file)
            self.entries, self._reserve = self._layout(order), reserve
            if closed:
                self._write(0, struct.pack("<Q", reserve - 8) + self._closed_text(self.entries).ljust(reserve - 8))
                self._file.truncate(reserve + self.end)
            else:
                self._extend(self.end)
                if not self._write_header():
                    raise TraceError(errno.EFBIG, "the header does not fit", self.path)
            if os.name == "nt":  # an open file cannot be replaced there
                self._file.close()
                before[3].close()
            os.replace(temporary, self.path)
            if os.name == "nt":
                self._file = open(self.path, "r+b", buffering=0)
            before[3].close()
        except BaseException:
            if self._file is not before[3]:
                self._file.close()
            (self.entries, self._reserve, self._room, self._file, self._tail_at, self._front_end, self._run_size,
             self._notes_at, self._owed) = before
            try:
                os.unlink(temporary)
            except OSError:
                pass
            raise

    def _closed_text(self, entries):
        metadata = dict(self.metadata)
        metadata[ORDER] = json.dumps(self.names, ensure_ascii=False)
        rest = self._entries(entries) + b"}"
        text = ('{"' + METADATA + '":' + json.dumps(metadata, ensure_ascii=False)).encode("utf-8", "replace")
        if len(text) + len(rest) > MOST_HEADER - PAGE:  # entries stand in capture order, and one name says that it counts
            metadata[ORDER] = json.dumps(self.names[:1], ensure_ascii=False)
            text = ('{"' + METADATA + '":' + json.dumps(metadata, ensure_ascii=False)).encode("utf-8", "replace")
        return text + rest

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
        try:
            fits = not self._owed or len(self._front()[0]) < self._front_end
            if not (aligned and self.end > COMPACT_BELOW and fits):
                text = self._closed_text(self._layout(order))
                try:
                    return self._rewrite(-(-(8 + len(text)) // 64) * 64, order, True)
                except OSError:  # no space for a second copy: keep the reserve
                    pass
            self._close_in_place()
        finally:
            _unlock(self._file)
            self._file.close()
            self._file = None

    def _close_in_place(self):
        front = self._front()[0]
        if self._owed and len(front) < self._front_end:
            self._write(0, front.ljust(self._front_end - 1) + b"}")
        self._write(self._tail_at, b" " * TAIL)
        self._file.truncate(self._reserve + self.end)

    def abandon(self):
        """Leaves the file as it stands: readable, with its spare part."""
        if self._file:
            self._file.close()
            self._file = None
