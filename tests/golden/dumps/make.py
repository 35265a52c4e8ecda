#!/usr/bin/env python3
"""Makes the dumps that other tools write, of one toy model, so that their readers can be tried on each other.

Standard library only, and the same bytes every time; run it anywhere, it writes into its own folder. The model is a
decoder of two layers with the names of Hugging Face's Llama, computed in double precision and rounded to f32 after each
operation. reference.safetensors holds what was computed; every other folder and file holds the same numbers as its tool
would have written them:

    sglang_2025     forward_pass_id=..___rank=..___name=..___dump_index=...pt with a tensor inside, dumped by hand
    sglang          step=..___rank=..___dump_index=..___name=...pt with {"value", "meta"}, two ranks, by hooks on
                    modules; the candidate: other rounding, and the weight of a norm in layer 1 is left out
    sglang_steps    two steps of the same, one module
    hf_repr         NAME_debug_tree_FULL_TENSORS.json with printed values, and its SUMMARY
    hf_files        the same with one safetensors file for each tensor
    msprobe         step0/rank*/dump.json, construct.json, stack.json and dump_tensor_data/*.pt, two ranks
    msprobe_npy     MindSpore's: Cell.* and .npy; one file missing
    msprobe_stats   task statistics: no values
    llama_2024.log, llama_2025.log, llama_2026.log
                    what llama.cpp's eval-callback printed in these years
    tllm_debug      TensorRT-LLM's debug mode: PP_*/TP_*/NAME-step*.npy, and each once more as text
    polygraphy.json outputs saved by polygraphy run --save-outputs
    port            a trace, and the .npy files of a port whose rotary embedding turns adjacent pairs
    nested.pt       torch.save of nested dicts of activations
"""
import base64
import json
import math
import random
import shutil
import struct
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOKENS, HIDDEN, HEADS, FEED, VOCAB, LAYERS = 7, 8, 2, 12, 150, 2
HEAD = HIDDEN // HEADS


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


class Array:
    """Numbers in row-major order and their shape."""

    def __init__(self, shape, values, dtype="f32"):
        self.shape, self.dtype = tuple(shape), dtype
        self.values = [f32(v) for v in values] if dtype == "f32" else list(values)
        assert len(self.values) == math.prod(shape)

    def reshape(self, *shape):
        return Array(shape, self.values, self.dtype)

    def rows(self):
        width = self.shape[-1]
        return [self.values[i:i + width] for i in range(0, len(self.values), width)]

    def columns(self, start, stop):
        return Array(self.shape[:-1] + (stop - start,), [v for row in self.rows() for v in row[start:stop]])

    def bytes(self):
        return struct.pack("<%d%s" % (len(self.values), "f" if self.dtype == "f32" else "q"), *self.values)


def weights():
    random.seed(1)

    def normal(*shape, scale=1.0, mean=0.0):
        return Array(shape, [mean + random.gauss(0, scale) for _ in range(math.prod(shape))])
    result = {"embed": normal(VOCAB, HIDDEN), "norm": normal(HIDDEN, scale=0.3, mean=1),
              "lm_head": normal(VOCAB, HIDDEN, scale=0.5)}
    for layer in range(LAYERS):
        for name, rows, cols in (("q", HIDDEN, HIDDEN), ("k", HIDDEN, HIDDEN), ("v", HIDDEN, HIDDEN),
                                 ("o", HIDDEN, HIDDEN), ("gate", FEED, HIDDEN), ("up", FEED, HIDDEN),
                                 ("down", HIDDEN, FEED)):
            result[f"{layer}.{name}"] = normal(rows, cols, scale=cols ** -0.5)
        result[f"{layer}.norm1"] = normal(HIDDEN, scale=0.3, mean=1)
        result[f"{layer}.norm2"] = normal(HIDDEN, scale=0.3, mean=1)
    return result


def linear(x, weight, turned):
    """turned: another order of summing, in f32, as another kernel has."""
    out = []
    for row in x.rows():
        for line in weight.rows():
            if turned:
                total = 0.0
                for a, b in reversed(list(zip(row, line))):
                    total = f32(total + f32(a * b))
            else:
                total = math.fsum(a * b for a, b in zip(row, line))
            out.append(total)
    return Array(x.shape[:-1] + (weight.shape[0],), out)


def rms_norm(x):
    out = []
    for row in x.rows():
        scale = 1 / math.sqrt(math.fsum(v * v for v in row) / len(row) + 1e-6)
        out += [v * scale for v in row]
    return Array(x.shape, out)


def mul(x, y):
    y = y.values if y.shape == x.shape else y.values * (len(x.values) // len(y.values))
    return Array(x.shape, [a * b for a, b in zip(x.values, y)])


def add(x, y):
    return Array(x.shape, [a + b for a, b in zip(x.values, y.values)])


def rope(x, adjacent=False):
    """[tokens, heads, head]: pairs half a head apart, or (wrong for this model) side by side."""
    out = []
    for token, row in enumerate(x.reshape(TOKENS, HEADS * HEAD).rows()):
        for head in range(HEADS):
            part = row[head * HEAD:(head + 1) * HEAD]
            half = HEAD // 2
            angle = [token * 10000 ** (-2 * i / HEAD) for i in range(half)]
            if adjacent:
                for i in range(half):
                    a, b = part[2 * i], part[2 * i + 1]
                    c, s = math.cos(angle[i]), math.sin(angle[i])
                    out += [a * c - b * s, b * c + a * s]
                continue
            out += [part[i] * math.cos(angle[i]) - part[i + half] * math.sin(angle[i]) for i in range(half)]
            out += [part[i + half] * math.cos(angle[i]) + part[i] * math.sin(angle[i]) for i in range(half)]
    return Array((TOKENS, HEADS, HEAD), out)


def attention(q, k, v):
    """Of [tokens, heads, head]; causal; gives [tokens, hidden]."""
    out = [[0.0] * HIDDEN for _ in range(TOKENS)]

    def at(x, token, head, i):
        return x.values[(token * HEADS + head) * HEAD + i]
    for head in range(HEADS):
        for t in range(TOKENS):
            scores = [math.fsum(at(q, t, head, i) * at(k, s, head, i) for i in range(HEAD)) / math.sqrt(HEAD)
                      for s in range(t + 1)]
            top = max(scores)
            scores = [math.exp(s - top) for s in scores]
            for i in range(HEAD):
                out[t][head * HEAD + i] = math.fsum(w * at(v, s, head, i) for s, w in enumerate(scores)) / sum(scores)
    return Array((TOKENS, HIDDEN), [v for row in out for v in row])


def silu(x):
    return Array(x.shape, [v / (1 + math.exp(-v)) for v in x.values])


def run(turned=False, bug=False, adjacent=False, points=None):
    """Everything computed, in order: names of Hugging Face's modules, and those of llama.cpp's graph. points also takes
    what lies between modules."""
    w, out, graph = weights(), {}, []

    def put(name, value, *operations):
        out[name] = value
        for operation in operations:
            graph.append((*operation, value) if len(operation) == 3 else operation)
        return value
    ids = Array((TOKENS,), [3, 14, 15, 92, 65, 35, 89], "i64")
    out["input_ids"] = ids
    x = Array((TOKENS, HIDDEN), [v for i in ids.values for v in w["embed"].rows()[i]])
    put("model.embed_tokens", x, ("inp_embd", "GET_ROWS", "token_embd.weight"))
    for layer in range(LAYERS):
        path, back = f"model.layers.{layer}", x
        out[f"{path}.input"] = x
        normed = rms_norm(x)
        h = put(f"{path}.input_layernorm", mul(normed, w[f"{layer}.norm1"]),
                (f"norm-{layer}", "RMS_NORM", f"l_out-{layer - 1}", normed),
                (f"attn_norm-{layer}", "MUL", f"norm-{layer}"))
        out[f"{path}.self_attn.input.hidden_states"] = h
        parts = {}
        for n in "qkv":
            flat = put(f"{path}.self_attn.{n}_proj", linear(h, w[f"{layer}.{n}"], turned),
                       (f"{n.upper()}cur-{layer}", "MUL_MAT", f"blk.{layer}.attn_{n}.weight"))
            parts[n] = flat.reshape(TOKENS, HEADS, HEAD)
            graph.append((f"{n.upper()}cur-{layer} (reshaped)", "RESHAPE", f"{n.upper()}cur-{layer}", parts[n]))
            if n != "v":
                parts[n] = rope(parts[n], adjacent)
                if points is not None:
                    points[f"{path}.self_attn.{n}_rope"] = parts[n]
                graph.append((f"{n.upper()}cur-{layer}", "ROPE", f"{n.upper()}cur-{layer} (reshaped)", parts[n]))
        context = attention(parts["q"], parts["k"], parts["v"])
        graph.append((f"kqv_out-{layer}", "CONT", f"kqv_merged-{layer}", context))
        out[f"{path}.self_attn.o_proj.input"] = context
        h = put(f"{path}.self_attn.o_proj", linear(context, w[f"{layer}.o"], turned),
                (f"attn_out-{layer}", "MUL_MAT", f"blk.{layer}.attn_output.weight"))
        out[f"{path}.self_attn"] = h
        back = add(back, h)
        graph.append((f"ffn_inp-{layer}", "ADD", f"attn_out-{layer}", back))
        normed = rms_norm(back)
        h = put(f"{path}.post_attention_layernorm", normed if bug and layer == 1 else mul(normed, w[f"{layer}.norm2"]),
                (f"norm-{layer}", "RMS_NORM", f"ffn_inp-{layer}", normed),
                (f"ffn_norm-{layer}", "MUL", f"norm-{layer}"))
        gate = put(f"{path}.mlp.gate_proj", linear(h, w[f"{layer}.gate"], turned),
                   (f"ffn_gate-{layer}", "MUL_MAT", f"blk.{layer}.ffn_gate.weight"))
        gate = put(f"{path}.mlp.act_fn", silu(gate), (f"ffn_silu-{layer}", "SILU", f"ffn_gate-{layer}"))
        up = put(f"{path}.mlp.up_proj", linear(h, w[f"{layer}.up"], turned),
                 (f"ffn_up-{layer}", "MUL_MAT", f"blk.{layer}.ffn_up.weight"))
        product = mul(gate, up)
        graph.append((f"ffn_gate_par-{layer}", "MUL", f"ffn_silu-{layer}", product))
        out[f"{path}.mlp.down_proj.input"] = product
        h = put(f"{path}.mlp.down_proj", linear(product, w[f"{layer}.down"], turned),
                (f"ffn_out-{layer}", "MUL_MAT", f"blk.{layer}.ffn_down.weight"))
        out[f"{path}.mlp"] = h
        x = put(path, add(back, h), (f"l_out-{layer}", "ADD", f"ffn_out-{layer}"))
    normed = rms_norm(x)
    h = put("model.norm", mul(normed, w["norm"]), ("norm", "RMS_NORM", f"l_out-{LAYERS - 1}", normed),
            ("result_norm", "MUL", "norm"))
    put("lm_head", linear(h, w["lm_head"], turned), ("result_output", "MUL_MAT", "output.weight"))
    return out, [(name, op, source, value) for name, op, source, value in graph]


# Containers.
def safetensors(path, tensors, metadata=None):
    header, offset = ({"__metadata__": metadata} if metadata else {}), 0
    for name, array in tensors.items():
        size = len(array.bytes())
        header[name] = {"dtype": "F32" if array.dtype == "f32" else "I64", "shape": list(array.shape),
                        "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(a.bytes() for a in tensors.values()))


def npy(array):
    kind = "<f4" if array.dtype == "f32" else "<i8"
    shape = "(" + "".join(f"{n}, " for n in array.shape).strip() + ")"
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * ((-(len(header) + 11)) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + array.bytes()


def pickled(value, storages):
    """The opcodes that torch's pickler of protocol 2 writes, without the memo, which is optional."""
    def name(module, attribute):
        return b"c" + module.encode() + b"\n" + attribute.encode() + b"\n"

    def numbers(*items):
        return b"(" + b"".join(pickled(i, storages) for i in items) + b"t"
    if isinstance(value, bool):
        return b"\x88" if value else b"\x89"
    if value is None:
        return b"N"
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    if isinstance(value, float):
        return b"G" + struct.pack(">d", value)
    if isinstance(value, str):
        data = value.encode()
        return b"X" + struct.pack("<I", len(data)) + data
    if isinstance(value, (tuple, list)):
        body = b"(" + b"".join(pickled(i, storages) for i in value)
        return body + b"t" if isinstance(value, tuple) else b"]" + body + b"e"
    if isinstance(value, dict):
        return b"}(" + b"".join(pickled(k, storages) + pickled(v, storages) for k, v in value.items()) + b"u"
    storages.append(value)
    kind = name("torch", "FloatStorage" if value.dtype == "f32" else "LongStorage")
    storage = (b"(" + pickled("storage", storages) + kind + pickled(str(len(storages) - 1), storages) +
               pickled("cpu", storages) + pickled(len(value.values), storages) + b"tQ")
    strides = [math.prod(value.shape[i + 1:]) for i in range(len(value.shape))]
    return (name("torch._utils", "_rebuild_tensor_v2") + b"(" + storage + pickled(0, storages) +
            numbers(*value.shape) + numbers(*strides) + b"\x89" + name("collections", "OrderedDict") + b")R" + b"tR")


def torch_save(path, value):
    storages = []
    data = b"\x80\x02" + pickled(value, storages) + b"."
    with zipfile.ZipFile(path, "w") as f:
        members = [("data.pkl", data), ("byteorder", b"little")]
        members += [(f"data/{i}", s.bytes()) for i, s in enumerate(storages)] + [("version", b"3\n")]
        for member, content in members:
            f.writestr(zipfile.ZipInfo(f"{path.stem[:20]}/{member}"), content)


def folder(name):
    path = HERE / name
    if path.exists():
        shutil.rmtree(path)
    path.mkdir(parents=True)
    return path


# SGLang.
SHARDED = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "act_fn")


def shard(name, value, rank, ranks):
    if name.rsplit(".", 1)[-1] not in SHARDED:
        return value
    width = value.shape[-1] // ranks
    return value.columns(rank * width, (rank + 1) * width)


def sglang():
    candidate, _ = run(turned=True, bug=True)
    out, ranks = folder("sglang"), 2
    for rank in range(ranks):
        index = 0
        for name, value in candidate.items():
            index += 1
            tags = {"step": 0, "rank": rank, "dump_index": index}
            if name == "input_ids":
                tags["name"] = name
            elif ".input" in name and ".input_" not in name:
                tags["name"] = "non_intrusive__" + (name + "." if name.endswith(".input") else name).replace(
                    ".input.", ".inputs.") + ("0" if name.endswith(".input") else "")
            else:
                tags["name"] = f"non_intrusive__{name}.output"
            if ".layers." in name:
                tags["layer_id"] = int(name.split(".")[2])
            meta = dict(tags, world_rank=rank, world_size=ranks, tokenizer_path="toy",
                        sglang_parallel_info={"tp_rank": rank, "tp_size": ranks, "pp_rank": 0, "pp_size": 1})
            if value.dtype == "f32":
                meta["dims"] = "t h[tp]" if name.rsplit(".", 1)[-1] in SHARDED else "t h # tp:replicated"
            file = "___".join(f"{k}={v}" for k, v in tags.items()) + ".pt"
            torch_save(out / file, {"value": shard(name, value, rank, ranks), "meta": meta})


def sglang_2025(reference):
    out, index = folder("sglang_2025") / "sglang_dump_1753600000.0", 0
    out.mkdir()

    def dump(name, value, **tags):
        nonlocal index
        index += 1
        tags = {"forward_pass_id": 1, "rank": 0, "name": name, "dump_index": index, **tags}
        torch_save(out / ("___".join(f"{k}={v}" for k, v in tags.items()) + ".pt"), value)
    dump("input_ids", reference["input_ids"])
    for layer in range(LAYERS):
        path = f"model.layers.{layer}"
        dump("layer_start__hidden_states", reference[f"{path}.input"], layer_id=layer)
        for n in "qkv":
            dump(f"{n}_proj", reference[f"{path}.self_attn.{n}_proj"], layer_id=layer)
        dump("o_proj", reference[f"{path}.self_attn.o_proj"], layer_id=layer, part="attention")
        for call in range(2):  # the same name twice
            dump("mlp_output", reference[f"{path}.mlp"], layer_id=layer)
    dump("logits", reference["lm_head"])


def sglang_steps(reference):
    out = folder("sglang_steps")
    for index, step in enumerate((2, 10)):  # as text 10 comes before 2
        value = reference["model.embed_tokens"]
        value = {"hidden": value, "residual": Array(value.shape, [v * step for v in value.values])}
        torch_save(out / f"step={step}___rank=0___dump_index={index + 1}___name=both.pt",
                   {"value": value, "meta": {"step": step, "rank": 0}})


# Hugging Face.
def torch_print(array):
    """What print() gives under set_printoptions(sci_mode=True, linewidth=120)."""
    integers = array.dtype == "i64"
    texts = [str(v) if integers else f"{v:.4e}" for v in array.values]
    summarize = len(texts) > 1000
    edge = 3

    def shown(size):
        return list(range(size)) if not (summarize and size > 2 * edge) else \
            list(range(edge)) + [None] + list(range(size - edge, size))
    stride = [math.prod(array.shape[i + 1:]) for i in range(len(array.shape))]

    def indices(axis, offset):
        for i in shown(array.shape[axis]):
            if i is None:
                continue
            if axis + 1 == len(array.shape):
                yield offset + i
            else:
                yield from indices(axis + 1, offset + i * stride[axis])
    width = max(len(texts[i]) for i in indices(0, 0))

    def block(axis, offset, indent):
        if axis + 1 == len(array.shape):
            items = ["..." if i is None else texts[offset + i].rjust(width) for i in shown(array.shape[axis])]
            items = [" ..." if i == "..." else i for i in items]
            per_line = max(1, (120 - indent) // (width + 2))
            lines = [items[i:i + per_line] for i in range(0, len(items), per_line)]
            return "[" + (",\n" + " " * (indent + 1)).join(", ".join(line) for line in lines) + "]"
        parts = ["..." if i is None else block(axis + 1, offset + i * stride[axis], indent + 1)
                 for i in shown(array.shape[axis])]
        return "[" + ("," + "\n" * (len(array.shape) - axis - 1) + " " * (indent + 1)).join(parts) + "]"
    return "tensor(" + block(0, 0, 7) + ")"


def batched(array):
    return array.reshape(1, *array.shape)


class Tree:
    def __init__(self, reference, out, use_repr):
        self.reference, self.out, self.use_repr = reference, out, use_repr

    def tensor(self, name, path):
        array = batched(self.reference[name])
        out = {"shape": f"torch.Size({list(array.shape)})",
               "dtype": "torch.float32" if array.dtype == "f32" else "torch.int64"}
        if self.use_repr:
            out["value"] = torch_print(array).split("\n")
        else:
            safetensors(self.out / f"{path}.safetensors", {"data": array})
            out["value"] = f"./{path}.safetensors"
        if array.dtype == "f32":
            mean = math.fsum(array.values) / len(array.values)
            std = math.sqrt(math.fsum((v - mean) ** 2 for v in array.values) / (len(array.values) - 1))
            for key, value in (("mean", mean), ("std", std), ("min", min(array.values)), ("max", max(array.values))):
                out[key] = f"tensor({value:.4e})"
        return out

    def call(self, name, children=(), args=(), kwargs=(), output=True):
        path = "ToyForCausalLM" + (f".{name}" if name else "")
        inputs = {}
        if args:
            inputs["args"] = [self.tensor(a, f"{path}_inputs_args_{i}") for i, a in enumerate(args)]
        if kwargs:
            inputs["kwargs"] = {k: self.tensor(v, f"{path}_inputs_kwargs_{k}") if v else "None"
                                for k, v in dict(kwargs).items()}
        node = {"module_path": path, "inputs": inputs}
        if not children and output:
            node["outputs"] = self.tensor(name, f"{path}_outputs")
        elif name:
            node["outputs"] = None
        if children:
            node["children"] = list(children)
        return node

    def build(self):
        layers = []
        for layer in range(LAYERS):
            path = f"model.layers.{layer}"
            h, normed = f"{path}.input_layernorm", f"{path}.post_attention_layernorm"
            attention = [self.call(f"{path}.self_attn.{n}_proj", args=[h]) for n in "qkv"]
            attention.append(self.call(f"{path}.self_attn.o_proj", args=[f"{path}.self_attn.o_proj.input"]))
            mlp = [self.call(f"{path}.mlp.gate_proj", args=[normed]),
                   self.call(f"{path}.mlp.act_fn", args=[f"{path}.mlp.gate_proj"]),
                   self.call(f"{path}.mlp.up_proj", args=[normed]),
                   self.call(f"{path}.mlp.down_proj", args=[f"{path}.mlp.down_proj.input"])]
            layers.append(self.call(path, args=[f"{path}.input"], children=[
                self.call(h, args=[f"{path}.input"]),
                self.call(f"{path}.self_attn", attention,
                          kwargs={"hidden_states": h, "attention_mask": None}),
                self.call(normed), self.call(f"{path}.mlp", mlp, args=[normed])]))
        model = self.call("model", [self.call("model.embed_tokens", args=["input_ids"]), *layers,
                                    self.call("model.norm")], kwargs={"input_ids": "input_ids"})
        return self.call("", [model, self.call("lm_head", args=["model.norm"])], kwargs={"input_ids": "input_ids"})


def without_values(node):
    if isinstance(node, dict):
        return {k: without_values(v) for k, v in node.items() if k != "value"}
    return [without_values(v) for v in node] if isinstance(node, list) else node


def hugging_face(reference):
    for name, use_repr in (("hf_repr", True), ("hf_files", False)):
        out = folder(name)
        tree = Tree(reference, out, use_repr).build()
        base = "ToyForCausalLM_debug_tree"
        (out / f"{base}_FULL_TENSORS.json").write_text(json.dumps(tree, indent=2))
        (out / f"{base}_SUMMARY.json").write_text(json.dumps(without_values(tree), indent=2))


# msprobe.
def msprobe_tensor(array, name, suffix, framework):
    out = {"type": f"{framework}.Tensor", "dtype": ("torch.float32" if framework == "torch" else "Float32"),
           "shape": list(array.shape), "Max": max(array.values), "Min": min(array.values),
           "Mean": math.fsum(array.values) / len(array.values), "Norm": math.hypot(*array.values),
           "requires_grad": False}
    if suffix:
        out["data_name"] = name + suffix
    return out


def msprobe_folder(out, reference, names, prefix, suffix, framework, rank=0, ranks=1, task="tensor"):
    classes = {"embed_tokens": "Embedding", "act_fn": "SiLU", "self_attn": "ToyAttention", "mlp": "ToyMLP",
               "0": "ToyDecoderLayer", "1": "ToyDecoderLayer", "norm": "ToyRMSNorm", "input_layernorm": "ToyRMSNorm",
               "post_attention_layernorm": "ToyRMSNorm"}
    data, construct, stack = {}, {}, {}
    files = out / "dump_tensor_data"
    if suffix:
        files.mkdir(parents=True)
    else:
        out.mkdir(parents=True)

    def save(name, array):
        if suffix == ".pt":
            torch_save(files / (name + suffix), array)
        elif suffix:
            (files / (name + suffix)).write_bytes(npy(array))
        return msprobe_tensor(array, name, suffix, framework)
    for count, name in enumerate(names):
        last = name.rsplit(".", 1)[-1]
        key = f"{prefix}.{name}.{classes.get(last, 'Linear')}.forward.0"
        record = {"input_args": [], "input_kwargs": {}}
        if f"{name}.input" in reference:
            record["input_args"] = [save(f"{key}.input.0", batched(reference[f"{name}.input"])),
                                    {"type": "bool", "value": True}]
        value = f"{name}.input.hidden_states"
        if value in reference:
            record["input_kwargs"] = {"hidden_states": save(f"{key}.kwargs.hidden_states", batched(reference[value])),
                                      "attention_mask": None}
        record["output"] = [save(f"{key}.output.0", batched(shard(name, reference[name], rank, ranks)))]
        if last == "norm":
            record["parameters"] = {"weight": save(f"{key}.parameters.weight", weights()["norm"])}
        data[key] = record
        construct[key] = None if "." not in name else f"{prefix}.{name.rsplit('.', 1)[0]}"
        stack[str(count)] = [[key], ["File toy.py, line 1, in forward, \n self.layer(x)"]]
    top = {"task": task, "level": "L0", "framework": "pytorch" if framework == "torch" else "mindspore",
           "dump_data_dir": "/dump/step0/rank0/dump_tensor_data" if suffix else None, "data": data}
    (out / "dump.json").write_text(json.dumps(top, indent=1))
    (out / "construct.json").write_text(json.dumps(construct, indent=1))
    (out / "stack.json").write_text(json.dumps(stack, indent=1))


def msprobe(reference):
    def modules(only=None):
        """Those that end first come first."""
        names = [n for n in reference if ".input." not in n + "." and n != "input_ids"]
        return [n for n in names if only is None or n.startswith(only)]
    out = folder("msprobe")
    for rank in range(2):
        msprobe_folder(out / "step0" / f"rank{rank}", reference, modules(("model.layers.1", "model.norm", "lm_head")),
                       "Module", ".pt", "torch", rank, 2)
    out = folder("msprobe_npy")
    msprobe_folder(out / "step0" / "rank0", reference, modules("model.layers.1"), "Cell", ".npy", "mindspore")
    (out / "step0/rank0/dump_tensor_data/Cell.model.layers.1.mlp.up_proj.Linear.forward.0.output.0.npy").unlink()
    out = folder("msprobe_stats")
    msprobe_folder(out / "step0" / "rank0", reference, modules("model.layers.0"), "Module", None, "torch",
                   task="statistics")


# llama.cpp.
def ggml_ne(array):
    shape = list(reversed(array.shape))
    return shape + [1] * (4 - len(shape))


def ggml_line(function, name, op, source, array):
    ne = ", ".join(map(str, ggml_ne(array)))
    return f"{function}: {name:>24} = (f32) {op:>10}({source}{{{ne}}}, }}) = {{{ne}}}\n"


def ggml_values(array, year):
    ne, n = ggml_ne(array), 3
    outer, middle, inner = (" " * 37, " " * 38, " " * 39) if year < 2026 else (" " * 4, " " * 8, " " * 12)
    first_only = year == 2024

    def shown(size):
        if first_only:
            return list(range(min(size, n)))
        return list(range(size)) if size <= 2 * n else list(range(n)) + list(range(size - n, size))
    text, total = outer + "[\n", 0.0
    for k, i2 in enumerate(shown(ne[2])):
        if not first_only and k == n and ne[2] > 2 * n:
            text += middle + "..., \n"
        text += middle + "[\n"
        for j, i1 in enumerate(shown(ne[1])):
            if not first_only and j == n and ne[1] > 2 * n:
                text += inner + "..., \n"
            row = array.values[(i2 * ne[1] + i1) * ne[0]:(i2 * ne[1] + i1 + 1) * ne[0]]
            total = f32(total + math.fsum(row))
            text += inner + "["
            for i, i0 in enumerate(shown(ne[0])):
                if not first_only and i == n and ne[0] > 2 * n:
                    text += "..., " if year == 2025 else "   ..., "
                text += f"{row[i0]:8.4f}" if first_only else f"{row[i0]:12.4f}"
                text += ", " if (i < n - 1 if first_only else True) and i0 < ne[0] - 1 else ""
            text += (", ..." if first_only and ne[0] > n else "") + ("],\n" if year < 2026 else "  ],\n")
        if first_only and ne[1] > n:
            text += inner + "...\n"
        text += middle + "],\n"
    if first_only and ne[2] > n:
        text += outer + "...\n"
    return text + outer + "]\n" + outer + f"sum = {total:f}\n"


def llama(graph):
    for year, function in ((2024, "ggml_debug"), (2025, "ggml_debug"), (2026, "common_debug_cb_eval")):
        text = "llama_model_loader: loaded meta data with 20 key-value pairs\nllama_context: n_ctx = 512\n\n"
        for name, op, source, value in graph:
            text += ggml_line(function, name, op, source, value) + ggml_values(value, year)
        text += "\nllama_perf_context_print: total time = 1.00 ms / 7 tokens\n"
        (HERE / f"llama_{year}.log").write_text(text)


# TensorRT-LLM's debug mode.
def tensorrt_llm(reference):
    for rank in range(2):
        out = HERE / f"tllm_debug/PP_0/TP_{rank}"
        out.mkdir(parents=True, exist_ok=True)
        for layer in range(LAYERS):
            for module in ("attention.qkv", "mlp_output"):
                name = f"transformer.layers.{layer}.{module}"
                value = reference[f"model.layers.{layer}.{'self_attn.q_proj' if 'qkv' in name else 'mlp'}"]
                value = shard("q_proj", value, rank, 2) if "qkv" in name else value
                (out / f"{name}-step0.npy").write_bytes(npy(value))
                (out / f"{name}-step0.txt").write_text(
                    "".join(" ".join(f"{v:.18e}" for v in row) + "\n" for row in value.rows()))


# Polygraphy.
def polygraphy(reference):
    def array(value):
        return {"values": {"array": base64.b64encode(npy(value)).decode(), "polygraphy_class": "ndarray"},
                "polygraphy_class": "LazyArray"}
    outputs = {name: array(batched(reference[name])) for name in ("model.embed_tokens", "model.norm", "lm_head")}
    results = {"lst": [["onnxrt-runner-N0-01/01/26-00:00:00",
                        [{"outputs": outputs, "runtime": 0.001, "runner_name": "onnxrt-runner-N0-01/01/26-00:00:00",
                          "polygraphy_class": "IterationResult"}]]], "polygraphy_class": "RunResults"}
    (HERE / "polygraphy.json").write_text(json.dumps(results, indent=4))


def port():
    """A port that writes .npy files, and the trace it is compared with; it turns adjacent pairs of a head."""
    shutil.rmtree(HERE / "port", ignore_errors=True)
    out = HERE / "port" / "npy"
    out.mkdir(parents=True)
    names = ("embed_tokens", "input_layernorm", "q_proj", "k_proj", "v_proj", "q_rope", "k_rope", "o_proj",
             "post_attention_layernorm", "mlp", "0", "1", "norm", "lm_head")
    for adjacent in (False, True):
        points = {}
        computed, _ = run(turned=adjacent, adjacent=adjacent, points=points)
        order = []
        for name in computed:
            if name.rsplit(".", 1)[-1] in names:
                order.append(name)
            if name.endswith(".v_proj"):
                order += [name.replace("v_proj", "q_rope"), name.replace("v_proj", "k_rope")]
        computed.update(points)
        if adjacent:
            for name in order:
                mine = name.replace("model.", "").replace("self_attn", "attention")
                (out / f"{mine}.npy").write_bytes(npy(batched(computed[name])))
        else:
            safetensors(HERE / "port" / "reference.safetensors", {n: computed[n] for n in sorted(order)},
                        {"tsleuth.order": json.dumps(order)})


def main():
    reference, graph = run()
    port()
    order = json.dumps(list(reference))
    safetensors(HERE / "reference.safetensors", dict(sorted(reference.items())), {"tsleuth.order": order})
    sglang()
    sglang_2025(reference)
    sglang_steps(reference)
    hugging_face(reference)
    msprobe(reference)
    llama(graph)
    tensorrt_llm(reference)
    polygraphy(reference)
    torch_save(HERE / "nested.pt", {"step_1": {"layers": [{"q": reference["model.layers.0.self_attn.q_proj"],
                                                          "k": reference["model.layers.0.self_attn.k_proj"]},
                                                         {"q": reference["model.layers.1.self_attn.q_proj"]}],
                                              "embed": reference["model.embed_tokens"]},
                                   "step_0": (reference["model.norm"], None, {"logits": reference["lm_head"]})})


main()
