export COLUMNS=40
$TSLEUTH inspect "$GOLDEN/models/qwen3" --filter 'layers.1' --stats
$TSLEUTH show "$GOLDEN/compare/a.safetensors" 'large_131k[:2,:9]'
