# llama.cpp's names, permuted rows and stacked experts against the Hugging Face originals
$TSLEUTH compare "$GOLDEN/models/qwen3" "$GOLDEN/gguf/qwen3-bf16.gguf"; echo "exit $?"
$TSLEUTH compare "$GOLDEN/models/mixtral" "$GOLDEN/gguf/mixtral-bf16.gguf"; echo "exit $?"
