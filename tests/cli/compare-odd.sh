# Differences that f32 cannot hold, ratios whose squares no double holds, parts of a set that are not there, one tensor
# on each side, a side without tensors, a filter that hides where a run went wrong.
python3 - << 'END'
import json, os, struct

def write(path, tensors):
    header, data = {}, b""
    for name, (dtype, values) in tensors.items():
        bytes = struct.pack(f"<{len(values)}{dict(F32='f', F64='d', I32='i')[dtype]}", *values)
        header[name] = {"dtype": dtype, "shape": [len(values)], "data_offsets": [len(data), len(data) + len(bytes)]}
        data += bytes
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)

write("exact_a.safetensors", {"x": ("F32", [1, 2, 3, 4]), "y": ("F64", [1e-100] * 4)})
write("exact_b.safetensors", {"x": ("F32", [1, 2, 2 ** -30, 4]), "y": ("F64", [1e100] * 4)})
os.makedirs("two")
os.makedirs("gaps")
os.makedirs("ends")
for folder, numbers, of in (("two", (1, 3), 3), ("gaps", (0, 4, 5), 8), ("ends", (1, 2), 2)):
    for number in numbers:
        write(f"{folder}/model-{number:05}-of-{of:05}.safetensors", {f"layers.{number}.weight": ("F32", [number, 1])})
open("ends/corpus-00001-of-00010.txt", "w").write("no part of a model\n")
os.makedirs("bare")
write("bare/00002-of-00002.safetensors", {"x": ("F32", [1])})
write("bare/x-000000001-of-999999999.safetensors", {"y": ("F32", [1])})
write("mine.safetensors", {"x": ("I32", [5, 6, 7, 8, 9, 10])})
write("theirs.safetensors", {"result": ("I32", [1, 5, 1, 5, 2, 2])})
write("longer.safetensors", {"result": ("I32", [1, 5, 1, 5, 2, 2, 3])})
os.makedirs("nothing")
END
$TSLEUTH compare exact_a.safetensors exact_b.safetensors --trace --json report.json > /dev/null; echo "exit $?"
python3 -c '
import json
for each in json.load(open("report.json"))["tensors"]:
    print(each["max_abs"], abs(each["worst_b"] - each["worst_a"]), each["quantiles"]["p100"], each["profiles"][0]["rel_l2"])'
for folder in two gaps ends; do
    $TSLEUTH compare $folder $folder | tail -n +4 | grep -v '^warning'; echo "exit ${PIPESTATUS[0]}"
done
$TSLEUTH inspect two | tail -3
$TSLEUTH inspect bare | tail -2
$TSLEUTH compare mine.safetensors theirs.safetensors | sed -n '3,6p;$p'; echo "exit ${PIPESTATUS[0]}"
$TSLEUTH compare mine.safetensors longer.safetensors | tail -2
$TSLEUTH compare mine.safetensors nothing | tail -1
$TSLEUTH compare nothing mine.safetensors | tail -1
$TSLEUTH compare nothing nothing | tail -1; echo "exit ${PIPESTATUS[0]}"
trace=$GOLDEN/trace
$TSLEUTH compare $trace/reference.safetensors $trace/rope_theta.safetensors --filter logits | grep -E -A1 '^First|before|^note'
$TSLEUTH compare $trace/reference.safetensors $trace/rope_theta.safetensors --filter 'q_rope|logits' | grep -E '^First|^note'
$TSLEUTH compare $trace/reference.safetensors $trace/rope_theta.safetensors --filter logits --rtol 1 | grep -c '^note' || true

# A single number is at no place.
python3 - << 'END'
import json, struct
for file, loss in (("one", 1.5), ("other", 1.25)):
    text = json.dumps({"loss": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}}).encode()
    with open(file + ".safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + struct.pack("<f", loss))
END
$TSLEUTH compare one.safetensors other.safetensors --junit loss.xml --html loss.html | grep -E "loss  |worst  "
grep -o "largest difference.*candidate [0-9.]*" loss.xml
grep -o "<dt>worst</dt><dd>[^<]*" loss.html
