# Files of many tensors, none of them large: pages of the files must not stay in the process. What is resident is measured
# with all that the system counts, so that a file that stays shows: two of 256 MB, holes for the most part.
python3 - "$TSLEUTH" << 'END'
import array, json, math, os, random, resource, struct, sys

SANITIZED = 2 if "ASAN_OPTIONS" in os.environ else 1 # it has memory of its own

def write(path, count, elements):
    header = {f"layers.{i}.weight": {"dtype": "F32", "shape": [elements // 64, 64],
                                     "data_offsets": [4 * elements * i, 4 * elements * (i + 1)]} for i in range(count)}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + 4 * elements * count)

def peak(*command, expected=0):
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.execv(command[0], command)
    _, status, usage = os.wait4(child, 0)
    assert status >> 8 == expected, status
    return usage.ru_maxrss // (1024 if sys.platform != "darwin" else 1 << 20)

for count, elements in ((128, 1 << 19), (2048, 1 << 15)):
    write("a.safetensors", count, elements)
    write("b.safetensors", count, elements)
    for words in (("compare", "a.safetensors", "b.safetensors"), ("inspect", "--stats", "a.safetensors")):
        most = peak(sys.argv[1], *words)
        limit = 256 if words[0] == "compare" else 128
        print(count, "tensors,", words[0] + ":", "little" if most < limit * SANITIZED else f"{most} MB resident")

# A run whose tensors are wide: some of their tokens are looked at, whatever their number is, and of logits even fewer.
def write_run(path, changed, shapes):
    random.seed(1)
    numbers = array.array("f", (random.gauss(0, 1) for _ in range(1 << 18))).tobytes()
    header, end = {}, 0
    for name, shape in shapes.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end + 4 * math.prod(shape)]}
        end = header[name]["data_offsets"][1]
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _ in range(end // len(numbers) + 1):
            file.write(numbers)
        file.truncate(8 + len(text) + end)
        file.seek(8 + len(text))
        file.write(struct.pack("<f", changed))

def measure_run(what, shapes):
    write_run("a.safetensors", 1, shapes)
    write_run("b.safetensors", 1.0001, shapes)
    most = peak(sys.argv[1], "compare", "a.safetensors", "b.safetensors", expected=1)
    print(what + ":", "little" if most < 256 * SANITIZED else f"{most} MB resident")

measure_run("a run of wide tensors", {f"model.layers.{i}.mlp": [200, 4096] for i in range(56)}
            | {"lm_head": [200, 65536], "logits": [200, 65536]})
# And one with caches of a fixed length, which have no axis for the tokens.
measure_run("a run with long caches", {f"model.layers.{i}.{name}": shape for i in range(24)
                                       for name, shape in (("mlp", [200, 256]), ("attn_k_cache", [4, 8192, 64]))})

# Pairs that are stored in another order than they are compared in: every page of the other side is met again and again.
# Some numbers differ, so that the pair is looked at again, explained and drawn.
SIZES = {"F32": 4, "BF16": 2}

def write_one(path, dtype, shape, places=()):
    count = 1
    for size in shape:
        count *= size
    text = json.dumps({"w": {"dtype": dtype, "shape": shape, "data_offsets": [0, SIZES[dtype] * count]}}).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + SIZES[dtype] * count)
        for place in places:
            file.seek(8 + len(text) + SIZES[dtype] * place)
            file.write(struct.pack("<f", 1)[4 - SIZES[dtype]:])

def write_q8_0(path, rows, columns):
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q", 1) + b"w"
    head += struct.pack("<IQQIQ", 2, columns, rows, 8, 0)
    with open(path, "wb") as file:
        file.write(head)
        file.truncate((len(head) + 31) // 32 * 32 + rows * columns // 32 * 34)

def measure(what, *words):
    most = peak(sys.argv[1], "compare", "a.safetensors", *words, expected=1)
    print(what + ":", "little" if most < 256 * SANITIZED else f"{most} MB resident")

def at(shape, *place):
    flat = 0
    for size, index in zip(shape, place):
        flat = flat * size + index
    return flat

for what, dtype, shape, order in (("transposed", "F32", [8448, 9216], [1, 0]),
                                  ("transposed, few rows", "F32", [48, 1638400], [1, 0]),
                                  ("transposed, two bytes each", "BF16", [12288, 12800], [1, 0]),
                                  ("permuted", "F32", [96, 10752, 100], [2, 0, 1]),
                                  ("its first axes swapped", "F32", [96, 8192, 100], [1, 0, 2])):
    # one element that both have, and one that only the candidate has
    both, only = [size // 2 for size in shape], [size // 3 for size in shape]
    turned = [shape[i] for i in order]
    write_one("a.safetensors", dtype, shape, [at(shape, *both)])
    write_one("b.safetensors", dtype, turned, [at(turned, *(one[i] for i in order)) for one in (both, only)])
    measure(what, "b.safetensors", "--html", "report.html")
write_one("a.safetensors", "F32", [8192, 9216], [at([8192, 9216], 5000, 77)])
write_q8_0("b.gguf", 9216, 8192)
measure("transposed, in blocks", "b.gguf")

# The file says itself that its first axis is the one whose numbers follow each other.
def write_npy(path, shape, fortran, places):
    text = repr({"descr": "<f4", "fortran_order": fortran, "shape": tuple(shape)}).encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\0" + struct.pack("<H", len(text)) + text)
        file.truncate(10 + len(text) + 4 * math.prod(shape))
        for place in places:
            file.seek(10 + len(text) + 4 * place)
            file.write(struct.pack("<f", 1))

write_npy("a.npy", [8448, 9216], False, [at([8448, 9216], 5000, 77)])
write_npy("b.npy", [8448, 9216], True, [at([9216, 8448], 77, 5000), at([9216, 8448], 777, 50)])
most = peak(sys.argv[1], "compare", "a.npy", "b.npy", expected=1)
print("in Fortran's order:", "little" if most < 256 * SANITIZED else f"{most} MB resident")

# What is unpacked, and what it is unpacked from, stays in files as well. Level 0 packs nothing, and takes no time.
import tarfile, zipfile

write_one("a.safetensors", "F32", [4096, 6144])
with zipfile.ZipFile("a.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=0) as file:
    file.write("a.safetensors")
with tarfile.open("a.tar.gz", "w:gz", compresslevel=0) as file:
    file.add("a.safetensors")
for path in ("a.zip", "a.tar.gz"):
    most = peak(sys.argv[1], "inspect", path)
    print(path + ":", "little" if most < 64 * SANITIZED else f"{most} MB resident")
END
