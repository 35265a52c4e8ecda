$TSLEUTH show "$GOLDEN/compare/a.safetensors" 'inf_both[0,0,5:9]' --json -
$TSLEUTH show "$GOLDEN/torchfiles/dtypes.pt" 'uint64[:2,::3]' --json -
$TSLEUTH show "$GOLDEN/torchfiles/dtypes.pt" 'bool[0]' --json -
