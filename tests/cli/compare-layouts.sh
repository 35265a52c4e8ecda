# What is said of a layout that values do not prove: it fits as well as another, it is a guess, or only the sizes tell it.
python3 - << 'END'
import json, random, struct

def write(path, shape, values):
    data = struct.pack(f"<{len(values)}f", *values)
    text = json.dumps({"x": {"dtype": "F32", "shape": shape, "data_offsets": [0, len(data)]}}).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)

def values(seed):
    dice = random.Random(seed)
    return [dice.random() * 2 - 1 for _ in range(48)]

write("a.safetensors", [8, 6], values(1))
write("turned.safetensors", [6, 8], [values(1)[k * 6 + i] for i in range(6) for k in range(8)])
write("other.safetensors", [6, 8], values(2))
write("third.safetensors", [2, 4, 6], values(2))
write("ones.safetensors", [8, 6], [1.0] * 48)
write("ones_turned.safetensors", [6, 8], [1.0] * 48)
END
for pair in "a turned" "a other" "a third" "ones ones_turned"; do
    read -r one other <<< "$pair"
    $TSLEUTH compare $one.safetensors $other.safetensors | sed -n '6,8p' | grep -v '^$'
done

# Where one tensor of a run needs a layout, and agrees, its row is folded away: the head tells it.
python3 - << 'END'
import json, random, struct

def write(path, wide):
    dice, header, data = random.Random(3), {}, b""
    for name, columns in (("embeddings", 6), ("layers.0", 6), ("layers.1", 6), ("logits", 8 if wide else 7)):
        rows = [[dice.random() * 2 - 1 for _ in range(min(columns, 7))] + [0.0] * (columns - 7) for _ in range(5)]
        bits = struct.pack(f"<{5 * columns}f", *[x for row in rows for x in row])
        header[name] = {"dtype": "F32", "shape": [5, columns], "data_offsets": [len(data), len(data) + len(bits)]}
        data += bits
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)

write("narrow.safetensors", False)
write("wide.safetensors", True)
END
$TSLEUTH compare narrow.safetensors wide.safetensors
echo
$TSLEUTH compare narrow.safetensors wide.safetensors --all | sed -n '3,$p'
