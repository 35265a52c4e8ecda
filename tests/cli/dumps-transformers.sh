# what torch 2.11 and transformers 5.17 really wrote, of one pass
F=$GOLDEN/transformers_5
$TSLEUTH inspect "$F/model_output.pt"; echo "exit $?"
$TSLEUTH inspect "$F/hf_files.zip" --filter 'logits|lm_head|rotary'; echo "exit $?"
for dump in hf_files.zip hf_repr.zip model_output.pt; do
    $TSLEUTH compare "$F/capture.safetensors" "$F/$dump"; echo "exit $?"
done
