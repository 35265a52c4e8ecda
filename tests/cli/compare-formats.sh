$TSLEUTH compare "$GOLDEN/compare/a.safetensors" "$GOLDEN/compare/b.safetensors" --filter '^(scaled|nan_in_b|identical)$' --json -
$TSLEUTH compare "$GOLDEN/compare/a.safetensors" "$GOLDEN/compare/b.safetensors" --filter '^(scaled|nan_in_b|identical)$' --csv - | cut -c1-120
$TSLEUTH compare "$GOLDEN/compare/a.safetensors" "$GOLDEN/compare/b.safetensors" --filter '^(scaled|nan_in_b|identical)$' --junit - | cut -c1-120
$TSLEUTH compare "$GOLDEN/compare/a.safetensors" "$GOLDEN/compare/b.safetensors" --html report.html > text; grep -c '<svg' report.html
