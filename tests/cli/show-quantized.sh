$TSLEUTH show "$GOLDEN/gguf/all_types.gguf" 't.q4_K[2,100]'
$TSLEUTH show "$GOLDEN/gguf/all_types.gguf" 'q8_0[0,:6]' --bits
$TSLEUTH show "$GOLDEN/gguf/all_types.gguf" 't.mxfp4[0,7]'
$TSLEUTH show "$GOLDEN/torchfiles/quant_sparse.pt" 'q[0,1]'
$TSLEUTH show "$GOLDEN/safetensors/mxfp4.safetensors" 'gate_up_proj[1,5,33]'
