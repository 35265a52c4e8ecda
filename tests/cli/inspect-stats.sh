$TSLEUTH inspect "$GOLDEN/compare/a.safetensors" --stats --filter '^(i32|inf_both|nan_both|empty|scalar|huge|denormal|f64|zeros_both)$'
