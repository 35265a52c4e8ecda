# What only one side has of a tensor is not compared, and the report says how much that is.
python3 - << 'END'
import json, random, struct

random.seed(1)

def write(path, tensors):
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        bytes = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(bytes)]}
        data += bytes
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)

def numbers(count):
    return [random.gauss(0, 1) for _ in range(count)]

names = ["model.embed_tokens", "model.layers.0.input_layernorm", "model.layers.0.mlp", "model.norm"]
one = {name: ([1, 6, 16], numbers(96)) for name in names}
two = {name: ([2, 6, 16], values + numbers(96)) for name, (_, values) in one.items()}
write("one.safetensors", one)
write("two.safetensors", two)
# the logits of the last token alone, keys of a cache with room for more, rows of zeros behind a table
table, logits, keys = numbers(64), numbers(6 * 32), numbers(48)
write("all.safetensors", {"table": ([8, 8], table), "keys": ([6, 8], keys), "logits": ([6, 32], logits)})
write("last.safetensors", {"table": ([10, 8], table + [0] * 16), "keys": ([8, 8], keys + numbers(16)),
                           "logits": ([1, 32], logits[-32:])})
write("few.safetensors", {"x": ([2], numbers(2))})
write("many.safetensors", {"x": ([1 << 16], numbers(1 << 16))})
END
for pair in "one two" "two one" "all last" "all all"; do
    set -- $pair
    $TSLEUTH compare $1.safetensors $2.safetensors --json $1-$2.json; echo "exit $?"
done
python3 -c 'import json; print(json.load(open("one-two.json"))["pairing"]["notes"])'
# two numbers are no shard of so many
$TSLEUTH compare many.safetensors few.safetensors; echo "exit $?"
