"""Toy models of fourteen families in torch, for torch_zoo.py.

A Model holds a configuration and weights, drawn by chance. A Precision says what is rounded, and where. A Run is a
forward pass of a model in a precision that captures every step, and into which one bug can be planted (torch_bugs.py).
Everything is computed in f32 and rounded where the precision says so, so that a run is the same on every machine.
"""
import math
import random
from types import SimpleNamespace

import torch
import torch.nn.functional as functional

torch.set_num_threads(1)

FAMILIES = ("qwen3", "qwen2", "llama", "gemma", "phi", "gpt2", "opt", "vit", "whisper", "mla", "moe", "dsmoe", "dit",
            "granite")


# Precisions


def same(x):
    return x


def to_bf16(x):
    return x.bfloat16().float()


def to_f16(x):
    return x.half().float()


def to_tf32(x):
    bits = x.contiguous().view(torch.int32)
    return ((bits + 0xfff + ((bits >> 13) & 1)) & ~0x1fff).view(torch.float32)


def to_e4m3(x):
    size = x.abs().clamp(max=448.0)
    step = torch.exp2(torch.floor(torch.log2(size.clamp(min=2.0**-9))).clamp(min=-6) - 3)
    return torch.sign(x) * (torch.round(size / step) * step).clamp(max=448.0)


def largest(x):
    return x.abs().amax(-1, keepdim=True).clamp(min=1e-12)


def to_integers(x, bits):
    most = 2 ** (bits - 1) - 1
    step = largest(x) / most
    return torch.round(x / step).clamp(-most - 1, most) * step


def to_integers_from_least(x, bits):
    least = x.amin(-1, keepdim=True)
    step = ((x.amax(-1, keepdim=True) - least) / (2**bits - 1)).clamp(min=1e-12)
    return torch.round((x - least) / step) * step + least


def to_scaled_e4m3(x):
    step = largest(x) / 448
    return to_e4m3(x / step) * step


# how weights are stored: numbers that share a scale (0: a whole row), and what they become
STORED_WEIGHTS = {
    "int8": (0, lambda w: to_integers(w, 8)), "int8g": (32, lambda w: to_integers(w, 8)),
    "int4": (32, lambda w: to_integers_from_least(w, 4)), "int4c": (0, lambda w: to_integers(w, 4)),
    "int4g128": (128, lambda w: to_integers_from_least(w, 4)),
    "fp8": (0, to_scaled_e4m3), "fp8g": (128, to_scaled_e4m3),
    "w8a8": (0, lambda w: to_integers(w, 8)), "fp8a": (0, to_scaled_e4m3),
}
# what products take, token by token
ROUNDED_INPUTS = {"w8a8": lambda x: to_integers(x, 8), "fp8a": to_scaled_e4m3}
# what a cache gives back of keys and values: a head of a token shares a scale, or there is none
CACHES = {"kv8": to_e4m3, "kv8s": to_scaled_e4m3, "kvi8": lambda x: to_integers(x, 8)}
HONEST = ("f64 f64 tf32 bf16 bf16 bf16 f16 f16 bf16+res32 bf16+int8 f32+int8 f32+int4 bf16+int4 f32+int4c "
          "bf16+int4g128 f32+fp8 bf16+fp8g bf16+kv8 f32+kv8 bf16+kv8s f16+kvi8 bf16+w8a8 bf16+fp8a f16+int4 "
          "f32+int8g").split()
FAULTY = ("f64 f64 f64 tf32 bf16 bf16 bf16 f16 bf16+res32 bf16+int8 f32+int4 bf16+int4 f32+fp8 bf16+kv8").split()


class Precision:
    """TYPE+DETAIL...: the type of numbers between steps, then how weights, inputs or the cache are stored, or that the
    residual stream stays in f32 (res32). Bits of `variant`: steps inside norms, rotations and activations are rounded
    as well; so are cosines and sines; the router's logits are not."""

    def __init__(self, name, variant=0):
        self.name = name
        self.type, *self.details = name.split("+")
        self.round = {"bf16": to_bf16, "f16": to_f16}.get(self.type, same)
        self.round_stream = same if "res32" in self.details else self.round
        self.round_steps = self.round if variant & 1 else same
        self.round_angles = self.round if variant & 2 else same
        self.round_router = same if variant & 4 else self.round
        self.cache = next((CACHES[detail] for detail in self.details if detail in CACHES), None)
        self.is_half = self.type in ("bf16", "f16")
        self.weights = {}

    def weight(self, key, values):
        """As it is stored; key names it, so that it is rounded once."""
        if key not in self.weights:
            if values.dim() == 2 and not key.startswith(("embed", "lm_head", "pos")) and "router" not in key:
                for detail in self.details:
                    if detail in STORED_WEIGHTS:
                        group, store = STORED_WEIGHTS[detail]
                        rows, columns = values.shape
                        group = columns if not group or columns % group else group
                        values = store(values.reshape(rows, columns // group, group)).reshape(rows, columns)
            self.weights[key] = self.round(values)
        return self.weights[key]

    def product(self, x, y):
        if self.type == "tf32":
            return to_tf32(x) @ to_tf32(y)
        if self.type == "f64":
            return (x.double() @ y.double()).float()
        return x @ y

    def linear(self, x, key, weight, bias=None):
        for detail in self.details:
            if detail in ROUNDED_INPUTS and not key.startswith("lm_head"):
                x = ROUNDED_INPUTS[detail](x)
        y = self.product(x, self.weight(key, weight).t())
        return self.round(y if bias is None else y + self.round(bias))


ACTIVATIONS = {
    "silu": functional.silu, "gelu": functional.gelu, "relu": functional.relu, "none": same, "tanh": torch.tanh,
    "gelu_tanh": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x), "relu2": lambda x: functional.relu(x)**2,
    "sigmoid": torch.sigmoid, "leaky": lambda x: functional.leaky_relu(x, 0.01), "elu": functional.elu,
    "mish": functional.mish,
}


# Models


def draw_config(family, chance):
    """Sizes by chance, small enough to run in a second; the rest as the family has it."""
    c = SimpleNamespace(family=family)
    c.head_size = chance.choice([8, 16, 24, 32, 48, 64, 80, 128])
    c.heads = chance.choice([1, 2, 3, 4, 6, 8, 12])
    c.key_heads = chance.choice([k for k in range(1, c.heads + 1) if c.heads % k == 0])
    if family in ("gpt2", "phi", "vit", "whisper", "opt", "dit"):
        c.key_heads = c.heads
    while c.heads * c.head_size > 1024:
        c.heads = max(1, c.heads // 2)
        c.key_heads = math.gcd(c.key_heads, c.heads)
    c.width = chance.choice([32, 48, 64, 96, 128, 192, 256, 320, 512, 768, 1024])
    if chance.random() < 0.4:
        c.width = c.heads * c.head_size
    c.inner = int(c.width * chance.choice([1.5, 2, 2.667, 4])) // 8 * 8
    c.layers = chance.choice([1, 2, 2, 3, 4, 6, 8, 12, 24])
    c.tokens = chance.choice([3, 5, 7, 11, 17, 23, 33, 50, 77, 128, 300])
    while c.layers * (4 * c.width * c.heads * c.head_size + 3 * c.width * c.inner) > 12e6:
        if c.layers > 1:
            c.layers -= 1
        else:
            c.inner, c.width = max(32, c.inner // 16 * 8), c.width // 2
    per_token = 8 * c.width + 4 * c.inner + 6 * c.heads * c.head_size
    while c.tokens * c.layers * (per_token + 2 * c.heads * c.tokens) > 6e6:
        if c.tokens == 3:
            c.layers = max(1, c.layers - 1)
        c.tokens = max(3, c.tokens * 2 // 3)
    c.vocabulary = chance.choice([50, 101, 333, 1000, 5000])
    if c.tokens * c.vocabulary > 4e5:
        c.vocabulary = 333
    c.theta, c.epsilon = chance.choice([1e4, 1e4, 5e5, 1e6]), chance.choice([1e-5, 1e-6, 1e-6])
    c.norm, c.activation, c.gated = "rms", "silu", True
    c.head_norms = c.attention_bias = c.out_bias = c.mlp_bias = False
    c.turning, c.interleaved, c.rope_scale = c.head_size, False, 1
    c.softcap = c.last_softcap = c.window = 0
    c.embedding_scale = c.branch_scale = 1
    c.parallel = c.sandwich = c.positions = False
    c.causal = True
    plain = dict(norm="ln", gated=False, activation="gelu_tanh", attention_bias=True, out_bias=True, mlp_bias=True)
    learnt = dict(plain, positions=True, turning=0)
    c.__dict__.update({
        "qwen3": dict(head_norms=True), "qwen2": dict(attention_bias=True),
        "llama": dict(rope_scale=chance.choice([1, 4]), interleaved=chance.random() < 0.4),
        "gemma": dict(norm="rms1", activation="gelu_tanh", softcap=50, last_softcap=30, sandwich=True,
                      window=chance.choice([0, 4, 16]), embedding_scale=math.sqrt(c.width)),
        "phi": dict(plain, parallel=True, turning=max(2, c.head_size // 4 * 2)), "gpt2": learnt,
        "opt": dict(learnt, activation="relu"), "vit": dict(learnt, activation="gelu", causal=False),
        "granite": dict(branch_scale=0.22, embedding_scale=12.0),
    }.get(family, {}))
    c.experts = c.latent = 0
    if family in ("moe", "dsmoe"):
        c.experts = chance.choice([4, 8, 16])
        c.chosen = min(c.experts - 1, chance.choice([1, 2, 2, 4] if family == "moe" else [2, 3]))
        c.sigmoid = family == "dsmoe"
        c.shared = c.sigmoid or chance.random() < 0.4
        c.renormalized = c.sigmoid or chance.random() < 0.7
        c.routed_scale = 2.5 if c.sigmoid else 1
        c.inner = max(16, c.inner // 32 * 8)
    if family in ("mla", "dsmoe"):
        c.latent, c.query_latent = max(16, c.width // 4), max(24, c.width // 3)
        c.key_heads, c.turning, c.interleaved = c.heads, chance.choice([8, 16]), chance.random() < 0.5
    c.style = chance.choice(["random", "random", "trained", "trained", "low rank", "peaked"])
    c.weight_scale = chance.choice([0.5, 1, 1, 1.5])
    return c


class Model:
    def __init__(self, family, chance):
        self.config = c = draw_config(family, chance)
        self.generator = torch.Generator().manual_seed(chance.randrange(1 << 30))
        self.ids = [chance.randrange(c.vocabulary) for _ in range(c.tokens)]
        self.weights = {}
        self.add_embeddings(chance)
        for layer in range(c.layers):
            (self.add_block if family == "dit" else self.add_layer)(f"{layer}.")
        if family == "dit":
            self.start, self.time = 2 * self.normal(c.tokens, c.width), self.normal(1, c.width)
            self.add("last_modulation", 2 * c.width, c.width, 0.6)
            self.add("out", 16, c.width)
            return
        self.add_norm("norm", c.width)
        self.add("lm_head", c.vocabulary, c.width)
        if family == "whisper":
            self.encoded = self.normal(max(4, c.tokens * 2 // 3), c.width)

    def normal(self, *shape):
        return torch.randn(*shape, generator=self.generator)

    def add(self, key, rows, columns, scale=1.0):
        c = self.config
        weight = self.normal(rows, columns) * (scale * c.weight_scale / math.sqrt(columns))
        if c.style == "trained":  # rows and columns of many sizes, some inputs that count far more than others
            weight = weight * torch.exp(0.4 * self.normal(rows, 1)) * torch.exp(0.4 * self.normal(1, columns))
            weight[:, torch.randperm(columns, generator=self.generator)[:max(1, columns // 64)]] *= 3
        if c.style == "low rank":
            rank = max(2, min(rows, columns) // 8)
            low = self.normal(rows, rank) @ self.normal(rank, columns)
            weight = low * (scale * c.weight_scale / math.sqrt(rank * columns)) + 0.05 * weight
        self.weights[key] = weight

    def add_norm(self, key, width):
        c = self.config
        weight = 1 + 0.2 * self.normal(width) if c.style == "random" else torch.exp(0.6 * self.normal(width))
        self.weights[key] = weight - 1 if c.norm == "rms1" else weight
        if c.norm == "ln":
            self.weights[key + ".bias"] = 0.3 * self.normal(width)

    def add_bias(self, key, size, scale):
        self.weights[key + ".bias"] = scale * self.normal(size)

    def add_embeddings(self, chance):
        c = self.config
        table = self.normal(c.vocabulary, c.width) * chance.choice([0.02, 0.5, 1, 1])
        if c.style == "trained":  # two channels of a first token that are far larger than all others
            table = table * torch.exp(0.3 * self.normal(1, c.width))
            channels = torch.randperm(c.width, generator=self.generator)[:2]
            table[self.ids[0], channels] += 30 * table.std() * torch.tensor([1.0, -1.0])
            table[:, channels[0]] += 6 * table.std()
        self.weights["embed"] = table
        if c.positions:
            self.weights["positions"] = 0.5 * table.std() * self.normal(c.tokens + 4, c.width)

    def add_layer(self, at):
        c = self.config
        all_heads, all_keys = c.heads * c.head_size, c.key_heads * c.head_size
        peaked = 2.0 if c.style == "peaked" else 1.0
        self.add_norm(at + "norm1", c.width)
        self.add_norm(at + "norm2", c.width)
        if c.sandwich:
            self.add_norm(at + "after1", c.width)
            self.add_norm(at + "after2", c.width)
        if c.latent:
            self.add(at + "q_a", c.query_latent, c.width)
            self.add_norm(at + "q_a_norm", c.query_latent)
            self.add(at + "q_b", c.heads * (c.head_size + c.turning), c.query_latent, peaked)
            self.add(at + "kv_a", c.latent + c.turning, c.width)
            self.add_norm(at + "kv_a_norm", c.latent)
            self.add(at + "kv_b", 2 * all_heads, c.latent, peaked)
        else:
            for name, size, scale in (("q", all_heads, peaked), ("k", all_keys, peaked), ("v", all_keys, 1.0)):
                self.add(at + name, size, c.width, scale)
                if c.attention_bias:
                    self.add_bias(at + name, size, 0.3)
            if c.head_norms:
                self.add_norm(at + "q_norm", c.head_size)
                self.add_norm(at + "k_norm", c.head_size)
        self.add(at + "o", c.width, all_heads)
        if c.out_bias:
            self.add_bias(at + "o", c.width, 0.1)
        if c.experts:
            self.add(at + "router", c.experts, c.width, 1.5)
            if c.sigmoid:
                self.add_bias(at + "router", c.experts, 0.05)
        for part in [f"expert{e}." for e in range(c.experts)] + ["shared."] * (c.experts > 0 and c.shared) or [""]:
            if c.gated:
                self.add(at + part + "gate", c.inner, c.width)
            self.add(at + part + "up", c.inner, c.width)
            self.add(at + part + "down", c.width, c.inner)
        if c.mlp_bias:
            self.add_bias(at + "up", c.inner, 0.2)
            self.add_bias(at + "down", c.width, 0.1)
        if c.family == "whisper":
            self.add_norm(at + "cross_norm", c.width)
            for name, rows, columns in (("q", all_heads, c.width), ("k", all_keys, c.width), ("v", all_keys, c.width),
                                        ("o", c.width, all_heads)):
                self.add(at + "cross_" + name, rows, columns)

    def add_block(self, at):
        c = self.config
        all_heads = c.heads * c.head_size
        self.add(at + "modulation", 6 * c.width, c.width, 0.6)
        self.add_bias(at + "modulation", 6 * c.width, 0.2)
        for name, rows, columns in (("q", all_heads, c.width), ("k", all_heads, c.width), ("v", all_heads, c.width),
                                    ("o", c.width, all_heads), ("up", c.inner, c.width), ("down", c.width, c.inner)):
            self.add(at + name, rows, columns)


# Forward passes


def normalized(precision, x, weight, bias, kind, epsilon, bug=None):
    if bug == "skipped":
        return x
    if (kind == "ln") != (bug == "other_kind"):
        x = x - x.mean(-1, keepdim=True)
    if bug != "not_divided":
        x = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + epsilon)
    x = precision.round_steps(x)
    if bug != "no_weight":
        x = x * (precision.round(weight) + ((kind == "rms1") != (bug == "plus_one")))
    if bias is not None and bug != "no_bias":
        x = x + precision.round(bias)
    return precision.round(x)


class Angles:
    """How a rotation turns pairs of numbers. Bugs change one of these."""

    def __init__(self, config):
        self.places = torch.arange(config.tokens).double()
        self.theta, self.turning, self.scale = config.theta, config.turning, config.rope_scale
        self.interleaved, self.sign, self.exponent_over = config.interleaved, 1.0, None

    def turn(self, precision, x):
        d = self.turning
        speeds = self.theta ** (-torch.arange(0, d, 2).double() / (self.exponent_over or d))
        angles = (self.places / self.scale)[:, None] * speeds
        cos = precision.round_angles(angles.cos().float()[:, None])
        sin = precision.round_angles((self.sign * angles.sin()).float()[:, None])
        part, rest, step = x[..., :d], x[..., d:], precision.round_steps
        first, second = (part[..., 0::2], part[..., 1::2]) if self.interleaved else part.chunk(2, -1)
        one = step(first * cos) - step(second * sin)
        other = step(second * cos) + step(first * sin)
        turned = torch.stack([one, other], -1).flatten(-2) if self.interleaved else torch.cat([one, other], -1)
        return precision.round(torch.cat([turned, rest], -1))


class Run:
    """captures: what was seen, by name, in order. `fused`: attention rounds nothing between queries and context."""

    def __init__(self, model, precision, bug=None, fused=False):
        self.model, self.precision, self.bug, self.fused = model, precision, bug, fused
        self.captures = {}
        self.hidden = 0  # captures are left out while it is not 0
        (self.diffusion if model.config.family == "dit" else self.decoder)()

    def has(self, name, layer=None):
        return self.bug is not None and self.bug.name == name and self.bug.layer == layer

    def has_at(self, name, layer, part):
        return self.has(name, layer) and self.bug.part == part

    def see(self, name, x, layer=None):
        if self.hidden:
            return x
        if self.has_at("tampered", layer, name):
            x = self.bug.change(x, self)
        prefix = "" if layer is None else f"block_{layer}_" if self.model.config.family == "dit" else f"layer_{layer}_"
        self.captures[prefix + name] = x.clone()
        return x

    def linear(self, x, layer, name):
        key = f"{layer}.{name}"
        weights, bug = self.model.weights, self.bug
        weight, bias = weights[key], weights.get(key + ".bias")
        if bug and bug.layer == layer and bug.part == name:
            if bug.name.startswith("weight_"):
                weight, key = bug.change(weight, self.model), key + "." + bug.name
            if bug.name.startswith("bias_"):
                bias = bug.change(bias, self.model)
        return self.precision.linear(x, key, weight, bias)

    def norm(self, x, layer, name):
        c, weights, bug = self.model.config, self.model.weights, self.bug
        key, kind, epsilon = name if layer is None else f"{layer}.{name}", None, c.epsilon
        if bug and bug.name.startswith("norm_") and bug.layer == layer and bug.part == name:
            kind = bug.name[5:]
            epsilon = bug.value if kind == "epsilon" else epsilon
            key = f"{bug.value}.{name}" if kind == "other" else key
        return normalized(self.precision, x, weights[key], weights.get(key + ".bias"), c.norm, epsilon, kind)

    def mask(self, layer, queries, keys, causal, window):
        i, j = torch.arange(queries)[:, None], torch.arange(keys)[None]
        seen = torch.ones(queries, keys, dtype=torch.bool)
        if (causal and not self.has("mask_missing", layer)) or (not causal and self.has("mask_extra", layer)):
            seen = j <= i + int(self.has("mask_one_more", layer)) - int(self.has("mask_one_less", layer))
            seen = seen | ((i == 0) & (j == 0))
        window = self.bug.value if causal and self.has("window", layer) else window
        return seen & (j > i - window) if window else seen

    def softmax(self, layer, scores, seen):
        hidden = scores.masked_fill(~seen, float("-inf"))
        if self.has("softmax_scaled", layer):
            return torch.softmax(hidden * self.bug.value, -1)
        if self.has("softmax_over_queries", layer):
            return torch.softmax(hidden, 1).nan_to_num()
        if self.has("softmax_over_heads", layer):
            return torch.softmax(scores, 0) * seen
        if self.has("softmax_missing", layer):
            return scores * seen
        if self.has("softmax_no_sum", layer):
            return torch.exp(hidden - hidden.amax(-1, keepdim=True))
        if self.has("mask_after_softmax", layer):
            return torch.softmax(scores, -1) * seen
        return torch.softmax(hidden, -1)

    def attention(self, layer, q, k, v, causal, prefix="attn_", window=0, scale=None):
        c, precision = self.model.config, self.precision
        if precision.cache:
            k, v = precision.round(precision.cache(k)), precision.round(precision.cache(v))
        repeats = c.heads // k.shape[1]
        if self.has("heads_tiled", layer):
            k, v = k.repeat(1, repeats, 1), v.repeat(1, repeats, 1)
        else:
            k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
        if self.has("keys_for_values", layer):
            k, v = v, k
        scale = (scale or 1 / math.sqrt(q.shape[-1])) * (self.bug.value if self.has("attention_scale", layer) else 1)
        step = same if self.fused else precision.round
        scores = step(precision.product(q.permute(1, 0, 2), k.permute(1, 2, 0)) * scale)
        if c.softcap and not self.has("softcap_missing", layer):
            scores = step(torch.tanh(scores / c.softcap) * c.softcap)
        scores = self.see(prefix + "scores", scores.permute(1, 0, 2), layer).permute(1, 0, 2)
        probabilities = step(self.softmax(layer, scores, self.mask(layer, q.shape[0], k.shape[0], causal, window)))
        probabilities = self.see(prefix + "probs", probabilities.permute(1, 0, 2), layer).permute(1, 0, 2)
        context = precision.round(precision.product(probabilities, v.permute(1, 0, 2))).permute(1, 0, 2)
        return self.see(prefix + "context", context.contiguous(), layer)

    def add(self, layer, stream, branch, part, other):
        """The residual sum."""
        scale, kept = self.model.config.branch_scale, 1
        if self.bug and self.bug.layer == layer and self.bug.part == part:
            name = self.bug.name
            kept = {"residual_missing": 0, "residual_doubled": 2}.get(name, 1)
            scale = {"residual_missing": 1, "branch_missing": 0, "branch_twice": 2 * scale, "branch_negated": -scale,
                     "branch_scale": self.bug.value}.get(name, scale)
            stream = other if name == "residual_of_another" else stream
        return self.precision.round_stream(kept * stream + scale * branch)

    def angles(self, layer, side):
        angles, bug = Angles(self.model.config), self.bug
        if bug and bug.name.startswith("rope_") and bug.layer == layer and bug.part in (side, "both"):
            bug.change(angles)
        return angles

    def turned(self, layer, side, x):
        if self.has("rope_skipped", layer) and self.bug.part in (side, "both"):
            return x
        return self.angles(layer, side).turn(self.precision, x)

    def latent_attention(self, layer, x_q, x_k):
        c = self.model.config
        d, shape = c.head_size, (c.tokens, c.heads, -1)
        q = self.see("attn_q_a_proj", self.linear(x_q, layer, "q_a"), layer)
        q = self.see("attn_q_a_norm", self.norm(q, layer, "q_a_norm"), layer)
        q = self.see("attn_q_b_proj", self.linear(q, layer, "q_b"), layer).view(shape)
        both = self.see("attn_kv_a_proj", self.linear(x_k, layer, "kv_a"), layer)
        latent = self.norm(both[:, :c.latent].contiguous(), layer, "kv_a_norm")
        latent = self.see("attn_kv_a_norm", latent, layer)
        kv = self.see("attn_kv_b_proj", self.linear(latent, layer, "kv_b"), layer).view(shape)
        k, v = (kv[..., d:], kv[..., :d]) if self.has("latent_order", layer) else (kv[..., :d], kv[..., d:])
        q_turned = self.see("attn_q_pe_rope", self.turned(layer, "q", q[..., d:].contiguous()), layer)
        k_turned = self.turned(layer, "k", both[:, c.latent:].reshape(c.tokens, 1, c.turning))
        k_turned = self.see("attn_k_pe_rope", k_turned, layer)
        q, k = torch.cat([q[..., :d], q_turned], -1), torch.cat([k, k_turned.expand(c.tokens, c.heads, c.turning)], -1)
        return self.attention(layer, q, k, v.contiguous(), True,
                              scale=1 / math.sqrt(d) if self.has("latent_scale", layer) else None)

    def plain_attention(self, layer, x_q, x_k, x_v):
        c = self.model.config
        d = c.head_size
        q = self.see("attn_q_proj_raw", self.linear(x_q, layer, "q"), layer).view(c.tokens, c.heads, d)
        k = self.see("attn_k_proj_raw", self.linear(x_k, layer, "k"), layer).view(c.tokens, c.key_heads, d)
        v = self.see("attn_v_proj_raw", self.linear(x_v, layer, "v"), layer).view(c.tokens, c.key_heads, d)
        if self.has("query_layout", layer):
            q = q.reshape(c.tokens, d, c.heads).transpose(1, 2).contiguous()
        if self.has("key_layout", layer):
            k = k.reshape(c.tokens, d, c.key_heads).transpose(1, 2).contiguous()
        if c.head_norms:
            q = self.see("attn_q_normed", self.norm(q, layer, "q_norm"), layer)
            k = self.see("attn_k_normed", self.norm(k, layer, "k_norm"), layer)
        if c.turning:
            q = self.see("attn_q_rope", self.turned(layer, "q", q), layer)
            k = self.see("attn_k_rope", self.turned(layer, "k", k), layer)
        return self.attention(layer, q, k, v, c.causal, window=0 if layer % 2 else c.window)

    def cross_attention(self, layer, x, encoded):
        c = self.model.config
        entered = self.see("cross_attn_norm_output", self.norm(x, layer, "cross_norm"), layer)
        q, k, v = (self.see(f"cross_attn_{name}_proj", self.linear(given, layer, "cross_" + name), layer)
                   .view(given.shape[0], -1, c.head_size)
                   for name, given in (("q", entered), ("k", encoded), ("v", encoded)))
        context = self.attention(layer, q, k, v, False, prefix="cross_attn_")
        return self.see("cross_attn_o_proj", self.linear(context.reshape(c.tokens, -1), layer, "cross_o"), layer)

    def embeddings(self):
        c, precision, weights = self.model.config, self.precision, self.model.weights
        ids = (torch.tensor(self.model.ids) + self.has("ids_off_by_one")) % c.vocabulary
        x = precision.weight("embed", weights["embed"])[ids]
        if c.embedding_scale != 1 and not self.has("embedding_scale_missing"):
            x = precision.round(x * precision.round(torch.tensor(float(c.embedding_scale))))
        if c.positions and not self.has("positions_missing"):
            first = int(self.has("positions_off_by_one"))
            x = precision.round(x + precision.weight("positions", weights["positions"])[first:first + c.tokens])
        return self.see("input_embeddings", x)

    def decoder(self):
        c, precision = self.model.config, self.precision
        x = embedded = self.embeddings()
        for layer in range(c.layers):
            entered = self.see("input_hidden_states", x, layer)
            normed = self.see("attn_norm_output", self.norm(entered, layer, "norm1"), layer)
            x_q, x_k, x_v = (entered if self.has("attention_not_normed", layer) and self.bug.value in (side, "all")
                             else normed for side in "qkv")
            context = (self.latent_attention(layer, x_q, x_k) if c.latent
                       else self.plain_attention(layer, x_q, x_k, x_v))
            order = (1, 0, 2) if self.has("context_by_head", layer) else \
                (0, 2, 1) if self.has("context_transposed", layer) else (0, 1, 2)
            out = self.linear(context.permute(order).reshape(c.tokens, -1).contiguous(), layer, "o")
            out = self.see("attn_o_proj", out, layer)
            if c.sandwich:
                out = self.see("attn_post_norm", self.norm(out, layer, "after1"), layer)
            if c.parallel:
                grown, given = entered, normed
            else:
                x = self.see("attn_residual_output", self.add(layer, entered, out, "attn", embedded), layer)
                if c.family == "whisper":
                    crossed = self.cross_attention(layer, x, precision.round(self.model.encoded))
                    x = self.see("cross_attn_residual_output", self.add(layer, x, crossed, "cross", entered), layer)
                grown = x
                given = self.norm(entered if self.has("mlp_norm_of_another", layer) else x, layer, "norm2")
                given = self.see("mlp_norm_output", given, layer)
            given = grown if self.has("mlp_not_normed", layer) else given
            added = self.experts(layer, given) if c.experts else self.mlp(layer, given)
            if c.sandwich:
                added = self.see("mlp_post_norm", self.norm(added, layer, "after2"), layer)
            if c.parallel:
                x = precision.round_stream((0 if self.has("residual_missing", layer) else entered) +
                                           (0 if self.has("branch_missing", layer) else out) + added)
            else:
                x = self.add(layer, x, added, "mlp", entered)
            x = self.see("layer_output", entered if self.has("layer_skipped", layer) else x, layer)
        x = self.see("final_norm_output", self.norm(x, None, "norm"))
        logits = precision.linear(x, "lm_head", self.model.weights["lm_head"])
        if c.last_softcap and not self.has("last_softcap_missing"):
            logits = precision.round(torch.tanh(logits / c.last_softcap) * c.last_softcap)
        self.see("logits", logits)

    def mlp(self, layer, x):
        c, precision = self.model.config, self.precision
        function = ACTIVATIONS[self.bug.value if self.has("activation", layer) else c.activation]
        if c.gated:
            gate = self.see("mlp_gate_proj", self.linear(x, layer, "gate"), layer)
            up = self.see("mlp_up_proj", self.linear(x, layer, "up"), layer)
            if self.has("gate_and_up", layer):
                gate, up = up, gate
            if self.has("gate_clamped", layer):
                gate, up = gate.clamp(max=self.bug.value), up.clamp(-self.bug.value, self.bug.value)
            made = precision.round_steps(function(gate))
            made = made if self.has("up_ignored", layer) else made + up if self.has("gate_added", layer) else made * up
        else:
            made = function(self.see("mlp_up_proj", self.linear(x, layer, "up"), layer))
        made = self.see("mlp_intermediate", precision.round(made), layer)
        return self.see("mlp_down_proj", self.linear(made, layer, "down"), layer)

    def expert(self, layer, part, x):
        precision = self.precision
        made = precision.round(ACTIVATIONS[self.model.config.activation](self.linear(x, layer, part + ".gate")))
        return self.linear(precision.round(made * self.linear(x, layer, part + ".up")), layer, part + ".down")

    def route(self, layer, x):
        """The experts of each token and their weights."""
        c, precision = self.model.config, self.precision
        table = precision.weight(f"{layer}.router", self.model.weights[f"{layer}.router"])
        logits = self.see("router_logits", precision.round_router(precision.product(x, table.t())), layer)
        scores = torch.sigmoid(logits) if c.sigmoid != self.has("router_function", layer) else torch.softmax(logits, -1)
        ranked = scores
        if c.sigmoid and not self.has("router_bias_missing", layer):
            ranked = scores + self.model.weights[f"{layer}.router.bias"]
        indices = torch.topk(ranked, c.chosen)[1]
        weights = scores.gather(1, indices)
        if self.has("router_softmax_after", layer):
            weights = torch.softmax(weights, -1)
        if self.has("router_one_less", layer):
            weights[:, -1] = 0
        if c.renormalized != self.has("router_renormalized", layer) and not self.has("router_softmax_after", layer):
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        weights = weights * (1 if self.has("router_scale_missing", layer) else c.routed_scale)
        weights = self.see("router_weights", precision.round(weights), layer)
        self.see("router_indices", indices, layer)
        return indices, torch.full_like(weights, 1 / c.chosen) if self.has("router_ignored", layer) else weights

    def experts(self, layer, x):
        c, precision = self.model.config, self.precision
        indices, weights = self.route(layer, x)
        order = list(range(c.experts))
        if self.has("experts_rolled", layer):
            order = order[1:] + order[:1]
        if self.has("experts_exchanged", layer):
            order[:2] = order[1::-1]
        out = torch.zeros_like(x)
        for expert in range(c.experts):
            token, place = (indices == expert).nonzero(as_tuple=True)
            if len(token):
                made = self.expert(layer, f"expert{order[expert]}", x[token])
                if self.has("expert_halved", layer) and expert == self.bug.value:
                    made = 0.5 * made
                out.index_add_(0, token, precision.round(made * weights[token, place][:, None]))
        out = self.see("experts_output", precision.round(out), layer)
        if c.shared:
            made = self.see("shared_expert_output", self.expert(layer, "shared", x), layer)
            out = out if self.has("shared_missing", layer) else precision.round(out + made)
        return out

    def diffusion(self):
        """Blocks with adaptive norms. Models of the random style show fewer points."""
        c, precision, model = self.model.config, self.precision, self.model
        rich = c.style != "random"
        x = self.see("img_in", precision.round(model.start))
        time = precision.round(functional.silu(precision.round(model.time)))

        def plain_norm(z):
            z = z - z.mean(-1, keepdim=True)
            return precision.round(z * torch.rsqrt((z * z).mean(-1, keepdim=True) + c.epsilon))

        for layer in range(c.layers):
            modulation = self.see("modulation", self.linear(time, layer, "modulation"), layer)
            shift, scale, gate, shift2, scale2, gate2 = modulation.chunk(6, -1)
            entered = self.see("normed", x if self.has("ada_not_normed", layer) else plain_norm(x), layer)
            if self.has("ada_shift_for_scale", layer):
                shift, scale = scale, shift
            if self.has("ada_gate_for_scale", layer):
                scale, gate = gate, scale
            entered = entered * ((not self.has("ada_no_one", layer)) + scale)
            entered = precision.round(entered if self.has("ada_no_shift", layer) else entered + shift)
            entered = self.see("modulated", entered, layer)
            q, k, v = (self.linear(entered, layer, name).view(c.tokens, c.heads, -1) for name in "qkv")
            if rich:
                q, k, v = self.see("q", q, layer), self.see("k", k, layer), self.see("v", v, layer)
            self.hidden, fused, self.fused = 1, self.fused, True
            context = self.attention(layer, q, k, v, False)
            self.hidden, self.fused = 0, fused
            out = self.see("attn_out", self.linear(context.reshape(c.tokens, -1), layer, "o"), layer)
            gate = {"ada_gate_negated": -gate, "ada_gate_missing": torch.ones_like(gate),
                    "ada_gate_tanh": torch.tanh(gate), "ada_gate_of_another": gate2
                    }.get(self.bug.name if self.bug and self.bug.layer == layer else None, gate)
            x = self.see("attn_residual", precision.round_stream(x + gate * out), layer)
            entered = plain_norm(x)
            modulated = precision.round(entered * (1 + scale2) + shift2)
            if rich:
                entered = self.see("normed2", entered, layer)
                modulated = self.see("modulated2", modulated, layer)
            function = ACTIVATIONS[self.bug.value if self.has("activation", layer) else "gelu_tanh"]
            made = precision.round(function(self.linear(modulated, layer, "up")))
            made = self.see("ffn_out", self.linear(made, layer, "down"), layer)
            x = self.see("block_output", precision.round_stream(x + gate2 * made), layer)
        shift, scale = precision.linear(time, "last_modulation", model.weights["last_modulation"]).chunk(2, -1)
        x = self.see("norm_out", precision.round(plain_norm(x) * (1 + scale) + shift))
        self.see("proj_out", precision.linear(x, "out", model.weights["out"]))


def draw_model(family, seed):
    return Model(family, random.Random(seed))
