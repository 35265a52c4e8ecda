$TSLEUTH check golden/trace/reference.safetensors --record good.txt --margin 5; echo "exit $?"
head -n 4 good.txt
$TSLEUTH check golden/trace/reference.safetensors --expect good.txt --failed; echo "exit $?"
$TSLEUTH check golden/trace/bfloat16.safetensors --expect good.txt --failed; echo "exit $?"
$TSLEUTH check golden/trace/residual_missing.safetensors --expect good.txt --failed | head -n 6; echo "exit ${PIPESTATUS[0]}"
$TSLEUTH check golden/trace/reference.safetensors --record - | tail -n 1
$TSLEUTH check golden/trace/reference.safetensors --record x --margin -3; echo "exit $?"
