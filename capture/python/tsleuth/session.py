"""Owns a capture while it runs: names and their numbering, passes, filters, the run's metadata, and the trace file."""
import datetime
import functools
import json
import os
import re
import sys
import threading
import time
import warnings

from . import arrays
from .writer import FIRST_RESERVE, METADATA, SPARE, TraceFile, clean_name

# Captures that are open, outermost first. tap() looks here, and does nothing when it is empty.
ACTIVE = []
ACTIVE_LOCK = threading.Lock()

CACHE_KEYS = re.compile(r"(^|\.)(past_key_values?|cache_params|mems|encoder_past_key_values)(\.|$)")
MOST_TOKEN_IDS = 1 << 16
MOST_SKIPS_KEPT = 1000
# As in tsleuth_dump.h: what the innermost launcher sets comes first.
RANK_VARIABLES = (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"),
                  ("SLURM_PROCID", "SLURM_NTASKS"))


def find_rank():
    """(rank, number of ranks) of this process; (0, 1) when it is alone, and None for a number that nobody says."""
    torch = sys.modules.get("torch")
    try:
        if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_rank(), torch.distributed.get_world_size()
    except (AttributeError, RuntimeError):
        pass
    for name, size in RANK_VARIABLES:
        rank, world = os.environ.get(name, ""), os.environ.get(size, "")
        if not re.fullmatch("[0-9]+", rank) or world and not re.fullmatch("[0-9]+", world):
            continue
        if not world or int(world) > 1:
            return int(rank), int(world) if world else None
    return 0, 1


def with_rank(path, rank):
    """ref.safetensors -> ref.rank3.safetensors"""
    stem, suffix = os.path.splitext(os.fspath(path))
    return f"{stem}.rank{rank}{suffix}"


class Filter:
    def __init__(self, include, exclude):
        self.include, self.exclude = self._compile(include), self._compile(exclude)

    @staticmethod
    def _compile(patterns):
        if patterns is None:
            return None
        return [re.compile(pattern) for pattern in ([patterns] if isinstance(patterns, (str, re.Pattern)) else patterns)]

    def passes(self, name):
        return ((self.include is None or any(pattern.search(name) for pattern in self.include))
                and (self.exclude is None or not any(pattern.search(name) for pattern in self.exclude)))


class Capture:
    """A capture. As a context manager, or with start() and stop(). Use capture() to make one."""

    def __init__(self, model=None, path="trace.safetensors", *, include=None, exclude=None, inputs=False,
                 gradients=False, functions=False, caches=False, rank=None, overwrite=False, run=None):
        self.model = model
        self.include, self.exclude = include, exclude
        self.inputs, self.gradients, self.functions, self.caches = inputs, gradients, functions, caches
        self.overwrite = overwrite
        self.skipped = {}  # name -> reason, of what could not be stored; of very many, the first
        self.lost = 0  # how many they are
        self.count = 0
        self.error = None  # the first that came while writing
        self.step = None  # of the newest pass of the model; None before the first
        self._given_path, self._given_rank, self._given_run = path, rank, dict(run or {})
        self._filter = Filter(include, exclude)
        self._lock = threading.RLock()
        self._local = threading.local()
        self._calls = {}
        self._notes = {}
        self._run = {}
        self._ids_kept = 0
        self._dirty = False
        self._written = (0, 0.0)  # tensors and time when the metadata were written last
        self._file = None
        self._hooks = None
        self._patches = None
        self._warned = set()
        self._pid = None
        self.path = os.path.abspath(os.fspath(path))

    # life

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, error, trace):
        self.stop()
        return False

    def __fspath__(self):
        return self.path

    def __repr__(self):
        state = "open" if self._file else "closed"
        return f"<tsleuth capture {self.path!r}, {self.count} tensors, {state}>"

    def start(self):
        if self._file:
            raise RuntimeError("this capture is running already")
        rank, world = find_rank() if self._given_rank is None else (self._given_rank, None)
        if world is None or world > 1:
            self.path = os.path.abspath(with_rank(self._given_path, rank))
        torch = sys.modules.get("torch")
        reserve = FIRST_RESERVE
        is_module = torch is not None and hasattr(torch, "nn") and isinstance(self.model, torch.nn.Module)
        if self.model is not None and not is_module:
            raise TypeError(f"expected a torch.nn.Module, found {type(self.model).__name__}; for other libraries give "
                            "None and mark points with tsleuth.tap(name, array)")
        self._pid = os.getpid()
        self._run = self._describe_run(rank, world)
        if is_module:
            reserve = max(reserve, 1024 * sum(1 for _ in self.model.modules()))
        self._file = TraceFile(self.path, {"tsleuth.run": json.dumps(self._run, ensure_ascii=False)}, reserve,
                               self.overwrite)
        if os.path.realpath(self.path) != self._file.path:
            self.path = self._file.path  # another program writes that file
        self._calls = {METADATA: 1, SPARE: 1}
        try:
            if torch is not None and hasattr(torch, "nn"):
                from .hooks import ModuleHooks
                self._hooks = ModuleHooks(self)
                self._hooks.attach(self.model)
            if self.functions:
                from .functions import FunctionPatches
                self._patches = FunctionPatches(self, self.functions)
        except BaseException:
            self._release()
            self._file.abandon()
            self._file = None
            raise
        with ACTIVE_LOCK:
            ACTIVE.append(self)
        return self

    def _release(self):
        for owner in (self._patches, self._hooks):
            if owner:
                owner.detach()
        self._hooks = self._patches = None

    def stop(self, raising=False):
        """Ends the capture: hooks off, the file closed. What went wrong while writing is a warning, in the trace, and in
        `error`; raising=True raises it here."""
        if not self._file:
            return self
        arrays.wait_for_computations()
        with ACTIVE_LOCK:
            if self in ACTIVE:
                ACTIVE.remove(self)
        self._release()
        with self._lock:
            file, self._file = self._file, None
            if os.getpid() != self._pid:  # a forked child: the file is its parent's
                file.abandon()
                return self
            for step in (lambda: file.update(self._metadata()), file.close):
                try:
                    step()
                except OSError as error:
                    self._trouble(error)
        if self.error and raising:
            raise self.error
        if self.lost:
            name, reason = next(iter(self.skipped.items()))
            self.warn(f"{self.lost} of {self.lost + self.count} tensors could not be stored, the first of them {name}: "
                      f"{reason}")
        elif not self.count and not self.error:
            self.warn("nothing was captured: was the model called inside the capture"
                      + (", and do the names match include= and exclude=?" if self.include or self.exclude else "?"))
        return self

    # the run's metadata

    def _describe_run(self, rank, world):
        run = {"program": " ".join(["python"] + sys.argv)[:1000], "capture": "tsleuth 0.1.0 for Python",
               "start": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")}
        if world is None or world > 1:
            run["rank"] = rank
            if world:
                run["world_size"] = world
        if self.model is not None:
            run.update(self._describe_model(self.model))
        for name in ("torch", "transformers", "jax", "mlx.core", "numpy"):
            version = getattr(sys.modules.get(name), "__version__", None)
            if version:
                run[name.split(".")[0]] = str(version)
        run.update(self._given_run)
        return run

    @staticmethod
    def _describe_model(model):
        found = {"model": type(model).__name__}
        config = getattr(model, "config", None)
        for key, attribute in (("model_path", "_name_or_path"), ("attention", "_attn_implementation")):
            value = getattr(config, attribute, None)
            if isinstance(value, str) and value:
                found[key] = value
        sizes, devices = {}, set()
        for parameter in model.parameters():
            name = str(parameter.dtype).replace("torch.", "")
            sizes[name] = sizes.get(name, 0) + parameter.numel()
            devices.add(str(parameter.device))
        if sizes:
            found["precision"] = max(sizes, key=sizes.get)
            found["device"] = ", ".join(sorted(devices))
        found["training"] = bool(model.training)
        return found

    def found(self, model):
        """A model that was found while running."""
        if self._patches:
            self._patches.refresh()
        with self._lock:
            for key, value in self._describe_model(model).items():
                self._run.setdefault(key, value)
            self._dirty = True

    def _metadata(self):
        found = {"tsleuth.run": json.dumps(self._run, ensure_ascii=False)}
        for name, notes in self._notes.items():
            found[f"tsleuth.note.{name}"] = json.dumps(notes, ensure_ascii=False)
        for name, reason in self.skipped.items():
            found[f"tsleuth.lost.{name}"] = reason
        return found

    def token_ids(self, ids):
        """Remembers the token ids of this pass."""
        with self._lock:
            try:
                found = ids.detach().cpu().tolist()
                count = int(ids.numel())
            except Exception:  # ids without values, as on the meta device: the pass goes on
                return
            if isinstance(found, list) and len(found) == 1 and isinstance(found[0], list):
                found = found[0]
            if self._ids_kept + count > MOST_TOKEN_IDS:
                self._run["tokens_cut"] = True
                return
            self._ids_kept += count
            if self.step:
                self._run.setdefault("step_tokens", {})[str(self.step)] = found
            else:
                self._run.setdefault("tokens", found)
            self._dirty = True

    # passes and names

    def next_step(self):
        """A new pass begins: for loops that call no module which the capture knows."""
        with self._lock:
            self.step = 0 if self.step is None else self.step + 1
            return self.step

    @property
    def stack(self):
        """Modules that this thread is inside of: [module, name, calls of rotary functions in it]."""
        try:
            return self._local.stack
        except AttributeError:
            self._local.stack = []
            return self._local.stack

    def inside(self, name):
        """A name seen from the module that is running: "q_rope" -> "model.layers.0.self_attn.q_rope"."""
        if name.startswith("/"):
            return name[1:]
        module = self.stack[-1][1] if self.stack else ""
        return f"{module}.{name}" if module else name

    def in_step(self, name):
        return f"step_{self.step}.{name}" if self.step else name

    def _number(self, name):
        count = self._calls.get(name, 0) + 1
        while True:
            numbered = name if count == 1 else f"{name}#{count}"
            self._calls[name] = count
            if count == 1 or numbered not in self._calls:
                self._calls.setdefault(numbered, 1)
                return numbered
            count += 1

    # storing

    def wants(self, name):
        return self._file is not None and self._filter.passes(name)

    def record(self, name, value, qualified=False, notes=None):
        """Stores an array, or those in a nest of tuples and dicts. Returns [(name as stored, array)]."""
        stored = []
        for path, array in arrays.walk(value, caches=self.caches):
            full = clean_name(".".join(part for part in (name, path) if part))
            if not self.caches and CACHE_KEYS.search(full):
                continue
            if self.wants(full):
                one = self._store(full if qualified else self.in_step(full), array, notes)
                if one:
                    stored.append((one, array))
        return stored

    def tap(self, name, value, notes=None):
        full = self.inside(clean_name(name))
        if isinstance(value, (bool, int, float)):
            if self.wants(full):
                self._store(self.in_step(full), value, notes)
        else:
            self.record(full, value, notes=notes)

    def _store(self, name, value, notes=None):
        if self._file is None or os.getpid() != self._pid:
            return None
        if arrays.is_tracer(value):
            arrays.when_computed(value, functools.partial(self._store, name, notes=notes))
            return None
        # Not under the lock: reading may wait for a computation that comes here from another thread.
        try:
            array, reason = arrays.describe(value), None
        except arrays.Unsupported as unsupported:
            array, reason = None, str(unsupported)
        with self._lock:
            if self._file is None:
                return None
            name = self._number(name)
            if array is None:
                self.lose(name, reason)
                return None
            try:
                self._file.add(name, array.dtype, array.shape, array.data)
            except OSError as error:  # the run goes on, and a smaller one may fit
                self._trouble(error)
                self.lose(name, error.strerror or str(error))
                return None
            self.count += 1
            if array.notes or notes:
                self._notes[name] = {**array.notes, **(notes or {})}
                self._dirty = True
            try:
                self._flush()
            except OSError as error:
                self._trouble(error)
            return name

    def lose(self, name, reason):
        """A tensor that should be in the trace and is not is named in it."""
        self.lost += 1
        if len(self.skipped) < MOST_SKIPS_KEPT:
            self.skipped[name] = reason
            self._dirty = True

    def _trouble(self, error):
        if not self.error:
            self.error = error
            self.warn(f"{self.path} is not complete from its tensor {self.count + 1} on: {error}")

    def _flush(self):
        """Brings changed metadata into the file, at once for the first and seldom enough to cost nothing later."""
        count, when = self._written
        if self._dirty and (self.count <= 2 or self.count >= 2 * count or time.monotonic() - when > 1):
            self._file.update(self._metadata())
            self._written = (self.count, time.monotonic())
            self._dirty = False

    def warn(self, message):
        if message not in self._warned:
            self._warned.add(message)
            warnings.warn(f"tsleuth: {message}", RuntimeWarning, stacklevel=3)


def capture(model=None, path="trace.safetensors", **options):
    """Captures every module's output while the block runs.

        with tsleuth.capture(model, "ref.safetensors"):
            model(**inputs)

    model      a torch.nn.Module; None: every module that is called, found while running, and taps
    path       the trace, a safetensors file; several ranks write a file each: ref.rank0.safetensors
    include    a regular expression, or several: only tensors whose name matches one
    exclude    the same: not these
    inputs     the modules' inputs as well, as NAME.input
    gradients  of outputs and parameters, as NAME.grad, when backward runs inside the block
    functions  True: rotary and attention functions of transformers and torch, as NAME.q_rope, NAME.attn_context;
               or a list of functions "package.module.function", or a dict of them with names for their outputs
    caches     key-value caches that modules return as well
    rank       the rank in the file's name; found by itself
    overwrite  replace a file that is not a trace
    run        a dict of facts about the run for its metadata
    """
    return Capture(model, path, **options)


def tap(name, value, axes=None):
    """Marks a point inside a forward pass. Returns the value; does nothing else when no capture is open. Inside a
    captured module the name is continued from the module's, unless it begins with "/". axes: what its axes are, as
    "tokens,heads,channels"."""
    if ACTIVE:
        for one in tuple(ACTIVE):
            one.tap(name, value, {"axes": axes} if axes else None)
    return value
