# a sharded checkpoint in a folder with its config
$TSLEUTH "$GOLDEN/models/mixtral" --filter 'layers.0|embed|norm'
