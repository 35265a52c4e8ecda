"""Makes tests/malformed/torch: PyTorch files and pickles that are wrong or hostile in one named way each.

Standard library only, and the same bytes every time. Run it in this folder.
"""
import os
import struct
import zipfile

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch")


def write(name, data, expect):
    os.makedirs(FOLDER, exist_ok=True)
    with open(os.path.join(FOLDER, name), "wb") as f:
        f.write(data)
    with open(os.path.join(FOLDER, name + ".expect"), "w") as f:
        f.write(expect + "\n")


# A pickle in pieces.
def text(s):
    s = s.encode() if isinstance(s, str) else s
    return b"X" + struct.pack("<I", len(s)) + s


def integer(n):
    data = n.to_bytes(9, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def name(module, attribute):
    return b"c" + module.encode() + b"\n" + attribute.encode() + b"\n"


def tuple_(*items):
    return b"(" + b"".join(items) + b"t"


def list_(*items):
    return b"](" + b"".join(items) + b"e"


def dict_(*pairs):
    return b"}(" + b"".join(text(k) + v for k, v in pairs) + b"u"


def call(module, attribute, *arguments):
    return name(module, attribute) + tuple_(*arguments) + b"R"


def sizes(*numbers):
    return tuple_(*[integer(n) for n in numbers])


def storage(key="0", kind="FloatStorage", count=4):
    return tuple_(text("storage"), name("torch", kind), text(key), text("cpu"), integer(count)) + b"Q"


def tensor(offset=0, size=(4,), stride=(1,), rebuild="_rebuild_tensor_v2", of=None):
    return call("torch._utils", rebuild, of or storage(), integer(offset), sizes(*size), sizes(*stride), b"\x89",
                call("collections", "OrderedDict"))


def zipped(pickle, members=(("data/0", struct.pack("<4f", 1, 2, 3, 4)),), prefix="archive/"):
    path = os.path.join(FOLDER, "zip.tmp")
    os.makedirs(FOLDER, exist_ok=True)
    with zipfile.ZipFile(path, "w") as f:
        for member, data in (("data.pkl", pickle),) + tuple(members) + (("version", b"3\n"),):
            f.writestr(zipfile.ZipInfo(prefix + member), data)
    with open(path, "rb") as f:
        data = f.read()
    os.remove(path)
    return data


def saved(value):
    return zipped(b"\x80\x02" + value + b".")


def case(file, value, expect):
    write(file + ".pt", saved(dict_(("x", value), ("good", tensor()))), expect)


# tensors that do not fit what they are views of
case("missing-storage", tensor(of=storage("7")), 'its storage "7" is not in the file')
case("storage-outside-folder", tensor(of=storage("../version")), 'its storage "../version" is not in the file')
case("storage-key-with-nul", tensor(of=storage("0\0x")), "is not in the file")
case("short-storage", tensor(of=storage(count=5)), "should hold 5 elements of 4 bytes, the file has 16 bytes of it")
case("storage-size-overflow", tensor(of=storage(count=2 ** 62)), "should hold 4611686018427387904 elements")
case("negative-storage-size", tensor(of=storage(count=-1)), "its storage has a size that is no number")
case("offset-past-end", tensor(offset=1), "truncated: needs 16 bytes from here, the file has 12 more")
case("offset-overflow", tensor(offset=2 ** 62), "its offset in the storage is out of range")
case("negative-offset", tensor(offset=-1), "its offset in the storage is out of range")
case("stride-past-end", tensor(size=(2, 2), stride=(3, 1)), "truncated: needs 20 bytes from here")
case("negative-size", tensor(size=(-1,)), "its size has an entry that is no size")
case("negative-stride", tensor(stride=(-1,)), "its stride has an entry that is no size")
case("huge-shape", tensor(size=(2 ** 40, 2 ** 40), stride=(0, 0)), "more than 2^63 elements")
case("huge-stride", tensor(size=(4,), stride=(2 ** 62,)), "strides reach further than any file")
case("rank-65", tensor(size=(1,) * 65, stride=(1,) * 65), "has 65 axes")
case("sizes-and-strides-differ", tensor(size=(2, 2), stride=(1,)), "has 2 sizes and 1 strides")
case("size-is-text", call("torch._utils", "_rebuild_tensor_v2", storage(), integer(0), text("4"), sizes(1)),
     "its size is not a tuple")
case("too-few-arguments", call("torch._utils", "_rebuild_tensor_v2", storage()), "1 arguments, at least 4 are needed")
case("unknown-storage-type", tensor(of=storage(kind="QuaternionStorage")), "torch.QuaternionStorage, which this program")
case("storage-is-a-number", tensor(of=integer(3)), "its storage is not a storage")
case("storage-id-is-text", tensor(of=text("0") + b"Q"), "its storage is not named as")
case("unknown-dtype", call("torch._utils", "_rebuild_tensor_v3", storage(kind="UntypedStorage", count=16), integer(0),
                           sizes(4), sizes(1), b"\x89N", name("torch", "float3")), "torch.float3, which this program")
case("packed-with-strides", call("torch._utils", "_rebuild_tensor_v3", storage(kind="UntypedStorage", count=16),
                                 integer(0), sizes(2, 2), sizes(1, 2), b"\x89N", name("torch", "float4_e2m1fn_x2")),
     "strides over the packed type")
wrapped = tensor()
for _ in range(10):
    wrapped = call("torch._utils", "_rebuild_parameter", wrapped, b"\x88", b"N")
case("parameters-in-parameters", wrapped, "is wrapped more than 4 times")
case("parameter-of-nothing", call("torch._utils", "_rebuild_parameter", b"N", b"\x88", b"N"), "a parameter without a tensor")
case("name-too-long", dict_(("k" * 5000, tensor())), "a name longer than 4096 bytes")

# sparse, nested, quantized
layout = lambda s: call("torch.serialization", "_get_layout", text(s))
case("sparse-unknown-layout", call("torch._utils", "_rebuild_sparse_tensor", layout("torch.jagged"), b")"),
     'layout "torch.jagged", which this program does not know')
case("sparse-without-values", call("torch._utils", "_rebuild_sparse_tensor", layout("torch.sparse_coo"),
                                   tuple_(tensor())), "a sparse tensor lacks some of its parts")
case("sparse-bad-part", call("torch._utils", "_rebuild_sparse_tensor", layout("torch.sparse_coo"),
                             tuple_(tensor(), b"N", sizes(2, 2))), "a tensor is expected and something else is there")
longs = lambda: storage("1", "LongStorage", 4)
quantized = lambda *q: call("torch._utils", "_rebuild_qtensor", storage("2", "QInt8Storage", 4), integer(0), sizes(4),
                            sizes(1), tuple_(*q), b"\x89N")
members = (("data/0", struct.pack("<4f", 1, 2, 3, 4)), ("data/1", struct.pack("<4q", 1, 2, 3, 4)),
           ("data/2", b"\1\2\3\4"))


def parts(file, value, expect):
    write(file + ".pt", zipped(b"\x80\x02" + dict_(("x", value), ("good", tensor())) + b".", members), expect)


affine = name("torch", "per_tensor_affine")
parts("quantized-without-scale", quantized(affine), "in a way this program does not know (1 parameters)")
parts("quantized-scale-is-text", quantized(affine, text("1"), integer(0)), "its scale or zero point is not a number")
parts("quantized-huge-zero-point", quantized(affine, integer(1), integer(2 ** 40)), "is beyond 32 bits")
parts("quantized-axis-out-of-range", quantized(affine, tensor(), tensor(of=longs()), integer(1)),
      "is quantized along an axis it does not have")
parts("quantized-too-few-scales", quantized(affine, tensor(size=(3,)), tensor(of=longs()), integer(0)),
      "has 4 channels, 3 scales and 4 zero points")
parts("quantized-float-codes", call("torch._utils", "_rebuild_qtensor", storage(), integer(0), sizes(4), sizes(1),
                                    tuple_(affine, integer(1), integer(0)), b"\x89N"), "its codes are of type f32")
nested = lambda size, stride, offset: call("torch._utils", "_rebuild_nested_tensor", tensor(), size, stride, offset)
two = tensor(size=(2, 1), stride=(1, 1), of=longs())
parts("nested-parts-differ", nested(two, two, tensor(size=(3,), of=longs())), "sizes, strides and offsets do not match")
parts("nested-past-end", nested(two, two, tensor(offset=2, size=(2,), of=longs())), "truncated")
parts("nested-endless", nested(tensor(size=(2 ** 40, 1), stride=(0, 1), of=longs()),
                               tensor(size=(2 ** 40, 1), stride=(0, 1), of=longs()),
                               tensor(size=(2 ** 40,), stride=(0,), of=longs())), "expands to more than")

# numpy
dtype = lambda code: call("numpy", "dtype", text(code), b"\x89", b"\x88") + tuple_(
    integer(3), text("<"), b"N", b"N", b"N", integer(-1), integer(-1), integer(0)) + b"b"
array = lambda shape, code, data: call("numpy.core.multiarray", "_reconstruct", name("numpy", "ndarray"), sizes(0),
                                       b"C\1b") + tuple_(integer(1), shape, dtype(code), b"\x89", data) + b"b"
four = b"C\x04abcd"
case("numpy-too-short", array(sizes(2), "f4", four), "its shape has 2 elements of type f32, the pickle holds 4 bytes")
case("numpy-shape-overflow", array(sizes(2 ** 62, 2 ** 62), "f4", four), "more than 2^63 elements")
case("numpy-object-array", array(sizes(1), "O8", list_(b"N")), "a numpy array of Python objects")
case("numpy-object-list", array(sizes(1), "f4", list_(b"N")), "a numpy array of Python objects")
case("numpy-strings", array(sizes(1), "U1", four), "a numpy array of strings")
case("numpy-unknown-type", array(sizes(1), "q7", four), 'has numpy type "q7", which this program does not know')
case("numpy-bytes-are-text", array(sizes(1), "f4", text("abcd")), "bytes are expected and something else is there")
case("numpy-bytes-beyond-latin1", array(sizes(1), "f4", call("_codecs", "encode", text("\u0100abc"), text("latin1"))),
     "a character above 255")
case("numpy-without-state", call("numpy.core.multiarray", "_reconstruct", name("numpy", "ndarray"), sizes(0), b"C\1b"),
     "a numpy array without its contents")
case("numpy-axis-order", call("numpy._core.numeric", "_frombuffer", four, dtype("i1"), sizes(2, 2), text("K"),
                              sizes(0, 0)), "its axis order is no permutation")

# what never ends
write("list-in-itself.pt", saved(b"]q\0" + b"h\0a"), "refers to itself")
write("dict-in-itself.pt", saved(b"}q\0" + text("d") + b"h\0s"), "refers to itself")
write("object-in-itself.pt", saved(name("m", "C") + b")\x81q\0}" + text("self") + b"h\0sb"), "refers to itself")
write("tuple-in-itself.pt", saved(b"]q\0h\0\x85a"), "refers to itself")


def doubling(first, levels):
    """Each level holds the one below twice."""
    out = first + b"q\0"
    for i in range(1, levels):
        out += b"h" + bytes([i - 1]) + b"h" + bytes([i - 1]) + b"\x86q" + bytes([i])
    return out


write("doubling-tuples.pt", saved(doubling(b")", 100)), "expands to more than 1000")
write("doubling-tensors.pt", saved(doubling(tensor(), 60)), "expands to more than 100")
write("doubling-numbers.pt", saved(doubling(integer(1) + b"\x85", 12 + 30)), "expands to more than 100")
write("doubling-strings.pt", saved(doubling(text("a"), 60)), "expands to more than 100")
write("doubling-bad-tensors.pt", saved(doubling(tensor(offset=9), 60)), "expands to more than 100")
write("nested-deep.pt", saved(b"]" * 5000 + b"a" * 4999), "is nested more than 200 deep")
write("nested-deep-objects.pt", saved((name("m", "C") + b")\x81") * 1000 + b"b" * 999), "is nested more than 200 deep")
write("nested-tuples.pt", saved(b")" + b"\x85" * 5000), "is nested more than 200 deep")

# the machine
write("no-stop.pt", zipped(b"\x80\x02N"), "without its STOP instruction")
write("empty-pickle.pt", zipped(b""), "without its STOP instruction")
write("stack-underflow.pt", saved(b"R"), "stack underflow")
write("missing-mark.pt", saved(b"]Ne"), "finds no mark")
write("unknown-instruction.pt", saved(b"\xfe"), "0xfe is no pickle instruction")
write("huge-long.pt", saved(b"\x8b\xff\xff\xff\x7f\0"), "needs 2147483647 bytes")
write("huge-string.pt", saved(b"\x8d" + b"\xff" * 8), "needs 18446744073709551615 bytes")
write("frame-too-long.pt", saved(b"\x95" + struct.pack("<Q", 1 << 60) + b"N"), "a frame says 1152921504606846976 bytes")
write("memo-never-stored.pt", saved(b"j\xff\xff\xff\xff"), "memo entry 4294967295 is used and was never stored")
write("memo-far-apart.pt", saved(integer(1) + b"r\xff\xff\xff\xffp18000000000000000\n"), "")
write("protocol-9.pt", zipped(b"\x80\x09N."), "pickle protocol 9")
write("out-of-band-buffer.pkl", b"\x80\x05\x97.", "out-of-band buffers")
write("call-without-tuple.pt", saved(name("m", "f") + b"NR"), "the arguments of a call are not a tuple")
write("append-to-number.pt", saved(integer(1) + b"Na"), "no container")
write("key-without-value.pt", saved(b"}(Nu"), "a key without a value")
write("names-not-utf8.pt", saved(b"}(" + text(b"\xff\xfe") + tensor() + text(b"a\0b") + tensor() + text("\x1b[31m") +
                                 tensor() + b"Nh\0" .replace(b"h\0", tensor()) + b"u"), "")

# code, which is named and not run
write("os-system.pt", saved(dict_(("w", tensor()), ("x", call("posix", "system", text("touch /tmp/owned"))))),
      'refers to "posix.system", which is code; it was not run')
write("eval.pkl", b"\x80\x04" + text("builtins") + text("eval") + b"\x93" + text("1") + b"\x85R.",
      'refers to "builtins.eval", which is code; it was not run')
write("dotted-name.pkl", b"\x80\x04" + text("torch") + text("os.system") + b"\x93" + text("ls") + b"\x85R.",
      'refers to "torch.os.system", which is code; it was not run')
write("torch-hub.pkl", b"\x80\x04" + text("torch") + text("hub.load") + b"\x93)R.",
      'refers to "torch.hub.load", which is code; it was not run')
write("popped-code.pkl", b"\x80\x02" + name("subprocess", "Popen") + b"0N.",
      'refers to "subprocess.Popen", which is code; it was not run')
write("getattr-chain.pkl", b"\x80\x02" + call("__builtin__", "getattr", call("importlib", "import_module", text("os")),
                                              text("system")) + tuple_(text("ls")) + b"R.",
      'refers to "__builtin__.getattr", which is code; it was not run')

# the legacy stream
MAGIC = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."


def legacy(value, keys=list_(text("0")), data=struct.pack("<q4f", 4, 1, 2, 3, 4), version=1001):
    pickle = lambda body: b"\x80\x02" + body + b"."
    return MAGIC + pickle(integer(version)) + pickle(b"}") + pickle(value) + pickle(keys) + data


old_storage = lambda view=b"N", key=text("0"): tuple_(text("storage"), name("torch", "FloatStorage"), key, text("cpu"),
                                                      integer(4), view) + b"Q"
x = dict_(("x", tensor(of=old_storage())))
write("legacy-other-version.pt", legacy(x, version=1002), "is not version 1001")
write("legacy-magic-only.pt", MAGIC, "without its STOP instruction")
write("legacy-no-keys.pt", legacy(x, keys=b"N"), "the keys of the storages are not a list")
write("legacy-key-missing.pt", legacy(x, keys=b"]"), "its storage is not in the file")
write("legacy-no-data.pt", legacy(x, data=b""), "truncated: the file ends before its storage")
write("legacy-cut-data.pt", legacy(x, data=struct.pack("<q3f", 4, 1, 2, 3)), "truncated: its storage has 4 elements")
write("legacy-other-count.pt", legacy(x, data=struct.pack("<q4f", 5, 1, 2, 3, 4)),
      "has 4 elements in the pickle and 5 in the file")
write("legacy-negative-count.pt", legacy(x, data=struct.pack("<q4f", -1, 1, 2, 3, 4)),
      "has 4 elements in the pickle and 18446744073709551615 in the file")
write("legacy-unknown-key.pt", legacy(x, keys=list_(text("9"), text("0"))), "whose type the pickle does not tell")
write("legacy-key-is-none.pt", legacy(dict_(("x", tensor(of=old_storage(key=b"N"))))), "neither a string nor a number")
write("legacy-view-past-end.pt", legacy(dict_(("x", tensor(of=old_storage(
    tuple_(text("v"), integer(2 ** 62), integer(4))))))), "the view of a storage has an offset out of range")
write("legacy-view-not-a-tuple.pt", legacy(dict_(("x", tensor(of=old_storage(text("v")))))),
      "the view of a storage is not (key, offset, size)")
write("legacy-same-key-twice.pt", legacy(x, keys=list_(text("0"), text("0")), data=2 * struct.pack("<q4f", 4, 1, 2, 3, 4)),
      "")

# plain pickles
write("storage-outside.pkl", b"\x80\x02" + tensor() + b".", "its storage is outside of the file")
load = lambda data: call("torch.storage", "_load_from_bytes", b"B" + struct.pack("<I", len(data)) + data)
write("bytes-are-no-torch-file.pkl", b"\x80\x03" + tensor(of=load(b"hello")) + b".", "bytes that are no legacy torch file")
write("bytes-hold-no-storage.pkl", b"\x80\x03" + tensor(of=load(legacy(b"N"))) + b".", "holds no storage")
write("bytes-in-bytes.pkl", b"\x80\x03" + tensor(of=load(legacy(old_storage()))) + b".", "")
write("many-pickles.pkl", b"\x80\x02N." * 10001, "more than 10000 pickles")
write("mark-left-behind.pkl", b"\x80\x02(N.", "")
write("long-number-list.pkl", b"\x80\x02" + b"](" + b"K\x01" * 10000 + b"e.", "")
tar = bytearray(1536)
tar[:8], tar[257:263], tar[124:136], tar[156:157] = b"sys_info", b"ustar\0", b"00000000000\0", b"0"
tar[148:156] = b"        "
tar[148:156] = b"%06o\0 " % sum(tar[:512])
write("torch-0.1.tar", bytes(tar), "a tar file of torch 0.1")
