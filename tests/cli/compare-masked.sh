# Scores with a mask of -1e9, as they stand and so far from their order that they are compared in boxes; what is seen of
# them differs everywhere, or in the last head only. The mask must not drown the difference.
python3 - << 'END'
import array, json, struct

HEADS, SIZE = 3, 2048
MASK = array.array("f", [-1e9])

def seen(head, key, wrong):
    return array.array("f", [1 + key % 7 + (0.01 * (1 + head % 2) if head >= wrong else 0)])

def write(path, shape, rows):
    text = json.dumps({"layers.0.attn_scores": {"dtype": "F32", "shape": shape,
                                                "data_offsets": [0, 4 * HEADS * SIZE * SIZE]}}).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for row in rows:
            file.write(row.tobytes())

def by_query(wrong):
    for head in range(HEADS):
        row = array.array("f")
        for key in range(SIZE):
            row += seen(head, key, wrong)
        for query in range(SIZE):
            yield row[:query + 1] + MASK * (SIZE - 1 - query)

def by_key(wrong):
    for key in range(SIZE):
        for head in range(HEADS):
            yield MASK * key + seen(head, key, wrong) * (SIZE - key)

write("reference.safetensors", [HEADS, SIZE, SIZE], by_query(HEADS))
write("all.safetensors", [HEADS, SIZE, SIZE], by_query(0))
write("last.safetensors", [HEADS, SIZE, SIZE], by_query(HEADS - 1))
write("all-by-key.safetensors", [SIZE, HEADS, SIZE], by_key(0))
write("last-by-key.safetensors", [SIZE, HEADS, SIZE], by_key(HEADS - 1))
END
for candidate in all last all-by-key last-by-key; do
    "$TSLEUTH" compare reference.safetensors $candidate.safetensors --dims 'A:scores: heads queries keys; B:scores: '"$(
        case $candidate in *-by-key) echo keys heads queries ;; *) echo heads queries keys ;; esac)" --json report.json > /dev/null
    python3 - $candidate << 'END'
import json, sys
tensor = json.load(open("report.json"))["tensors"][0]
print(sys.argv[1] + ":", tensor["recipe"] or "as it is", "%.5g" % tensor["rel_l2"], tensor["stats_a"]["min"],
      "%.5g" % tensor["stats_b"]["mean"], tensor["elements"])
END
done
