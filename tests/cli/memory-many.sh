# Very many small tensors: what is kept of each has to be little, and what pairing needs for a while must not stay. All
# that the system counts is measured, under the limit of 256 MB. Sanitizers keep much of what was freed: there it is
# fewer tensors and another limit, for the same steps.
python3 - "$TSLEUTH" << 'END'
import json, os, random, struct, sys

SANITIZED = "ASAN_OPTIONS" in os.environ
MANY = 10000 if SANITIZED else 100000
LIMIT = 1000 if SANITIZED else 256 # MB

def write(path, names, places):
    """Tensors of 48 numbers in bf16, from 0.5 to 2: those that stand at these places of all that there are."""
    random.seed(1)
    low = random.randbytes(48 * MANY)
    header = {name: {"dtype": "BF16", "shape": [6, 8], "data_offsets": [96 * i, 96 * (i + 1)]}
              for i, name in enumerate(names)}
    text = json.dumps(header).encode()
    data = bytearray(b"\x3f") * (96 * MANY)
    data[::2] = b"".join(low[48 * place:48 * (place + 1)] for place in places)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)

def measure(what, names, places, *words):
    write("b.safetensors", names, places)
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.execv(sys.argv[1], [sys.argv[1], "compare", "a.safetensors", "b.safetensors", *words])
    _, status, usage = os.wait4(child, 0)
    assert status == 0, status
    most = usage.ru_maxrss // (1024 if sys.platform != "darwin" else 1 << 20)
    print(what + ":", "little" if most < LIMIT else f"{most} MB resident")

def experts(form, *projections):
    return [form.format(i // 768, i // 3 % 256, projections[i % 3]) for i in range(MANY)]

in_order = range(MANY)
names = experts("model.layers.{}.mlp.experts.{}.{}.weight", "gate_proj", "up_proj", "down_proj")
write("a.safetensors", names, in_order)
measure("equal names", names, in_order, "--json", "report")
measure("names of another convention", experts("layers.{}.block_sparse_moe.experts.{}.{}.weight", "w1", "w3", "w2"),
        in_order, "--html", "report")
measure("half of the names known to nobody",
        [name if i % 2 else name.replace("experts", "others") for i, name in enumerate(names)], in_order)
names = [f"t{i}" for i in in_order]
write("a.safetensors", names, in_order)
measure("names that say nothing", names, random.sample(in_order, MANY), "--csv", "report")
END
