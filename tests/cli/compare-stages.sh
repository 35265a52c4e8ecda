# Ranks that hold other values under the same names: a tensor of the reference stands in several pairs, and where those
# are stages of a pipeline that count their layers from 0 each, it is said how to compare them.
python3 - << 'END'
import json, os, struct

def write(path, tensors):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    header, body = {}, b""
    for name, values in tensors.items():
        data = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": [2, len(values) // 2], "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)

def layer(i):
    return [(i * 7919 + k * k * 104729 + k * 31) % 1009 / 300 - 1.7 for k in range(128)]

write("one.safetensors", {"w": [1, 2, 3, 4]})
for rank in range(3):
    write(f"ranks/rank_{rank}.safetensors", {"w": [1, 2, 3, 4 + rank / 8]})
write("whole.safetensors", {f"layers.{i}.weight": layer(i) for i in range(6)})
for rank in range(2):
    write(f"stages/rank_{rank}.safetensors", {f"layers.{i}.weight": layer(3 * rank + i) for i in range(3)})
END
"$TSLEUTH" compare one.safetensors ranks | grep -A1 '^paired'
"$TSLEUTH" compare whole.safetensors stages | grep -A2 'paired\|stages of'
"$TSLEUTH" compare whole.safetensors stages/rank_1.safetensors | grep 'paired\|^layers'
