$TSLEUTH show "$GOLDEN/compare/a.safetensors" 'large_131k[0:4,0:8]'
$TSLEUTH show "$GOLDEN/compare/a.safetensors" large_131k
$TSLEUTH show "$GOLDEN/compare/a.safetensors" 'nan_both[0,2,3:8]' --precision 0
$TSLEUTH show "$GOLDEN/compare/a.safetensors" 'i32[-4:]' --bits
$TSLEUTH show "$GOLDEN/compare/a.safetensors" scalar
$TSLEUTH show "$GOLDEN/compare/a.safetensors" empty
$TSLEUTH show "$GOLDEN/torchfiles/views.pt" 'transposed[:3]'
$TSLEUTH show "$GOLDEN/torchfiles/dtypes.pt" 'uint64[0]'
$TSLEUTH show "$GOLDEN/torchfiles/dtypes.pt" 'complex64[0,:2]'
$TSLEUTH show "$GOLDEN/torchfiles/bare_tensor.pt" '[1:3,...]'
$TSLEUTH show "$GOLDEN/archives/model1_tp8.zip" '3_query_final[1,:2,:4]'
