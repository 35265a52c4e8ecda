$TSLEUTH inspect "$GOLDEN/torchfiles/dtypes.pt" --sort size | head -6
$TSLEUTH inspect "$GOLDEN/torchfiles/dtypes.pt" --sort name | head -6
