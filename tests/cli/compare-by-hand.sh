# A map file that says how a tensor is to be taken: axes in another order, then a part of one.
printf '{"x": {"shape": [2, 3], "values": [1, 2, 3, 4, 5, 6]}}' > a.json
printf '{"y": {"shape": [5, 2], "values": [0, 0, 1, 4, 2, 5, 3, 6, 9, 9]}}' > b.json
echo 'x = y | permute 1 0 | slice 1 1:4' > map
$TSLEUTH compare a.json b.json --map map --save-map saved
cat saved
$TSLEUTH compare a.json b.json --map saved | tail -1
for words in 'permute 0' 'permute 0 0' 'slice 0 4:9' 'slice 0 4:2' 'turn' 'slice 0 1: x' 'permute 1 0' 'slice 0 1:99999999999999999999'; do
    echo "x = y | $words" > map
    $TSLEUTH compare a.json b.json --map map
done
echo 'x + z = y | slice 0 1:' > map
$TSLEUTH compare a.json b.json --map map
echo 'x | permute 1 0 = y' > map
$TSLEUTH compare a.json b.json --map map
