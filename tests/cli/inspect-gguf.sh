$TSLEUTH inspect "$GOLDEN/gguf/all_types.gguf"
