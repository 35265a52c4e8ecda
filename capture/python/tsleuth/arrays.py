"""Owns the way from an array of any library to what a trace stores: dtype, shape and bytes, without a copy where the
library allows it. No library is imported here: an array can only come from one that is loaded already."""
import ctypes
import sys
from collections.abc import Mapping

TORCH_DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e8m0fnu": "F8_E8M0", "float4_e2m1fn_x2": "F4",
}
BY_KIND = {("f", 2): "F16", ("f", 4): "F32", ("f", 8): "F64", ("b", 1): "BOOL",
           ("i", 1): "I8", ("i", 2): "I16", ("i", 4): "I32", ("i", 8): "I64",
           ("u", 1): "U8", ("u", 2): "U16", ("u", 4): "U32", ("u", 8): "U64"}
# One letter of the buffer protocol -> kind of number.
LETTERS = {"?": "b", "e": "f", "f": "f", "d": "f",
           **dict.fromkeys("bhilqn", "i"), **dict.fromkeys("BHILQN", "u"), "c": "u"}
DEEPEST = 16


class Unsupported(Exception):
    """The value holds numbers that cannot be stored; says why."""


class Array:
    """What is stored. `data` has the buffer protocol; `keep` is what its memory belongs to."""
    __slots__ = ("dtype", "shape", "data", "notes", "keep")

    def __init__(self, dtype, shape, data, notes=None, keep=None):
        self.dtype, self.shape, self.data, self.notes, self.keep = dtype, tuple(shape), data, notes or {}, keep


def _bytes_at(address, size):
    return (ctypes.c_char * size).from_address(address) if size else b""


def is_torch(value):
    torch = sys.modules.get("torch")
    return torch is not None and hasattr(torch, "Tensor") and isinstance(value, torch.Tensor)


def _is_numpy(value):
    numpy = sys.modules.get("numpy")
    return numpy is not None and hasattr(numpy, "ndarray") and isinstance(value, (numpy.ndarray, numpy.generic))


def is_array(value):
    """Whether it is an array of some library. Plain numbers, strings and bytes are not."""
    if is_torch(value) or _is_numpy(value):
        return True
    if isinstance(value, (str, bytes, bytearray, int, float, complex, type, type(None))):
        return False
    kind = type(value)
    return (any(hasattr(kind, name) for name in ("__array__", "__dlpack__")) or hasattr(kind, "__array_interface__")
            or _is_mlx(value) or _is_buffer(value) or "__array_interface__" in getattr(value, "__dict__", {}))


def _is_mlx(value):
    return type(value).__module__.split(".")[0] == "mlx" and hasattr(value, "dtype") and hasattr(value, "shape")


def _is_buffer(value):
    try:
        with memoryview(value):
            return True
    except TypeError:
        return False


def _is_cache(value):
    """A key-value cache of transformers, or a layer of one: an object that keeps its arrays in attributes."""
    return any("Cache" in base.__name__ for base in type(value).__mro__) and hasattr(value, "__dict__")


def walk(value, path="", depth=0, caches=False):
    """The arrays in nested tuples, dicts and dataclasses: (path, array). A tuple of one adds nothing to the path.
    caches: those inside the objects that keep keys and values from step to step as well."""
    if is_array(value):
        yield path, value
        return
    if depth == DEEPEST or isinstance(value, (str, bytes, bytearray, int, float, complex, type(None))):
        return
    if isinstance(value, Mapping):
        items = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, (tuple, list)):
        fields = getattr(value, "_fields", None)
        items = list(zip(fields if fields and len(fields) == len(value) else map(str, range(len(value))), value))
        if len(value) == 1 and not fields:
            items = [("", value[0])]
    elif hasattr(type(value), "__dataclass_fields__") and not isinstance(value, type):
        items = [(field, getattr(value, field, None)) for field in type(value).__dataclass_fields__]
    elif caches and _is_cache(value):
        items = []
        for key, item in vars(value).items():
            if key == "layers" and isinstance(item, (tuple, list)):  # one of one layer keeps its number
                items += [(f"layers.{index}", layer) for index, layer in enumerate(item)]
            elif not key.startswith("_"):
                items.append((key, item))
    else:
        return
    for key, item in items:
        yield from walk(item, f"{path}.{key}" if path and key else path or key, depth + 1, caches)


def describe(value):
    """An Array, or Unsupported."""
    try:
        if is_torch(value):
            return _from_torch(value)
        if _is_numpy(value):
            return _from_numpy(value)
        if isinstance(value, bool):
            return Array("BOOL", (), bytes([value]))
        if isinstance(value, int):
            return Array("I64", (), value.to_bytes(8, "little", signed=True))
        if isinstance(value, float):
            return Array("F64", (), ctypes.c_double(value), keep=value)
        if _is_mlx(value):
            return _from_mlx(value)
        if hasattr(type(value), "__array_interface__") or "__array_interface__" in getattr(value, "__dict__", {}):
            return _from_interface(value)
        if type(value).__module__.split(".")[0] == "cupy":  # says no to __array__, since that would hide a copy
            return _from_numpy(value.get())
        if hasattr(type(value), "__array__"):
            return _from_numpy(_numpy().asarray(value))
        if _is_buffer(value):
            return _from_buffer(value)
        if callable(getattr(value, "numpy", None)):
            array = value.numpy()
            return _from_numpy(_numpy().asarray(array))
        if hasattr(type(value), "__dlpack__"):
            return _from_dlpack(value)
    except Unsupported:
        raise
    except Exception as error:  # whatever a library thinks of being read now: it must not reach the model
        text = str(error).strip().split("\n")[0][:200]
        raise Unsupported(f"{type(value).__name__} could not be read: {type(error).__name__}: {text}") from error
    raise Unsupported(f"{type(value).__name__} is not an array")


def _numpy():
    try:
        import numpy
    except ImportError:
        raise Unsupported("reading it needs numpy, which is not installed") from None
    return numpy


# jax

def is_tracer(value):
    """Inside jax.jit there are no values yet."""
    jax = sys.modules.get("jax")
    return jax is not None and hasattr(jax, "core") and isinstance(value, jax.core.Tracer)


def when_computed(tracer, then):
    """Calls `then` with the values whenever the compiled function runs, in the order of the program where JAX can."""
    callback = sys.modules["jax"].debug.callback
    try:
        callback(then, tracer, ordered=True)
    except (NotImplementedError, ValueError):  # as under vmap or on several devices
        callback(then, tracer)


def wait_for_computations():
    jax = sys.modules.get("jax")
    if jax is not None and hasattr(jax, "effects_barrier"):
        jax.effects_barrier()


# torch

def _from_torch(tensor):
    torch = sys.modules["torch"]
    kind = type(tensor).__name__
    notes = {}
    if kind in ("FakeTensor", "FunctionalTensor"):
        raise Unsupported(f"{kind} has no values: the model is being traced or compiled, not run")
    if tensor.device.type == "meta":
        raise Unsupported("it is on the meta device and has no values")
    with torch.no_grad():
        tensor = tensor.detach()
        if hasattr(tensor, "placements") and hasattr(tensor, "to_local"):  # a DTensor
            notes["placements"] = [str(placement) for placement in tensor.placements]
            notes["global_shape"] = [int(n) for n in tensor.shape]
            try:
                notes["mesh"] = list(tensor.device_mesh.mesh.shape)
                notes["coordinate"] = list(tensor.device_mesh.get_coordinate() or [])
            except Exception:  # an attribute that moved between versions is not worth a lost tensor
                pass
            tensor = tensor.to_local().detach()
        if type(tensor).__name__ == "AsyncCollectiveTensor":  # the sum over ranks is still under way
            tensor = tensor.trigger_wait() if hasattr(tensor, "trigger_wait") else tensor.wait()
        if getattr(tensor, "is_nested", False):
            raise Unsupported("it is a nested tensor")
        if tensor.is_cuda and torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            raise Unsupported("a CUDA graph is being captured, in which nothing can be read; run without CUDA graphs")
        if tensor.is_quantized:
            notes["quantized"] = str(tensor.dtype)
            tensor = tensor.dequantize()
        if tensor.layout != torch.strided:
            notes["layout"] = str(tensor.layout)
            tensor = tensor.to_dense()
        if tensor.is_complex():
            notes["complex"] = str(tensor.dtype)
            tensor = torch.view_as_real(tensor.resolve_conj())
        if hasattr(tensor, "resolve_neg"):
            tensor = tensor.resolve_neg()
        if tensor.device.type != "cpu":
            tensor = tensor.cpu()
        tensor = tensor.contiguous()
    name = str(tensor.dtype).replace("torch.", "")
    dtype = TORCH_DTYPES.get(name)
    if not dtype:
        raise Unsupported(f"{tensor.dtype} has no name in safetensors")
    shape = list(tensor.shape)
    if dtype == "F4":
        if not shape:
            raise Unsupported("a pair of 4-bit numbers without an axis")
        shape[-1] *= 2
    size = tensor.numel() * tensor.element_size()
    address = tensor.data_ptr() if size else 0
    if size and not address:
        raise Unsupported(f"{kind} has no memory of its own")
    return Array(dtype, shape, _bytes_at(address, size), notes, tensor)


# numpy, and what turns into it

def _from_numpy(value):
    numpy = sys.modules["numpy"]
    notes = {}
    if isinstance(value, numpy.ma.MaskedArray):
        notes["masked"] = True
    array = numpy.asarray(value)
    kind, size, name = array.dtype.kind, array.dtype.itemsize, array.dtype.name
    if name in ("int4", "uint4", "int2", "uint2"):
        notes["stored_as"], array = name, array.astype("int8")
        kind, size = "i", 1
    elif name in TORCH_DTYPES:
        kind = None
    elif name.startswith(("float4", "float6", "float8")):
        notes["stored_as"], array = name, array.astype("float32")
        kind, size = "f", 4
    elif kind == "f" and size > 8:
        notes["stored_as"], array = name, array.astype("float64")
        size = 8
    elif kind == "c":
        notes["complex"] = name
        part = "float32" if size == 8 else "float64"
        array = numpy.ascontiguousarray(array.astype("complex64" if size == 8 else "complex128"))
        array = array.reshape(-1).view(part).reshape(array.shape + (2,))
        kind, size = "f", array.dtype.itemsize
    dtype = TORCH_DTYPES[name] if kind is None else BY_KIND.get((kind, size))
    if not dtype:
        raise Unsupported(f"numpy's {array.dtype} has no name in safetensors")
    shape = array.shape
    if array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and sys.byteorder == "big"):
        array = array.astype(array.dtype.newbyteorder("<"))
    if not array.size:
        return Array(dtype, shape, b"", notes)
    array = numpy.ascontiguousarray(array).reshape(-1)
    return Array(dtype, shape, memoryview(array.view("uint8")), notes, array)


def _from_mlx(value):
    name = str(value.dtype).split(".")[-1]
    shape = tuple(value.shape)
    if name == "bfloat16":  # the buffer protocol has no letter for it
        value = value.view(sys.modules["mlx.core"].uint16)
    array = _from_buffer(value)
    dtype = TORCH_DTYPES.get({"bool_": "bool"}.get(name, name), array.dtype)
    return Array(dtype, shape if "complex" not in array.notes else array.shape, array.data, array.notes, value)


def _from_buffer(value):
    view = memoryview(value)
    notes = {}
    letters = view.format.lstrip("@=<")
    if view.format.startswith((">", "!")):
        raise Unsupported("a big-endian buffer")
    shape = tuple(view.shape or ())
    if letters in ("Zf", "Zd"):
        notes["complex"] = "complex64" if letters == "Zf" else "complex128"
        dtype, shape = ("F32" if letters == "Zf" else "F64"), shape + (2,)
    else:
        dtype = BY_KIND.get((LETTERS.get(letters), view.itemsize))
    if not dtype:
        raise Unsupported(f"buffers of format {view.format!r} have no name in safetensors")
    if view.c_contiguous and view.nbytes and view.ndim:
        return Array(dtype, shape, view.cast("B") if view.format != "B" or view.ndim != 1 else view, notes, value)
    return Array(dtype, shape, view.tobytes(), notes)


def _from_interface(value):
    interface = value.__array_interface__
    text = interface["typestr"]
    kind, size = text[1], int(text[2:])
    shape = tuple(interface["shape"])
    dtype = BY_KIND.get((kind, size))
    data = interface.get("data")
    if text[0] == ">" or not dtype or interface.get("strides") or not isinstance(data, tuple):
        if hasattr(value, "__array__") or "numpy" in sys.modules:
            return _from_numpy(_numpy().asarray(value))
        raise Unsupported(f"an array of type {text!r} needs numpy")
    count = 1
    for extent in shape:
        count *= extent
    return Array(dtype, shape, _bytes_at(data[0], count * size), keep=value)


def _from_dlpack(value):
    torch = sys.modules.get("torch")
    if torch is not None:
        return _from_torch(torch.from_dlpack(value))
    return _from_numpy(_numpy().from_dlpack(value))
