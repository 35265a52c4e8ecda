# The reference forward pass: what it prints, what it writes, what it refuses.
quiet() { sed -E 's/in [0-9.]+ s/in N s/'; }
MODEL="$GOLDEN/model/qwen3"
$TSLEUTH trace "$MODEL" --prompt "The weather today is fine, isn't it?" --stats -o ref.safetensors | quiet; echo "exit ${PIPESTATUS[0]}"
$TSLEUTH compare "$MODEL/trace_prompt.safetensors" ref.safetensors --json report.json > /dev/null; echo "exit $?"
grep -c '"verdict": "differs"' report.json
grep '"verdict"' report.json | sort | uniq -c | sed 's/^ *//'
$TSLEUTH trace "$MODEL" --quick -o one.safetensors | quiet
$TSLEUTH trace "$MODEL" --tokens 1,2,3 --list --points 'layers.1.*(rope|probs)|logits'
$TSLEUTH trace "$MODEL" --tokens 1,2,3 --layers 1 --names qwen3 -o named.safetensors | quiet
$TSLEUTH inspect named.safetensors | grep -v start | tail -n +3
$TSLEUTH trace "$MODEL" --tokens-file <(echo "[5, 6, 7]") --compute bf16 --points logits -o low.safetensors --json - | grep -v seconds
$TSLEUTH show low.safetensors 'logits[0, 0, :2]'
$TSLEUTH trace "$MODEL" --tokens 1,900; echo "exit $?"
$TSLEUTH trace "$MODEL" --tokens 1,x; echo "exit $?"
$TSLEUTH trace "$MODEL" --prompt $'bad \xff byte'; echo "exit $?"
$TSLEUTH trace "$MODEL" --tokens 1 --points '('; echo "exit $?"
$TSLEUTH trace "$MODEL" --tokens 1 --points nothing; echo "exit $?"
$TSLEUTH trace "$MODEL" --tokens 1 --layers 3-1; echo "exit $?"
$TSLEUTH trace "$MODEL" --tokens 1 --layers 7; echo "exit $?"
$TSLEUTH trace "$MODEL" --tokens 1 -o nowhere/trace.safetensors; echo "exit $?"
$TSLEUTH trace "$MODEL" --tokens 1 --names klingon; echo "exit $?"
$TSLEUTH trace "$GOLDEN/compare/a.safetensors" --tokens 1; echo "exit $?"
$TSLEUTH trace nowhere --tokens 1; echo "exit $?"
mkdir broken; cp "$MODEL"/* broken/; sed -i 's/"intermediate_size": 112/"intermediate_size": 96/; s/"num_hidden_layers": 3/"num_hidden_layers": 2/' broken/config.json
$TSLEUTH trace broken --tokens 1; echo "exit $?"
sed -i 's/"model_type": "qwen3"/"model_type": "qwen33"/' broken/config.json
$TSLEUTH trace broken --tokens 1; echo "exit $?"
printf '1,2\0,3' > nul.txt; $TSLEUTH trace "$MODEL" --tokens-file nul.txt; echo "exit $?"
# Two shards hold one name with different values; the same values twice are fine.
mkdir shards; cp "$MODEL"/*.json shards/
python3 - "$MODEL/model.safetensors" <<'PY'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header, body = json.loads(data[8:8 + size]), data[8 + size:]
header.pop("__metadata__", None)
start, end = header["model.norm.weight"]["data_offsets"]
one = json.dumps({"model.norm.weight": {**header["model.norm.weight"], "data_offsets": [0, end - start]}}).encode()
open("shards/a.safetensors", "wb").write(data)
for name, values in (("other", bytes(end - start)), ("same", body[start:end])):
    open(f"shards/{name}.safetensors", "wb").write(struct.pack("<Q", len(one)) + one + values)
    weight_map = {key: "a.safetensors" for key in header} | {"model.norm.weight": f"{name}.safetensors"}
    json.dump({"weight_map": weight_map}, open(f"{name}.json", "w"))
PY
# shards that are links out of the folder
mkdir linked; cp "$MODEL"/*.json linked/; ln -s "$PWD/shards/a.safetensors" linked/a.safetensors
printf '{"weight_map": {"model.norm.weight": "a.safetensors"}}' > linked/model.safetensors.index.json
$TSLEUTH trace linked --tokens 1,2 -o linked.safetensors 2>&1 | sed "s#to /.*/#to .../#"; echo "exit ${PIPESTATUS[0]}"
$TSLEUTH trace linked --tokens 1,2 -o linked.safetensors --follow-links | quiet | sed -n 2p
# a prompt for a model in the cache of Hugging Face
repo=$PWD/hf/hub/models--someone--model; snapshot=$repo/snapshots/0123456789012345678901234567890123456789
mkdir -p "$snapshot" "$repo/refs"; printf 0123456789012345678901234567890123456789 > "$repo/refs/main"
cp "$MODEL"/*.json "$MODEL"/model.safetensors "$snapshot"
HF_HOME=$PWD/hf $TSLEUTH trace hf://someone/model --prompt 'hello there' --points logits -o cached.safetensors | head -1
for name in other same; do mv $name.json shards/model.safetensors.index.json; $TSLEUTH trace shards --tokens 1,2 -o shards.safetensors | quiet | sed -n 2p; echo "exit ${PIPESTATUS[0]}"; done
ls
