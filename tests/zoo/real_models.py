#!/usr/bin/env python3
"""Scores `tsleuth compare` on models of the transformers library: honest runs and planted bugs.

usage: tests/zoo/real_models.py BINARY [--seed N] [--models llama,qwen3] [--seconds N] [--keep FOLDER]

Needs torch and transformers, and is no part of the test suite for that reason; a GPU is used where there is one. Each
architecture is made small, with random weights, and run in f32 on the CPU as the reference. Candidates are the same
model in other precisions, with other attention kernels and quantized weights, which must not be alarmed, and with one
bug each, which must be found where it was planted. Traces are made by the capture package of this project. Prints
everything that went wrong, and a line with the totals. Other seeds make other weights, sizes, prompts and layers. Other
architectures of the library than those listed here may be named with --models, and are made as small as they can be.

Some rows of it are known to be no mistakes of the program: SDPA ignores Gemma 2's softcap, and Doge has no causal mask
with it, which it reports; an epsilon
of 0.03 changes nothing that sixteen bits could show in models whose embeddings are large; OLMo's epsilon, GPT-Neo's mask
and PhiMoE's frequencies are not where the bugs change them, so that these runs are right.
"""
import copy
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "capture" / "python"))

import torch
import tsleuth
from library_runs import score, share
from transformers import AutoConfig, AutoModelForCausalLM

VOCABULARY = 320
PLAIN = dict(vocab_size=VOCABULARY, hidden_size=128, intermediate_size=256, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=256, tie_word_embeddings=False)
WIDE = dict(PLAIN, head_dim=32)
LOCAL = dict(WIDE, sliding_window=12)
EXPERTS = dict(num_experts=8, num_experts_per_tok=2)
SHARED = dict(n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=96, first_k_dense_replace=1,
              n_shared_experts=1, n_group=1, topk_group=1)
OLDER = dict(vocab_size=VOCABULARY, n_embd=128, n_layer=3, n_head=4, n_positions=256)
MODELS = {
    "llama": PLAIN, "qwen2": PLAIN, "qwen3": WIDE, "mistral": LOCAL, "gemma": WIDE,
    "gemma2": dict(LOCAL, query_pre_attn_scalar=32), "gemma3_text": dict(LOCAL, query_pre_attn_scalar=32),
    "mixtral": dict(PLAIN, num_local_experts=8, num_experts_per_tok=2),
    "qwen3_moe": dict(WIDE, **EXPERTS, moe_intermediate_size=96, decoder_sparse_step=1, norm_topk_prob=True),
    "qwen2_moe": dict(PLAIN, **EXPERTS, moe_intermediate_size=96, shared_expert_intermediate_size=128),
    "olmoe": dict(PLAIN, **EXPERTS),
    "gpt2": dict(vocab_size=VOCABULARY, n_embd=128, n_layer=3, n_head=4, n_positions=256),
    "gpt_neox": dict(PLAIN, rotary_pct=0.25), "phi": dict(PLAIN, partial_rotary_factor=0.5),
    "phi3": dict(PLAIN, pad_token_id=0), "olmo2": PLAIN,
    "falcon": dict(vocab_size=VOCABULARY, hidden_size=128, num_hidden_layers=3, num_attention_heads=4, num_kv_heads=2,
                   new_decoder_architecture=True, alibi=False),
    "stablelm": PLAIN, "cohere": PLAIN, "starcoder2": PLAIN, "nemotron": PLAIN,
    "granite": dict(PLAIN, attention_multiplier=0.1, residual_multiplier=0.5), "glm4": dict(WIDE, pad_token_id=0),
    "bloom": dict(vocab_size=VOCABULARY, hidden_size=128, n_layer=3, n_head=4),
    "opt": dict(vocab_size=VOCABULARY, hidden_size=128, num_hidden_layers=3, num_attention_heads=4, ffn_dim=256,
                max_position_embeddings=256, word_embed_proj_dim=128),
    "gpt_oss": dict(LOCAL, num_local_experts=8, num_experts_per_tok=2),
    "deepseek_v3": dict(PLAIN, num_key_value_heads=4, q_lora_rank=64, kv_lora_rank=32, qk_rope_head_dim=16,
                        qk_nope_head_dim=16, v_head_dim=32, n_routed_experts=8, num_experts_per_tok=2, n_group=1,
                        topk_group=1, moe_intermediate_size=96, first_k_dense_replace=1, n_shared_experts=1),
    "smollm3": dict(PLAIN, pad_token_id=0), "olmo": PLAIN, "olmo3": dict(PLAIN, sliding_window=12), "ernie4_5": WIDE,
    "exaone4": LOCAL, "seed_oss": WIDE, "apertus": PLAIN, "arcee": PLAIN, "helium": WIDE, "cohere2": LOCAL,
    "hunyuan_v1_dense": WIDE, "persimmon": PLAIN, "diffllama": PLAIN,
    "vaultgemma": dict(LOCAL, query_pre_attn_scalar=32), "doge": PLAIN, "gptj": dict(OLDER, rotary_dim=16),
    "codegen": dict(OLDER, rotary_dim=16), "gpt_bigcode": OLDER,
    "gpt_neo": dict(vocab_size=VOCABULARY, hidden_size=128, num_layers=2, num_heads=4, max_position_embeddings=256,
                    attention_types=[[["global", "local"], 1]], window_size=12),
    "glm4_moe": dict(WIDE, **SHARED), "dots1": dict(WIDE, **SHARED),
    "phimoe": dict(PLAIN, num_local_experts=8, num_experts_per_tok=2),
    "granitemoe": dict(PLAIN, num_local_experts=8, num_experts_per_tok=2),
    "ernie4_5_moe": dict(WIDE, moe_num_experts=8, moe_k=2, moe_intermediate_size=96, moe_layer_start_index=1),
    "llama4_text": dict(WIDE, num_local_experts=4, intermediate_size_mlp=256, pad_token_id=0),
    "jetmoe": dict(vocab_size=VOCABULARY, hidden_size=128, num_hidden_layers=3, num_key_value_heads=2, kv_channels=32,
                   intermediate_size=128, num_local_experts=4, num_experts_per_tok=2),
}
# Any other architecture, whatever of this its configuration knows.
SMALL = dict(LOCAL, **SHARED, num_hidden_layers=4, num_experts=8, num_local_experts=8, pad_token_id=0, bos_token_id=1,
             eos_token_id=2, shared_expert_intermediate_size=96, q_lora_rank=64, kv_lora_rank=32, qk_rope_head_dim=16,
             qk_nope_head_dim=16, v_head_dim=32, linear_num_key_heads=2, linear_num_value_heads=4,
             linear_key_head_dim=32, linear_value_head_dim=32, mamba_d_state=16, mamba_n_heads=8, mamba_d_head=32,
             mamba_n_groups=1, mamba_chunk_size=16, chunk_size=16, state_size=16, index_n_heads=4, index_head_dim=32,
             index_topk=32, hidden_size_per_layer_input=32, vocab_size_per_layer_input=VOCABULARY, laurel_rank=16,
             num_kv_shared_layers=0, block_ff_dim=256, block_auto_adjust_ff_dim=False, query_pre_attn_scalar=32,
             d_model=128, n_heads=4, n_layers=4, max_seq_len=256, ffn_dim=256, attention_heads=4, num_layers=4)
OTHERS = {"mamba2": dict(num_heads=8, head_dim=32), "falcon_h1": dict(mamba_d_ssm=256)}
# name, precision, attention, quantized weights, tensor cores in f32
HONEST = [
    ("f32", torch.float32, "eager", None, False), ("f32_sdpa", torch.float32, "sdpa", None, False),
    ("tf32", torch.float32, "sdpa", None, True), ("bf16", torch.bfloat16, "eager", None, False),
    ("bf16_sdpa", torch.bfloat16, "sdpa", None, False), ("f16_sdpa", torch.float16, "sdpa", None, False),
    ("int8", torch.bfloat16, "sdpa", "int8", False), ("fp8", torch.bfloat16, "sdpa", "fp8", False),
    ("int4", torch.float16, "sdpa", "int4", False),
]
FAULTY = [("f32", torch.float32, "eager"), ("bf16", torch.bfloat16, "sdpa"), ("f16", torch.float16, "eager")]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def spread_weights(model, generator):
    """Weights that keep activations near one, norms that are not all alike."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if weight.dim() == 1 and ("norm" in name or "ln" in name) and not name.endswith("bias"):
                weight.copy_(weight.mean() + 0.2 * noise)
            elif weight.dim() == 1:
                weight.copy_(0.1 * noise)
            elif "embed" in name or "wte" in name or "wpe" in name:
                weight.copy_(0.5 * noise)
            else:
                weight.copy_(noise / weight.shape[-1] ** 0.5)


def options_of(kind):
    if kind in MODELS:
        return dict(MODELS[kind])
    known = AutoConfig.for_model(kind).to_dict()
    options = {name: value for name, value in SMALL.items() if name in known}
    if "kv_lora_rank" in options:  # latent attention has keys for every head
        options["num_key_value_heads"] = options["num_attention_heads"]
    return dict(options, **OTHERS.get(kind, {}))


def make_model(kind, options, attention, seed):
    config = AutoConfig.for_model(kind, **options)
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval().float()


def quantize(model, how):
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() < 2 or re.search(r"embed|lm_head|wte|wpe|router|gate\.weight$", name):
                continue
            values = weight.float()
            if how == "int8":
                step = values.abs().amax(-1, keepdim=True) / 127
                values = (values / step).round().clamp(-127, 127) * step
            elif how == "fp8":
                step = values.abs().amax(-1, keepdim=True) / 448
                values = (values / step).to(torch.float8_e4m3fn).float() * step
            else:
                blocks = values.reshape(*values.shape[:-1], -1, 32)
                step = blocks.abs().amax(-1, keepdim=True) / 7
                values = ((blocks / step).round().clamp(-8, 7) * step).reshape(values.shape)
            weight.copy_(values.to(weight.dtype))


def run(model, path, tokens, device, precision, tensor_cores=False, shift=0):
    torch.backends.cuda.matmul.allow_tf32 = tensor_cores
    # tables of frequencies stay in f32, as they do in models that are loaded in another precision
    buffers = {name: value.clone() for name, value in model.named_buffers() if value.is_floating_point()}
    model = model.to(device).to(precision)
    for name, value in buffers.items():
        owner, _, key = name.rpartition(".")
        model.get_submodule(owner)._buffers[key] = value.to(device)
    more = {"position_ids": torch.arange(tokens.shape[1], device=device)[None] + shift} if shift else {}
    with torch.no_grad(), tsleuth.capture(model, path, functions=True, overwrite=True):
        model(tokens.to(device), use_cache=False, **more)


class Place:
    """Where a bug goes: a model, one of its layers, and how modules are found in them."""

    def __init__(self, model, kind, index):
        self.model, self.kind = model, kind
        self.body = next(module for module in model.modules() if hasattr(module, "layers") or hasattr(module, "h"))
        self.layers = self.body.layers if hasattr(self.body, "layers") else self.body.h
        self.layer = self.layers[index]
        self.attention_only = None  # an attention implementation that the bug needs
        self.shift = 0  # of positions

    def find(self, *names, layer=None):
        for name, module in (layer or self.layer).named_modules():
            if name and name.split(".")[-1] in names:
                return self.name_of(module), module
        raise LookupError(names)

    def name_of(self, wanted):
        return next(name for name, module in self.model.named_modules() if module is wanted)

    def no_weight(self, norm):
        norm.weight.data = torch.zeros_like(norm.weight) if "gemma" in self.kind else torch.ones_like(norm.weight)


def o_transposed(place):
    name, module = place.find("o_proj", "out_proj", "dense")
    if module.weight.shape[0] != module.weight.shape[1]:
        raise LookupError("not square")
    module.weight.data = module.weight.data.t().contiguous()
    return [name], "transposed-weight"


def q_interleaved(place):
    name, module = place.find("q_proj")
    rows = module.weight.data.reshape(-1, 2, 16, module.weight.shape[1])
    module.weight.data = rows.transpose(1, 2).reshape(module.weight.shape).contiguous()
    return [name], "permuted"


def epsilon(place):
    name, norm = place.find("input_layernorm", "ln_1")
    setattr(norm, "variance_epsilon" if hasattr(norm, "variance_epsilon") else "eps", 0.03)
    return [name], "row-scaled epsilon"


def norm_weight(place):
    name, norm = place.find("post_attention_layernorm", "ln_2")
    place.no_weight(norm)
    return [name], "channel-scaled"


def norm_of_another_layer(place):
    name, norm = place.find("input_layernorm", "ln_1")
    _, other = place.find("input_layernorm", "ln_1", layer=place.layers[2])
    norm.weight.data = other.weight.data.clone()
    return [name], "channel-scaled"


def final_norm(place):
    norm = next(getattr(place.body, key) for key in ("norm", "ln_f", "final_layer_norm", "final_layernorm")
                if hasattr(place.body, key))
    place.no_weight(norm)
    return [place.name_of(norm)], "channel-scaled"


def query_norm(place):
    name, norm = place.find("q_norm")
    place.no_weight(norm)
    return [name], "channel-scaled"


def activation(place):
    name, module = place.find("act_fn", "act", "activation_fn")
    owner, _, key = name.rpartition(".")
    other = torch.nn.GELU() if "silu" in type(module).__name__.lower() else torch.nn.SiLU()
    setattr(place.model.get_submodule(owner), key, other)
    return [name, owner + ".intermediate"], "activation"


def rope_base(place):
    rotary = place.body.rotary_emb
    count = rotary.inv_freq.numel()
    rotary.inv_freq = (20000.0 ** (-torch.arange(count).float() / count)).to(rotary.inv_freq)
    return [r"~rotary_emb|layers\.0\..*\.[qk]_rope$"], "rotation"


def positions(place):
    if not any(re.search("rotary|wpe|embed_positions", name) for name, _ in place.model.named_modules()):
        raise LookupError("distances alone count")
    place.shift = 3
    return [r"~rotary_emb|rope|wpe|embed_positions"], "rotation shifted"


def scale_of_scores(place):
    name, module = place.find("self_attn", "attention", "attn")
    module.scaling = module.scaling * 0.6
    return [name + end for end in ("", ".attn_scores_masked", ".attn_scores", ".attn_probs", ".attn_context")], \
        "scaled softmax"


def mask(place):
    name, module = place.find("self_attn", "attention", "attn")

    def show_all(_, args, named):
        if not isinstance(named.get("attention_mask"), torch.Tensor):
            raise LookupError("no mask")
        return args, dict(named, attention_mask=torch.zeros_like(named["attention_mask"]))

    module.register_forward_pre_hook(show_all, with_kwargs=True)
    place.attention_only = "eager"
    return [name + end for end in ("", ".attn_scores_masked", ".attn_probs", ".attn_context")], "mask"


def layer_skipped(place):
    def skip(_, args, named, out):
        entered = args[0] if args else named["hidden_states"]
        return (entered,) + tuple(out[1:]) if isinstance(out, tuple) else entered

    place.layer.register_forward_hook(skip, with_kwargs=True)
    name = place.name_of(place.layer)
    return [f"~^{re.escape(name)}(\\.0|\\.hidden_states)?$"], "skipped-op swapped-with term-missing"


def last_token(place):
    name, module = place.find("o_proj", "out_proj", "dense")

    def raise_last(_, args, out):
        out = out.clone()
        out[:, -1] *= 1.3
        return out

    module.register_forward_hook(raise_last)
    return [name], "row-scaled rows"


def changed(change, names, cause):
    """A bug that changes the weight of a module and shows in its output."""
    def bug(place):
        name, module = place.find(*names)
        module.weight.data = change(module.weight.data)
        return [name], cause
    return bug


def set_one(value):
    def change(weight):
        weight = weight.clone()
        weight[3, 5] = value(weight[3, 5])
        return weight
    return change


def gate_and_up(place):
    (gate_name, gate), (up_name, up) = place.find("gate_proj"), place.find("up_proj")
    gate.weight, up.weight = up.weight, gate.weight
    return [gate_name, up_name], "swapped-with"


def embedding_scaled(place):
    table = place.model.get_input_embeddings()
    table.weight.data = table.weight.data * 1.5
    return [place.name_of(table)], "scaled"


def experts_moved(place):
    name, module = place.find("mlp", "block_sparse_moe")
    for weight in module.experts.parameters():
        weight.data = weight.data.roll(1, 0).contiguous()
    return [name, name + ".experts"], "expert-order router-gate"


BUGS = {
    "o_transposed": o_transposed, "q_interleaved": q_interleaved, "epsilon": epsilon, "norm_weight": norm_weight,
    "norm_of_another_layer": norm_of_another_layer, "final_norm": final_norm, "query_norm": query_norm,
    "activation": activation, "rope_base": rope_base, "positions": positions, "scale_of_scores": scale_of_scores,
    "mask": mask, "layer_skipped": layer_skipped, "last_token": last_token, "gate_and_up": gate_and_up,
    "embedding_scaled": embedding_scaled, "experts_moved": experts_moved,
    "down_doubled": changed(lambda w: 2 * w, ("down_proj", "c_proj", "dense_4h_to_h", "fc2"), "scaled affine"),
    "key_heads": changed(lambda w: w.roll(w.shape[0] // 2, 0).contiguous(), ("k_proj",), "permuted"),
    "rows_shifted": changed(lambda w: w.roll(1, 0).contiguous(), ("up_proj", "c_fc", "fc1", "dense_h_to_4h"),
                            "shifted permuted"),
    "router_shifted": changed(lambda w: w.roll(1, 0).contiguous(), ("gate", "router"), "shifted permuted"),
    "bit_flip": changed(set_one(lambda x: 64 * x + 2), ("v_proj",), "channels sparse"),
    "nan": changed(set_one(lambda x: float("nan")), ("v_proj", "o_proj", "dense"), "nan"),
}


def is_expected(name, expected):
    return any(re.search(place[1:], name) if place[0] == "~" else name == place or
               re.match(re.escape(place) + r"[.#]", name) for place in expected)


def compare(binary, row, reference, candidate):
    done = subprocess.run([binary, "compare", reference, candidate, "--json", "-"], capture_output=True, text=True)
    report = json.loads(done.stdout)
    first = report["first_divergence"]
    row["first"], row["verdict"] = first and first["name"], report["verdict"]
    row["causes"] = [cause["id"] for cause in report["causes"]]
    if "expected" in row:
        row["good"] = bool(first) and is_expected(first["name"], row["expected"])
        row["named"] = row["good"] and bool(row["causes"]) and row["causes"][0] in row["cause"].split()
    else:
        row["good"] = not first
    if row["good"]:
        os.remove(candidate)
    return row


def runs_of(kind, seed, folder):
    """Makes traces; yields what is known of each, with its files."""
    chance = random.Random(f"{seed} {kind}")
    options = options_of(kind)
    if kind in MODELS and "num_key_value_heads" in options:
        options["hidden_size"], options["num_attention_heads"], shared = chance.choice(
            [(128, 4, 2), (192, 6, 2), (256, 8, 8)])
        options["num_key_value_heads"] = options["num_attention_heads"] if kind == "deepseek_v3" else shared
    number = chance.randrange(1 << 30)
    generator = torch.Generator().manual_seed(number)
    model = make_model(kind, options, "eager", number)
    spread_weights(model, generator)
    tokens = torch.randint(1, VOCABULARY, (1, chance.choice([9, 24, 40, 64, 100])), generator=generator)
    reference = str(folder / f"{kind}.reference.safetensors")
    run(copy.deepcopy(model), reference, tokens, "cpu", torch.float32)

    def variant(attention):
        other = make_model(kind, options, attention, number)
        other.load_state_dict(model.state_dict())
        return other

    for name, precision, attention, how, tensor_cores in HONEST:
        path = str(folder / f"{kind}.{name}.safetensors")
        try:
            other = variant(attention)
            if how:
                quantize(other, how)
            run(other, path, tokens, DEVICE, precision, tensor_cores)
        except (ValueError, RuntimeError) as error:  # an architecture without this kernel
            print(f"# {kind} {name}: {str(error)[:90]}")
            continue
        yield dict(model=kind, run=name), reference, path
    for bug, plant in BUGS.items():
        for name, precision, attention in FAULTY:
            path = str(folder / f"{kind}.{bug}.{name}.safetensors")
            layer = chance.choice([0, 1])
            try:
                place = Place(variant(attention), kind, layer)
                expected, cause = plant(place)
                if place.attention_only in (None, attention):
                    run(place.model, path, tokens, DEVICE, precision, shift=place.shift)
            except (LookupError, AttributeError, TypeError, ValueError):  # nothing here to plant it in
                continue
            if os.path.exists(path):
                yield dict(model=kind, run=f"{bug}.{name}", expected=expected, cause=cause), reference, path


def main():
    rows = score(__doc__, MODELS, runs_of, compare)
    honest, bugs = [row for row in rows if "expected" not in row], [row for row in rows if "expected" in row]
    for row in rows:
        if not row["good"]:
            print(f"{row['model']} {row['run']}: {row['verdict']}, first {row['first']}, {' '.join(row['causes'])}")
    print(f"located {share(bugs)}, named {share(bugs, 'named')}, alarms {share(honest, wanted=False)}")


if __name__ == "__main__":
    main()
