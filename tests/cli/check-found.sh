$TSLEUTH inspect "$GOLDEN/compare/a.safetensors" --check; echo "exit $?"
$TSLEUTH inspect "$GOLDEN/archives/model1_tp8.zip" --check; echo "exit $?"
