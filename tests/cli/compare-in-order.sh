# A run with a bug, under names that say nothing, captured at one point less: what is paired by its place alone is called so,
# in its row, at the first divergence and in a note. Without the bug there are no such pairs.
blind()
{
    python3 - "$@" << 'END'
import hashlib, json, struct, sys

source, target, dropped = sys.argv[1:]
data = open(source, "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + size])
names = json.loads(header.pop("__metadata__")["order"])
new, body = {"__metadata__": {"tsleuth.order": "offset"}}, b""
for name in names:
    if name == dropped:
        continue
    begin, end = header[name]["data_offsets"]
    word = "v_" + hashlib.sha1(name.encode()).hexdigest().translate(str.maketrans("0123456789", "ghijklmnop"))[:9]
    new[word] = {**header[name], "data_offsets": [len(body), len(body) + end - begin]}
    body += data[8 + size + begin:8 + size + end]
text = json.dumps(new).encode()
open(target, "wb").write(struct.pack("<Q", len(text)) + text + body)
END
}
blind "$GOLDEN/trace/rope_theta.safetensors" bug.safetensors layer_2_attn_scores
blind "$GOLDEN/trace/bfloat16.safetensors" honest.safetensors layer_2_attn_scores
"$TSLEUTH" compare "$GOLDEN/trace/reference.safetensors" bug.safetensors
echo "exit $?"
"$TSLEUTH" compare "$GOLDEN/trace/reference.safetensors" honest.safetensors | tail -8
