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
ls
