# Files of many tensors, none of them large: pages of the files must not stay in the process. What is resident is measured
# with all that the system counts, so that a file that stays shows: two of 256 MB, holes for the most part.
python3 - "$TSLEUTH" << 'END'
import json, os, resource, struct, sys

def write(path, count, elements):
    header = {f"layers.{i}.weight": {"dtype": "F32", "shape": [elements // 64, 64],
                                     "data_offsets": [4 * elements * i, 4 * elements * (i + 1)]} for i in range(count)}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + 4 * elements * count)

def peak(*command):
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.execv(command[0], command)
    _, status, usage = os.wait4(child, 0)
    assert status == 0, status
    return usage.ru_maxrss // (1024 if sys.platform != "darwin" else 1 << 20)

for count, elements in ((128, 1 << 19), (2048, 1 << 15)):
    write("a.safetensors", count, elements)
    write("b.safetensors", count, elements)
    for words in (("compare", "a.safetensors", "b.safetensors"), ("inspect", "--stats", "a.safetensors")):
        most = peak(sys.argv[1], *words)
        limit = 340 if words[0] == "compare" else 230
        print(count, "tensors,", words[0] + ":", "little" if most < limit else f"{most} MB resident")
END
