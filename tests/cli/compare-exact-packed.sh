# Quantized tensors and members of archives have bytes too.
cp "$GOLDEN/gguf/all_types.gguf" one.gguf
cp one.gguf two.gguf
printf '\377' | dd of=two.gguf bs=1 seek=44580 conv=notrunc 2> /dev/null
$TSLEUTH compare --exact one.gguf two.gguf | grep -A1 -E '✗|why'; echo "exit ${PIPESTATUS[0]}"
$TSLEUTH compare --exact one.gguf two.gguf --json - | grep -A4 '"first_byte": {'
$TSLEUTH compare --exact "$GOLDEN/compare/a.pt" "$GOLDEN/compare/b.pt" --filter tiny_noise | grep -A1 why
for option in '--rtol 1' --grades '--rule x:mse<1' '--high-precision one.gguf'; do
    $TSLEUTH compare --exact one.gguf two.gguf $option; echo "exit $?"
done
