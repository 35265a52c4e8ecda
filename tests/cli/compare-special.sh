# Masks of two types, nothing but NaN, complex against real, a full disk. make FILE DTYPE BYTES DATA
make() {
    local header="{\"scores\":{\"dtype\":\"$2\",\"shape\":[4],\"data_offsets\":[0,$3]}}"
    printf "\\x$(printf %02x ${#header})\0\0\0\0\0\0\0%s$4" "$header" > "$1"
}
make seen.safetensors F32 16 '\0\0\x80\x3f\0\0\x80\xff\0\0\0\x40\0\0\x80\xff'
make e4m3.safetensors F8_E4M3 4 '\x38\xfe\x40\xfe'
make nan.safetensors F32 16 '\0\0\xc0\x7f\0\0\xc0\xff\0\0\xc0\x7f\0\0\xc0\x7f'
make complex.safetensors C64 32 '\0\0\x80\x3f\0\0\0\0\0\0\x80\x3f\0\0\0\0\0\0\x80\x3f\0\0\0\0\0\0\x80\x3f\0\0\0\0'
$TSLEUTH compare seen.safetensors e4m3.safetensors; echo "exit $?"
$TSLEUTH compare seen.safetensors nan.safetensors --csv - | cut -d , -f 2,4,10-20; echo "exit ${PIPESTATUS[0]}"
$TSLEUTH compare seen.safetensors nan.safetensors | grep worst
$TSLEUTH compare seen.safetensors nan.safetensors --junit - | grep '<failure'
$TSLEUTH explain seen.safetensors nan.safetensors scores | head -1
$TSLEUTH compare seen.safetensors complex.safetensors; echo "exit $?"
$TSLEUTH compare seen.safetensors seen.safetensors --json /dev/full | tail -1; echo "exit ${PIPESTATUS[0]}"
# a place where nothing can be written is refused before anything is read
mkdir folder
for option in --json --html --junit --csv --save-map; do
    $TSLEUTH compare seen.safetensors e4m3.safetensors $option nowhere/report; echo "exit $?"
done
$TSLEUTH compare seen.safetensors e4m3.safetensors --json folder; echo "exit $?"
$TSLEUTH compare seen.safetensors e4m3.safetensors --json first.json --csv nowhere/report; echo "exit $?"
ls
# where nothing could be measured no report reads as agreement
$TSLEUTH compare seen.safetensors nan.safetensors --json - | grep -E '"(max_abs|rmse|rel_l2|cosine|rel_change|p50)"'
$TSLEUTH compare seen.safetensors nan.safetensors --html - | grep -o '<td class="num" data-v="[^"]*">[^<]*</td>' | tail -4
