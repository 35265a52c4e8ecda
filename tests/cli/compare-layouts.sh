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
