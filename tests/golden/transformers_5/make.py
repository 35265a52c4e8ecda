#!/usr/bin/env python3
"""Made the files in this folder, with Python 3.12, torch 2.11.0 and transformers 5.17.0: what these really write, of one
pass of a Llama of one layer with random weights. Run it where they are installed: make.py FOLDER

    hf_files.zip          model_addition_debugger_context with use_repr=False: a tree and a safetensors file per tensor
    hf_repr.zip           the same with use_repr=True: tensors as torch prints them
    model_output.pt       torch.save of what the model returned: a class that is a dict, with a key-value cache in it
    capture.safetensors   tsleuth.capture of the same pass
"""
import os
import sys
import tempfile
import zipfile
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.model_debugging_utils import model_addition_debugger_context

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "capture" / "python"))
import tsleuth  # noqa: E402


def main():
    out = Path(sys.argv[1])
    out.mkdir(exist_ok=True)
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=24, hidden_size=8, intermediate_size=12, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=4, max_position_embeddings=32)).eval()
    ids = torch.tensor([[5, 9, 3]])
    with torch.no_grad(), tempfile.TemporaryDirectory() as scratch:
        for name, printed in (("hf_repr", True), ("hf_files", False)):
            folder = os.path.join(scratch, name)
            with model_addition_debugger_context(model, debug_path=folder, do_prune_layers=False, use_repr=printed):
                model(input_ids=ids)
            with zipfile.ZipFile(out / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as packed:
                for file in sorted(os.listdir(folder)):
                    packed.write(os.path.join(folder, file), f"{name}/{file}")
        torch.save(model(input_ids=ids, output_hidden_states=True, use_cache=True), out / "model_output.pt")
        with tsleuth.capture(model, out / "capture.safetensors", functions=True, caches=True, inputs=True):
            model(input_ids=ids, output_hidden_states=True)


if __name__ == "__main__":
    main()
