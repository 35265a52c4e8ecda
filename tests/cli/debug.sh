# The whole loop: reference, candidate, comparison.
quiet() { sed -E 's/in [0-9.]+ s/in N s/; s/at most [0-9.]+ [kMG]?B/at most N MB/; s#/.*/work/#WORK/#'; }
MODEL="$GOLDEN/model/qwen3"
cat > good.sh <<'SH'
echo "ids $TSLEUTH_TOKENS, arguments $*"
"$TSLEUTH" trace golden/model/qwen3 --tokens "$TSLEUTH_TOKENS" --compute bf16 -o "$TSLEUTH_DUMP/out.safetensors"
SH
cat > crash.sh <<'SH'
echo "about to fall over"
kill -SEGV $$
SH
$TSLEUTH debug "$MODEL" --tokens 5,6,7,8 -- bash good.sh {tokens} | quiet; echo "exit ${PIPESTATUS[0]}"
cat tsleuth-debug/tokens.txt; echo; sed -E 's/[0-9.e-]+,?$/N/' tsleuth-debug/run.json; head -1 tsleuth-debug/candidate.log
$TSLEUTH debug "$MODEL" --tokens 5,6,7,8 --option --json=report.json -- bash good.sh | quiet | head -2; grep -m1 verdict report.json
$TSLEUTH debug "$MODEL" --tokens 5,6,7,8 --skip-reference --skip-candidate | quiet | tail -1
$TSLEUTH debug "$MODEL" --tokens 5,6,7,8 -- bash crash.sh 2>&1 | quiet; echo "exit ${PIPESTATUS[0]}"
$TSLEUTH debug "$MODEL" --tokens 5,6,7,8 -- ./nowhere 2>&1 | quiet; echo "exit ${PIPESTATUS[0]}"
printf 'hello there\nthe second one\n' > prompts.txt
cat > wrong.sh <<'SH'
"$TSLEUTH" trace golden/model/qwen3 --prompt "$TSLEUTH_PROMPT" -o ref.safetensors > /dev/null
case $TSLEUTH_PROMPT in hello*) extra=() ;; *) extra=(--inject model.layers.0.mlp.act_fn=zeros.safetensors) ;; esac
"$TSLEUTH" trace golden/model/qwen3 --prompt "$TSLEUTH_PROMPT" "${extra[@]}" -o "$TSLEUTH_DUMP/out.safetensors"
SH
tokens=$($TSLEUTH trace "$MODEL" --prompt 'the second one' --points logits -o x.safetensors --json - | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["tokens"]))')
python3 - "$tokens" <<'PY'
import json, struct, sys
count = int(sys.argv[1]) * 112
header = json.dumps({"x": {"dtype": "F32", "shape": [count], "data_offsets": [0, 4 * count]}}).encode()
open("zeros.safetensors", "wb").write(struct.pack("<Q", len(header)) + header + bytes(4 * count))
PY
$TSLEUTH debug "$MODEL" --prompts prompts.txt --folder many --keep-going -- bash wrong.sh | quiet | grep -vE '^$|worst|before|after|shape'; echo "exit ${PIPESTATUS[0]}"
$TSLEUTH debug "$MODEL" --tokens 1; echo "exit $?"
$TSLEUTH debug; echo "exit $?"
