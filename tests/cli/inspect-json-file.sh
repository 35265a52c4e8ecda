# the text still goes to the terminal, the JSON to the file
$TSLEUTH inspect "$GOLDEN/torchfiles/bare_tensor.pt" --json report.json
cat report.json
$TSLEUTH inspect "$GOLDEN/torchfiles/bare_tensor.pt" --json nowhere/report.json; echo "exit $?"
