# one bad member never hides the good ones, and is named with its reason
mkdir dumps dumps/step_10 dumps/step_9
cp "$GOLDEN/numpy/f4.npy" dumps/step_9/a.npy
cp "$GOLDEN/numpy/f4.npy" dumps/step_10/a.npy
cp "$GOLDEN/numpy/object.npy" dumps/object.npy
head -c 300 "$GOLDEN/torchfiles/state_dict.pth" > dumps/cut.pth
head -c 500 "$GOLDEN/compare/a.safetensors" > dumps/cut.safetensors
: > dumps/empty.pt
head -c 64 /dev/zero > dumps/weights.bin
echo 'hello there' > dumps/README.md
ln -s /etc/hostname dumps/outside.npy
ln -s step_9/a.npy dumps/inside.npy
$TSLEUTH inspect dumps; echo "exit $?"
$TSLEUTH inspect dumps --json - | grep -c '"reason"'
