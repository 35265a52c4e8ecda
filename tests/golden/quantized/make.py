#!/usr/bin/env python3
"""Makes the small quantized checkpoints of this folder, and beside each (NAME.expected.json) what must come out of it.

Codes are packed here one at a time, as the documentation or the reference code of each library describes it; nothing is
shared with the program. Every arithmetic step of an expected value is rounded to float32 where the library does so.
Standard library only, and the same bytes on every run.

usage: make.py [FOLDER [SEEDS]]
With SEEDS, also writes what the fuzz target fuzz_quantized takes: a zero byte, the length of the config in two bytes,
the config, the checkpoint.
"""
import json
import math
import os
import struct
import sys

ROOT = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
SEEDS = sys.argv[2] if len(sys.argv) > 2 else None


class Random:
    """A small generator of our own: Python's may change between versions."""

    def __init__(self, seed):
        self.state = seed

    def below(self, limit):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        return (self.state >> 33) % limit

    def power(self):
        """A power of two that any float type holds."""
        return 2.0 ** (self.below(9) - 6)

    def shuffled(self, items):
        items = list(items)
        for i in range(len(items) - 1, 0, -1):
            j = self.below(i + 1)
            items[i], items[j] = items[j], items[i]
        return items


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def bf16_bits(x):
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    assert bits & 0xFFFF == 0, "not a bf16 value"
    return bits >> 16


def small_float(bits, exponent_bits, mantissa_bits, bias):
    """Sign, exponent, mantissa; subnormals; no infinities."""
    sign = -1.0 if bits >> (exponent_bits + mantissa_bits) & 1 else 1.0
    exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1)
    mantissa = bits & ((1 << mantissa_bits) - 1)
    if exponent == 0:
        return sign * mantissa * 2.0 ** (1 - bias - mantissa_bits)
    return sign * (1 + mantissa / (1 << mantissa_bits)) * 2.0 ** (exponent - bias)


def e4m3(bits):
    return math.nan if bits & 0x7F == 0x7F else small_float(bits, 4, 3, 7)


def e5m2(bits):
    if bits >> 2 & 31 == 31:
        return math.nan if bits & 3 else (-math.inf if bits & 128 else math.inf)
    return small_float(bits, 5, 2, 15)


def e2m1(bits):
    return small_float(bits, 2, 1, 1)


def e8m0(bits):
    return math.nan if bits == 255 else 2.0 ** (bits - 127)


SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "U32": 4, "I16": 2, "I8": 1, "U8": 1,
         "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1}
FORMATS = {"F64": "d", "F32": "f", "F16": "e", "I64": "q", "I32": "i", "U32": "I", "I16": "h", "I8": "b", "U8": "B"}


class Checkpoint:
    def __init__(self, name, config=None):
        self.name, self.config = name, config
        self.header, self.data, self.tensors, self.findings = {}, b"", [], []

    def add(self, name, dtype, shape, values):
        """values: numbers, or byte codes for the float types of one byte."""
        values = list(values)
        assert len(values) == math.prod(shape), (name, len(values), shape)
        if dtype == "BF16":
            data = b"".join(struct.pack("<H", bf16_bits(v)) for v in values)
        elif dtype in FORMATS:
            if dtype == "I32":
                values = [v - (1 << 32) if v >= 1 << 31 else v for v in values]
            data = struct.pack("<%d%s" % (len(values), FORMATS[dtype]), *values)
        else:
            data = bytes(values)
        assert len(data) == SIZES[dtype] * len(values)
        self.header[name] = {"dtype": dtype, "shape": list(shape),
                             "data_offsets": [len(self.data), len(self.data) + len(data)]}
        self.data += data

    def expect(self, name, kind, shape, values=None, scheme=None, parts=None, explain=None):
        """One tensor of the result; plain tensors are given without values."""
        tensor = {"name": name, "type": kind, "shape": list(shape)}
        if values is not None:
            assert len(values) == math.prod(shape), (name, len(values), shape)
            tensor["values"] = ["nan" if math.isnan(v) else "inf" if v == math.inf else "-inf" if v == -math.inf else v
                                for v in map(f32, values)]
        for key, value in (("scheme", scheme), ("parts", parts), ("explain", explain)):
            if value is not None:
                tensor[key] = value
        self.tensors.append(tensor)

    def find(self, tensor, text):
        self.findings.append({"tensor": tensor, "text": text})

    def write(self):
        folder = os.path.join(ROOT, self.name)
        os.makedirs(folder, exist_ok=True)
        header = json.dumps(self.header, separators=(",", ":")).encode()
        checkpoint = struct.pack("<Q", len(header)) + header + self.data
        config = self.config if isinstance(self.config, (str, type(None))) else json.dumps(self.config, indent=1) + "\n"
        with open(os.path.join(folder, "model.safetensors"), "wb") as file:
            file.write(checkpoint)
        if config is not None:
            with open(os.path.join(folder, "config.json"), "w") as file:
                file.write(config)
        if SEEDS and len(checkpoint) < 20000:
            text = (config or "").encode()
            with open(os.path.join(SEEDS, self.name), "wb") as file:
                file.write(struct.pack("<BH", 0, len(text)) + text + checkpoint)
        with open(folder + ".expected.json", "w") as file:
            json.dump({"tensors": self.tensors, "findings": self.findings}, file, separators=(",", ":"))
            file.write("\n")


def matrix(random, rows, columns, limit):
    return [[random.below(limit) for _ in range(columns)] for _ in range(rows)]


def flat(rows):
    return [v for row in rows for v in row]


def transpose(rows):
    return [list(column) for column in zip(*rows)]


# AWQ -----------------------------------------------------------------------------------------------------------------

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def awq_pack(rows):
    """[n][columns] -> [n][columns / 8] words; nibble i of a word holds column AWQ_ORDER[i] of its eight."""
    packed = []
    for row in rows:
        words = []
        for start in range(0, len(row), 8):
            word = 0
            for i in range(8):
                word |= row[start + AWQ_ORDER[i]] << 4 * i
            words.append(word)
        packed.append(words)
    return packed


def awq(random, checkpoint, prefix, out, inputs, group, kind="F16", explain=False):
    codes = matrix(random, inputs, out, 16)  # stored as [in, out]
    groups = inputs // group
    zeros = matrix(random, groups, out, 16)
    scales = [[random.power() for _ in range(out)] for _ in range(groups)]
    checkpoint.add(prefix + ".qweight", "I32", [inputs, out // 8], flat(awq_pack(codes)))
    checkpoint.add(prefix + ".qzeros", "I32", [groups, out // 8], flat(awq_pack(zeros)))
    checkpoint.add(prefix + ".scales", kind, [groups, out], flat(scales))
    values = [(codes[i][o] - zeros[i // group][o]) * scales[i // group][o] for o in range(out) for i in range(inputs)]
    note = None
    if explain:
        o, i = 3, group + 5
        note = {"index": o * inputs + i, "text": "code %d, zero %d, scale %.6g (group 1)" %
                (codes[i][o], zeros[1][o], scales[1][o])}
    checkpoint.expect(prefix + ".weight", "awq4", [out, inputs], values, "awq 4 bits, groups of %d" % group,
                      "%s.qweight, %s.scales, %s.qzeros" % (prefix, prefix, prefix), note)


def make_awq():
    random = Random(1)
    config = {"model_type": "llama", "quantization_config": {
        "bits": 4, "group_size": 32, "modules_to_not_convert": None, "quant_method": "awq", "version": "gemm",
        "zero_point": True}}
    c = Checkpoint("awq", config)
    c.add("model.embed_tokens.weight", "F32", [2, 2], [1, 2, 3, 4])
    c.expect("model.embed_tokens.weight", "f32", [2, 2])
    awq(random, c, "model.layers.0.q_proj", 16, 96, 32, explain=True)
    c.add("model.layers.0.q_proj.bias", "F16", [16], [0.5] * 16)
    c.expect("model.layers.0.q_proj.bias", "f16", [16])
    awq(random, c, "model.layers.0.down_proj", 24, 64, 32, "BF16")
    c.write()

    c = Checkpoint("awq_no_config")
    awq(random, c, "layer", 8, 64, 16)
    c.write()

    # AutoAWQ's gemv: plain order along `in`, scales padded to a multiple of 8 * 4 groups for groups of 32.
    c = Checkpoint("awq_gemv", {"quantization_config": {"bits": 4, "group_size": 32, "quant_method": "awq",
                                                        "version": "gemv", "zero_point": True}})
    out, inputs, width = 8, 64, 4
    codes, zeros = matrix(random, out, inputs, 16), matrix(random, out, 2, 16)
    scales = [[random.power() for _ in range(2)] for _ in range(out)]
    words = [[sum(row[j + i] << 4 * i for i in range(8)) for j in range(0, inputs, 8)] for row in codes]
    c.add("m.qweight", "I32", [out, inputs // 8], flat(words))
    c.add("m.qzeros", "I32", [out, width], flat([[z[0] | z[1] << 4] + [0] * (width - 1) for z in zeros]))
    c.add("m.scales", "F16", [out, width * 8], flat([s + [0.0] * (width * 8 - 2) for s in scales]))
    c.expect("m.weight", "awq4", [out, inputs],
             [(codes[o][i] - zeros[o][i // 32]) * scales[o][i // 32] for o in range(out) for i in range(inputs)],
             "awq gemv 4 bits, groups of 32")
    c.write()


# GPTQ ----------------------------------------------------------------------------------------------------------------


def gptq_pack(codes, bits, planar=False):
    """A list of codes -> words, as pack() of AutoGPTQ and GPTQModel write them."""
    words = [0] * -(-len(codes) * bits // 32)
    if planar:
        planes = {3: [(2, 0), (1, 2)], 5: [(4, 0), (1, 4)], 6: [(4, 0), (2, 4)], 7: [(4, 0), (2, 4), (1, 6)]}[bits]
        for block in range(len(codes) // 32):
            row = block * bits
            for width, offset in planes:
                for i in range(32):
                    field = codes[block * 32 + i] >> offset & ((1 << width) - 1)
                    words[row + i * width // 32] |= field << i * width % 32
                row += width
    elif bits == 3:
        i = row = 0
        while row < len(words):  # ten codes, one split, ten codes, one split, ten codes
            for j in range(10):
                words[row] |= codes[i + j] << 3 * j
            i += 10
            words[row] |= codes[i] << 30 & 0xFFFFFFFF
            row += 1
            words[row] |= codes[i] >> 2 & 1
            i += 1
            for j in range(10):
                words[row] |= codes[i + j] << 3 * j + 1
            i += 10
            words[row] |= codes[i] << 31 & 0xFFFFFFFF
            row += 1
            words[row] |= codes[i] >> 1 & 3
            i += 1
            for j in range(10):
                words[row] |= codes[i + j] << 3 * j + 2
            i += 10
            row += 1
    else:
        per_word = 32 // bits
        for i, code in enumerate(codes):
            words[i // per_word] |= code << bits * (i % per_word)
    return words


def gptq(random, c, prefix, out, inputs, bits, group, version=1, order=None, store_order=True, planar=False,
         symmetric=False, scheme=None, explain=None, words=32):
    codes = matrix(random, inputs, out, 1 << bits)
    groups = -(-inputs // group)
    zeros = [[1 << bits - 1] * out for _ in range(groups)] if symmetric else matrix(random, groups, out, 1 << bits)
    scales = [[random.power() for _ in range(out)] for _ in range(groups)]
    stored = [[(z - (1 if version == 1 else 0)) % (1 << bits) for z in row] for row in zeros]
    sequence = [i // group for i in range(inputs)]
    g_idx = order if order is not None else sequence
    qweight = transpose([gptq_pack([codes[i][o] for i in range(inputs)], bits, planar) for o in range(out)])
    qzeros = [gptq_pack(row, bits, planar) for row in stored]
    kind = "I32"
    if words == 8:  # each word of 32 bits as four of 8, side by side along the packed axis
        kind = "I8"
        split = lambda word: [(word >> s & 255) - (256 if word >> s & 128 else 0) for s in (0, 8, 16, 24)]
        qzeros = [[b for word in row for b in split(word)] for row in qzeros]
        qweight = [list(row) for packed in qweight for row in zip(*(split(word) for word in packed))]
    c.add(prefix + ".qweight", kind, [len(qweight), out], flat(qweight))
    c.add(prefix + ".qzeros", kind, [groups, len(qzeros[0])], flat(qzeros))
    c.add(prefix + ".scales", "F16", [groups, out], flat(scales))
    if store_order:
        c.add(prefix + ".g_idx", "I32", [inputs], g_idx)
    if store_order == "blank":
        g_idx = sequence
    values = [(codes[i][o] - zeros[g_idx[i]][o]) * scales[g_idx[i]][o] for o in range(out) for i in range(inputs)]
    note = None
    if explain is not None:
        o, i = explain
        note = {"index": o * inputs + i, "text": "code %d, zero %d, scale %.6g (group %d)" %
                (codes[i][o], zeros[g_idx[i]][o], scales[g_idx[i]][o], g_idx[i])}
    c.expect(prefix + ".weight", "gptq%d" % bits, [out, inputs], values, scheme, explain=note)


def make_gptq():
    random = Random(2)
    c = Checkpoint("gptq4", {"text_config": {"quantization_config": {
        "bits": 4, "group_size": 32, "desc_act": False, "sym": False, "quant_method": "gptq",
        "checkpoint_format": "gptq"}}})
    gptq(random, c, "a", 16, 96, 4, 32, scheme="gptq 4 bits, groups of 32, order by g_idx", explain=(5, 40))
    gptq(random, c, "ragged", 8, 80, 4, 32)  # the last group has 16
    gptq(random, c, "blank", 8, 64, 4, 32, order=[0] * 64, store_order="blank", scheme="gptq 4 bits, groups of 32")
    gptq(random, c, "unordered", 8, 64, 4, 32, store_order=False)
    c.write()

    c = Checkpoint("gptq4_act_order", {"quantization_config": {
        "bits": 4, "group_size": 32, "desc_act": True, "sym": False, "quant_method": "gptq",
        "checkpoint_format": "gptq_v2"}})
    gptq(random, c, "a", 24, 128, 4, 32, version=2, order=random.shuffled([i // 32 for i in range(128)]),
         explain=(23, 127))
    c.write()

    c = Checkpoint("gptq3", {"quantization_config": {
        "bits": 3, "group_size": 32, "sym": False, "quant_method": "gptq"}})
    gptq(random, c, "a", 32, 96, 3, 32)
    c.write()

    c = Checkpoint("gptq3_planar", {"quantization_config": {
        "bits": 3, "group_size": 32, "sym": False, "quant_method": "gptq", "format": "gptq_p"}})
    gptq(random, c, "a", 32, 64, 3, 32, version=2, planar=True)
    c.write()

    c = Checkpoint("gptq_mixed", {"quantization_config": {
        "bits": 4, "group_size": 32, "sym": False, "quant_method": "gptq", "checkpoint_format": "gptq",
        "dynamic": {"+:.*two.*": {"bits": 2}, "-:.*head.*": {}}}})
    gptq(random, c, "two", 32, 64, 2, 16)
    gptq(random, c, "four", 32, 64, 4, 32)
    gptq(random, c, "five", 32, 64, 5, 32, version=2, planar=True)
    gptq(random, c, "six", 32, 64, 6, 32, version=2, planar=True)
    gptq(random, c, "seven", 32, 64, 7, 64, version=2, planar=True, scheme="gptq 7 bits, one group")
    gptq(random, c, "eight", 32, 64, 8, 64)
    gptq(random, c, "bytes", 16, 64, 4, 32, words=8)
    c.write()

    c = Checkpoint("gptq_no_config")  # symmetric zero points give the version away
    gptq(random, c, "first", 32, 64, 4, 32, version=1, symmetric=True)
    gptq(random, c, "second", 32, 64, 4, 32, version=2, symmetric=True)
    gptq(random, c, "whole", 32, 64, 8, 64, version=1, store_order=False)
    c.write()


# bitsandbytes --------------------------------------------------------------------------------------------------------

NF4 = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
       -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634,
       0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]
FP4 = [v / 12 for v in (0, 0.0625, 8, 12, 4, 6, 2, 3, 0, -0.0625, -8, -12, -4, -6, -2, -3)]


def bnb4(random, c, name, shape, kind, block, nested=None, storage="U8"):
    table = [f32(v) for v in (NF4 if kind == "nf4" else FP4)]
    count = math.prod(shape)
    codes = [random.below(16) for _ in range(count)]
    padded = codes + [0] * (count % 2)
    data = [padded[i] << 4 | padded[i + 1] for i in range(0, len(padded), 2)]  # the first in the high half
    state = {"quant_type": kind, "blocksize": block, "dtype": "bfloat16", "shape": shape}
    blocks = -(-count // block)
    if storage == "BF16":
        data += [0] * (len(data) % 2)
        c.header[name] = {"dtype": "BF16", "shape": [len(data) // 2, 1],
                          "data_offsets": [len(c.data), len(c.data) + len(data)]}
        c.data += bytes(data)
    else:
        c.add(name, "U8", [len(data), 1], data)
    if nested:
        nested_table = [f32((i - 127) / 128) for i in range(256)]
        codes8 = [random.below(256) for _ in range(blocks)]
        magnitudes = [f32(0.1 + random.below(1000) / 1000) for _ in range(-(-blocks // nested))]
        offset = 0.0456
        absmax = [f32(f32(nested_table[v] * magnitudes[i // nested]) + f32(offset)) for i, v in enumerate(codes8)]
        c.add(name + ".absmax", "U8", [blocks], codes8)
        c.add(name + ".nested_absmax", "F32", [len(magnitudes)], magnitudes)
        c.add(name + ".nested_quant_map", "F32", [256], nested_table)
        state.update(nested_blocksize=nested, nested_dtype="float32", nested_offset=offset)
    else:
        absmax = [f32(0.01 + random.below(1000) / 1000) for _ in range(blocks)]
        c.add(name + ".absmax", "F32", [blocks], absmax)
    c.add(name + ".quant_map", "F32", [16], table)
    text = json.dumps(state).encode()
    c.add(name + ".quant_state.bitsandbytes__" + kind, "U8", [len(text)], text)
    values = [f32(table[code] * absmax[i // block]) for i, code in enumerate(codes)]
    scheme = "bitsandbytes %s, blocks of %d%s" % (kind, block, ", scales quantized too" if nested else "")
    at = min(count - 1, block + 1)
    note = "%s %.6g, scale %.6g (block %d)" % (kind, table[codes[at]], absmax[at // block], at // block)
    c.expect(name, kind, shape, values, scheme, explain={"index": at, "text": note})


def make_bnb():
    random = Random(3)
    c = Checkpoint("bnb_4bit", {"quantization_config": {"load_in_4bit": True, "quant_method": "bitsandbytes"}})
    bnb4(random, c, "plain.weight", [5, 33], "nf4", 64)
    bnb4(random, c, "nested.weight", [16, 64], "nf4", 64, nested=4)
    bnb4(random, c, "float.weight", [4, 40], "fp4", 32)
    bnb4(random, c, "stored.weight", [3, 32], "nf4", 32, storage="BF16")
    c.write()

    c = Checkpoint("bnb_int8", {"quantization_config": {"load_in_8bit": True, "quant_method": "bitsandbytes"}})
    rows, columns, third = 5, 24, f32(7.874015718698502e-3)
    codes = [[random.below(255) - 127 for _ in range(columns)] for _ in range(rows)]
    largest = [f32(0.3 + random.below(1000) / 500) for _ in range(rows)]
    c.add("a.weight", "I8", [rows, columns], flat(codes))
    c.add("a.SCB", "F32", [rows], largest)
    c.add("a.weight_format", "U8", [], [0])
    c.expect("a.weight", "int8", [rows, columns],
             [f32(f32(code * largest[r]) * third) for r in range(rows) for code in codes[r]],
             "bitsandbytes int8, a scale per row", "a.weight, a.SCB, a.weight_format",
             {"index": columns + 2, "text": "code %d, row's magnitude %.6g / 127 (row 1)" % (codes[1][2], largest[1])})
    c.add("tiled.weight", "I8", [1, 4], [1, 2, 3, 4])
    c.add("tiled.SCB", "F32", [1], [1.0])
    c.add("tiled.weight_format", "U8", [], [1])
    c.expect("tiled.weight", "i8", [1, 4])
    c.expect("tiled.SCB", "f32", [1])
    c.expect("tiled.weight_format", "u8", [])
    c.find("tiled.weight", "weight_format 1")
    c.write()


# MLX -----------------------------------------------------------------------------------------------------------------


def stream(codes, bits, word=32):
    """Codes one after the other, bit by bit, low bits first, cut into words."""
    stored = [code >> b & 1 for code in codes for b in range(bits)]
    stored += [0] * (-len(stored) % word)
    return [sum(bit << b for b, bit in enumerate(stored[i:i + word])) for i in range(0, len(stored), word)]


def mlx(random, c, prefix, shape, bits, group, kind="F16", scheme=None, explain=False):
    columns = shape[-1]
    rows = math.prod(shape) // columns
    groups = columns // group
    codes = matrix(random, rows, columns, 1 << bits)
    scales = [[random.power() for _ in range(groups)] for _ in range(rows)]
    biases = [[(random.below(33) - 16) / 8 for _ in range(groups)] for _ in range(rows)]
    c.add(prefix + ".weight", "U32", shape[:-1] + [columns * bits // 32], flat(stream(row, bits) for row in codes))
    c.add(prefix + ".scales", kind, shape[:-1] + [groups], flat(scales))
    c.add(prefix + ".biases", kind, shape[:-1] + [groups], flat(biases))
    values = [codes[r][i] * scales[r][i // group] + biases[r][i // group] for r in range(rows) for i in range(columns)]
    note = None
    if explain:
        at = columns + group + 1
        note = {"index": at, "text": "code %d, scale %.6g, bias %.6g (group %d)" %
                (codes[1][group + 1], scales[1][1], biases[1][1], at // group)}
    c.expect(prefix + ".weight", "mlx%d" % bits, shape, values,
             scheme or "mlx affine %d bits, groups of %d" % (bits, group), explain=note)


def make_mlx():
    random = Random(4)
    section = {"group_size": 64, "bits": 4, "head": False}
    for bits, group in ((2, 32), (3, 64), (5, 32), (6, 128), (8, 64)):
        section["model.layers.%d.proj" % bits] = {"group_size": group, "bits": bits}
    c = Checkpoint("mlx", {"quantization": section, "quantization_config": section})
    mlx(random, c, "model.embed_tokens", [3, 128], 4, 64, explain=True)
    for bits, group in ((2, 32), (3, 64), (5, 32), (6, 128), (8, 64)):
        mlx(random, c, "model.layers.%d.proj" % bits, [3, 256], bits, group, "BF16")
    mlx(random, c, "model.layers.9.experts", [2, 3, 64], 4, 64, scheme="mlx affine 4 bits, one group")
    c.add("model.norm.weight", "BF16", [4], [1.0] * 4)
    c.expect("model.norm.weight", "bf16", [4])
    c.write()

    c = Checkpoint("mlx_no_config")  # products that only one pair of bits and group size has
    mlx(random, c, "three", [2, 64], 3, 32)
    mlx(random, c, "five", [2, 128], 5, 64)
    mlx(random, c, "eight", [2, 256], 8, 128)
    c.write()

    c = Checkpoint("mlx_modes", {"quantization": {"group_size": 32, "bits": 4, "mode": "mxfp4",
                                                  "wide": {"group_size": 32, "bits": 8, "mode": "mxfp8"},
                                                  "fine": {"group_size": 16, "bits": 4, "mode": "nvfp4"}}})
    for prefix, mode, bits, group in (("plain", "mxfp4", 4, 32), ("wide", "mxfp8", 8, 32), ("fine", "nvfp4", 4, 16)):
        codes = matrix(random, 2, 64, 1 << bits)
        lowest, span = (1, 120) if mode == "nvfp4" else (118, 20)
        scales = [[lowest + random.below(span) for _ in range(64 // group)] for _ in range(2)]
        number, factor = (e4m3 if bits == 8 else e2m1), (e4m3 if mode == "nvfp4" else e8m0)
        c.add(prefix + ".weight", "U32", [2, 64 * bits // 32], flat(stream(row, bits) for row in codes))
        c.add(prefix + ".scales", "U8", [2, 64 // group], flat(scales))
        c.expect(prefix + ".weight", mode, [2, 64],
                 [number(codes[r][i]) * factor(scales[r][i // group]) for r in range(2) for i in range(64)],
                 "mlx %s, groups of %d" % (mode, group))
    c.write()


# FP8 and int8 with scales --------------------------------------------------------------------------------------------


def fp8(random, c, name, shape, scale_name, scale_shape, block, kind="F8_E4M3", scale_kind="F32", scheme=None):
    """block: elements per scale along each axis of the scale."""
    decode = e4m3 if kind == "F8_E4M3" else e5m2
    count = math.prod(shape)
    codes = [random.below(256) for _ in range(count)]
    scales = [random.below(16) + 120 if scale_kind in ("U8", "F8_E8M0") else random.power()
              for _ in range(math.prod(scale_shape))]
    c.add(name, kind, shape, codes)
    c.add(scale_name, scale_kind, scale_shape, scales)
    values = []
    for i, code in enumerate(codes):
        place, rest = [], i
        for length in reversed(shape):
            place.insert(0, rest % length)
            rest //= length
        at = 0
        for axis, length in enumerate(scale_shape):
            at = at * length + (place[axis] // block[axis] if length > 1 else 0)
        scale = e8m0(scales[at]) if scale_kind in ("U8", "F8_E8M0") else scales[at]
        values.append(decode(code) * scale)
    c.expect(name, "mxfp8" if scale_kind in ("U8", "F8_E8M0") else "fp8 scaled", shape, values, scheme)


def make_fp8():
    random = Random(5)
    c = Checkpoint("fp8_blocks", {"quantization_config": {
        "activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [4, 8]}})
    fp8(random, c, "whole.weight", [8, 16], "whole.weight_scale_inv", [2, 2], [4, 8], scheme="f8_e4m3, blocks of 4x8")
    fp8(random, c, "ragged.weight", [10, 20], "ragged.weight_scale_inv", [3, 3], [4, 8], scale_kind="BF16")
    fp8(random, c, "experts.gate_up_proj", [2, 10, 20], "experts.gate_up_proj_scale_inv", [2, 3, 3], [1, 4, 8])
    c.add("whole.input_scale", "F32", [], [1.0])
    c.expect("whole.input_scale", "f32", [])
    c.write()

    c = Checkpoint("fp8_scales")
    fp8(random, c, "tensor.weight", [3, 5], "tensor.weight_scale", [], [], scheme="f8_e4m3, one scale")
    fp8(random, c, "rows.weight", [4, 6], "rows.weight_scale", [4, 1], [1, 6], scheme="f8_e4m3, a scale per row")
    fp8(random, c, "row.weight", [4, 6], "row.weight_scale", [4], [1], "F8_E5M2", "F16")
    fp8(random, c, "image.weight", [3, 5], "image.scale_weight", [1], [], "F8_E5M2")
    fp8(random, c, "deep.weight", [130, 4], "deep.scale", [2, 1], [128, 4], scheme="f8_e4m3, blocks of 128x4")
    fp8(random, c, "mx.weight", [2, 64], "mx.weight_scale", [2, 2], [1, 32], scale_kind="U8",
        scheme="mxfp8, groups of 32")
    fp8(random, c, "exp.weight", [2, 64], "exp.weight_scale", [2, 2], [1, 32], scale_kind="F8_E8M0")
    fp8(random, c, "experts.down_proj", [2, 3, 4], "experts.down_proj_scale", [2], [1])
    fp8(random, c, "experts.turned", [2, 3, 4], "experts.turned_scale", [2, 1, 4], [1, 3, 1])
    c.add("cast.weight", "F8_E4M3", [2], [0x38, 0x40])  # no scales, and no config that promises any
    c.expect("cast.weight", "f8_e4m3", [2])
    c.add("norm.scale", "F32", [2], [1.0, 2.0])
    c.expect("norm.scale", "f32", [2])
    c.write()

    c = Checkpoint("fp4_scales", {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}})
    codes = matrix(random, 4, 32, 16)
    scales = matrix(random, 4, 2, 120)
    second = 0.0625
    c.add("a.weight", "U8", [4, 16], [row[i] | row[i + 1] << 4 for row in codes for i in range(0, 32, 2)])
    c.add("a.weight_scale", "F8_E4M3", [4, 2], flat(scales))
    c.add("a.weight_scale_2", "F32", [], [second])
    c.expect("a.weight", "nvfp4", [4, 32],
             [e2m1(codes[r][i]) * (e4m3(scales[r][i // 16]) * second) for r in range(4) for i in range(32)],
             "nvfp4, groups of 16")
    for name, kind, scale_name, scale_kind in (("b.weight", "U8", "b.weight_scale", "U8"),
                                               ("c.weight", "I8", "c.scale", "F8_E8M0")):
        codes, scales = matrix(random, 3, 64, 16), [[random.below(20) + 110 for _ in range(2)] for _ in range(3)]
        data = [row[i] | row[i + 1] << 4 for row in codes for i in range(0, 64, 2)]
        c.add(name, kind, [3, 32], [v - 256 if kind == "I8" and v > 127 else v for v in data])
        c.add(scale_name, scale_kind, [3, 2], flat(scales))
        c.expect(name, "mxfp4", [3, 64],
                 [e2m1(codes[r][i]) * e8m0(scales[r][i // 32]) for r in range(3) for i in range(64)],
                 "mxfp4, groups of 32")
    c.write()


# compressed-tensors --------------------------------------------------------------------------------------------------


def pack32(codes, bits, spaced=False):
    if not spaced:
        return stream(codes, bits)
    per_word = 32 // bits
    parts = [codes[s:s + per_word] for s in range(0, len(codes), per_word)]
    return [sum(code << bits * i for i, code in enumerate(part)) for part in parts]


def packed(random, c, prefix, out, inputs, bits, group, asymmetric=False, order=None, spaced=False, scale_shape=None,
           shape=True, scheme=None):
    """Signed codes, stored plus 2^(bits - 1)."""
    half = 1 << bits - 1
    codes = [[random.below(1 << bits) - half for _ in range(inputs)] for _ in range(out)]
    groups = inputs // group
    scales = [[random.power() for _ in range(groups)] for _ in range(out)]
    zeros = [[random.below(1 << bits) - half if asymmetric else 0 for _ in range(groups)] for _ in range(out)]
    if scale_shape == [1]:
        scales = [[scales[0][0]] * groups for _ in range(out)]
    words = [pack32([v + half for v in row], bits, spaced) for row in codes]
    c.add(prefix + ".weight_packed", "I32", [out, len(words[0])], flat(words))
    c.add(prefix + ".weight_scale", "BF16", scale_shape or [out, groups],
          [scales[0][0]] if scale_shape == [1] else flat(scales))
    if asymmetric:  # packed along the first axis
        columns = [pack32([v + half for v in column], bits, spaced) for column in transpose(zeros)]
        c.add(prefix + ".weight_zero_point", "I32", [len(columns[0]), groups], flat(transpose(columns)))
    if shape:
        c.add(prefix + ".weight_shape", "I64", [2], [out, inputs])
    of = order if order and order[0] >= 0 else [i // group for i in range(inputs)]
    if order:
        c.add(prefix + ".weight_g_idx", "I32", [inputs], order)
    c.expect(prefix + ".weight", "int%d" % bits, [out, inputs],
             [(codes[o][i] - zeros[o][of[i]]) * scales[o][of[i]] for o in range(out) for i in range(inputs)], scheme)


def ct_config(fmt, *schemes):
    return {"quantization_config": {
        "quant_method": "compressed-tensors", "format": fmt, "version": "0.9.0", "ignore": ["lm_head"],
        "config_groups": {"group_%d" % i: {"targets": ["Linear"], "input_activations": None, "weights": scheme}
                          for i, scheme in enumerate(schemes)}}}


def make_compressed():
    random = Random(6)
    c = Checkpoint("compressed_pack", ct_config(
        "pack-quantized",
        {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 16},
        {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"},
        {"num_bits": 3, "type": "int", "symmetric": False, "strategy": "group", "group_size": 32}))
    packed(random, c, "plain", 6, 48, 4, 16, scheme="compressed-tensors int4, groups of 16")
    packed(random, c, "padded", 5, 20, 4, 20, scheme="compressed-tensors int4, one group")
    packed(random, c, "zeros", 10, 48, 4, 16, asymmetric=True,
           scheme="compressed-tensors int4 with zero points, groups of 16")
    packed(random, c, "ordered", 4, 64, 4, 16, asymmetric=True, order=random.shuffled([i // 16 for i in range(64)]))
    packed(random, c, "unused", 4, 32, 4, 16, order=[-1] * 32)
    packed(random, c, "channel", 6, 20, 8, 20)
    packed(random, c, "tensor", 3, 32, 8, 32, scale_shape=[1])
    packed(random, c, "dense", 24, 64, 3, 32, asymmetric=True)
    packed(random, c, "spaced", 12, 64, 3, 32, asymmetric=True, spaced=True)
    c.write()

    c = Checkpoint("compressed_pack_no_shape", ct_config(
        "pack-quantized", {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 16}))
    packed(random, c, "a", 6, 48, 4, 16, shape=False)
    c.write()

    c = Checkpoint("compressed_int8", ct_config(
        "int-quantized", {"num_bits": 8, "type": "int", "symmetric": False, "strategy": "channel"}))
    for prefix, groups, zero, order in (("rows", 1, False, None), ("zeros", 1, True, None),
                                        ("groups", 3, True, random.shuffled([i // 4 for i in range(12)]))):
        codes = [[random.below(256) - 128 for _ in range(12)] for _ in range(4)]
        scales = [[random.power() for _ in range(groups)] for _ in range(4)]
        zeros = [[random.below(256) - 128 if zero else 0 for _ in range(groups)] for _ in range(4)]
        c.add(prefix + ".weight", "I8", [4, 12], flat(codes))
        c.add(prefix + ".weight_scale", "BF16", [4, groups], flat(scales))
        if zero:
            c.add(prefix + ".weight_zero_point", "I8", [4, groups], flat(zeros))
        of = order or [i * groups // 12 for i in range(12)]
        if order:
            c.add(prefix + ".weight_g_idx", "I32", [12], order)
        c.expect(prefix + ".weight", "int8", [4, 12],
                 [(codes[r][i] - zeros[r][of[i]]) * scales[r][of[i]] for r in range(4) for i in range(12)],
                 "int8, groups of 4" if groups == 3 else "int8, a scale per row")
    c.write()

    c = Checkpoint("compressed_fp4", ct_config(
        "nvfp4-pack-quantized", {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}))
    for prefix, group, number in (("nv", 16, e4m3), ("mx", 32, e8m0)):
        codes = matrix(random, 3, 64, 16)
        scales = [[random.below(20) + 100 for _ in range(64 // group)] for _ in range(3)]
        data = [row[i] | row[i + 1] << 4 for row in codes for i in range(0, 64, 2)]
        c.add(prefix + ".weight_packed", "U8", [3, 32], data)
        c.add(prefix + ".weight_scale", "F8_E4M3" if group == 16 else "U8", [3, 64 // group], flat(scales))
        overall = 1.0
        if group == 16:
            overall = 3.0
            c.add(prefix + ".weight_global_scale", "F32", [1], [overall])
        c.expect(prefix + ".weight", prefix + "fp4", [3, 64],
                 [f32(e2m1(codes[r][i]) * f32(number(scales[r][i // group]) / overall))
                  for r in range(3) for i in range(64)],
                 "compressed-tensors %sfp4, groups of %d" % (prefix, group))
    c.write()


# MXFP4 ---------------------------------------------------------------------------------------------------------------


def make_mxfp4():
    random = Random(7)
    c = Checkpoint("mxfp4", {"quantization_config": {"quant_method": "mxfp4"}})
    for name, blocks_name, scales_name, shape in (
            ("mlp.experts.gate_up_proj", "_blocks", "_scales", [2, 6, 2]),
            ("mlp.experts.down_proj", "_blocks", "_scales", [2, 3, 1]),
            ("block.0.mlp.mlp1_weight", ".blocks", ".scales", [2, 2, 3])):
        count = math.prod(shape)
        codes = [[random.below(16) for _ in range(32)] for _ in range(count)]
        scales = [random.below(16) + 118 for _ in range(count)]
        scales[0], scales[-1] = 0, 255  # the smallest, and NaN
        data = []
        for block in codes:
            for i in range(16):
                data.append(block[2 * i] | block[2 * i + 1] << 4)  # even elements in the low half
        c.add(name + blocks_name, "U8", shape + [16], data)
        c.add(name + scales_name, "U8", shape, scales)
        if blocks_name == "_blocks":
            c.add(name + "_bias", "BF16", shape[:2], [0.0] * math.prod(shape[:2]))
        note = "fp4 %.6g, scale %.6g (group 1)" % (e2m1(codes[1][5]), e8m0(scales[1]))
        c.expect(name, "mxfp4", shape[:-1] + [shape[-1] * 32],
                 [e2m1(code) * e8m0(scales[b]) for b, block in enumerate(codes) for code in block],
                 "mxfp4, groups of 32", explain={"index": 37, "text": note})
        if blocks_name == "_blocks":
            c.expect(name + "_bias", "bf16", shape[:2])
    c.write()


# What does not fit together ------------------------------------------------------------------------------------------


def leave(c, *parts):
    """Adds tensors of zeros that must stay as they are: (name, dtype, shape, shown type)."""
    for name, dtype, shape, shown in parts:
        c.add(name, dtype, shape, [0] * math.prod(shape))
        c.expect(name, shown, shape)


def make_broken():
    random = Random(8)
    c = Checkpoint("broken_awq_gptq", {"quantization_config": {"bits": 4, "group_size": 32, "quant_method": "gptq",
                                                               "sym": False}})
    gptq(random, c, "good", 8, 64, 4, 32)
    leave(c, ("noscales.qweight", "I32", [8, 8], "i32"), ("noscales.qzeros", "I32", [2, 1], "i32"))
    c.find("noscales.qweight", "\"noscales.scales\" is missing")
    leave(c, ("nozeros.qweight", "I32", [8, 8], "i32"), ("nozeros.scales", "F16", [2, 8], "f16"))
    c.find("nozeros.qweight", "zero points are missing")
    leave(c, ("badgroup.qweight", "I32", [8, 8], "i32"), ("badgroup.scales", "F16", [4, 8], "f16"),
          ("badgroup.qzeros", "I32", [4, 1], "i32"))
    c.find("badgroup.qweight", "scales [4,8] do not fit 64 columns in groups of 32")
    leave(c, ("badbits.qweight", "I32", [16, 8], "i32"), ("badbits.scales", "F16", [2, 8], "f16"),
          ("badbits.qzeros", "I32", [2, 2], "i32"), ("badbits.g_idx", "I32", [64], "i32"))
    c.find("badbits.qweight", "config's bits")
    leave(c, ("neither.qweight", "I32", [8, 7], "i32"), ("neither.scales", "F16", [2, 8], "f16"),
          ("neither.qzeros", "I32", [2, 1], "i32"))
    c.find("neither.qweight", "neither awq nor gptq")
    leave(c, ("awqzeros.qweight", "I32", [64, 1], "i32"), ("awqzeros.scales", "F16", [2, 8], "f16"),
          ("awqzeros.qzeros", "I32", [1, 1], "i32"))
    c.find("awqzeros.qweight", "zero points do not fit")
    leave(c, ("awqgroup.qweight", "I32", [64, 1], "i32"), ("awqgroup.scales", "F16", [4, 8], "f16"),
          ("awqgroup.qzeros", "I32", [4, 1], "i32"))
    c.find("awqgroup.qweight", "groups of 32, the config's group_size")
    leave(c, ("twice.qweight", "I32", [8, 8], "i32"), ("twice.scales", "F16", [2, 8], "f16"),
          ("twice.qzeros", "I32", [2, 1], "i32"), ("twice.weight", "F16", [8, 64], "f16"))
    c.find("twice.qweight", "there is a tensor \"twice.weight\" already")
    c.write()

    c = Checkpoint("broken_gptq_no_config")
    leave(c, ("narrow.qweight", "I32", [8, 8], "i32"), ("narrow.scales", "F16", [2, 8], "f16"),
          ("narrow.qzeros", "I32", [2, 1], "i32"))  # out is so small that 3 and 4 bits need the same words
    c.find("narrow.qweight", "no config gives them")
    c.write()

    c = Checkpoint("broken_bnb")
    state = json.dumps({"quant_type": "nf4", "blocksize": 64, "dtype": "float16", "shape": [4, 32]}).encode()

    def four_bits(name, absmax, table, text, finding):
        leave(c, (name + ".weight", "U8", [64, 1], "u8"))
        if absmax:
            leave(c, (name + ".weight.absmax", "F32", [absmax], "f32"))
        if table:
            leave(c, (name + ".weight.quant_map", "F32", [table], "f32"))
        if text is not None:
            c.add(name + ".weight.quant_state.bitsandbytes__nf4", "U8", [len(text)], text)
            c.expect(name + ".weight.quant_state.bitsandbytes__nf4", "u8", [len(text)])
        c.find(name + ".weight", finding)

    four_bits("nostate", 2, 16, None, "no quant_state")
    four_bits("noabsmax", 0, 16, state, "absmax is missing")
    four_bits("short", 1, 16, state, "absmax does not fit blocksize")
    four_bits("table", 2, 15, state, "no table of 16 codes")
    four_bits("text", 2, 16, b"{\"blocksize\":", "quant_state cannot be read")
    four_bits("shape", 2, 16, state.replace(b"[4, 32]", b"[4, 64]"), "another number of elements")
    leave(c, ("eight.weight", "I8", [4, 8], "i8"), ("eight.SCB", "F32", [3], "f32"))
    c.find("eight.weight", "needs a scale per row, SCB is [3]")
    leave(c, ("noscb.weight", "I8", [4, 8], "i8"), ("noscb.weight_format", "U8", [], "u8"))
    c.find("noscb.weight", "\"noscb.SCB\", are missing")
    c.write()

    c = Checkpoint("broken_mlx", {"quantization": {"group_size": 64, "bits": 4}})
    leave(c, ("noscales.weight", "U32", [2, 16], "u32"), ("noscales.biases", "F16", [2, 2], "f16"))
    c.find("noscales.weight", "\"noscales.scales\" is missing")
    leave(c, ("nobiases.weight", "U32", [2, 16], "u32"), ("nobiases.scales", "F16", [2, 2], "f16"))
    c.find("nobiases.weight", "\"nobiases.biases\" is missing")
    leave(c, ("badgroup.weight", "U32", [2, 16], "u32"), ("badgroup.scales", "F16", [2, 4], "f16"),
          ("badgroup.biases", "F16", [2, 4], "f16"))
    c.find("badgroup.weight", "do not fit 4 bits in groups of 64")
    leave(c, ("uneven.weight", "U32", [2, 16], "u32"), ("uneven.scales", "F16", [2, 2], "f16"),
          ("uneven.biases", "F16", [2, 1], "f16"))
    c.find("uneven.weight", "do not fit together")
    leave(c, ("mode.weight", "U32", [2, 16], "u32"), ("mode.scales", "U8", [2, 1], "u8"))
    c.find("mode.weight", "fit no mode of mlx")
    c.write()

    c = Checkpoint("broken_mlx_no_config")
    leave(c, ("a.weight", "U32", [2, 8], "u32"), ("a.scales", "F16", [2, 1], "f16"), ("a.biases", "F16", [2, 1], "f16"))
    c.find("a.weight", "256, which several settings give")
    leave(c, ("ids.weight", "U32", [4], "u32"))  # no parts of any kind: just integers
    c.write()

    c = Checkpoint("broken_fp8", {"quantization_config": {"quant_method": "fp8", "weight_block_size": [4, 8]}})
    leave(c, ("noscales.weight", "F8_E4M3", [8, 16], "f8_e4m3"))
    c.find("noscales.weight", "scales are missing")
    leave(c, ("badblock.weight", "F8_E4M3", [8, 16], "f8_e4m3"), ("badblock.weight_scale_inv", "F32", [4, 2], "f32"))
    c.find("badblock.weight", "do not fit the config's blocks of 4x8")
    leave(c, ("rank.weight", "F8_E4M3", [8, 16], "f8_e4m3"), ("rank.weight_scale_inv", "F32", [2, 2, 2], "f32"))
    c.find("rank.weight", "do not fit")
    leave(c, ("zeros.weight", "I8", [8, 16], "i8"), ("zeros.weight_scale", "F32", [8, 1], "f32"),
          ("zeros.weight_zero_point", "I8", [4, 1], "i8"))
    c.find("zeros.weight", "zero points do not fit")
    c.write()

    c = Checkpoint("broken_compressed", ct_config(
        "pack-quantized", {"num_bits": 4, "type": "int", "symmetric": False, "strategy": "group", "group_size": 16}))
    def parts(name, words, groups, zeros, shape=True):
        leave(c, (name + ".weight_packed", "I32", [8, words], "i32"))
        if groups:
            leave(c, (name + ".weight_scale", "F16", [8, groups], "f16"))
        if zeros:
            leave(c, (name + ".weight_zero_point", "I32", [zeros, groups], "i32"))
        if shape:
            c.add(name + ".weight_shape", "I64", [2], [8, 48])
            c.expect(name + ".weight_shape", "i64", [2])
    parts("noscale", 6, 0, 0)
    c.find("noscale.weight_packed", "\"noscale.weight_scale\" is missing")
    parts("nozeros", 6, 3, 0)
    c.find("nozeros.weight_packed", "zero points are missing")
    parts("badgroup", 6, 6, 1)
    c.find("badgroup.weight_packed", "scales do not fit the group size")
    parts("badzeros", 6, 3, 2)
    c.find("badzeros.weight_packed", "zero points do not fit")
    parts("badbits", 12, 3, 1)
    c.find("badbits.weight_packed", "config's num_bits")
    leave(c, ("global.weight_packed", "U8", [2, 16], "u8"), ("global.weight_scale", "F8_E4M3", [2, 2], "f8_e4m3"))
    c.find("global.weight_packed", "weight_global_scale is missing")
    c.write()

    c = Checkpoint("broken_mxfp4")
    leave(c, ("a_blocks", "U8", [2, 3, 2, 16], "u8"))
    c.find("a_blocks", "\"a_scales\" is missing")
    leave(c, ("b_blocks", "U8", [2, 3, 2, 16], "u8"), ("b_scales", "U8", [2, 3, 1], "u8"))
    c.find("b_blocks", "the scales are [2,3,1]")
    c.write()

    c = Checkpoint("broken_config", "{\"quantization_config\": {\"bits\": 4, }")
    gptq(random, c, "a", 32, 64, 4, 32, version=1)
    c.find(None, "are ignored: at byte")
    c.write()


make_awq()
make_gptq()
make_bnb()
make_mlx()
make_fp8()
make_compressed()
make_mxfp4()
make_broken()
