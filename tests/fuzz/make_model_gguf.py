#!/usr/bin/env python3
"""Writes tests/fuzz/corpus/model_gguf: for each architecture a GGUF model that is as small as it can be and runs."""
import struct
from pathlib import Path

WIDTH, HEADS, KEY_HEADS, SIZE, INNER, WORDS, EXPERTS, LAYERS = 8, 2, 1, 4, 8, 4, 2, 2
OUT = Path(__file__).resolve().parent / "corpus" / "model_gguf"


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def pack(value):
    if isinstance(value, bool):
        return 7, struct.pack("<B", value)
    if isinstance(value, int):
        return 4, struct.pack("<I", value)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    if isinstance(value, str):
        return 8, text(value)
    kinds = [pack(entry) for entry in value]
    return 9, struct.pack("<IQ", kinds[0][0], len(kinds)) + b"".join(data for _, data in kinds)


def write(name, architecture, keys, tensors):
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys) + 1)
    for key, value in [("general.architecture", architecture)] + [(f"{architecture}.{k}", v) for k, v in keys.items()]:
        kind, data = pack(value)
        head += text(key) + struct.pack("<I", kind) + data
    offset, body = 0, b""
    for number, (tensor, shape) in enumerate(tensors.items()):
        count = 1
        for size in shape:
            count *= size
        head += text(tensor) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", s) for s in reversed(shape))
        head += struct.pack("<IQ", 0, len(body))
        least = 16 if tensor.startswith("rope_") else -8
        body += b"".join(struct.pack("<f", ((number * 31 + i * 7) % 17 + least) / 16) for i in range(count))
        body += bytes(-len(body) % 32)
    head += bytes(-len(head) % 32)
    (OUT / name).write_bytes(head + body)


def common(**more):
    keys = {"block_count": LAYERS, "embedding_length": WIDTH, "feed_forward_length": INNER, "context_length": 32,
            "attention.head_count": HEADS, "attention.head_count_kv": KEY_HEADS,
            "attention.layer_norm_rms_epsilon": 1e-5, "rope.freq_base": 10000.0}
    keys.update({key.replace("__", "."): value for key, value in more.items()})
    return keys


EXPERT_KEYS = {"expert_count": EXPERTS, "expert_used_count": 1, "expert_feed_forward_length": INNER}
QKV = {"attn_q.weight": [HEADS * SIZE, WIDTH], "attn_k.weight": [KEY_HEADS * SIZE, WIDTH],
       "attn_v.weight": [KEY_HEADS * SIZE, WIDTH], "attn_output.weight": [WIDTH, HEADS * SIZE]}
BIASES = {"attn_q.bias": [HEADS * SIZE], "attn_k.bias": [KEY_HEADS * SIZE], "attn_v.bias": [KEY_HEADS * SIZE]}
NORMS = {"attn_norm.weight": [WIDTH], "ffn_norm.weight": [WIDTH]}
HEAD_NORMS = {"attn_q_norm.weight": [SIZE], "attn_k_norm.weight": [SIZE]}
MLP = {"ffn_gate.weight": [INNER, WIDTH], "ffn_up.weight": [INNER, WIDTH], "ffn_down.weight": [WIDTH, INNER]}
STACKS = {"ffn_gate_inp.weight": [EXPERTS, WIDTH], "ffn_gate_exps.weight": [EXPERTS, INNER, WIDTH],
          "ffn_up_exps.weight": [EXPERTS, INNER, WIDTH], "ffn_down_exps.weight": [EXPERTS, WIDTH, INNER]}
POST = {"post_attention_norm.weight": [WIDTH], "post_ffw_norm.weight": [WIDTH]}
SHARED = {"ffn_gate_shexp.weight": [INNER, WIDTH], "ffn_up_shexp.weight": [INNER, WIDTH],
          "ffn_down_shexp.weight": [WIDTH, INNER]}


def layers(*parts, more=None):
    tensors = {"token_embd.weight": [WORDS, WIDTH]}
    for i in range(LAYERS):
        for part in parts:
            tensors.update({f"blk.{i}.{name}": shape for name, shape in part.items()})
    tensors["output_norm.weight"] = [WIDTH]
    tensors.update(more or {})
    return tensors


HEAD = {"output.weight": [WORDS, WIDTH]}


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    write("llama", "llama", common(), layers(QKV, NORMS, MLP, more={**HEAD, "rope_freqs.weight": [SIZE // 2]}))
    write("mixtral", "llama", common(**EXPERT_KEYS), layers(QKV, NORMS, STACKS, more=HEAD))
    write("qwen2", "qwen2", common(), layers(QKV, BIASES, NORMS, MLP))
    write("qwen3", "qwen3", common(attention__key_length=SIZE), layers(QKV, HEAD_NORMS, NORMS, MLP))
    write("qwen2moe", "qwen2moe", common(**EXPERT_KEYS),
          layers(QKV, BIASES, NORMS, STACKS, SHARED, {"ffn_gate_inp_shexp.weight": [WIDTH]}))
    write("qwen3moe", "qwen3moe", common(**EXPERT_KEYS), layers(QKV, HEAD_NORMS, NORMS, STACKS))
    write("olmoe", "olmoe", common(**EXPERT_KEYS, attention__head_count_kv=HEADS),
          layers({**QKV, "attn_k.weight": [WIDTH, WIDTH], "attn_v.weight": [WIDTH, WIDTH]},
                 {"attn_q_norm.weight": [WIDTH], "attn_k_norm.weight": [WIDTH]}, NORMS, STACKS))
    write("gemma2", "gemma2", common(attention__sliding_window=2, attn_logit_softcapping=50.0,
                                     final_logit_softcapping=30.0), layers(QKV, NORMS, POST, MLP))
    write("gemma3", "gemma3", common(attention__sliding_window=2, rope__scaling__type="linear",
                                     rope__scaling__factor=8.0, attention__sliding_window_pattern=[True, False]),
          layers(QKV, HEAD_NORMS, NORMS, POST, MLP))
    write("gemma3n", "gemma3n",
          common(attention__sliding_window=2, altup__num_inputs=2, altup__active_idx=0,
                 embedding_length_per_layer_input=4, attention__shared_kv_layers=1,
                 activation_sparsity_scale=[1.6448536, float("-inf")], feed_forward_length=[INNER, INNER],
                 attention__sliding_window_pattern=[True, True]),
          layers(QKV, HEAD_NORMS, NORMS, POST, MLP,
                 {"inp_gate.weight": [4, WIDTH], "proj.weight": [WIDTH, 4], "post_norm.weight": [WIDTH],
                  "altup_correct_coef.weight": [2, 2], "altup_correct_scale.weight": [WIDTH],
                  "altup_predict_coef.weight": [4, 2], "altup_router.weight": [2, WIDTH],
                  "altup_router_norm.weight": [WIDTH], "laurel_l.weight": [2, WIDTH], "laurel_r.weight": [WIDTH, 2],
                  "laurel_post_norm.weight": [WIDTH]},
                 more={"per_layer_token_embd.weight": [WORDS, 4 * LAYERS],
                       "per_layer_model_proj.weight": [4 * LAYERS, WIDTH], "per_layer_proj_norm.weight": [4],
                       "altup_proj.weight": [1, WIDTH, WIDTH], "altup_unembd_proj.weight": [1, WIDTH, WIDTH]}))
    write("phi3", "phi3", common(rope__dimension_count=SIZE, rope__scaling__original_context_length=2),
          layers({"attn_qkv.weight": [(HEADS + 2 * KEY_HEADS) * SIZE, WIDTH], "attn_output.weight": [WIDTH, WIDTH],
                  "ffn_up.weight": [2 * INNER, WIDTH], "ffn_down.weight": [WIDTH, INNER]}, NORMS,
                 more={**HEAD, "rope_factors_long.weight": [SIZE // 2], "rope_factors_short.weight": [SIZE // 2]}))
    gpt2 = {"attn_norm": [WIDTH], "ffn_norm": [WIDTH], "attn_qkv": [3 * WIDTH, WIDTH], "attn_output": [WIDTH, WIDTH],
            "ffn_up": [INNER, WIDTH], "ffn_down": [WIDTH, INNER]}
    write("gpt2", "gpt2", common(attention__layer_norm_epsilon=1e-5),
          layers({f"{name}.weight": shape for name, shape in gpt2.items()},
                 {f"{name}.bias": shape[:1] for name, shape in gpt2.items()},
                 more={"position_embd.weight": [32, WIDTH], "output_norm.bias": [WIDTH]}))
    write("gpt-oss", "gpt-oss", common(**EXPERT_KEYS, attention__sliding_window=2, rope__scaling__type="yarn",
                                       rope__scaling__factor=2.0, rope__scaling__original_context_length=16),
          layers(QKV, BIASES, STACKS,
                 {"attn_norm.weight": [WIDTH], "post_attention_norm.weight": [WIDTH], "attn_output.bias": [WIDTH],
                  "attn_sinks.weight": [HEADS], "ffn_gate_inp.bias": [EXPERTS], "ffn_gate_exps.bias": [EXPERTS, INNER],
                  "ffn_up_exps.bias": [EXPERTS, INNER], "ffn_down_exps.bias": [EXPERTS, WIDTH]}, more=HEAD))
    write("deepseek2", "deepseek2",
          common(**EXPERT_KEYS, attention__kv_lora_rank=4, attention__q_lora_rank=4, attention__key_length_mla=SIZE,
                 attention__value_length_mla=SIZE, rope__dimension_count=2, expert_gating_func=2,
                 expert_shared_count=1, leading_dense_block_count=0, expert_weights_scale=2.5),
          layers(STACKS, SHARED, NORMS,
                 {"attn_q_a.weight": [4, WIDTH], "attn_q_a_norm.weight": [4], "attn_q_b.weight": [HEADS * SIZE, 4],
                  "attn_kv_a_mqa.weight": [6, WIDTH], "attn_kv_a_norm.weight": [4],
                  "attn_k_b.weight": [HEADS, 4, SIZE - 2], "attn_v_b.weight": [HEADS, SIZE, 4],
                  "attn_output.weight": [WIDTH, HEADS * SIZE], "exp_probs_b.bias": [EXPERTS]}, more=HEAD))


if __name__ == "__main__":
    main()
