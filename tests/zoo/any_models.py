#!/usr/bin/env python3
"""Scores `tsleuth compare` on models of every kind that the transformers library has: encoders, pictures, sound, state
space models, convolutions, hybrids. Bugs are planted in modules that are drawn by lot, whatever they are.

usage: tests/zoo/any_models.py BINARY [--seed N] [--models bert,vit] [--seconds N] [--keep FOLDER]

Like real_models.py, which knows decoders and their parts, this needs torch and transformers and is no part of the test
suite. The reference is the model in f32 on the CPU; candidates are the same in f32, bf16 and f16 on a GPU where there is
one, which must not be alarmed, and with one bug, which must be found in the module where it was planted. Prints what went
wrong and a line with the totals. A bug in a module that the model does not use is listed as a match, and is right: the
`act` of Mamba's mixers is such a module where the library runs them without their own kernels.
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
import transformers
import tsleuth
from library_runs import score, share
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

VOCABULARY = 320
ENCODER = dict(vocab_size=VOCABULARY, hidden_size=128, num_hidden_layers=3, num_attention_heads=4,
               intermediate_size=256, max_position_embeddings=128, pad_token_id=0)
DECODER = dict(vocab_size=VOCABULARY, hidden_size=128, num_hidden_layers=3, num_attention_heads=4, head_dim=32,
               num_key_value_heads=2, intermediate_size=256, max_position_embeddings=256)
PATCHES = dict(hidden_size=128, num_hidden_layers=3, num_attention_heads=4, intermediate_size=256, image_size=48,
               patch_size=8)
# what makes it, its settings, what goes in
MODELS = {
    "bert": (AutoModel, ENCODER, "tokens"), "roberta": (AutoModel, ENCODER, "tokens"),
    "modernbert": (AutoModel, dict(ENCODER, global_attn_every_n_layers=2, local_attention=16, cls_token_id=1,
                                   sep_token_id=2, bos_token_id=1, eos_token_id=2), "tokens"),
    "distilbert": (AutoModel, dict(vocab_size=VOCABULARY, dim=128, n_layers=3, n_heads=4, hidden_dim=256), "tokens"),
    "electra": (AutoModel, dict(ENCODER, embedding_size=64), "tokens"),
    "clip_text_model": (AutoModel, dict(ENCODER, eos_token_id=2), "tokens"),
    "t5": (transformers.T5EncoderModel, dict(vocab_size=VOCABULARY, d_model=128, d_kv=32, d_ff=256, num_layers=3,
                                             num_heads=4), "tokens"),
    "vit": (AutoModel, PATCHES, "picture"), "dinov2": (AutoModel, PATCHES, "picture"),
    "deit": (AutoModel, PATCHES, "picture"), "beit": (AutoModel, PATCHES, "picture"),
    "siglip_vision_model": (AutoModel, PATCHES, "picture"), "clip_vision_model": (AutoModel, PATCHES, "picture"),
    "swin": (AutoModel, dict(image_size=48, patch_size=4, embed_dim=32, depths=[2, 2], num_heads=[2, 4],
                             window_size=3), "picture"),
    "convnext": (AutoModel, dict(hidden_sizes=[32, 64], depths=[2, 2], num_stages=2), "picture"),
    "resnet": (AutoModel, dict(embedding_size=32, hidden_sizes=[32, 64], depths=[2, 2], layer_type="basic"),
               "picture"),
    "wav2vec2": (AutoModel, dict(vocab_size=32, hidden_size=128, num_hidden_layers=2, num_attention_heads=4,
                                 intermediate_size=256, conv_dim=(64, 64, 64), conv_stride=(5, 2, 2),
                                 conv_kernel=(10, 3, 3), num_feat_extract_layers=3, num_conv_pos_embeddings=16,
                                 num_conv_pos_embedding_groups=4), "sound"),
    "mamba": (AutoModelForCausalLM, dict(vocab_size=VOCABULARY, hidden_size=128, num_hidden_layers=3, state_size=8),
              "tokens"),
    "mamba2": (AutoModelForCausalLM, dict(vocab_size=VOCABULARY, hidden_size=128, num_hidden_layers=3, state_size=16,
                                          num_heads=8, head_dim=32, n_groups=2, chunk_size=16), "tokens"),
    "falcon_h1": (AutoModelForCausalLM, dict(DECODER, mamba_d_ssm=128, mamba_n_heads=4, mamba_d_head=32,
                                             mamba_d_state=16, mamba_chunk_size=16), "tokens"),
    "bamba": (AutoModelForCausalLM, dict(DECODER, mamba_n_heads=8, mamba_d_head=32, mamba_d_state=16,
                                         attn_layer_indices=[1]), "tokens"),
    "nemotron_h": (AutoModelForCausalLM, dict(DECODER, hybrid_override_pattern="M*-", mamba_num_heads=8,
                                              mamba_head_dim=32, ssm_state_size=16, n_groups=2), "tokens"),
    "recurrent_gemma": (AutoModelForCausalLM, dict(DECODER, lru_width=128, attention_window_size=32), "tokens"),
    "lfm2": (AutoModelForCausalLM, dict(DECODER, layer_types=["full_attention", "conv", "full_attention"]), "tokens"),
    "gemma3n_text": (AutoModelForCausalLM, dict(DECODER, vocab_size_per_layer_input=VOCABULARY, laurel_rank=16,
                                                hidden_size_per_layer_input=32, num_kv_shared_layers=1), "tokens"),
    "mpt": (AutoModelForCausalLM, dict(vocab_size=VOCABULARY, d_model=128, n_heads=4, n_layers=3, max_seq_len=256),
            "tokens"),
    "biogpt": (AutoModelForCausalLM, ENCODER, "tokens"),
}
PRECISIONS = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def make_inputs(kind, chance, generator):
    if kind == "tokens":
        return {"input_ids": torch.randint(3, VOCABULARY, (1, chance.choice([16, 24, 48])), generator=generator)}
    if kind == "picture":
        return {"pixel_values": torch.randn(1, 3, 48, 48, generator=generator)}
    return {"input_values": torch.randn(1, 1600, generator=generator)}


def make_model(name, seed):
    maker, options, _ = MODELS[name]
    torch.manual_seed(seed)
    if not hasattr(maker, "from_config"):
        return maker(maker.config_class(**options)).eval().float()
    return maker.from_config(AutoConfig.for_model(name, **options), attn_implementation="eager").eval().float()


def spread_weights(model, generator):
    """Weights that keep activations near one, norms and biases that are not all alike."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if weight.dim() == 1 and re.search("norm|ln", name.lower()) and not name.endswith("bias"):
                weight.copy_(weight.mean() + 0.2 * noise)
            elif weight.dim() == 1:
                weight.copy_(0.1 * noise if name.endswith("bias") else weight + 0.05 * noise)
            elif weight.dim() == 2 and "embed" in name:
                weight.copy_(0.5 * noise)
            elif weight.dim() >= 2 and not re.search("A_log|conv1d", name):
                weight.copy_(noise / weight[0].numel() ** 0.5)


def run(model, path, inputs, device, precision):
    # tables of frequencies stay in f32, as they do in models that are loaded in another precision
    kept = {name: value.clone() for name, value in model.named_buffers()
            if value.is_floating_point() and "running" not in name}
    model = model.to(device).to(precision)
    for name, value in kept.items():
        owner, _, key = name.rpartition(".")
        model.get_submodule(owner)._buffers[key] = value.to(device)
    inputs = {name: value.to(device).to(precision if value.is_floating_point() else value.dtype)
              for name, value in inputs.items()}
    with torch.no_grad(), tsleuth.capture(model, path, functions=True, overwrite=True):
        model(**inputs)


def is_linear(module):
    return isinstance(module, torch.nn.Linear)


def is_norm(module):
    weight = getattr(module, "weight", None)
    return "norm" in type(module).__name__.lower() and weight is not None and weight.dim() == 1 and \
        not isinstance(module, torch.nn.BatchNorm2d)


def is_activation(module):
    return not list(module.children()) and not list(module.parameters()) and \
        re.search("gelu|silu|relu", type(module).__name__.lower())


def changed(change):
    def plant(module, _owner, _key):
        module.weight.data = change(module.weight.data).contiguous()
    return plant


def no_bias(module, _owner, _key):
    module.bias.data.zero_()


def other_activation(module, owner, key):
    other = torch.nn.SiLU() if "gelu" in type(module).__name__.lower() else torch.nn.GELU()
    if key.isdigit():
        owner[int(key)] = other
    else:
        setattr(owner, key, other)


# where it can be planted, and how
BUGS = {
    "transposed": (lambda module: is_linear(module) and module.weight.shape[0] == module.weight.shape[1],
                   changed(lambda weight: weight.t())),
    "scaled": (is_linear, changed(lambda weight: 1.25 * weight)),
    "rows_moved": (is_linear, changed(lambda weight: weight.roll(1, 0))),
    "not_loaded": (is_linear, changed(lambda weight: weight.std() * torch.randn_like(weight))),
    "zero_row": (is_linear, changed(lambda weight: torch.cat([weight[:2], 0 * weight[2:3], weight[3:]]))),
    "no_bias": (lambda module: is_linear(module) and module.bias is not None, no_bias),
    "no_norm_weight": (is_norm, changed(lambda weight: weight.mean().round().expand(weight.shape))),
    "norm_weight_moved": (is_norm, changed(lambda weight: weight.roll(3))),
    "activation": (is_activation, other_activation),
}


def compare(binary, row, reference, candidate):
    done = subprocess.run([binary, "compare", reference, candidate, "--json", "-"], capture_output=True, text=True)
    report = json.loads(done.stdout)
    first = report["first_divergence"]
    row["first"], row["verdict"] = first["name"] if first else "", report["verdict"]
    row["causes"] = [cause["id"] for cause in report["causes"]]
    if "at" in row:
        row["good"] = row["first"] == row["at"] or row["first"].startswith((row["at"] + ".", row["at"] + "#"))
    else:
        row["good"] = not first
    if row["good"]:
        os.remove(candidate)
    return row


def runs_of(name, seed, folder):
    """Makes traces; yields what is known of each, with its files."""
    chance = random.Random(f"{seed} {name}")
    number = chance.randrange(1 << 30)
    generator = torch.Generator().manual_seed(number)
    model = make_model(name, number)
    spread_weights(model, generator)
    inputs = make_inputs(MODELS[name][2], chance, generator)
    reference = str(folder / f"{name}.reference.safetensors")
    run(copy.deepcopy(model), reference, inputs, "cpu", torch.float32)
    for precision, kind in PRECISIONS.items():
        path = str(folder / f"{name}.{precision}.safetensors")
        run(copy.deepcopy(model), path, inputs, DEVICE, kind)
        yield dict(model=name, run=precision), reference, path
    for bug, (fits, plant) in BUGS.items():
        places = [place for place, module in model.named_modules()
                  if place and fits(module) and not re.search("lm_head|pooler|expert", place)]
        for precision in ("f32", "bf16") if places else ():
            at = chance.choice(places)
            faulty = copy.deepcopy(model)
            owner, _, key = at.rpartition(".")
            torch.manual_seed(number + 1)
            with torch.no_grad():
                plant(faulty.get_submodule(at), faulty.get_submodule(owner), key)
            path = str(folder / f"{name}.{bug}.{precision}.safetensors")
            run(faulty, path, inputs, DEVICE, PRECISIONS[precision])
            yield dict(model=name, run=f"{bug}.{precision}", at=at), reference, path


def main():
    rows = score(__doc__, MODELS, runs_of, compare)
    honest, bugs = [row for row in rows if "at" not in row], [row for row in rows if "at" in row]
    for row in rows:
        if not row["good"]:
            place = f" in {row['at']}" if "at" in row else ""
            print(f"{row['model']} {row['run']}{place}: {row['verdict']}, first {row['first'] or 'none'}, "
                  f"{' '.join(row['causes'])}")
    print(f"located {share(bugs)}, alarms {share(honest, wanted=False)}")


if __name__ == "__main__":
    main()
