$TSLEUTH trace golden/gguf/qwen3-bf16.gguf --tokens 1,2,3 -o gguf.safetensors | sed 's/in [0-9.]* s:/in T s:/'; echo "exit ${PIPESTATUS[0]}"
# the folder it was made from has the same weights before they were rounded
$TSLEUTH trace golden/models/qwen3 --tokens 1,2,3 -o folder.safetensors >/dev/null; echo "exit $?"
$TSLEUTH compare folder.safetensors gguf.safetensors | tail -n 3; echo "exit ${PIPESTATUS[0]}"
$TSLEUTH trace golden/gguf/mixtral-bf16.gguf --tokens 5 --list --points 'layers.0.self_attn|gate'; echo "exit $?"
$TSLEUTH trace golden/gguf/all_types.gguf --tokens 1; echo "exit $?"
