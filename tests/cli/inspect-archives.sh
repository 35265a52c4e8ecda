$TSLEUTH inspect "$GOLDEN/archives/model1_tp8.zip"
$TSLEUTH inspect "$GOLDEN/archives/model2_tp1.tar.gz" --filter query
