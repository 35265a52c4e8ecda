# layers 3.. under TP=8 against 0.. under TP=1: everything pairs, and the one planted bug is the first divergence
$TSLEUTH compare "$GOLDEN/archives/model1_tp8.zip" "$GOLDEN/archives/model2_tp1.tar.gz"; echo "exit $?"
$TSLEUTH compare "$GOLDEN/archives/model1_tp8.zip" "$GOLDEN/archives/model2_tp1.zip" --all | grep '[0-9]_'
