# judged against a third run, the bf16 candidate errs as much as itself, and the bug does not
$TSLEUTH compare "$GOLDEN/trace/bfloat16.safetensors" "$GOLDEN/trace/bfloat16.safetensors" --high-precision "$GOLDEN/trace/reference.safetensors" | tail -1
$TSLEUTH compare "$GOLDEN/trace/bfloat16.safetensors" "$GOLDEN/trace/rope_theta.safetensors" --high-precision "$GOLDEN/trace/reference.safetensors" --json - | grep -A1 '"first_divergence"'
$TSLEUTH compare "$GOLDEN/trace/bfloat16.safetensors" "$GOLDEN/trace/bfloat16.safetensors" --high-precision "$GOLDEN/trace/reference.safetensors" --json - | grep -o '"[a-z0-9]*_over_own": 1,' | sort -u

# one rounding to bf16 is no error of a candidate, however large the elements that it fell on
values() { # EXPRESSION of i
    awk "function bf16(x, step) { step = 2 ^ (int(log(x * x) / log(4) + 200) - 207); return int(x / step + (x < 0 ? -0.5 : 0.5)) * step }
        BEGIN { printf \"{\\\"x\\\": {\\\"shape\\\": [30, 40], \\\"values\\\": [\"
        for (i = 0; i < 1200; i++) { x = sin(i * i * 0.37 + 1) * (i % 97 ? 1 : 9.7); printf \"%s%.9g\", i ? \", \" : \"\", $1 }
        print \"]}}\" }"
}
values x > truth.json
values 'bf16(x)' > rounded.json
values 'bf16(x) + (i == 97) * 0.3' > wrong.json
$TSLEUTH compare truth.json rounded.json --high-precision truth.json | tail -1
$TSLEUTH compare truth.json wrong.json --high-precision truth.json | tail -1
