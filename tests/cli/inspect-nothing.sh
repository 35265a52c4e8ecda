mkdir nothing
$TSLEUTH inspect nothing; echo "exit $?"
$TSLEUTH inspect missing.safetensors; echo "exit $?"
$TSLEUTH inspect ""; echo "exit $?"
: > empty.safetensors
$TSLEUTH inspect empty.safetensors; echo "exit $?"
head -c 1000 "$GOLDEN/compare/a.safetensors" > cut.safetensors
$TSLEUTH inspect cut.safetensors; echo "exit $?"
$TSLEUTH inspect /dev/null; echo "exit $?"
mkfifo pipe
$TSLEUTH inspect pipe; echo "exit $?"
