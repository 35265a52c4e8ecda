cat > expected.txt <<'EOF'
# what the reference run gives, and some things it does not
layer_*_attn_probs  shape [4,9,9]  range [0,1]  finite  rows-sum 1 ±1e-3  entropy [0.2,1]
input_embeddings    range [-3,3]  norm 14.75 ±1%
input_embeddings    range [-1,1]  mean < -1
layer_*_mlp_*       finite  optional
nowhere             finite
same: logits        relative-error-to golden/trace/bfloat16.safetensors < 0.05
same: logits        relative-error-to golden/trace/bfloat16.safetensors < 1e-6
EOF
$TSLEUTH inspect "$GOLDEN/trace/reference.safetensors" --filter 'layer_0|logits' | grep -E 'prob|logits'
$TSLEUTH check golden/trace/reference.safetensors --expect expected.txt; echo "exit $?"
$TSLEUTH check golden/trace/reference.safetensors --expect expected.txt --failed --json - | grep -E '"(schema|passed|failed|unknown|verdict)"' | sort | uniq -c; echo "exit ${PIPESTATUS[0]}"
# without expectations it is the integrity check
$TSLEUTH check "$GOLDEN/archives/model1_tp8.zip"; echo "exit $?"
# what cannot be read is told with its place
printf 'x finite\n  y rang [0,1]\n' > wrong.txt
$TSLEUTH check golden/trace/reference.safetensors --expect wrong.txt; echo "exit $?"
printf 'logits relative-error-to gone.safetensors < 1\n' > gone.txt
$TSLEUTH check golden/trace/reference.safetensors --expect gone.txt; echo "exit $?"
$TSLEUTH check golden/trace/reference.safetensors --expect nowhere.txt; echo "exit $?"
$TSLEUTH check golden/trace/reference.safetensors --expect a --record b; echo "exit $?"
$TSLEUTH check; echo "exit $?"
