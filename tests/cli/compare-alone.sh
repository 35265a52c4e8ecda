# One tensor, and nothing that tells how coarse the run was: an error that f32 does not round off is not called rounding,
# and one that sixteen bits do not make is left open.
python3 - << 'END'
import json, math, struct

def write(path, values):
    data = struct.pack(f"<{len(values)}f", *values)
    text = json.dumps({"out": {"dtype": "F32", "shape": [32, 32], "data_offsets": [0, len(data)]}}).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)

def noise(i):
    return (i * 7919 % 1009 + i * i * 104729 % 2003) / 1506 - 1

values = [math.sin(i) + math.cos(3.1 * i) for i in range(1024)]
write("a.safetensors", values)
for name, size in (("near", 1e-4), ("far", 2e-2), ("farther", 2e-1)):
    write(f"{name}.safetensors", [x * (1 + size * noise(i)) for i, x in enumerate(values)])
END
for other in near far farther; do
    "$TSLEUTH" compare a.safetensors $other.safetensors
    echo "exit $?"
done
"$TSLEUTH" compare a.safetensors far.safetensors --rtol 1e-3 | tail -n 1
"$TSLEUTH" compare a.safetensors far.safetensors --rtol 1e-1 | tail -n 1
"$TSLEUTH" compare a.safetensors farther.safetensors --rtol 1 | tail -n 1
