# every wrong call says what is wrong and how to get help, and ends with 3
$TSLEUTH; echo "exit $?"
$TSLEUTH nosuchthing; echo "exit $?"
$TSLEUTH inspect; echo "exit $?"
$TSLEUTH inspect --frobnicate x; echo "exit $?"
$TSLEUTH inspect a b; echo "exit $?"
$TSLEUTH inspect --sort weight "$GOLDEN/compare/a.safetensors"; echo "exit $?"
$TSLEUTH inspect --filter '(' "$GOLDEN/compare/a.safetensors"; echo "exit $?"
$TSLEUTH show "$GOLDEN/compare/a.safetensors" scalar --precision many; echo "exit $?"
