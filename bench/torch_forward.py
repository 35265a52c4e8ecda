#!/usr/bin/env python3
"""Time of a forward pass of the made-up Qwen 3 in torch, fp32: torch_forward.py FOLDER TOKENS THREADS. Prints JSON."""
import json
import struct
import sys
import time

import torch


def load(path):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
        data = bytearray(file.read())
    weights = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        flat = torch.frombuffer(data, dtype=torch.bfloat16, count=(last - first) // 2, offset=first)
        weights[name] = flat.reshape(entry["shape"]).float()
    return weights


def norm(x, weight, eps):
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def forward(w, c, ids):
    tokens, size, eps = len(ids), c["head_dim"], c["rms_norm_eps"]
    frequencies = 1.0 / c["rope_theta"] ** (torch.arange(0, size, 2).float() / size)
    angles = torch.outer(torch.arange(tokens).float(), frequencies)
    cos, sin = torch.cat((angles, angles), -1).cos(), torch.cat((angles, angles), -1).sin()
    mask = torch.full((tokens, tokens), float("-inf")).triu(1)
    linear = torch.nn.functional.linear
    x = w["model.embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        h = norm(x, w[p + "input_layernorm.weight"], eps)
        q = linear(h, w[p + "self_attn.q_proj.weight"]).view(tokens, -1, size)
        k = linear(h, w[p + "self_attn.k_proj.weight"]).view(tokens, -1, size)
        v = linear(h, w[p + "self_attn.v_proj.weight"]).view(tokens, -1, size).transpose(0, 1)
        q = rotate(norm(q, w[p + "self_attn.q_norm.weight"], eps).transpose(0, 1), cos, sin)
        k = rotate(norm(k, w[p + "self_attn.k_norm.weight"], eps).transpose(0, 1), cos, sin)
        group = q.shape[0] // k.shape[0]
        k, v = k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)
        scores = torch.softmax(q @ k.transpose(1, 2) * size ** -0.5 + mask, -1)
        x = x + linear((scores @ v).transpose(0, 1).reshape(tokens, -1), w[p + "self_attn.o_proj.weight"])
        h = norm(x, w[p + "post_attention_layernorm.weight"], eps)
        gate = torch.nn.functional.silu(linear(h, w[p + "mlp.gate_proj.weight"]))
        x = x + linear(gate * linear(h, w[p + "mlp.up_proj.weight"]), w[p + "mlp.down_proj.weight"])
    return linear(norm(x, w["model.norm.weight"], eps), w["model.embed_tokens.weight"])


def main():
    folder, tokens, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(threads)
    with open(folder + "/config.json") as file:
        config = json.load(file)
    weights = load(folder + "/model.safetensors")
    ids = list(range(1, tokens + 1))
    best = float("inf")
    with torch.no_grad():
        for _ in range(4):
            start = time.perf_counter()
            logits = forward(weights, config, ids)
            best = min(best, time.perf_counter() - start)
    print(json.dumps({"seconds": best, "torch": torch.__version__, "argmax": int(logits[-1].argmax())}))


if __name__ == "__main__":
    main()
