# integers that no double tells apart are shown with all of their digits
python3 - << 'END'
import json, struct
def write(path, signed, unsigned):
    header = json.dumps({"ids": {"dtype": "I64", "shape": [8], "data_offsets": [0, 64]},
                         "keys": {"dtype": "U64", "shape": [8], "data_offsets": [64, 128]}}).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + struct.pack("<8q8Q", *signed, *unsigned))
ids, keys = [-(1 << 60) - i for i in range(8)], [(1 << 64) - 1 - i for i in range(8)]
write("a.safetensors", ids, keys)
ids[3] += 1
keys[5] -= 1
write("b.safetensors", ids, keys)
END
$TSLEUTH compare a.safetensors b.safetensors; echo "exit $?"
$TSLEUTH compare a.safetensors b.safetensors --json - | grep '"worst_'
$TSLEUTH compare a.safetensors b.safetensors --junit - | grep -o '(reference [^)]*)'
$TSLEUTH compare a.safetensors b.safetensors --html - | grep -o 'reference [-0-9]*, candidate [-0-9]*'
