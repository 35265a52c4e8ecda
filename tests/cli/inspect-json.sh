$TSLEUTH inspect "$GOLDEN/compare/a.safetensors" --stats --filter '^(i32|nan_both|inf_both|empty)$' --sort name --json -
