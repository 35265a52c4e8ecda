for name in nested custom_class full_module quant_sparse views numpy_inside; do
    $TSLEUTH inspect "$GOLDEN/torchfiles/$name.pt"
done
