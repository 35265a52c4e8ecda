$TSLEUTH inspect "$MALFORMED/safetensors/escape-in-name.safetensors"
