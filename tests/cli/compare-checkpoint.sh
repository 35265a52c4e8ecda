# what changed between two checkpoints, and where; what is a checkpoint can be said
cp "$GOLDEN/models/qwen3/model.safetensors" base.safetensors
cp base.safetensors tuned.safetensors
# other weights of the same file over some of them
patch() { dd if=base.safetensors of=tuned.safetensors bs=1 skip="$1" seek="$2" count=400 conv=notrunc 2> /dev/null; }
patch 500000 300000
patch 200000 420000
patch 100000 600000
$TSLEUTH base.safetensors tuned.safetensors; echo "exit $?"
$TSLEUTH compare base.safetensors tuned.safetensors --rank --sort error | sed -n '/tensor  /,/^rank/p'
$TSLEUTH compare base.safetensors tuned.safetensors --sort name --top 3 | sed -n '/tensor  /,/^$/p'
$TSLEUTH compare base.safetensors tuned.safetensors --only differing --sort size | sed -n '/tensor  /,/^$/p'
$TSLEUTH compare base.safetensors tuned.safetensors --trace | sed -n '/tensor  /,/^$/p'
$TSLEUTH compare "$GOLDEN/trace/reference.safetensors" "$GOLDEN/trace/rope_theta.safetensors" --checkpoint --top 3 | sed -n '/tensor  /,/^$/p'
COLUMNS=40 $TSLEUTH compare base.safetensors tuned.safetensors --rank
$TSLEUTH compare base.safetensors tuned.safetensors --rank --json - > report.json
sed -n '/"changes"/,/}/p' report.json
grep -E '"(changed_fraction|rel_change)": 0\.0' report.json
grep -c '"change_rank"' report.json
$TSLEUTH compare base.safetensors tuned.safetensors --rank --csv - | grep differs | sed 's/,by.*norm//' | rev | cut -d, -f 1-4 | rev
$TSLEUTH compare base.safetensors tuned.safetensors --sort colour; echo "exit $?"
$TSLEUTH compare base.safetensors tuned.safetensors --trace --checkpoint; echo "exit $?"
