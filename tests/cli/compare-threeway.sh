# judged against a third run, the bf16 candidate errs as much as itself, and the bug does not
$TSLEUTH compare "$GOLDEN/trace/bfloat16.safetensors" "$GOLDEN/trace/bfloat16.safetensors" --high-precision "$GOLDEN/trace/reference.safetensors" | tail -1
$TSLEUTH compare "$GOLDEN/trace/bfloat16.safetensors" "$GOLDEN/trace/rope_theta.safetensors" --high-precision "$GOLDEN/trace/reference.safetensors" --json - | grep -A1 '"first_divergence"'
$TSLEUTH compare "$GOLDEN/trace/bfloat16.safetensors" "$GOLDEN/trace/bfloat16.safetensors" --high-precision "$GOLDEN/trace/reference.safetensors" --json - | grep -o '"[a-z0-9]*_over_own": 1,' | sort -u
