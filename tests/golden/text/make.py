#!/usr/bin/env python3
"""Makes the samples of the text and JSON readers, and beside each one <sample>.expected: the numbers that must come
out, as little-endian doubles. Standard library only; run it anywhere, it writes into its own folder.

The dialects are those of the dump writers that people have: see src/read/text_dialect.c. Values are printed as the
writers print them, and what is expected is what Python's own float() and struct make of the printed digits.
"""
import json
import math
import random
import struct
from pathlib import Path

HERE = Path(__file__).resolve().parent


def as_float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def half_bits(value):
    return struct.unpack("<H", struct.pack("<e", value))[0]


def half_value(bits):
    return struct.unpack("<e", struct.pack("<H", bits))[0]


def save(name, text, expected):
    path = HERE / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.with_name(path.name + ".expected").write_bytes(struct.pack(f"<{len(expected)}d", *expected))


def normal(seed, count):
    generator = random.Random(seed)
    return [as_float32(generator.gauss(0, 1)) for _ in range(count)]


def statistics(values):
    finite = [value for value in values if math.isfinite(value)]
    mean = sum(finite) / len(values)
    std = math.sqrt(sum((value - mean) ** 2 for value in finite) / len(values))
    return mean, std, min(finite), max(finite)


def python_shape(shape):
    return str(tuple(shape))


def joined_shape(shape):
    return "x".join(map(str, shape))


def printed(values):
    return [f"{value:.6e}" for value in values]


def body(values):
    """All of up to 1000 values, else the first and the last 50. Returns the lines and what was kept."""
    lines = printed(values)
    if len(values) <= 1000:
        return lines, lines
    kept = lines[:50] + lines[-50:]
    return ["# First 50 elements:", *lines[:50], "# Last 50 elements:", *lines[-50:]], kept


def dialect_a(name, shape, values, dtype="float32"):
    mean, std, low, high = statistics(values)
    lines, kept = body(values)
    head = [f"# Tensor: {name}", f"# Shape: {python_shape(shape)}", f"# Dtype: {dtype}",
            f"# Mean: {mean!r}", f"# Std: {std!r}", f"# Min: {low!r}", f"# Max: {high!r}", "# Data:"]
    return "\n".join(head + lines) + "\n", kept


def head_b(name, shape, values):
    mean, std, low, high = statistics(values)
    return [f"# Tensor: {name}", f"# Shape: {joined_shape(shape)}", f"# Total elements: {len(values)}",
            f"# Mean: {mean:.6e}", f"# Std: {std:.6e}", f"# Min: {low:.6e}", f"# Max: {high:.6e}"]


def dialect_b(name, shape, values):
    lines, kept = body(values)
    return "\n".join(head_b(name, shape, values) + ["# Data:"] + lines) + "\n", kept


def dialect_c(name, shape, values):
    lines, kept = body(values)
    mean, std, low, high = statistics(values)
    nans = sum(math.isnan(value) for value in values)
    infinite = sum(math.isinf(value) for value in values)
    zeros = sum(value == 0 for value in values)
    head = [f"# Tensor: {name}", f"# Shape: {joined_shape(shape)}", f"# Total elements: {len(values)}",
            "# Data type size: 4 bytes", "# Statistics:",
            f"#   Mean: {mean:.6e}", f"#   Std: {std:.6e}", f"#   Min: {low:.6e}", f"#   Max: {high:.6e}",
            f"#   L1 norm (avg abs): {sum(abs(v) for v in values if math.isfinite(v)) / len(values):.6e}",
            f"#   Special values - NaN: {nans}, Inf: {infinite}, Zero: {zeros}"]
    if nans:
        head.append(f"# WARNING: Found {nans} NaN values!")
    if infinite:
        head.append(f"# WARNING: Found {infinite} Inf values!")
    if not nans and not infinite:
        head.append("# Values appear reasonable")
    return "\n".join(head + ["# Data:"] + lines) + "\n", kept


def dialect_d(name, shape, values):
    bits = [half_bits(value) for value in values]
    mean, std, low, high = statistics([half_value(b) for b in bits])
    head = [f"# Tensor: {name} (FP16 format)", f"# Shape: {joined_shape(shape)}", f"# Total elements: {len(values)}",
            f"# Mean: {mean:.6e} (converted)", f"# Std: {std:.6e} (converted)", f"# Min: {low:.6e} (converted)",
            f"# Max: {high:.6e} (converted)", "# Data (first 100 elements as hex and converted):"]
    lines = [f"0x{b:04x} ({half_value(b):.6e})" for b in bits[:100]]
    return "\n".join(head + lines) + "\n", [half_value(b) for b in bits[:100]]


def dialect_e(name, shape, values):
    mean, std, low, high = statistics(values)
    head = [f"# Tensor: {name}", f"# Shape: {joined_shape(shape)}", "# Dtype: float32",
            f"# Mean: {mean!r}", f"# Std: {std!r}", f"# Min: {low!r}", f"# Max: {high!r}", "# Data:"]
    lines = printed(values[:100])
    return "\n".join(head + lines) + "\n", lines


def dialect_f(name, shape, values):
    lines = printed(values)
    return "\n".join([f"# Tensor: {name}", f"# Shape: {joined_shape(shape)}", "# Data:"] + lines) + "\n", lines


def singles(lines):
    return [as_float32(float(line)) for line in lines]


def doubles(lines):
    return [float(line) for line in lines]


def text_dialects():
    text, kept = dialect_a("layer_3_attn_q_rope", (1, 10, 100), normal(1, 1000))
    save("a_1000.txt", text, singles(kept))
    text, kept = dialect_a("layer_3_attn_q_rope", (1, 7, 143), normal(2, 1001))
    save("a_1001.txt", text, singles(kept))
    text, kept = dialect_a("loss", (), normal(3, 1))
    save("a_scalar.txt", text, singles(kept))
    text, kept = dialect_a("position", (5,), normal(4, 5))
    save("a_five.txt", text, singles(kept))
    ids = [151644, 872, 198, 9707, 151645]
    text, kept = dialect_a("input_ids", (1, 5), ids, "int64")
    save("a_ids.txt", text, [float(i) for i in ids])

    text, kept = dialect_b("input_embeddings", (10, 100), normal(5, 1000))
    save("b_1000.txt", text, doubles(kept))
    text, kept = dialect_b("input_embeddings", (3, 2048), normal(6, 6144))
    save("b_6144.txt", text, doubles(kept))

    values = normal(7, 60)
    values[3], values[10], values[11], values[20] = math.nan, math.inf, -math.inf, 0.0
    text, kept = dialect_c("attn_scores", (6, 10), values)
    save("c_special.txt", text, singles(kept))
    text, kept = dialect_c("mlp_gate_proj", (7, 143), normal(8, 1001))
    save("c_1001.txt", text, singles(kept))

    values = normal(9, 36)
    values[0], values[1], values[2] = 65504.0, -6e-8, 1.0
    text, kept = dialect_d("attn_k_normed", (4, 9), values)
    save("d_36.txt", text, kept)
    text, kept = dialect_d("attn_k_normed", (3, 64), normal(10, 192))
    save("d_192.txt", text, kept)

    text, kept = dialect_e("layer_output", (2, 300), normal(11, 600))
    save("e_600.txt", text, singles(kept))
    text, kept = dialect_e("layer_output", (5, 8), normal(12, 40))
    save("e_40.txt", text, singles(kept))

    text, kept = dialect_f("layer_0_copy_output", (3, 4), normal(13, 12))
    save("f_copy.txt", text, doubles(kept))
    save("f_windows.txt", b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode(), doubles(kept))


def json_dialect():
    generator = random.Random(20)
    tensors = {"input_logits": [generator.gauss(0, 1) for _ in range(64)]}
    for layer in range(12):
        tensors[f"layer_{layer}_rmsnorm_output"] = [generator.gauss(0, 1) for _ in range(64)]
    text = json.dumps(tensors, sort_keys=True)
    natural = ["input_logits"] + [f"layer_{layer}_rmsnorm_output" for layer in range(12)]
    save("g.json", text, [value for name in natural for value in tensors[name]])

    # Cut inside the ninth list of the file, in the middle of a number.
    stored = sorted(tensors)
    start = text.index('"' + stored[8] + '"')
    numbers = text[text.index("[", start) + 1:]
    cut = len(text) - len(numbers) + len(", ".join(numbers.split(", ")[:20])) + 7
    whole = stored[:8]
    order = sorted(whole + [stored[8]], key=natural.index)
    kept = {**{name: tensors[name] for name in whole}, stored[8]: tensors[stored[8]][:20]}
    save("g_cut.json", text[:cut], [value for name in order for value in kept[name]])


def plain():
    values = normal(30, 24)
    save("column.txt", "".join(f"{value!r}\n" for value in values), values)
    rows = [values[i:i + 6] for i in range(0, 24, 6)]
    # numpy.savetxt's default format, with its header and footer comments.
    save("savetxt.txt", "# a 4 by 6 matrix\n" + "".join(" ".join(f"{v:.18e}" for v in row) + "\n" for row in rows)
         + "# the end\n", [float(f"{v:.18e}") for v in values])
    save("table.csv", "q,k,v,o,gate,up\n" + "".join(",".join(f"{v:.7g}" for v in row) + "\n" for row in rows),
         [float(f"{v:.7g}") for v in values])
    ids = [random.Random(31).randrange(-2**40, 2**40) for _ in range(8)]
    save("ids.txt", " ".join(map(str, ids)) + "\n", [float(i) for i in ids])

    def numpy_print(rows):
        return "[" + "\n ".join("[" + " ".join(f"{v: .8f}" for v in row) + "]" for row in rows) + "]\n"

    save("numpy_print.txt", numpy_print(rows), [float(f"{v:.8f}") for v in values])
    blocks = [rows[:2], rows[2:]]
    inner = ",\n\n        ".join(
        "[" + ",\n         ".join("[" + ", ".join(f"{v: .4f}" for v in row) + "]" for row in block) + "]"
        for block in blocks)
    save("torch_print.txt", f"tensor([{inner}], device='cuda:0', dtype=torch.float16,\n       grad_fn=<AddBackward0>)\n",
         [half_value(half_bits(float(f"{v:.4f}"))) for v in values])
    corner = [f"{v: .4e}" for v in values[:6]]
    save("torch_short.txt", "tensor([" + ", ".join(corner[:3]) + ",  ..., " + ", ".join(corner[3:]) + "])\n",
         [float(v) for v in corner])


def raw():
    values = normal(40, 12)
    packed = struct.pack("<12f", *values)
    (HERE / "raw").mkdir(exist_ok=True)

    def write(name, data):
        (HERE / "raw" / name).write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode() + b"\n")

    write("plain.bin", packed)
    write("plain.json", {"dtype": "float32", "shape": [3, 4]})
    write("expected.f64", struct.pack("<12d", *values))
    # x.f32.json beside x.f32, Fortran order: element [i, j] stands at i + 3 j.
    write("fortran.f32", struct.pack("<12f", *(values[4 * i + j] for j in range(4) for i in range(3))))
    write("fortran.f32.json", {"dtype": "F32", "shape": [3, 4], "order": "F"})
    write("big.raw", b"skipped!" + struct.pack(">12f", *values))
    write("big.meta.json", {"name": "big", "dtype": "f32", "shape": [12], "offset": 8, "byteorder": "big"})
    # Two tensors in one file, and one in another, which is larger than it says.
    write("pool.dat", packed + struct.pack("<12d", *values))
    write("loose.dat", packed + b"tail")
    write("all.json", {"tensors": [
        {"name": "first", "dtype": "f32", "shape": [4, 3], "file": "pool.dat", "offset": 0},
        {"name": "second", "dtype": "<f8", "shape": [2, 6], "file": "pool.dat", "offset": 48},
        {"name": "turned", "dtype": "<f4", "shape": [4, 3], "strides": [4, 16], "file": "loose.dat"},
        {"name": "gone", "dtype": "f32", "shape": [4], "file": "missing.dat"},
        {"name": "long", "dtype": "f32", "shape": [4000], "file": "pool.dat", "offset": 0},
        {"name": "odd", "dtype": "posit16", "shape": [4], "file": "pool.dat", "offset": 0}]})


text_dialects()
json_dialect()
plain()
raw()
