$TSLEUTH compare "$GOLDEN/compare/a.safetensors" "$GOLDEN/compare/b.safetensors" --filter 'noise' --rule 'noise: rel_l2 < 1e-1' | tail -1
$TSLEUTH compare "$GOLDEN/compare/a.safetensors" "$GOLDEN/compare/b.safetensors" --filter 'noise' --rule '3e-4: max_abs < 1e-9' | tail -1
$TSLEUTH compare "$GOLDEN/compare/a.safetensors" "$GOLDEN/compare/b.safetensors" --filter 'noise' --rtol 1 --atol 1 | tail -1
$TSLEUTH compare "$GOLDEN/compare/a.safetensors" "$GOLDEN/compare/b.safetensors" --filter 'noise' --grades | tail -1
$TSLEUTH compare "$GOLDEN/compare/a.safetensors" "$GOLDEN/compare/b.safetensors" --rule 'x: size < 3'; echo "exit $?"
$TSLEUTH compare "$GOLDEN/compare/a.safetensors" "$GOLDEN/compare/b.safetensors" --filter 'noise' --rule 'nois7: rel_l2 < 1' | grep warning
$TSLEUTH compare "$GOLDEN/compare/a.safetensors" "$GOLDEN/compare/b.safetensors" --rtol nan; echo "exit $?"
$TSLEUTH compare "$GOLDEN/compare/a.safetensors" "$GOLDEN/compare/b.safetensors" --filter 'nothing' | tail -1
# two judges for the same tensors
$TSLEUTH compare "$GOLDEN/compare/a.safetensors" "$GOLDEN/compare/b.safetensors" --grades --rtol 1e-3; echo "exit $?"
# an input that a rule lets pass need not agree, and where the error is made is not told by it
$TSLEUTH compare "$GOLDEN/trace/reference.safetensors" "$GOLDEN/trace/rope_theta.safetensors" --rule 'layer_1_attn_(q_rope|k_rope|scores): rel_l2 < 1' | sed -n '/^First/,/^  cause\|^  structure/p' | head -2
# what carries its error says from where
$TSLEUTH compare "$GOLDEN/trace/reference.safetensors" "$GOLDEN/trace/rope_theta.safetensors" --rule 'layer_1_attn_(q_rope|k_rope|scores): rel_l2 < 1' | sed -n '/^  structure/,/^  operation/p'
