"""Makes the files of this folder and expected.json with a real torch and numpy (torch 1.13.1, numpy 1.24.2).

Not needed to run the tests. Names and order in expected.json are written down here by hand; shapes and values are
torch's own, after loading the file again where it can be loaded.
"""
import collections
import enum
import json
import os
import pathlib
import pickle
import struct
import zipfile

import numpy as np
import torch

torch.manual_seed(7)
expected = {}


def values(t):
    if isinstance(t, (bool, int, float, complex)):
        t = torch.tensor(t, dtype={bool: torch.bool, int: torch.int64, float: torch.float64,
                                   complex: torch.complex128}[type(t)])
    if isinstance(t, list):
        t = np.array(t)
    if isinstance(t, (np.ndarray, np.generic)):
        a = np.asarray(t)
        dtype = a.dtype.name
        a = a.astype(a.dtype.newbyteorder("="))
    else:
        dtype = str(t.dtype).split(".")[1]
        t = t.detach()
        if t.is_quantized:
            dtype = "quantized"
            t = t.dequantize()
        t = t.resolve_conj().resolve_neg()
        a = (t.to(torch.float32) if t.dtype == torch.bfloat16 else
             t.to(torch.complex64) if t.dtype == torch.complex32 else t).numpy()
    flat = a.reshape(-1)
    if np.iscomplexobj(flat):
        flat = np.stack([flat.real, flat.imag], -1).reshape(-1)
    return {"shape": list(a.shape), "dtype": dtype, "values": [repr(float(x)) for x in flat[:64]]}


def expect(name, pairs):
    expected[name] = collections.OrderedDict((k, values(v)) for k, v in pairs)


def save(name, value, **options):
    torch.save(value, name, **options)
    return torch.load(name)


# quantized
x = torch.randn(3, 4) * 3
q = {
    "qint8": torch.quantize_per_tensor(x, 0.1, 3, torch.qint8),
    "quint8": torch.quantize_per_tensor(x, 0.05, 100, torch.quint8),
    "qint32": torch.quantize_per_tensor(x, 1e-7, -5, torch.qint32),
    "channel0": torch.quantize_per_channel(x, torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64),
                                           torch.tensor([0, 5, -7]), 0, torch.qint8),
    "channel1": torch.quantize_per_channel(x, torch.tensor([0.01, 0.2, 0.3, 0.7]), torch.tensor([128, 5, 7, 255]), 1,
                                           torch.quint8),
    "float_qparams": torch.quantize_per_channel(x, torch.tensor([0.11, 0.2, 0.37]), torch.tensor([0.25, 7.5, 3.0]), 0,
                                                torch.quint8),
    "quint4x2": torch.quantize_per_channel(x, torch.tensor([0.5, 0.4, 0.37]), torch.tensor([7.25, 7.5, 3.0]), 0,
                                           torch.quint4x2),
    "quint2x4": torch.quantize_per_channel(x, torch.tensor([0.5, 0.4, 0.37]), torch.tensor([1.25, 1.5, 3.0]), 0,
                                           torch.quint2x4),
}
q["transposed"] = q["qint8"].t()
q = save("quantized.pt", q)
expect("quantized.pt", q.items())
lq = save("quantized_legacy.pt", {k: q[k] for k in ("qint8", "channel0", "quint4x2")},
          _use_new_zipfile_serialization=False)
expect("quantized_legacy.pt", lq.items())

# sparse
dense = torch.tensor([[0, 1.5, 0, 0], [2, 0, 0, 3], [0, 0, 0, 0], [0, 0, -1, 0]])
s = save("sparse.pt", {"coo": dense.to_sparse(), "csr": dense.to_sparse_csr()})
expect("sparse.pt", [
    ("coo.indices", s["coo"]._indices()), ("coo.values", s["coo"]._values()),
    ("csr.crow_indices", s["csr"].crow_indices()), ("csr.col_indices", s["csr"].col_indices()),
    ("csr.values", s["csr"].values())])

# complex, with lazy conjugates and negatives
c = torch.complex(torch.randn(2, 3), torch.randn(2, 3))
c = save("complex.pt", {"plain": c, "conjugate": c.conj(), "negative": c.clone().conj().imag, "transposed": c.conj().t(),
                        "double": c.to(torch.complex128)})
expect("complex.pt", c.items())

# views and sharing, legacy container, several pickle protocols
base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
views = collections.OrderedDict(base=base, t=base.t(), row=base[2], step=base[::2, 1::2], half=base.half(),
                                tied=base, p=torch.nn.Parameter(torch.randn(2, 2)),
                                storage=torch.arange(3, dtype=torch.int16).storage())
for protocol in (1, 2, 3, 4, 5):
    name = "legacy_protocol%d.pt" % protocol
    v = save(name, views, _use_new_zipfile_serialization=False, pickle_protocol=protocol)
    expect(name, [(k, torch.tensor(list(t), dtype=torch.int16) if k == "storage" else t) for k, t in v.items()])
for protocol in (1, 4, 5):
    name = "zip_protocol%d.pt" % protocol
    v = save(name, views, pickle_protocol=protocol)
    expect(name, [(k, torch.tensor(list(t), dtype=torch.int16) if k == "storage" else t) for k, t in v.items()])


# modules, whole; and what hangs on tensors
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(3, 2, bias=False)
        self.norm = torch.nn.BatchNorm1d(2)
        self.extra = torch.ones(2)
        self.register_buffer("mask", torch.tensor([True, False]))


# The legacy format keeps the source code of module classes; a line stands for it here.
torch.serialization.get_source_lines_and_file = lambda *_: (["# the source of the class\n"], 1, "module.py")
block = torch.nn.Sequential(Block(), torch.nn.ModuleDict({"a": torch.nn.Linear(1, 1)}))
for name, new in (("module.pt", True), ("module_legacy.pt", False)):
    torch.save(block, name, _use_new_zipfile_serialization=new)
    d = block.state_dict()
    expect(name, [("training", True), ("0.training", True), ("0.mask", d["0.mask"]),
                  ("0.lin.training", True), ("0.lin.weight", d["0.lin.weight"]), ("0.lin.in_features", 3),
                  ("0.lin.out_features", 2),
                  ("0.norm.training", True), ("0.norm.weight", d["0.norm.weight"]), ("0.norm.bias", d["0.norm.bias"]),
                  ("0.norm.running_mean", d["0.norm.running_mean"]), ("0.norm.running_var", d["0.norm.running_var"]),
                  ("0.norm.num_batches_tracked", d["0.norm.num_batches_tracked"]), ("0.norm.num_features", 2),
                  ("0.norm.eps", 1e-5), ("0.norm.momentum", 0.1), ("0.norm.affine", True),
                  ("0.norm.track_running_stats", True), ("0.extra", block[0].extra),
                  ("1.training", True), ("1.a.training", True), ("1.a.weight", d["1.a.weight"]),
                  ("1.a.bias", d["1.a.bias"]), ("1.a.in_features", 1), ("1.a.out_features", 1)])
    # attributes that are set after super().__init__ come where Python's dict has them


class Labelled(torch.Tensor):
    pass


sub = torch.arange(4.0).as_subclass(Labelled)
sub.scale = torch.tensor([2.0, 3.0])
tagged = torch.arange(3.0)
tagged.note = "hello"
expect("subclass.pt", save("subclass.pt", {"sub": sub, "tagged": tagged}) and
       [("sub", torch.arange(4.0)), ("sub.scale", sub.scale), ("tagged", torch.arange(3.0))])
torch.save({"a": torch.empty(2, 3, device="meta"), "b": torch.ones(1)}, "meta.pt")
expect("meta.pt", [("b", torch.ones(1))])


# What newer versions of torch write: the same calls, made by hand because 1.13 does not have them.
class Call:
    def __init__(self, name, *arguments, module="torch._utils"):
        home = __import__(module, fromlist=["x"])
        function = getattr(home, name, None)
        if function is None:
            function = lambda: None
            function.__module__, function.__qualname__, function.__name__ = module, name, name
            setattr(home, name, function)
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


class Global:
    """Pickled by its name alone, as dtypes are."""
    def __init__(self, module, name):
        setattr(__import__(module, fromlist=["x"]), name, self)
        self.name = name
        self.__module__ = module

    def __reduce__(self):
        return self.name


def v3(data, dtype, shape, stride=None, metadata=None):
    stride = stride or [int(np.prod(shape[i + 1:])) for i in range(len(shape))]
    arguments = (torch.frombuffer(bytearray(data), dtype=torch.uint8).storage()._storage, 0, tuple(shape),
                 tuple(stride), False, collections.OrderedDict(), getattr(torch, dtype, None) or Global("torch", dtype))
    return Call("_rebuild_tensor_v3", *arguments + ((metadata,) if metadata else ()))


buffer = torch.arange(10.0)
half = np.arange(4, dtype="<f2").reshape(4)
later = {
    "nested": Call("_rebuild_nested_tensor", buffer, torch.tensor([[2, 3], [4, 1]]), torch.tensor([[3, 1], [1, 1]]),
                   torch.tensor([0, 6])),
    "csc": Call("_rebuild_sparse_tensor", torch.sparse_csc, (torch.tensor([0, 1, 2]), torch.tensor([1, 0]),
                                                             torch.tensor([5.0, 6.0]), torch.Size([2, 2]))),
    "bsr": Call("_rebuild_sparse_tensor", torch.sparse_bsr, (torch.tensor([0, 1]), torch.tensor([0]),
                                                             torch.ones(1, 2, 2), (2, 2))),
    "u16": v3(np.array([1, 65535], "<u2").tobytes(), "uint16", [2]),
    "u32": v3(np.array([[1], [4294967295]], "<u4").tobytes(), "uint32", [2, 1]),
    "u64": v3(np.array([2 ** 63], "<u8").tobytes(), "uint64", [1]),
    "fp4": v3(bytes([0x21, 0x43, 0x75, 0xf9]), "float4_e2m1fn_x2", [2, 2]),
    "column": v3(half.tobytes(), "float16", [2, 2], [1, 2]),
    "c32": v3(half.tobytes(), "complex32", [2]),
    "c32_conj": v3(half.tobytes(), "complex32", [2], metadata={"conj": True}),
    "f16_neg": v3(half.tobytes(), "float16", [4], metadata={"neg": True}),
    "c32_both": v3(half.tobytes(), "complex32", [2], metadata={"conj": True, "neg": True}),
    "state": Call("_rebuild_parameter_with_state", torch.ones(2), True, collections.OrderedDict(),
                  {"tag": torch.zeros(1)}),
    "device": Call("_rebuild_device_tensor_from_numpy", np.arange(3, dtype="f4"), torch.bfloat16, "xla:0", False),
    "cpu": Call("_rebuild_device_tensor_from_cpu_tensor", torch.ones(1), torch.float32, "mtia:0", False),
    "wrapped": Call("_rebuild_from_type_v2", Call("_rebuild_wrapper_subclass").call[0], torch.Tensor,
                    (torch.Tensor, torch.float32, (2,), (1,), 0, torch.strided, torch.device("cpu"), False),
                    {"_local_tensor": torch.tensor([1.0, 2.0]), "scale": torch.tensor(3.0)}, module="torch._tensor"),
}
torch.save(later, "later.pt")
expect("later.pt", [
    ("nested.0", buffer[:6].reshape(2, 3)), ("nested.1", buffer[6:].reshape(4, 1)),
    ("csc.ccol_indices", torch.tensor([0, 1, 2])), ("csc.row_indices", torch.tensor([1, 0])),
    ("csc.values", torch.tensor([5.0, 6.0])),
    ("bsr.crow_indices", torch.tensor([0, 1])), ("bsr.col_indices", torch.tensor([0])),
    ("bsr.values", torch.ones(1, 2, 2)),
    ("u16", np.array([1, 65535], "u2")), ("u32", np.array([[1], [4294967295]], "u4")),
    ("u64", np.array([2 ** 63], "u8")), ("fp4", torch.tensor([[0.5, 1, 1.5, 2], [3, 6, -0.5, -6]])),
    ("column", np.array([[0, 2], [1, 3]], "f2")), ("c32", torch.tensor([0 + 1j, 2 + 3j])),
    ("c32_conj", torch.tensor([0 - 1j, 2 - 3j])), ("f16_neg", -half),
    ("c32_both", torch.tensor([complex(-0.0, 1), -2 + 3j])), ("state", torch.ones(2)), ("state.tag", torch.zeros(1)),
    ("device", np.arange(3, dtype="f4")), ("cpu", torch.ones(1)), ("wrapped", torch.tensor([1.0, 2.0])),
    ("wrapped.scale", torch.tensor(3.0))])
for name, dtype in (("fp4", "float4_e2m1fn_x2"), ("c32", "complex32"), ("c32_conj", "complex32"),
                    ("c32_both", "complex32")):
    expected["later.pt"][name]["dtype"] = dtype


# TorchScript
class Scripted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(2, 2))
        self.sizes = [3, 4]
        self.inner = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.inner(x) @ self.weight + torch.tensor([10.0, 20.0])


module = torch.jit.script(Scripted())
module.save("script.pt")
d = module.state_dict()
script_names = [("weight", d["weight"]), ("training", True), ("_is_full_backward_hook", None), ("sizes", [3, 4]),
                ("inner.weight", d["inner.weight"]), ("inner.bias", d["inner.bias"]), ("inner.training", True)]
expect("script.pt", [(k, v) for k, v in script_names if v is not None])
traced = torch.jit.trace(lambda x: x + torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.zeros(2, 2))
traced.save("script_constants.pt")
expect("script_constants.pt", [("training", True), ("constants.0", torch.tensor([[1.0, 2.0], [3.0, 4.0]]))])

for name in ("script", "script_constants"): # without code and what it says about where it comes from
    with zipfile.ZipFile(name + ".pt") as old:
        members = [(i.filename, old.read(i)) for i in old.infolist() if "/code/" not in i.filename]
    with zipfile.ZipFile(name + ".pt", "w") as new:
        for member, data in members:
            new.writestr(zipfile.ZipInfo(member), data)

# numpy and numbers in plain pickles, and tensors in plain pickles
arrays = collections.OrderedDict(
    c=np.arange(6, dtype="<f4").reshape(2, 3), fortran=np.asfortranarray(np.arange(6, dtype="<f8").reshape(2, 3)),
    big=np.arange(4, dtype=">i4"), bigf=np.arange(3, dtype=">f2"), flags=np.array([True, False]),
    z=np.array([1 + 2j, 3 - 4j]), scalar=np.float32(1.25), empty=np.zeros((0, 3), "u2"), zero=np.array(7, "i2"),
    transposed=np.arange(6, dtype="i8").reshape(1, 2, 3).transpose(1, 0, 2), long=np.array([1.5, -2.0], np.longdouble))
for protocol in (2, 4, 5):
    name = "numpy_protocol%d.pkl" % protocol
    with open(name, "wb") as f:
        pickle.dump(arrays, f, protocol=protocol)
    expect(name, arrays.items())
with open("numpy_strange.pkl", "wb") as f:
    pickle.dump({"objects": np.array([{"a": 1}, None], dtype=object), "strings": np.array(["ab", "c"]),
                 "records": np.zeros(2, dtype=[("a", "i4"), ("b", "f4")]), "fine": np.arange(2)}, f, protocol=4)
expect("numpy_strange.pkl", [("fine", np.arange(2))])
tensors = {"a": torch.arange(6.0).reshape(2, 3), "h": torch.arange(3).half(), "p": torch.nn.Parameter(torch.ones(2))}
for protocol in (2, 4):
    name = "tensors_protocol%d.pkl" % protocol
    with open(name, "wb") as f:
        pickle.dump(tensors, f, protocol=protocol)
    expect(name, tensors.items())
numbers = {
    "int": -5, "float": 0.1, "bool": True, "complex": 1 - 2j, "history": [0.5, 0.25, 1], "ints": (1, -2, 3),
    "flags": [True, False], "matrix": [[1, 2], [3, 4], [5, 6]], "ragged": [[1, 2], [3]], "mixed": [1, "a", 2.5],
    "losses": [np.float32(0.5), np.float64(1.5)], "complexes": [1j, 2], "large": 2 ** 63 + 1, "larges": [2 ** 63, 1],
    "huge": 10 ** 30, "huges": [10 ** 30, 1], "mock": {"data": [[1, 2], [3, 4.5]], "shape": [4]}, "text": "abc",
    "none": None, "empty": [], "counter": collections.Counter("aab"), "deque": collections.deque([1.5, 2.5]),
    "default": collections.defaultdict(list, {"k": [1]}), "frozen": frozenset([3]), "words": ["x", "y"],
    "range": range(3), "bytes": b"xyz", 7: 1, (1, "b"): 2, None: 3,
}
number_names = [
    ("int", -5), ("float", 0.1), ("bool", True), ("complex", 1 - 2j), ("history", [0.5, 0.25, 1.0]),
    ("ints", [1, -2, 3]), ("flags", [True, False]), ("matrix", [[1, 2], [3, 4], [5, 6]]), ("ragged.0", [1, 2]),
    ("ragged.1", [3]), ("mixed.0", 1), ("mixed.2", 2.5), ("losses", [0.5, 1.5]), ("complexes", [1j, 2 + 0j]),
    ("large", np.uint64(2 ** 63 + 1)), ("larges", np.array([2 ** 63, 1], np.uint64)), ("huges", [1e30, 1.0]),
    ("mock", np.array([1, 2, 3, 4.5], np.float32)), ("counter.a", 2), ("counter.b", 1), ("deque", [1.5, 2.5]),
    ("default.k", [1]), ("frozen", [3]), ("7", 1), ("(1, b)", 2), ("None", 3)]
for protocol in (0, 2, 4):
    name = "numbers_protocol%d.pkl" % protocol
    with open(name, "wb") as f:
        if protocol == 0: # alone it would not be taken for a pickle: no magic
            torch.save(numbers, f, pickle_protocol=0, _use_new_zipfile_serialization=False)
        else:
            pickle.dump(numbers, f, protocol=protocol)
    expect(name, number_names)
with open("many_keys.pkl", "wb") as f:
    pickle.dump({"vocabulary": {"word%d" % i: i for i in range(1000)}, "few": {"a": 1, "b": 2},
                 "pair": ("x", "y"), "history": collections.OrderedDict((i, i / 8) for i in range(2000)),
                 "mixed": {i: (i if i else "zero") for i in range(1000)}}, f, protocol=4)
expect("many_keys.pkl", [("vocabulary", list(range(1000))), ("few.a", 1), ("few.b", 2),
                         ("history", [i / 8 for i in range(2000)])] + [("mixed.%d" % i, i) for i in range(1, 1000)])
with open("two_pickles.pkl", "wb") as f:
    pickle.dump([1, 2], f, protocol=4)
    pickle.dump({"a": np.arange(2)}, f, protocol=4)
expect("two_pickles.pkl", [("0", [1, 2]), ("1.a", np.arange(2))])

# objects: what Python itself does with classes
class Plain:
    pass


class Slots:
    __slots__ = ("s",)


class Mapped(dict):
    pass


class WithNew:
    def __new__(cls, *, key):
        return super().__new__(cls)

    def __getnewargs_ex__(self):
        return (), {"key": self.key}


Point = collections.namedtuple("Point", "x y")
Color = enum.Enum("Color", "RED GREEN")
plain, slots, mapped, with_new = Plain(), Slots(), Mapped(), WithNew(key=1)
plain.t, plain.parent = torch.ones(1), None
plain.parent = plain
slots.s = torch.ones(2)
mapped["m"] = torch.ones(3)
mapped.attribute = 4
with_new.key = torch.ones(4)
objects = {"plain": plain, "slots": slots, "mapped": mapped, "new": with_new, "point": Point(torch.ones(5), 6),
           "numbers": Point(1, 2), "color": Color.GREEN, "class": Plain, "ints": [np.int64(1), np.int32(-2)],
           "path": pathlib.PurePosixPath("a/b"), "ordered": collections.OrderedDict([("o", torch.ones(6))])}
torch.save(objects, "objects.pt", pickle_protocol=4)
names = [("plain.t", torch.ones(1)), ("slots.s", torch.ones(2)), ("mapped.attribute", 4), ("mapped.m", torch.ones(3)),
         ("new.key", torch.ones(4)), ("point.0", torch.ones(5)), ("point.1", 6),
         ("numbers", [1, 2]), ("ints", [1, -2]), ("ordered.o", torch.ones(6))]
expected["objects.pt"] = [(k, values(v)) for k, v in names]
for name in ("new", "slots", "point", "numbers", "color", "path"): # not before protocol 2, or in other ways
    del objects[name]
torch.save(objects, "objects_protocol1.pt", pickle_protocol=1) # copyreg._reconstructor
expected["objects_protocol1.pt"] = [(k, values(v)) for k, v in (
    ("plain.t", torch.ones(1)), ("mapped.m", torch.ones(3)), ("mapped.attribute", 4), ("ints", [1, -2]),
    ("ordered.o", torch.ones(6)))]

# calls that old versions made
torch.save({"lists": Call("_rebuild_qtensor", torch.quantize_per_tensor(torch.ones(2), 0.5, 1, torch.qint8).storage(),
                          0, (2,), (1,), (torch.per_channel_affine, [0.5, 0.25], [1, 0], 0), False, None),
            "transposed": Call("_frombuffer", bytes(range(6)), np.dtype("u1"), (1, 2, 3), "K", (1, 2, 0),
                               module="numpy.core.numeric"),
            "wide": [torch.full((1,), float(i)) for i in range(40)]}, "older.pt")
expected["older.pt"] = [("lists", {"shape": [2], "dtype": "quantized", "values": ["1.0", "0.75"]}),
                        ("transposed", values(np.arange(6, dtype="u1").reshape(1, 2, 3).transpose(1, 2, 0)))] + [
    ("wide.%d" % i, values(torch.full((1,), float(i)))) for i in range(40)]

# a training checkpoint
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
model(torch.ones(1, 2)).sum().backward()
optimizer.step()
saved = save("checkpoint.pt", {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3})
o = saved["optimizer"]
group = o["param_groups"][0]
names = [("model.weight", saved["model"]["weight"]), ("model.bias", saved["model"]["bias"])]
for i in (0, 1):
    for k, v in o["state"][i].items():
        names.append(("optimizer.state.%d.%s" % (i, k), v))
for k, v in group.items():
    if v is not None:
        names.append(("optimizer.param_groups.0." + k, list(v) if isinstance(v, tuple) else v))
names.append(("epoch", 3))
expect("checkpoint.pt", names)

# containers: another byte order, deflated members, two archives in one zip
def rezip(source, target, change, compression=zipfile.ZIP_STORED, mode="w"):
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, mode, compression) as new:
        for info in old.infolist():
            name, data = change(info.filename, old.read(info))
            new.writestr(zipfile.ZipInfo(name), data, compression)


def swap(name, data):
    width = {"base/data/0": 4, "base/data/1": 2, "base/data/2": 8}.get(name, 1)
    return name, b"".join(data[i:i + width][::-1] for i in range(0, len(data), width))


mixed = {"f": base, "h": torch.arange(3).half(), "z": torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex128)}
torch.save(mixed, "base.pt")
rezip("base.pt", "big_endian.pt", swap)
with zipfile.ZipFile("big_endian.pt", "a") as f:
    f.writestr("base/byteorder", "big")
rezip("base.pt", "deflated.pt", lambda name, data: (name, data), zipfile.ZIP_DEFLATED)
rezip("base.pt", "two_archives.zip", lambda name, data: ("x/" + name, data))
rezip("base.pt", "two_archives.zip", lambda name, data: ("y/" + name, data), mode="a")
os.remove("base.pt")
expect("big_endian.pt", mixed.items())
expect("deflated.pt", mixed.items())
expect("two_archives.zip", [("x/base." + k, v) for k, v in mixed.items()] + [("y/base." + k, v)
                                                                             for k, v in mixed.items()])


# views of storages as torch before 0.4 wrote them: ('storage', class, key, location, size, (view key, offset, size))
class OldPickler(pickle.Pickler):
    def persistent_id(self, value):
        return value.id if isinstance(value, Old) else None


class Old:
    def __init__(self, *id):
        self.id = id


with open("legacy_old.pt", "wb") as f:
    rebuild = torch._utils._rebuild_tensor
    whole = Old("storage", torch.FloatStorage, 1234, "cpu", 6, None)
    view = Old("storage", torch.FloatStorage, 1234, "cpu", 6, ("5678", 2, 3))
    for value in (0x1950a86a20f9469cfc6c, 1001, {"little_endian": False}):
        pickle.dump(value, f, protocol=2)
    OldPickler(f, 2).dump(collections.OrderedDict(whole=Call("_rebuild_tensor", whole, 1, (2, 2), (2, 1)),
                                                  view=Call("_rebuild_tensor", view, 1, (2,), (1,))))
    pickle.dump([1234], f, protocol=2)
    f.write(struct.pack("<q6f", 6, 0, 1, 2, 3, 4, 5))
expect("legacy_old.pt", [("whole", torch.tensor([[1.0, 2], [3, 4]])), ("view", torch.tensor([3.0, 4]))])

with open("expected.json", "w") as f:
    # pairs, as a name may come twice
    f.write("{\n%s\n}" % ",\n".join("%s: {\n%s\n}" % (json.dumps(file), ",\n".join(
        "%s: %s" % (json.dumps(k), json.dumps(v)) for k, v in (e.items() if hasattr(e, "items") else e)))
        for file, e in expected.items()))
    f.write("\n")
