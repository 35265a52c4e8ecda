$TSLEUTH inspect "$GOLDEN/models/qwen3" --check; echo "exit $?"
