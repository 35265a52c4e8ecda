$TSLEUTH --help
$TSLEUTH inspect --help
$TSLEUTH show --help
