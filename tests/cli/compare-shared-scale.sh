# one scale for all rows swallows a small one, which is no bug
python3 - << 'END'
import json, struct
def write(path, tensors):
    header, data = {}, b""
    for name, dtype, shape, raw in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
rows = [[((37 * i + 11 * row) % 127 - 63) / (64 if row != 7 else 12800) for i in range(64)] for row in range(40)]
values = [x for row in rows for x in row]
write("a.safetensors", [("layers.0.q.weight", "F32", [40, 64], struct.pack("<2560f", *values))])
write("b.safetensors", [("layers.0.q.weight", "I8", [40, 64], struct.pack("<2560b", *[round(x * 100) for x in values])),
                        ("layers.0.q.weight_scale", "F32", [1], struct.pack("<f", 0.01))])
END
$TSLEUTH compare a.safetensors b.safetensors; echo "exit $?"
