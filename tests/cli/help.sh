$TSLEUTH --help
$TSLEUTH inspect --help
$TSLEUTH show --help
$TSLEUTH compare --help
