$TSLEUTH inspect "$GOLDEN/compare/a.safetensors"
