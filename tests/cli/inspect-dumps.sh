# dumps of other tools open with the model's names, in the order of the run, by step and rank
for dump in sglang sglang_2025 sglang_steps hf_files msprobe polygraphy.json nested.pt; do
    $TSLEUTH inspect "$GOLDEN/dumps/$dump" | head -12; echo
done
# what is partial is said to be, and what has no values is not silent
$TSLEUTH inspect "$GOLDEN/dumps/llama_2026.log" --filter 'Qcur|result_output'
$TSLEUTH show "$GOLDEN/dumps/llama_2026.log" result_output
$TSLEUTH inspect "$GOLDEN/dumps/msprobe_stats"; echo "exit $?"
$TSLEUTH inspect "$GOLDEN/dumps/msprobe_npy" | tail -5
$TSLEUTH inspect "$GOLDEN/dumps/hf_repr" --filter 'lm_head|input_ids'
# text beside an .npy file is left out where it says the same, and stays where it does not
mkdir twins
cp "$GOLDEN/dumps/tllm_debug/PP_0/TP_0/transformer.layers.0.mlp_output-step0.npy" twins/same.npy
cp "$GOLDEN/dumps/tllm_debug/PP_0/TP_0/transformer.layers.0.mlp_output-step0.txt" twins/same.txt
cp twins/same.npy twins/other.npy
sed 's/^/1/;s/-//g' twins/same.txt > twins/other.txt
$TSLEUTH inspect twins
# what was saved by hand, a gradient, a second call, an operator
mkdir -p byhand/dump_tensor_data
for name in logits.0.debug logits.1.debug a.Linear.backward.0.input.0 a.parameters_grad.0.weight relu; do
    cp twins/same.npy byhand/dump_tensor_data/$name.npy
done
cat > byhand/debug.json <<'JSON'
{"task": "tensor", "level": "debug", "dump_data_dir": "x", "data": {
 "logits.0.debug": {"type": "torch.Tensor", "data_name": "logits.0.debug.npy"},
 "logits.1.debug": {"type": "torch.Tensor", "data_name": "logits.1.debug.npy"},
 "Functional.relu.3.forward": {"output": [{"data_name": "relu.npy"}]},
 "Module.a.Linear.backward.0": {"input": [{"data_name": "a.Linear.backward.0.input.0.npy"}]},
 "Module.a.Linear.parameters_grad.0": {"weight": [{"data_name": "a.parameters_grad.0.weight.npy"}]}}}
JSON
$TSLEUTH inspect byhand
