$TSLEUTH compare "$GOLDEN/torchfiles/bare_tensor.pt" "$GOLDEN/numpy/i8.npy"; echo "exit $?"
$TSLEUTH compare "$GOLDEN/torchfiles/dtypes.pt" "$GOLDEN/torchfiles/legacy.pt"; echo "exit $?"
$TSLEUTH compare "$GOLDEN/torchfiles/dtypes.pt" missing.pt; echo "exit $?"
$TSLEUTH compare "$GOLDEN/torchfiles/dtypes.pt"; echo "exit $?"
