# Ranks that hold other values under the same names: a tensor of the reference stands in several pairs. Stages of a
# pipeline that count their layers from 0 each get the numbers of the whole, proved by content; where their layers are
# not those of the whole, it is said how to compare them. Copies in other types: the one of the same type is taken.
python3 - << 'END'
import json, os, struct

def write(path, tensors, columns=0):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    header, body = {}, b""

    def shape(values):
        return [len(values) // columns, columns] if columns else [2, len(values) // 2]

    for name, values in tensors.items():
        data = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape(values), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)

def layer(i):
    return [(i * 7919 + k * k * 104729 + k * 31) % 1009 / 300 - 1.7 for k in range(128)]

write("one.safetensors", {"w": [1, 2, 3, 4]})
for rank in range(3):
    write(f"ranks/rank_{rank}.safetensors", {"w": [1, 2, 3, 4 + rank / 8]})
write("whole.safetensors", {f"layers.{i}.weight": layer(i) for i in range(6)})
for rank in range(2):
    write(f"stages/rank_{rank}.safetensors", {f"layers.{i}.weight": layer(3 * rank + i) for i in range(3)})
# ten stages, so that their order is that of their numbers; one number of stage 7 is wrong
write("deep.safetensors", {f"layers.{i}.weight": layer(i) for i in range(20)} | {"embed.weight": layer(50)})
for stage in range(10):
    tensors = {f"layers.{i}.weight": layer(2 * stage + i) for i in range(2)}
    if stage == 0:
        tensors["embed.weight"] = layer(50)
    if stage == 7:
        tensors["layers.1.weight"][3] += 1
    write(f"pipeline/stage{stage}.safetensors", tensors)
# every number differs, but nothing else fits the names
for stage in range(2):
    write(f"other/stage{stage}.safetensors", {f"layers.{i}.weight": layer(70 + 3 * stage + i) for i in range(3)})
# three stages of two ranks each, which have one half of every matrix; norms are the same in both
def norm(i):
    return [1 + value / 10 for value in layer(i)[:32]]
tensors = {}
for i in range(6):
    tensors |= {f"layers.{i}.mlp.up_proj.weight": layer(i), f"layers.{i}.input_layernorm.weight": norm(i)}
write("model.safetensors", tensors, 16)
for stage in range(3):
    for rank in range(2):
        for first, folder in ((0, "grid"), (2 * stage, "numbered")):
            tensors = {}
            for i in range(2):
                tensors[f"layers.{first + i}.mlp.up_proj.weight"] = layer(2 * stage + i)[64 * rank : 64 * rank + 64]
                tensors[f"layers.{first + i}.input_layernorm.weight"] = norm(2 * stage + i)
            write(f"{folder}/mp_rank_{rank:02}_{stage:03}/model.safetensors", tensors, 16)
# files that hold other parts of one model, and other values
write("pieces/attention.safetensors", {f"layers.{i}.self_attn.o_proj.weight": layer(80 + i) for i in range(3)})
write("pieces/network.safetensors", {f"layers.{i}.mlp.up_proj.weight": layer(90 + i) for i in range(3)})
write("pieces/rest.safetensors", {"lm_head.weight": layer(99), "model.norm.weight": layer(98)})
tensors = {f"model.layers.{i}.self_attn.o_proj.weight": layer(i) for i in range(3)}
tensors |= {f"model.layers.{i}.mlp.up_proj.weight": layer(10 + i) for i in range(3)}
write("together.safetensors", tensors | {"lm_head.weight": layer(20)})
# a file left over from something else holds a name again
tensors = {f"layers.{i}.mlp.up_proj.weight": layer(i) for i in range(30)}
write("large.safetensors", {"model." + name: values for name, values in tensors.items()})
write("left/model.safetensors", tensors)
write("left/old.safetensors", {"layers.3.mlp.up_proj.weight": layer(60)})
# two runs of the first layers: no stages, though as many
for run in range(2):
    write(f"runs/run{run}.safetensors", {f"layers.{i}.weight": layer(i) for i in range(3)})

def npy(path, type, values):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    header = f"{{'descr': '<{type}', 'fortran_order': False, 'shape': (2, {len(values) // 2}), }}"
    header = header.ljust(117) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        file.write(struct.pack(f"<{len(values)}{'e' if type == 'f2' else 'f'}", *values))

for i in range(3):
    npy(f"plain/layer_{i}_out.npy", "f4", layer(i))
    npy(f"types/f16/layer_{i}_out.npy", "f2", layer(i))
    npy(f"types/f32/layer_{i}_out.npy", "f4", layer(i))
    npy(f"twice/first/layer_{i}_out.npy", "f4", layer(i))
    npy(f"twice/second/layer_{i}_out.npy", "f4", layer(i + 9))
END
"$TSLEUTH" compare one.safetensors ranks | grep -A1 '^paired'
"$TSLEUTH" compare whole.safetensors stages
"$TSLEUTH" compare stages whole.safetensors | sed -n '3,5p;$p'
"$TSLEUTH" compare deep.safetensors pipeline | sed -n '3,9p;$p'
"$TSLEUTH" compare whole.safetensors other | sed -n '3,5p;$p'
"$TSLEUTH" compare whole.safetensors runs | grep '^paired\|stages\|^incomplete\|^match'
"$TSLEUTH" compare model.safetensors grid
"$TSLEUTH" compare model.safetensors numbered | sed -n '3,7p;$p'
"$TSLEUTH" compare together.safetensors pieces | sed -n '3p;$p'
"$TSLEUTH" compare large.safetensors left
"$TSLEUTH" compare deep.safetensors stages | grep -A4 'paired\|stages of'
"$TSLEUTH" compare whole.safetensors stages/rank_1.safetensors | grep 'paired\|^layers'
"$TSLEUTH" compare plain types
"$TSLEUTH" compare plain types --rename 's,^f16/,,' | grep '^paired\|folders\|pairs'
"$TSLEUTH" compare types plain | sed -n '3,6p'
"$TSLEUTH" compare plain twice | sed -n '3,5p;$p'
"$TSLEUTH" compare plain twice/second | sed -n '3p;$p'
