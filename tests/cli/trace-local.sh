# A fault that is put into a run is found, both in its own run and operation by operation.
MODEL="$GOLDEN/model/qwen3"
TOKENS=54,274,580,273,472,339,807,317,281,363,14,317
$TSLEUTH trace "$MODEL" --tokens $TOKENS -o ref.safetensors > /dev/null
# the candidate: bf16, and layer 1 turns the queries of layer 0, with the other sign
$TSLEUTH show ref.safetensors 'model.layers.0.self_attn.q_rope' --all --json q.json > /dev/null
cat > reverse.py <<'PY'
import json, struct
values = json.load(open("q.json"))["values"]
while values and isinstance(values[0], list):
    values = [one for part in values for one in part]
data = struct.pack(f"<{len(values)}f", *[-float(v) for v in values])
header = json.dumps({"x": {"dtype": "F32", "shape": [len(values)], "data_offsets": [0, len(data)]}}).encode()
open("fault.safetensors", "wb").write(struct.pack("<Q", len(header)) + header + data)
PY
python3 reverse.py
$TSLEUTH trace "$MODEL" --tokens $TOKENS --compute bf16 --inject model.layers.1.self_attn.q_rope=fault.safetensors -o mine.safetensors > /dev/null
$TSLEUTH compare ref.safetensors mine.safetensors | grep -E '^First|^differ'
$TSLEUTH compare mine.safetensors --model "$MODEL" | grep -E '^First|^differ'; echo "exit ${PIPESTATUS[0]}"
$TSLEUTH trace "$MODEL" --tokens $TOKENS --local mine.safetensors -o local.safetensors > /dev/null; echo "exit $?"
$TSLEUTH compare local.safetensors mine.safetensors | grep -E '^First|^differ'
$TSLEUTH trace "$MODEL" --tokens $TOKENS --inject logits=fault.safetensors -o no.safetensors; echo "exit $?"
$TSLEUTH trace "$MODEL" --tokens $TOKENS --inject model.layers.9=fault.safetensors -o no.safetensors; echo "exit $?"
$TSLEUTH trace "$MODEL" --tokens $TOKENS --inject model.norm -o no.safetensors; echo "exit $?"
$TSLEUTH trace "$MODEL" --tokens $TOKENS --local "$GOLDEN/compare/a.safetensors" -o no.safetensors; echo "exit $?"
ls
# a capture of transformers has fewer points than the reference: that alone is no gap
$TSLEUTH compare "$MODEL/trace_prompt.safetensors" --model "$MODEL" > out; echo "exit $?"; tail -1 out; rm out
# a model's folder of links, as the cache of Hugging Face makes it
mkdir linked
for file in "$PWD/$MODEL"/*; do ln -s "$file" linked/; done
$TSLEUTH compare mine.safetensors --model linked > out 2>&1; echo "exit $?"
$TSLEUTH compare mine.safetensors --model linked --follow-links | tail -1; echo "exit ${PIPESTATUS[0]}"
