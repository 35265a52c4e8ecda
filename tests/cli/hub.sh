# the cache is looked at, nothing is fetched
export HF_HOME=$PWD/hf
$TSLEUTH inspect hf://someone/model; echo "exit $?"
repo=$HF_HOME/hub/models--someone--model
mkdir -p "$repo/refs" "$repo/snapshots/0123456789012345678901234567890123456789" "$repo/blobs"
printf 0123456789012345678901234567890123456789 > "$repo/refs/main"
cp "$GOLDEN/torchfiles/state_dict.pth" "$repo/blobs/abc"
ln -s ../../blobs/abc "$repo/snapshots/0123456789012345678901234567890123456789/pytorch_model.bin"
$TSLEUTH inspect hf://someone/model; echo "exit $?"
$TSLEUTH inspect hf://someone/model@other; echo "exit $?"
$TSLEUTH inspect hf://someone/../model; echo "exit $?"
