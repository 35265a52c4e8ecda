$TSLEUTH compare "$GOLDEN/torchfiles/bare_tensor.pt" "$GOLDEN/numpy/i8.npy"; echo "exit $?"
$TSLEUTH compare "$GOLDEN/torchfiles/dtypes.pt" "$GOLDEN/torchfiles/legacy.pt"; echo "exit $?"
$TSLEUTH compare "$GOLDEN/torchfiles/dtypes.pt" missing.pt; echo "exit $?"
$TSLEUTH compare "$GOLDEN/torchfiles/dtypes.pt"; echo "exit $?"
: > empty.pt; $TSLEUTH compare empty.pt gone.pt; echo "exit $?"
$TSLEUTH compare - "$GOLDEN/torchfiles/dtypes.pt"; echo "exit $?"
if [ -e /dev/full ]; then
    $TSLEUTH compare "$GOLDEN/torchfiles/dtypes.pt" "$GOLDEN/torchfiles/dtypes.pt" --json - > /dev/full; echo "exit $?"
else
    echo 'exit 3'; echo "tsleuth: cannot write to standard output: No space left on device" >&2
fi
head -c -8 "$GOLDEN/compare/a.safetensors" > cut.safetensors # the last tensor is not whole
$TSLEUTH compare "$GOLDEN/compare/a.safetensors" cut.safetensors | tail -2

# A candidate with few points: where its first divergence has no input among them, what to capture next is said.
python3 - << 'END'
import json, os, struct

data = open(os.environ["GOLDEN"] + "/trace/rope_theta.safetensors", "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + size])
names = json.loads(header.pop("__metadata__")["order"])
for file, words in (("few", ("input_hidden_states", "logits")), ("one_less", None)):
    new, body = {"__metadata__": {"tsleuth.order": "offset"}}, b""
    for name in names:
        if not name.endswith(words) if words else name == "layer_1_attn_q_normed":
            continue
        begin, end = header[name]["data_offsets"]
        new[name] = {**header[name], "data_offsets": [len(body), len(body) + end - begin]}
        body += data[8 + size + begin:8 + size + end]
    text = json.dumps(new).encode()
    with open(file + ".safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + body)
END
for file in few one_less; do
    "$TSLEUTH" compare "$GOLDEN/trace/reference.safetensors" $file.safetensors --json $file.json |
        grep -A8 -E "^First|^  between" | grep -v structure | sed -n '1,2p;/between/,/made/p'
    python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["first_divergence"]["not_in_b"][:2])' $file.json
done
