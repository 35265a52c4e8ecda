# an honest bf16 run matches, whatever its size of error; a wrong rope_theta and a missing residual are found and named
$TSLEUTH "$GOLDEN/trace/reference.safetensors" "$GOLDEN/trace/bfloat16.safetensors"; echo "exit $?"
$TSLEUTH compare "$GOLDEN/trace/reference.safetensors" "$GOLDEN/trace/rope_theta.safetensors"; echo "exit $?"
$TSLEUTH compare "$GOLDEN/trace/reference.safetensors" "$GOLDEN/trace/residual_missing.safetensors" | sed -n '/^First/,$p'
# int4 weights: a match on a condition
$TSLEUTH compare "$GOLDEN/quantized_run/reference.safetensors" "$GOLDEN/quantized_run/int4.safetensors" | tail -2
