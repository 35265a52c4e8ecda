# the model's weights name the tensor that was used
at=$GOLDEN/explain
$TSLEUTH explain "$at/reference.safetensors" "$at/other_layer.safetensors" q_proj --weights "$at/model"; echo "exit $?"
$TSLEUTH explain "$at/reference.safetensors" "$at/other_norm.safetensors" input_layernorm --weights "$at/model/model.safetensors"; echo "exit $?"
$TSLEUTH explain "$at/reference.safetensors" "$at/not_loaded.safetensors" k_proj --weights "$at/model" --config "$at/model/config.json"; echo "exit $?"
# what came in wrong is not blamed on the product
$TSLEUTH explain "$at/reference.safetensors" "$at/other_norm.safetensors" q_proj --weights "$at/model" --json -; echo "exit $?"
$TSLEUTH compare "$at/reference.safetensors" "$at/other_layer.safetensors" --weights "$at/model" | sed -n '/^First/,/check/p'
$TSLEUTH explain "$at/reference.safetensors" "$at/other_layer.safetensors" q_proj --weights "$at/nothing"; echo "exit $?"
$TSLEUTH explain "$at/reference.safetensors" "$at/other_layer.safetensors" q_proj --config "$at/reference.safetensors"; echo "exit $?"
