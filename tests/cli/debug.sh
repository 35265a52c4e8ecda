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
cat tsleuth-debug/tokens.txt; echo; sed -E 's/: [0-9.e-]+,?$/: N/' tsleuth-debug/run.json; head -1 tsleuth-debug/candidate.log
$TSLEUTH debug "$MODEL" --tokens 5,6,7,8 --option --json=report.json --option '--html={folder}/report.html' -- bash good.sh | quiet | head -2; grep -m1 verdict report.json
# What both sides took is in the reports: the reference's from when it was made, though it was used again.
python3 - <<'PY'
import json
report, run = json.load(open("report.json")), json.load(open("tsleuth-debug/run.json"))
print(all(report[side][key] == run[who][key] > 0 for side, who in (("a", "reference"), ("b", "candidate"))
          for key in ("seconds", "peak_bytes")), run["reference"]["reused"], run["candidate"]["status"])
PY
grep -o 'kB, in [0-9.]* s, at most [0-9.]* [kM]B of memory' tsleuth-debug/report.html | quiet
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
# Another setting makes another reference, though the weights and tokens are the same.
mkdir own; cp "$MODEL"/*.json "$MODEL"/model.safetensors own/
for eps in 1e-06 1e-06 1e-05; do
    grep -q "$eps" own/config.json || sed -i "s/\"rms_norm_eps\": [^,]*/\"rms_norm_eps\": $eps/" own/config.json
    $TSLEUTH debug own --tokens 5,6 --folder settings -- bash good.sh | quiet | head -1
done
# Interrupted: the candidate and what it started are ended, and there is no report.
cat > endless.sh <<'SH'
sleep 300 &
echo $! > sleeping
wait
SH
$TSLEUTH debug "$MODEL" --tokens 5,6 --folder stopped --option --json=stopped.json -- bash endless.sh > stopped.txt & debugger=$!
until [ -s sleeping ]; do sleep 0.05; done
kill -INT $debugger; wait $debugger; echo "exit $?"
running() { kill -0 "$1" 2> /dev/null && ! grep -qs '^State:.*[ZX]' "/proc/$1/status"; } # nobody may reap it
for _ in {1..50}; do running "$(cat sleeping)" || break; sleep 0.1; done; running "$(cat sleeping)" && echo "still running"
ls stopped; test -e stopped.json && echo "a report"
$TSLEUTH debug "$MODEL" --tokens 1; echo "exit $?"
$TSLEUTH debug; echo "exit $?"
