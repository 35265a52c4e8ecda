# a dump of two ranks by SGLang against a debug tree of transformers, printed with five digits: the missing norm weight
# in layer 1 is found, and nothing before it
$TSLEUTH compare "$GOLDEN/dumps/hf_repr" "$GOLDEN/dumps/sglang" | sed '/^only in/,/^$/d'; echo "exit ${PIPESTATUS[0]}"
# the same numbers written by four tools differ nowhere
for dump in hf_files hf_repr msprobe llama_2024.log llama_2025.log llama_2026.log sglang_2025 polygraphy.json; do
    $TSLEUTH compare "$GOLDEN/dumps/reference.safetensors" "$GOLDEN/dumps/$dump" | sed -n '/^B/,/^paired/p;/^    [a-z].*pairs/p;/^  ✗/p;/^incomplete/,$p'
    echo "exit ${PIPESTATUS[0]}"
done
# a log of llama.cpp against the candidate with the bug: corners are enough
$TSLEUTH compare "$GOLDEN/dumps/llama_2026.log" "$GOLDEN/dumps/sglang" | sed -n '/^First/,/^ *check/p'
# heads that one side has split: the whole is read in the shape of the print before its corners are taken
awk 'BEGIN { for (t = 0; t < 8; t++) { for (i = 0; i < 12; i++) printf "%.4f ", t + i / 16; print "" } }' > whole.txt
awk 'function row(t, h) { printf "   ["; for (i = 0; i < 4; i++) printf "%s%12.4f", i ? ", " : "", t + (4 * h + i) / 16; print "]," }
     BEGIN { print "ggml_debug: whole = (f32) RESHAPE(x{12, 8, 1, 1}, }) = {4, 3, 8, 1}"; print " ["
             for (t = 0; t < 8; t++) { if (t == 3) { print "  ...,"; t = 5 } print "  ["; for (h = 0; h < 3; h++) row(t, h); print "  ]," }
             print " ]\n sum = 1.0" }' > heads.log
$TSLEUTH compare whole.txt heads.log --all
# several steps against one pass: the one that has its tokens and sizes; steps that count from another number
mkdir steps later
for file in "$GOLDEN"/dumps/sglang/step=0___rank=0*; do
    name=$(basename "$file")
    cp "$file" "steps/${name/step=0/step=7}"
    cp "$file" "later/${name/step=0/step=9}"
    case $name in *norm*) cp "$file" "steps/$name"; cp "$file" "later/${name/step=0/step=8}" ;; esac
done
$TSLEUTH compare "$GOLDEN/dumps/reference.safetensors" steps | sed -n '/^B/,/^$/p;/^First/p'
$TSLEUTH compare steps "$GOLDEN/dumps/reference.safetensors" | sed -n '/^paired/,/^$/p;/^First/p'
$TSLEUTH compare "$GOLDEN/dumps/reference.safetensors" steps --rename 's,^step_0/,,' | sed -n '/^paired/,/^$/p;/^First/p'
$TSLEUTH compare steps later
