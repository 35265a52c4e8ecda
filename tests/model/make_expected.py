#!/usr/bin/env python3
"""Makes tests/golden/model/expected.json: what transformers computes for small models whose weights follow a formula.

usage: make_expected.py FOLDER_OF_CONFIGS OUTPUT   (needs torch, transformers, safetensors; the tests need none of them)

Each model's weights are filled from their names (tests/model/formula.h is the same formula in C), so that the tests can
make the checkpoint anew. For every module's output, a few values at places drawn from its name and the length of the
whole are kept.
"""
import json
import os
import shutil
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

SAMPLES = 12
M = np.uint64(0xFFFFFFFFFFFFFFFF)


def fnv(name):
    h = 0xCBF29CE484222325
    for b in name.encode():
        h = (h ^ b) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def mix(x):
    """splitmix64 of an array."""
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def weight(name, shape, center):
    count = int(np.prod(shape))
    with np.errstate(over="ignore"):
        bits = mix(np.uint64(fnv(name)) + np.arange(count, dtype=np.uint64))
    u = ((bits >> np.uint64(40)).astype(np.float32) * np.float32(2.0 ** -23) - np.float32(1)).astype(np.float32)
    if len(shape) == 1:
        norm = "norm" in name or "ln_" in name
        base = np.float32(center) if norm and name.endswith("weight") else np.float32(0)
        out = u * np.float32(0.25) + base
    elif "embed" in name or "wte" in name or "wpe" in name:
        out = u
    else:
        out = u * np.float32(1.7320508 / np.sqrt(float(shape[-1])))
    return out.astype(np.float32).reshape(shape)


def places(name, count):
    if count <= SAMPLES:
        return list(range(count))
    bits = mix(np.uint64(fnv(name)) + np.arange(SAMPLES, dtype=np.uint64))
    return [int(b % np.uint64(count)) for b in bits]


def record(points, name, tensor):
    if not isinstance(tensor, torch.Tensor):
        return
    values = tensor.detach().double().cpu().reshape(-1).numpy()
    at = places(name, values.size)
    key, times = name, 2
    while key in points:
        key, times = f"{name}#{times}", times + 1
    points[key] = {"shape": list(tensor.shape), "norm": float(np.sqrt((values * values).sum())),
                   "values": [float(f"{values[i]:.9g}") for i in at]}


def hook(points, name):
    def run(module, args, output):
        if isinstance(output, (tuple, list)):
            for i, part in enumerate(output):
                record(points, f"{name}.{i}", part)
        else:
            record(points, name, output)
    return run


def case(title, config, tokens, dtype, center, options, out):
    with tempfile.TemporaryDirectory() as folder:
        cls = AutoConfig.for_model(config["model_type"], **{k: v for k, v in config.items() if k != "model_type"})
        cls._attn_implementation = "eager"
        model = AutoModelForCausalLM.from_config(cls)
        model.save_pretrained(folder)
        names = {}
        for file in sorted(os.listdir(folder)):
            if not file.endswith(".safetensors"):
                continue
            with safe_open(os.path.join(folder, file), "pt") as f:
                for name in f.keys():
                    names[name] = f.get_slice(name).get_shape()
            os.remove(os.path.join(folder, file))
        for file in os.listdir(folder):
            if file.endswith("index.json"):
                os.remove(os.path.join(folder, file))
        tensors = {n: torch.from_numpy(weight(n, s, center)).to(dtype) for n, s in names.items()}
        save_file(tensors, os.path.join(folder, "model.safetensors"), {"format": "pt"})
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()
        points = {}
        for name, module in model.named_modules():
            if name and "dropout" not in name and not name.endswith("drop"):
                module.register_forward_hook(hook(points, name))
        with torch.no_grad():
            logits = model(torch.tensor([tokens]), **options).logits
        record(points, "logits", logits)
        with open(os.path.join(folder, "config.json")) as f:
            saved = json.load(f)
        out.append({"title": title, "dtype": str(dtype).split(".")[-1], "center": center, "options": options,
                    "config": saved, "tokens": tokens, "weights": names, "points": points,
                    "argmax": logits[0].float().argmax(-1).tolist()})
        print(title, len(names), "weights", len(points), "points", flush=True)


def main():
    folder, output = sys.argv[1:]
    configs = {}
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name)) as f:
            c = json.load(f)
        for key in ("architectures", "transformers_version", "dtype"):
            c.pop(key, None)
        c["vocab_size"] = 96
        if "vocab_size_per_layer_input" in c:
            c["vocab_size_per_layer_input"] = 96
        for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
            if c.get(key) is not None:
                c[key] = 0
        configs[name.removesuffix(".json")] = c
    tokens = [(7 * i * i + 11 * i + 3) % 96 for i in range(20)]
    center = lambda c: 0.0 if c["model_type"] in ("gemma2", "gemma3_text") else 1.0
    cases = [(n, c, torch.float32, {}) for n, c in configs.items()]

    def add(title, base, dtype=torch.float32, options=None, **changes):
        c = json.loads(json.dumps(configs[base]))
        c.update(changes)
        cases.append((title, c, dtype, options or {}))

    rope = lambda **k: {"rope_theta": 10000.0, **k}
    add("llama linear", "llama", rope_parameters=rope(rope_type="linear", factor=4.0))
    add("llama dynamic", "llama", rope_parameters=rope(rope_type="dynamic", factor=2.0), max_position_embeddings=12)
    add("llama dynamic short", "llama", rope_parameters=rope(rope_type="dynamic", factor=2.0), max_position_embeddings=64)
    add("llama yarn", "llama", rope_parameters=rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=16))
    add("llama yarn settings", "llama", rope_parameters=rope(rope_type="yarn", factor=4.0, beta_fast=16.0, beta_slow=2.0,
        attention_factor=0.9, original_max_position_embeddings=64))
    add("llama biases", "llama", attention_bias=True, mlp_bias=True)
    add("llama heads", "llama", head_dim=24, num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=True)
    half = 8
    longrope = lambda: rope(rope_type="longrope", short_factor=[1.0 + 0.1 * i for i in range(half)],
                            long_factor=[1.0 + 0.7 * i for i in range(half)], original_max_position_embeddings=16,
                            partial_rotary_factor=1.0)
    add("phi3 longrope long", "phi3", rope_parameters=longrope(), max_position_embeddings=64,
        original_max_position_embeddings=16)
    short = longrope()
    short["original_max_position_embeddings"] = 32
    add("phi3 longrope short", "phi3", rope_parameters=short, max_position_embeddings=128,
        original_max_position_embeddings=32)
    add("phi3 partial", "phi3", rope_parameters=rope(rope_type="default", partial_rotary_factor=0.5), sliding_window=5)
    add("qwen2 window", "qwen2", use_sliding_window=True, sliding_window=5, max_window_layers=1,
        layer_types=["full_attention", "sliding_attention", "sliding_attention"])
    add("qwen3 heads", "qwen3", head_dim=32, attention_bias=True, tie_word_embeddings=False)
    add("gemma3 full", "gemma3", layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        rope_parameters={"full_attention": {"rope_theta": 1000000.0, "rope_type": "linear", "factor": 8.0},
                         "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}})
    add("gemma3n without cache", "gemma3n", options={"use_cache": False})
    add("deepseek_v3 yarn", "deepseek_v3", rope_parameters=rope(rope_type="yarn", factor=40.0, mscale=1.0,
        mscale_all_dim=1.0, beta_fast=32.0, beta_slow=1.0, original_max_position_embeddings=4096))
    add("deepseek_v3 plain q", "deepseek_v3", q_lora_rank=None, n_group=1, topk_group=1, num_experts_per_tok=3)
    add("qwen3_moe mixed", "qwen3_moe", mlp_only_layers=[1], norm_topk_prob=False, num_experts_per_tok=3)
    add("qwen2_moe renormalised", "qwen2_moe", norm_topk_prob=True, decoder_sparse_step=2)
    add("gpt2 scaled", "gpt2", scale_attn_by_inverse_layer_idx=True, tie_word_embeddings=False)
    for name in ("qwen3", "gemma2", "gemma3n", "gpt2", "mixtral", "gpt_oss", "deepseek_v3", "llama"):
        add(name + " bfloat16", name, dtype=torch.bfloat16)
    add("qwen3 float16", "qwen3", dtype=torch.float16)
    out, failed = [], []
    for title, config, dtype, options in cases:
        try:
            case(title, config, tokens, dtype, center(config), options, out)
        except Exception as error:  # a case that the library refuses is left out, and told
            failed.append(title)
            print("FAILED", title, type(error).__name__, str(error)[:300], flush=True)
    with open(output, "w") as f:
        json.dump({"made_by": f"torch {torch.__version__}, transformers {transformers.__version__}", "cases": out}, f,
                  separators=(",", ":"))
    print("left out:", failed)


if __name__ == "__main__":
    main()
