# Experts that are modules of their own have a row for each token that chose them. The candidate sends token 5 elsewhere on
# a near tie: rows are compared token by token, and an expert that token alone took is idle, which is no divergence.
python3 - << 'END'
import json, math, random, struct

TOKENS, EXPERTS, WIDTH = 24, 6, 16

def write(path, tensors):
    header, data = {"__metadata__": {"tsleuth.order": "offset"}}, b""
    for name, (shape, values) in tensors.items():
        bytes = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(bytes)]}
        data += bytes
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)

def shaken(rows, noise):
    return [[x * (1 + noise * random.gauss(0, 1)) for x in row] for row in rows]

def times(row, matrix):
    return [sum(x * y for x, y in zip(row, column)) for column in matrix]

def matrix(rows, columns):
    return [[random.gauss(0, 1) / math.sqrt(columns) for _ in range(columns)] for _ in range(rows)]

random.seed(3)
x = matrix(TOKENS, WIDTH)
logits = [[3 if e == t % 4 else 2 if e == (t + 1) % 4 else random.uniform(-1, 0) for e in range(EXPERTS)]
          for t in range(TOKENS)]
logits[5] = [-1, 3, 0, 0, 2.0001, 2]  # experts 1 and 4, or 1 and 5
up, down = [matrix(WIDTH, WIDTH) for _ in range(EXPERTS)], [matrix(WIDTH, WIDTH) for _ in range(EXPERTS)]

def run(noise, bug=None):
    own = [list(row) for row in logits]
    if noise:
        own[5][4], own[5][5] = 2, 2.0001
    own, out = shaken(own, noise / 100), {}
    rows = shaken(x, noise)
    out["model.layers.0.post_attention_layernorm"] = rows
    out["model.layers.0.block_sparse_moe.gate"] = own
    total = [[0] * WIDTH for _ in range(TOKENS)]
    for e in range(EXPERTS):
        mine = [t for t in range(TOKENS) if e in sorted(range(EXPERTS), key=lambda i: -own[t][i])[:2]]
        if not mine:
            continue
        name = f"model.layers.0.block_sparse_moe.experts.{e}."
        first = shaken([times(rows[t], up[e]) for t in mine], noise)
        out[name + "w1"] = first
        second = shaken([times(row, down[e]) for row in first], noise)
        if e == bug:
            second[4] = [-v for v in second[4]]
        out[name + "w2"] = second
        for t, row in zip(mine, second):
            total[t] = [a + b for a, b in zip(total[t], row)]
    out["model.layers.0.block_sparse_moe"] = total
    return {name: ([len(rows), len(rows[0])], sum(rows, [])) for name, rows in out.items()}

write("a.safetensors", run(0))
write("honest.safetensors", run(1e-5))
write("bug.safetensors", run(1e-5, 2))
END
$TSLEUTH compare a.safetensors honest.safetensors --all; echo "exit $?"
$TSLEUTH compare a.safetensors honest.safetensors --csv - | grep idle
$TSLEUTH compare a.safetensors honest.safetensors --junit - | grep -e '<testsuite ' -e skipped
$TSLEUTH compare a.safetensors honest.safetensors --json - | python3 -c '
import json, sys
report = json.load(sys.stdin)
print([[tensor["name"] for tensor in report[key]] for key in ("idle_a", "idle_b", "unmatched_a", "unmatched_b")])'
$TSLEUTH compare a.safetensors honest.safetensors --html - | grep 'sent there'
$TSLEUTH compare a.safetensors bug.safetensors | grep 'First divergence'
$TSLEUTH explain a.safetensors honest.safetensors model.layers.0.block_sparse_moe.experts.4.w1
# the map of a comparison says the same again
$TSLEUTH compare a.safetensors honest.safetensors --save-map pairs.map | sed 's/by name/by map/' > first
$TSLEUTH compare a.safetensors honest.safetensors --map pairs.map > second
diff first second && echo same
