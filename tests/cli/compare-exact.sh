cp "$GOLDEN/models/qwen3/model.safetensors" one.safetensors
cp one.safetensors two.safetensors
$TSLEUTH compare --exact one.safetensors two.safetensors; echo "exit $?"
printf '\001' | dd of=two.safetensors bs=1 seek=300000 conv=notrunc 2> /dev/null
$TSLEUTH compare --exact one.safetensors two.safetensors; echo "exit $?"
