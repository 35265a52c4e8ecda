# Padding is no divergence: before the tokens against behind them, and rows that attend to nothing. Tokens that were moved
# and rows that nothing says are padding are one.
python3 - << 'END'
import json, math, random, struct

WIDTH = 12
random.seed(7)
table = [[random.gauss(0, 1) for _ in range(WIDTH)] for _ in range(40)]
turn = [[random.gauss(0, 0.3) for _ in range(WIDTH)] for _ in range(WIDTH)]

def write(path, tensors, leave=()):
    header, data = {}, b""
    for name, rows in tensors.items():
        if name in leave:
            continue
        whole = isinstance(rows[0][0], int)
        flat = [x for s in rows for row in s for x in ([row] if whole else row)]
        bytes = struct.pack(f"<{len(flat)}{'q' if whole else 'f'}", *flat)
        header[name] = {"dtype": "I64" if whole else "F32", "shape": [len(rows), len(rows[0])] + [WIDTH] * (not whole),
                        "data_offsets": [len(data), len(data) + len(bytes)]}
        data += bytes
    text = json.dumps(header).encode()
    with open(path + ".safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)

def run(sequences, left, blind=False, factor=1, moved=None):
    longest = max(map(len, sequences))
    fill = lambda s, pad: [pad] * (longest - len(s)) + s if left else s + [pad] * (longest - len(s))
    ids = [fill(s, 0) for s in sequences]
    mask = [fill([1] * len(s), 0) for s in sequences]
    x = [[table[i] for i in s] for s in ids]
    if moved is not None:
        x[moved] = x[moved][-2:] + x[moved][:-2]
    tensors = {"input_ids": ids, "attention_mask": mask, "model.embed_tokens": x}
    for layer in range(3):
        context = []
        for s, m in zip(x, mask):
            rows = []
            for t in range(longest):
                seen = [s[k] for k in range(t + 1) if m[k]]
                if not seen and not blind:  # nothing to attend to: everything alike
                    seen = s
                rows.append([sum(column) / len(seen) * factor for column in zip(*seen)] if seen else [0.0] * WIDTH)
            context.append(rows)
        x = [[[a + b for a, b in zip(*rows)] for rows in zip(*s)] for s in zip(x, context)]
        mlp = [[[math.tanh(sum(a * b for a, b in zip(row, w))) for w in turn] for row in s] for s in x]
        tensors[f"model.layers.{layer}.self_attn.attn_context"] = context
        tensors[f"model.layers.{layer}.attn_residual"] = x
        tensors[f"model.layers.{layer}.mlp"] = mlp
        x = [[[a + b for a, b in zip(*rows)] for rows in zip(*s)] for s in zip(x, mlp)]
        tensors[f"model.layers.{layer}"] = x
    return tensors

text = [[random.randrange(1, 40) for _ in range(n)] for n in (5, 9, 3, 8)]
told, ids = ("input_ids", "attention_mask"), ("input_ids",)
write("left", run(text, True))
write("right", run(text, False))
write("left-bare", run(text, True), told)
write("right-bare", run(text, False), told)
write("right-wrong", run(text, False, factor=1.1), told)
write("moved", run(text, True, moved=1), told)
write("blind", run(text, True, blind=True))
write("blind-bare", run(text, True, blind=True), told)
write("left-mask", run(text, True), ids)
write("blind-wrong", run(text, True, blind=True, factor=1.1), ids)
END
for pair in "left right" "right left" "left-bare right-bare" "left-bare right-wrong" "left-bare moved" "left blind" \
    "left-bare blind-bare" "left-mask blind-wrong"; do
    set -- $pair
    echo "== $pair"
    $TSLEUTH compare $1.safetensors $2.safetensors | grep -E -A2 'padding|layout change|^First|^match|^differ:|^incomplete' |
        grep -v -e '^ *$' -e '^--$' -e '^  The'
done
