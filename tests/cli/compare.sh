# 25 pairs with NaN, Inf, zeros, mixed types; the exit status says that they differ
$TSLEUTH compare "$GOLDEN/compare/a.safetensors" "$GOLDEN/compare/b.safetensors"; echo "exit $?"
$TSLEUTH compare "$GOLDEN/compare/a.safetensors" "$GOLDEN/compare/a.pt"; echo "exit $?"
