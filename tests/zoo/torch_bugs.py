"""Bugs that torch_zoo.py plants into runs of toy models (torch_models.py).

A Bug has a name that the forward pass asks for, a layer (None: the whole model), the part of it that is meant, a value,
and what it does to weights, biases, angles or captured numbers. `causes` are the answers of the diagnosis that would
send a person to the right line of code.
"""
import math
import random

import torch

from torch_models import ACTIVATIONS, to_bf16, to_e4m3, to_f16, to_integers


class Bug:
    def __init__(self, name, causes, layer=None, part=None, value=None, change=None, how=None, exact=False):
        self.name, self.causes, self.layer, self.part, self.value, self.change = \
            name, causes.split(), layer, part, value, change
        self.how = how or name  # what to call it in a report
        self.exact = exact  # it is one only where the run itself is exact


    def is_in_queries_or_keys(self):
        """It changes what attention weighs values with, and not the values."""
        part = self.part or ""
        if self.name.startswith("rope_") or self.name in ("query_layout", "key_layout"):
            return True
        if self.name.startswith(("weight_", "bias_")):
            return part in ("q", "k", "q_a", "q_b")
        if self.name.startswith("norm_"):
            return part in ("q_norm", "k_norm", "q_a_norm")
        return part in ("attn_q_proj_raw", "attn_k_proj_raw", "attn_q_b_proj")


class Shop:
    """Makes bugs for one model, in layers that chance picks."""

    def __init__(self, model, chance):
        self.model, self.chance, self.config, self.made = model, chance, model.config, []
        names = "q k v o gate up down q_a q_b kv_a kv_b cross_q cross_k cross_v cross_o".split()
        self.weights = [name for name in names if f"0.{name}" in model.weights]

    def layer(self):
        return self.chance.randrange(self.config.layers)

    def beside(self, layer):
        return self.chance.choice([other for other in (layer - 1, layer + 1) if 0 <= other < self.config.layers])

    def add(self, name, causes, **more):
        self.made.append(Bug(name, causes, **{"layer": self.layer(), **more}))

    def weight(self, how, causes, change, names=None, **more):
        self.add("weight_" + how, causes, part=self.chance.choice(names or self.weights), change=change, **more)

    def weight_of(self, how, causes, name, other):
        """The weight of another projection of the same layer."""
        layer = self.layer()
        self.weight("of_" + how, causes, lambda _, model: model.weights[f"{layer}.{other}"], [name], layer=layer)

    def of_another_layer(self, kind, name):
        layer = self.layer()
        other = self.beside(layer)
        ending = ".bias" if kind == "bias" else ""
        self.add(f"{kind}_of_another_layer", "unrelated swapped-with" if kind == "weight" else
                 "offset channels heads term-missing term-extra", layer=layer, part=name,
                 change=lambda _, model: model.weights[f"{other}.{name}{ending}"])


def fixed():
    return torch.Generator().manual_seed(5)


def interleaved(size):
    return lambda w, _: w.view(w.shape[0] // size, 2, size // 2, -1).transpose(1, 2).reshape(w.shape).contiguous()


def without_second_half(weight, _):
    weight = weight.clone()
    weight[:, weight.shape[1] // 2:] = 0
    return weight


def halves_exchanged(weight, _):
    half = weight.shape[0] // 2
    return torch.cat([weight[half:2 * half], weight[:half], weight[2 * half:]])


def without_row(row):
    def change(weight, _):
        weight = weight.clone()
        weight[row] = 0
        return weight
    return change


def weight_bugs(shop):
    c, chance, weights = shop.config, shop.chance, shop.model.weights
    for name in chance.sample(shop.weights, min(3, len(shop.weights))):
        if weights[f"0.{name}"].shape[0] == weights[f"0.{name}"].shape[1]:
            shop.weight("transposed", "transposed-weight unrelated permuted", lambda w, _: w.t().contiguous(), [name])
        shop.weight("random", "unrelated", lambda w, _: torch.randn(w.shape, generator=fixed()) * w.std(), [name])
        shop.weight("untrained", "unrelated", lambda w, _: (2 * torch.rand(w.shape, generator=fixed()) - 1) /
                    math.sqrt(w.shape[1]), [name])
        if c.layers > 1:
            shop.of_another_layer("weight", name)
    shop.weight("rows_reversed", "permuted", lambda w, _: w.flip(0).contiguous())
    shop.weight("columns_reversed", "unrelated permuted wrong-input", lambda w, _: w.flip(1).contiguous())
    shop.weight("half_used", "term-missing unrelated wrong-input scaled", without_second_half)
    shop.weight("halves", "permuted shifted", halves_exchanged)  # further on by a half, around the end
    name = chance.choice(shop.weights)
    shop.weight("row_zero", "zeros channels channel-scaled",
                without_row(chance.randrange(weights[f"0.{name}"].shape[0])), [name])
    if not c.latent:
        shop.weight("interleaved", "permuted rotation", interleaved(c.head_size), ["q", "k"])
        shop.weight_of("values", "swapped-with", "k", "v")
    if "gate" in shop.weights:
        shop.weight_of("up", "swapped-with permuted", "gate", "up")
    for name in ("q", "up", "down", "o", "v"):
        offset = "offset channels heads"
        if f"0.{name}.bias" in weights:
            if chance.random() < 0.5:
                shop.add("bias_missing", offset + " term-missing bias affine", part=name, change=lambda b, _: None)
            if c.layers > 1 and chance.random() < 0.5:
                shop.of_another_layer("bias", name)
            if chance.random() < 0.3:
                shop.add("bias_twice", "offset term-extra", part=name, change=lambda b, _: 2 * b)
        elif name in shop.weights and chance.random() < 0.3:
            size = weights[f"0.{name}"].shape[0]
            shop.add("bias_extra", offset + " term-extra", part=name,
                     change=lambda b, _, size=size: 0.3 * torch.randn(size, generator=fixed()))


def norm_bugs(shop):
    c = shop.config
    names = [name for name in "norm1 norm2 q_norm k_norm after1 after2 q_a_norm kv_a_norm cross_norm".split()
             if f"0.{name}" in shop.model.weights and not (c.parallel and name == "norm2")]
    kinds = {"no_weight": "channel-scaled affine", "plus_one": "channel-scaled", "epsilon": "row-scaled",
             "skipped": "skipped-op row-scaled channel-scaled", "not_divided": "row-scaled skipped-op scaled",
             "other_kind": "centering affine" + (" offset" if c.norm == "ln" else "")}
    if c.norm == "ln":
        kinds["no_bias"] = "offset channels affine"
    for kind, causes in kinds.items():
        shop.add("norm_" + kind, causes, part=shop.chance.choice(names),
                 value=shop.chance.choice([1e-4, 1e-3, 1e-2, 0.1]))
    if c.layers > 1:
        layer = shop.layer()
        shop.add("norm_other", "channel-scaled affine", layer=layer, part=shop.chance.choice(names),
                 value=shop.beside(layer))


def rotation_bugs(shop):
    c, chance = shop.config, shop.chance
    if not c.turning:
        return
    theta, places = chance.choice([t for t in (1e3, 1e4, 5e5, 1e6) if t != c.theta]), chance.choice([1, -1, 3, 100])
    scale = 1 if c.rope_scale != 1 else chance.choice([2, 4, 8])

    def last_moved(angles):
        angles.places[-1] -= 1

    def setting(name, value):
        return lambda angles: setattr(angles, name, value)

    for how, causes, change in (
            ("theta", "", setting("theta", theta)), ("sign", "", setting("sign", -1.0)),
            ("pairing", "permuted", setting("interleaved", not c.interleaved)),
            ("offset", "", lambda angles: setattr(angles, "places", angles.places + places)),
            ("last", "rows", last_moved), ("half", "", setting("turning", max(2, c.turning // 4 * 2))),
            ("skipped", "skipped-op", lambda angles: None), ("scale", "", setting("scale", scale)),
            ("exponent", "", setting("exponent_over", 2 * c.turning))):
        shop.add("rope_" + how, "rotation " + causes, part=chance.choice(["both", "q", "k"]), change=change)


def attention_bugs(shop):
    c, chance = shop.config, shop.chance
    root = math.sqrt(c.head_size)
    shop.add("attention_scale", "scaled softmax",
             value=chance.choice([root, 1 / root, 0.5, 2, root / math.sqrt(c.width)]))
    shop.add("softmax_scaled", "softmax scaled", value=chance.choice([0.5, 2, 1.5, 1 / root, 1.2]))
    for name in ("over_queries", "over_heads", "missing", "no_sum"):
        shop.add("softmax_" + name, "softmax skipped-op mask")
    if c.causal:
        for name in ("missing", "one_more", "one_less", "after_softmax"):
            shop.add("mask_" + name, "mask softmax")
        shop.add("window", "mask", layer=0 if c.window else shop.layer(),
                 value=chance.choice([0, c.window + 1] if c.window else [2, 3, max(2, c.tokens // 2)]))
    else:
        shop.add("mask_extra", "mask")
    if c.softcap:
        shop.add("softcap_missing", "clamped softmax scaled activation")
    if 1 < c.key_heads < c.heads:
        shop.add("heads_tiled", "heads permuted wrong-input swapped-with")
    if c.latent:
        shop.add("latent_order", "wrong-input permuted swapped-with")
        shop.add("latent_scale", "scaled softmax")
    else:
        shop.add("keys_for_values", "wrong-input swapped-with")  # and values for keys
        shop.add("query_layout", "permuted heads")
        shop.add("key_layout", "permuted heads")
    shop.add("context_by_head", "unrelated permuted wrong-input")
    shop.add("context_transposed", "unrelated permuted wrong-input")
    shop.add("attention_not_normed", "wrong-input row-scaled unrelated", value=chance.choice(["q", "v", "all"]))


def stream_bugs(shop):
    c, chance = shop.config, shop.chance
    parts = ["mlp"] if c.parallel else ["attn", "mlp"] + ["cross"] * (c.family == "whisper")
    # a sum that lacks one of its two terms is the other one unchanged
    kinds = {"residual_missing": "term-missing skipped-op", "branch_missing": "term-missing skipped-op"}
    if not c.parallel:
        kinds.update({"residual_doubled": "term-extra scaled", "branch_twice": "term-extra scaled",
                      "residual_of_another": "wrong-input term-missing term-extra",
                      "branch_negated": "term-extra sign-flipped term-missing scaled modulation"})
        shop.add("mlp_norm_of_another", "wrong-input swapped-with")
    if c.branch_scale != 1:
        kinds["branch_scale"] = "scaled term-extra"
    for name, causes in kinds.items():
        shop.add(name, causes, part=chance.choice(parts), value=1.0)
    shop.add("mlp_not_normed", "wrong-input row-scaled unrelated")
    shop.add("layer_skipped", "skipped-op stale term-missing swapped-with")
    shop.add("ids_off_by_one", "unrelated shifted rows", layer=None)
    if c.positions:
        shop.add("positions_missing", "unrelated term-missing offset affine", layer=None)
        shop.add("positions_off_by_one", "shifted unrelated offset term-missing", layer=None)
    if c.embedding_scale != 1:
        shop.add("embedding_scale_missing", "scaled", layer=None)
    if c.last_softcap:
        shop.add("last_softcap_missing", "clamped activation scaled", layer=None)


def mlp_bugs(shop):
    c, chance = shop.config, shop.chance
    if c.experts:
        router = "router-gate routing softmax scaled row-scaled rows zeros"
        for name in ("router_function", "router_renormalized", "router_softmax_after", "router_one_less",
                     "router_ignored", "experts_rolled", "experts_exchanged", "expert_halved"):
            shop.add(name, router + (" unrelated expert-order" if name.startswith("expert") else ""),
                     value=chance.randrange(c.experts))
        if c.shared:
            shop.add("shared_missing", "term-missing")
        if c.routed_scale != 1:
            shop.add("router_scale_missing", "scaled router-gate")
        if c.sigmoid:
            shop.add("router_bias_missing", "router-gate routing")
        return
    for function in chance.sample([name for name in ACTIVATIONS if name != c.activation], 5):
        # without a gate, no function at all is a step that was not applied
        causes = "activation skipped-op" if function == "none" and not c.gated else "activation"
        shop.add("activation", causes, value=function, how="activation_" + function)
    if c.gated:
        shop.add("gate_and_up", "activation swapped-with wrong-input")
        shop.add("gate_clamped", "clamped", value=1.0)
        shop.add("up_ignored", "term-missing activation wrong-input skipped-op")
        shop.add("gate_added", "activation term-extra")


def diffusion_bugs(shop):
    c, chance = shop.config, shop.chance
    for name, causes in (
            ("shift_for_scale", "modulation permuted"), ("no_one", "term-missing modulation"),
            ("no_shift", "offset term-missing modulation"), ("gate_for_scale", "modulation"),
            ("gate_negated", "modulation sign-flipped term-extra term-missing"),
            ("gate_missing", "modulation channel-scaled"), ("gate_tanh", "modulation activation"),
            ("gate_of_another", "modulation"), ("not_normed", "skipped-op row-scaled centering affine")):
        shop.add("ada_" + name, causes)
    shop.add("attention_scale", "softmax unrelated scaled", value=chance.choice([math.sqrt(c.head_size), 0.5, 2]))
    shop.add("mask_extra", "mask softmax unrelated")
    for function in ("silu", "gelu", "relu", "quick_gelu"):
        shop.add("activation", "activation unrelated", value=function, how="activation_" + function)
    for name in ("q", "o", "down", "modulation"):
        shop.weight("random", "unrelated", lambda w, _: torch.randn(w.shape, generator=fixed()) * w.std(), [name])
        if c.layers > 1:
            shop.of_another_layer("weight", name)


# What happens to numbers in memory, whatever made them


class Damage:
    """Changes to a captured tensor, whose first axis is the tokens. Chance picks the same place each time."""

    def __init__(self, config, chance):
        self.config, self.seed = config, chance.randrange(1 << 20)

    def pick(self, count):
        return random.Random(self.seed).randrange(count)

    def flat(self, change):
        return lambda x, _: change(x.reshape(x.shape[0], -1)).reshape(x.shape)

    def token(self, change):
        def damage(x, _):
            x, at = x.clone(), self.pick(x.shape[0])
            x[at] = change(x[at])
            return x
        return damage

    def columns(self, count, change):
        """One of the parts of `count` columns."""
        def damage(x):
            x = x.clone()
            first = self.pick(max(1, x.shape[1] // count)) * count if x.shape[1] % count == 0 else 0
            x[:, first:first + count] = change(x[:, first:first + count])
            return x
        return self.flat(damage)

    def numbers(self, count, change):
        def damage(x, _):
            flat = x.clone().reshape(-1)
            for at in random.Random(self.seed).sample(range(flat.numel()), count):
                flat[at] = change(flat[at])
            return flat.reshape(x.shape)
        return damage

    def flipped_bit(self, value):
        bit = random.Random(self.seed).choice([26, 27, 28, 29, 30])
        return (value.reshape(1).view(torch.int32) ^ (1 << bit)).view(torch.float32)[0]

    def seen_before(self, x, run):
        return [other for name, other in run.captures.items()
                if name.startswith(("layer_", "block_")) and other.shape == x.shape and other.dtype == x.dtype]

    def stale_end(self, x, run):
        before = self.seen_before(x, run)
        kept = x.shape[0] - max(1, x.shape[0] // 3)
        return torch.cat([x[:kept], before[-1][kept:]]) if before else x

    def another(self, x, run):
        before = self.seen_before(x, run)
        return before[self.pick(len(before))].clone() if before else x


def cut_to_integers(x, _):
    return to_integers(x.reshape(1, -1), 8).reshape(x.shape)


def damages(config, chance):
    d = Damage(config, chance)
    tokens, ranks = config.tokens, chance.choice([2, 4, 8])
    factor = chance.choice([0.5, 2, math.sqrt(config.head_size), 1 / math.sqrt(config.head_size),
                            math.sqrt(config.width), 1.1, 0.9, 1.02])
    quarter, third = max(1, tokens // 4), max(1, tokens // 3)
    head = config.head_size
    return {
        "scaled": ("scaled", lambda x, _: x * factor), "offset": ("offset", lambda x, _: x + 0.3 * x.std()),
        "negated": ("sign-flipped scaled", lambda x, _: -x), "summed_over_ranks": ("scaled", lambda x, _: x * ranks),
        "divided_by_ranks": ("scaled", lambda x, _: x / ranks),
        "halves": ("permuted shifted", d.flat(lambda x: x.roll(x.shape[1] // 2, 1))),
        "channels_reversed": ("permuted", d.flat(lambda x: x.flip(1))),
        "channels_rolled": ("permuted shifted", d.flat(lambda x: x.roll(1, 1))),
        "interleaved": ("permuted", d.flat(lambda x: torch.stack(x.chunk(2, 1), -1).flatten(1)
                                           if x.shape[1] % 2 == 0 else x)),
        "transposed": ("permuted", lambda x, _: x.reshape(x.shape[-1], -1).t().reshape(x.shape).contiguous()),
        "tokens_reversed": ("permuted shifted rows", lambda x, _: x.flip(0)),
        "tokens_rolled": ("shifted", lambda x, _: x.roll(1, 0)),
        "tokens_exchanged": ("permuted rows swapped-with shifted", lambda x, _: torch.cat([x[1:2], x[:1], x[2:]])),
        "token_scaled": ("rows row-scaled", d.token(lambda x: 1.3 * x)),
        "token_zero": ("zeros rows", d.token(lambda x: 0 * x)),
        "token_random": ("rows", d.token(lambda x: torch.randn(x.shape, generator=fixed()) * x.std())),
        "token_nan": ("nan", d.token(lambda x: x * float("nan"))),
        "head_zero": ("zeros heads", d.columns(head, lambda x: 0 * x)),
        "head_scaled": ("heads scaled channels channel-scaled", d.columns(head, lambda x: 1.5 * x)),
        "head_negated": ("heads sign-flipped channels channel-scaled", d.columns(head, lambda x: -x)),
        "head_reversed": ("heads permuted channels", d.columns(head, lambda x: x.flip(1))),
        "channel_scaled": ("channels channel-scaled", d.columns(1, lambda x: 2 * x)),
        "channel_zero": ("channels zeros channel-scaled", d.columns(1, lambda x: 0 * x)),
        "channel_offset": ("channels offset", d.columns(1, lambda x: x + 2 * x.std() + 0.1)),
        "end_zero": ("zeros", lambda x, _: torch.cat([x[:-quarter], 0 * x[-quarter:]])),
        "all_zero": ("zeros", lambda x, _: 0 * x), "end_stale": ("stale rows", d.stale_end),
        "of_another": ("swapped-with skipped-op wrong-input stale", d.another),
        "unwritten": ("unwritten", lambda x, _: torch.cat([x[:-third], torch.full_like(x[-third:], -431602080.0)])),
        "nan": ("nan", d.numbers(2, lambda _: float("nan"))), "infinite": ("inf", d.numbers(1, lambda _: float("inf"))),
        "bit_flipped": ("sparse", d.numbers(1, d.flipped_bit)),
        "overwritten": ("sparse", d.numbers(3, lambda x: 3 + 0 * x)),
        "clamped": ("clamped", lambda x, _: x.clamp(-1.2 * x.std(), 1.2 * x.std())),
        "bf16_as_f16": ("dtype-confusion", lambda x, _: x.bfloat16().view(torch.int16).view(torch.float16).float()),
        "f16_as_bf16": ("dtype-confusion", lambda x, _: x.half().view(torch.int16).view(torch.bfloat16).float()),
        "to_f16": ("rounding", lambda x, _: to_f16(x)), "to_bf16": ("rounding", lambda x, _: to_bf16(x)),
        "to_e4m3": ("rounding quantization", lambda x, _: to_e4m3(x)),
        "to_int8": ("quantization rounding", cut_to_integers),
        "mean_removed": ("centering", d.flat(lambda x: x - x.mean(1, keepdim=True))),
        "squared": ("activation", lambda x, _: x * x.abs()),
    }


EXACT_ONLY = ("to_f16", "to_bf16", "to_e4m3", "to_int8", "bit_flipped", "bf16_as_f16", "f16_as_bf16")
WITH_HEADS = ("attn_context", "attn_q_proj_raw", "attn_k_proj_raw", "attn_v_proj_raw", "attn_kv_b_proj", "attn_out")


def damage_bugs(shop):
    c = shop.config
    if c.family == "dit":
        points = ["normed", "modulated", "attn_out", "attn_residual", "ffn_out", "block_output"]
    else:
        points = ["attn_norm_output", "attn_context", "attn_o_proj", "layer_output"]
        points += [] if c.parallel else ["attn_residual_output", "mlp_norm_output"]
        points += ["experts_output"] if c.experts else ["mlp_up_proj", "mlp_intermediate", "mlp_down_proj"]
        points += ["attn_q_b_proj", "attn_kv_b_proj"] if c.latent else \
            ["attn_q_proj_raw", "attn_k_proj_raw", "attn_v_proj_raw"]
    for name, (causes, change) in damages(c, shop.chance).items():
        fitting = [point for point in points if point in WITH_HEADS] if name.startswith("head_") else points
        shop.add("tampered", causes, part=shop.chance.choice(fitting), change=change, how=name,
                 exact=name in EXACT_ONLY)


def draw_bugs(model, chance):
    """One of each kind that fits into the model."""
    shop = Shop(model, chance)
    if model.config.family == "dit":
        diffusion_bugs(shop)
    else:
        for kind in (weight_bugs, norm_bugs, rotation_bugs, attention_bugs, stream_bugs, mlp_bugs):
            kind(shop)
    damage_bugs(shop)
    return shop.made
