# What a report must not keep to itself, and what it must not call rounding.
tensor() { # NAME SHAPE COUNT EXPRESSION of i, from 0
    awk -v name="$1" -v shape="$2" -v count="$3" "BEGIN {
        printf \"\\\"%s\\\": {\\\"shape\\\": [%s], \\\"values\\\": [\", name, shape
        for (i = 0; i < count; i++) printf \"%s%.9e\", i ? \", \" : \"\", $4
        printf \"]}\" }"
}
file() { # NAME TENSOR...
    local name=$1 comma=
    shift
    { printf '{'; for each; do printf '%s%s' "$comma" "$each"; comma=', '; done; printf '}'; } > "$name"
}
compare() {
    $TSLEUTH compare "$@" | tail -n +4
    echo "exit ${PIPESTATUS[0]}"
}

echo '# two layouts fit'
file a.json "$(tensor x 4,4,3 48 '(i % 3) + int(i / 12) * (int(i / 3) % 4)')"
file b.json "$(tensor x 3,4,4 48 'int(i / 16) + int(i / 4) % 4 * (i % 4)')"
compare a.json b.json

echo '# a rounding is no equality of bytes'
file a.json "$(tensor x 4,8 32 'sin(i)')"
file b.json "$(tensor x 4,8 32 'sin(i) + (i == 5) * 1e-7')"
compare a.json b.json --exact --trace

echo '# nothing to be relative to'
file a.json "$(tensor x 4,8 32 0)" "$(tensor y 4,8 32 'cos(i)')"
file b.json "$(tensor x 4,8 32 'sin(i) / 1000')" "$(tensor y 4,8 32 'cos(i)')"
compare a.json b.json

echo '# infinities with another sign'
printf '{"x": {"shape": [2, 2], "values": ["inf", 1, 2, 3]}}' | sed 's/"inf"/1e999/' > a.json
printf '{"x": {"shape": [2, 2], "values": ["inf", 1, 2, 3]}}' | sed 's/"inf"/-1e999/' > b.json
compare a.json b.json

echo '# the same file twice'
compare a.json ./a.json

echo '# other tokens, written as floats'
file a.json "$(tensor input_ids 5 5 'i + 0.0')" "$(tensor y 5,8 40 'cos(i)')"
file b.json "$(tensor input_ids 1,5 5 'i + 3.0')" "$(tensor y 5,8 40 'cos(i + 2)')"
compare a.json b.json | grep -A1 warning

echo '# a name that fills a page'
long=$(printf 'x%.0s' {1..2000})
file a.json "$(tensor "$long" 4,8 32 'sin(i)')" "$(tensor y 4,8 32 'cos(i)')"
file b.json "$(tensor "$long" 4,8 32 0.5)" "$(tensor y 4,8 32 'cos(i)')"
compare a.json b.json | grep -A3 warning

echo '# layers that are equal bit for bit, and then a fifth of everything wrong'
layers() {
    for layer in 0 1 2 3 4 5; do
        for kind in q_proj k_proj v_proj; do
            tensor "layers.$layer.$kind" 6,16 96 "sin($layer * 7 + i * i * 0.37)$1"
            echo
        done
    done
}
mapfile -t reference < <(layers '')
mapfile -t candidate < <(layers ' * 1')
mapfile -t wrong < <(layers ' + 0.2 * sin(i * i * 1.7 + i * 0.3)')
file a.json "${reference[@]}"
file b.json "${candidate[@]:0:9}" "${wrong[@]:9}"
compare a.json b.json | grep -v '^  \(structure\|cause\|check\|why\| \)'

echo '# maps'
echo 'layers.0.q_proj = layers.1.q_proj' > map
$TSLEUTH compare a.json b.json --map map --save-map /dev/full > /dev/null; echo "exit $?"
$TSLEUTH compare a.json a.json --filter q_proj --save-map - | head -3

echo '# what a rule lets pass is not noise'
$TSLEUTH compare a.json b.json --rule 'k_proj: rel_l2 < 9' | grep -E '^  after|allowed'

echo '# a number by itself'
file a.json "$(tensor scale '' 1 3.5)"
file b.json "$(tensor scale '' 1 3.6)"
compare a.json b.json | tail -2
printf '{"ids": [1152921504606846976, 1152921504606846977]}' > a.json
printf '{"ids": [1152921504606846976, 1152921504606846976]}' > b.json
compare a.json b.json | grep -A1 -E 'structure|differ:'
