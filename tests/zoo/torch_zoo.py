#!/usr/bin/env python3
"""Score `tsleuth compare` on toy models that torch runs, honest and with planted bugs.

usage: torch_zoo.py BINARY [--seed N] [--count M] [--seconds S] [--jobs N] [--kind both|honest|bugs] [--verbose]
                    [--only GROUP[.CASE]] [--keep FOLDER]

Needs torch and no GPU. Models of fourteen families in sizes drawn by chance (torch_models.py), the reference in f32;
candidates in some twenty precisions, with all steps captured, or what hooks on modules see, or outputs of layers alone,
or steps left out by chance; half of them with one of some ninety kinds of bugs (torch_bugs.py). Each model is a group
of eight cases, and a group is the same whatever the others are: GROUP.CASE names a case again.

  located   bugs whose report's first_divergence is the first captured tensor that the bug changes
  named     bugs that are located and whose first cause is one that explains the bug
  alarms    honest runs whose verdict is not "match"; those that are "incomplete" say that the captures do not tell

Bugs that change no captured tensor by more than CONTRAST times the honest error there, nor one of its tokens by more
than CONTRAST_TOKEN times, are left out: nobody could find them.
"""
import argparse
import collections
import concurrent.futures
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

try:
    import torch
except ImportError:
    sys.exit("torch_zoo.py needs torch")

from torch_bugs import draw_bugs
from torch_models import FAMILIES, FAULTY, HONEST, Precision, Run, draw_model

GROUP = 8
CONTRAST, CONTRAST_TOKEN = 3.0, 10.0
CAPTURES = ("all", "all", "all", "hooks", "layers", "some")
TYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.int64: "I64"}
MODULES = {
    "attn_norm_output": "input_layernorm", "attn_q_proj_raw": "self_attn.q_proj", "attn_k_proj_raw": "self_attn.k_proj",
    "attn_v_proj_raw": "self_attn.v_proj", "attn_q_normed": "self_attn.q_norm", "attn_k_normed": "self_attn.k_norm",
    "attn_q_a_proj": "self_attn.q_a_proj", "attn_q_a_norm": "self_attn.q_a_layernorm",
    "attn_q_b_proj": "self_attn.q_b_proj", "attn_kv_a_proj": "self_attn.kv_a_proj_with_mqa",
    "attn_kv_a_norm": "self_attn.kv_a_layernorm", "attn_kv_b_proj": "self_attn.kv_b_proj",
    "attn_o_proj": "self_attn.o_proj", "mlp_norm_output": "post_attention_layernorm", "mlp_gate_proj": "mlp.gate_proj",
    "mlp_up_proj": "mlp.up_proj", "mlp_down_proj": "mlp.down_proj", "router_logits": "mlp.gate",
    "experts_output": "mlp.experts", "shared_expert_output": "mlp.shared_experts", "layer_output": "",
    "attn_post_norm": "post_attention_layernorm", "mlp_post_norm": "post_feedforward_layernorm",
}
MODULES.update({f"cross_attn_{name}": f"encoder_attn.{name}"
                for name in ("norm_output", "q_proj", "k_proj", "v_proj", "o_proj")})
# Steps from which attention's weights follow, and those weights.
SCORES = ("_q_", "_k_", "_kv_", "_scores", "_probs")
# Damage to some tokens, which stays in these.
WITHIN_TOKENS = ("token_scaled", "token_zero", "token_random", "end_zero", "unwritten", "bit_flipped", "overwritten")
OUTSIDE = {"input_embeddings": "model.embed_tokens", "final_norm_output": "model.norm", "logits": "lm_head"}


def hooked(name, family):
    """What a hook would call it; None where no module gives it out."""
    if name.startswith("block_"):
        shown = ("modulation", "normed", "attn_out", "ffn_out", "block_output")
        return name if name.split("_", 2)[2] in shown else None
    if not name.startswith("layer_"):
        return OUTSIDE.get(name, name)
    _, layer, point = name.split("_", 2)
    module = "pre_feedforward_layernorm" if family == "gemma" and point == "mlp_norm_output" else MODULES.get(point)
    return None if module is None else f"model.layers.{layer}.{module}".rstrip(".")


def names_kept(kind, names, family, chance):
    """What is captured, and under which names."""
    if kind == "hooks":
        kept = {name: hooked(name, family) for name in names}
        return {name: module for name, module in kept.items() if module}
    if kind == "layers":
        return {name: name for name in names
                if name.endswith(("layer_output", "block_output")) or not name.startswith(("layer_", "block_"))}
    share = chance.choice([0.25, 0.5, 0.75]) if kind == "some" else 1
    return {name: name for name in names if chance.random() < share} or {names[-1]: names[-1]}


def save(path, tensors):
    header, offset, parts = {"__metadata__": {"order": json.dumps(list(tensors))}}, 0, []
    for name, tensor in tensors.items():
        values = tensor.contiguous()
        raw = (values.view(torch.int16) if values.dtype == torch.bfloat16 else values).numpy().tobytes()
        header[name] = {"dtype": TYPES[values.dtype], "shape": list(values.shape),
                        "data_offsets": [offset, offset + len(raw)]}
        offset += len(raw)
        parts.append(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    Path(path).write_bytes(len(text).to_bytes(8, "little") + text + b"".join(parts))


def contrast(faulty, honest, reference):
    """How far the bug moves the tensor, or its worst token, beyond what the precision does."""
    rows = [value.double().reshape(-1, value.shape[-1]) for value in (faulty, honest, reference)]
    moved = (rows[0] - rows[1]).nan_to_num(1e30, 1e30, 1e30).norm(dim=1)
    noise = (rows[1] - rows[2]).norm(dim=1)
    usual = noise.norm() / noise.numel()**0.5
    usual = max(float(usual), 1e-7 * float(rows[2].norm()) / noise.numel()**0.5, 1e-30)
    return (float(moved.norm()) / (usual * noise.numel()**0.5) >= CONTRAST or
            float((moved / noise.clamp(min=usual)).max()) >= CONTRAST_TOKEN)


class Case:
    def __init__(self, model, bug, chance):
        self.bug = bug
        self.precision = chance.choice(FAULTY if bug else HONEST)
        self.variant, self.captured = chance.randrange(8), chance.choice(CAPTURES)
        self.fused = chance.random() < 0.3 and self.captured in ("hooks", "layers")
        self.batched, self.half = chance.random() < 0.33, chance.random() < 0.5
        self.seed = chance.randrange(1 << 30)
        if bug and bug.exact and self.precision not in ("f64", "tf32"):
            self.precision = "f64"
        self.family = model.config.family

    def pack(self, run, names, half):
        packed = {}
        for name, module in names.items():
            value = run.captures[name]
            if half and value.is_floating_point():
                value = value.to(half)
            packed[module] = value[None] if self.batched else value
        return packed

    def make(self, model, reference, folder):
        """Writes both files. The first tensor that the bug changes, or None where nobody would see it."""
        precision = Precision(self.precision, self.variant)
        names = names_kept(self.captured, list(reference.captures), self.family, random.Random(self.seed))
        inside = (f"layer_{self.bug.layer}_", f"block_{self.bug.layer}_") if self.bug else ()
        self.sees_scores = any(name.startswith(inside) and any(step in name + "_" for step in SCORES) for name in names)
        self.sees_part = any(start + str(self.bug.part) in names for start in inside)
        half = {"bf16": torch.bfloat16, "f16": torch.float16}.get(precision.type)
        half = half if self.half and "res32" not in precision.details else None
        base = self.pack(reference, names, None)
        made = honest = self.pack(Run(model, precision, None, self.fused), names, half)
        first = None
        if self.bug:
            made = self.pack(Run(model, precision, self.bug, self.fused), names, half)
            first = next((name for name in made if not torch.equal(made[name], honest[name])), None)
            if first is None or not contrast(made[first], honest[first], base[first]):
                return None
        save(folder / "reference.safetensors", base)
        save(folder / "candidate.safetensors", made)
        return first or ""


def judged(binary, folder):
    command = [binary, "compare", str(folder / "reference.safetensors"), str(folder / "candidate.safetensors"),
               "--json", "-"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        return json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return {"verdict": "no report within two minutes"}
    except ValueError:
        return {"verdict": f"no report (exit {done.returncode}): {done.stderr.strip()[:160]}"}


def accepted(case, expected):
    """The causes that explain the bug, as far as what was captured tells; `expected` is the first tensor that shows it."""
    bug, causes = case.bug, list(case.bug.causes)
    if bug.is_in_queries_or_keys() and not case.sees_scores:
        # of queries and keys nothing is there, nor of what is made of them: that attention weighs the values otherwise
        # is all that anybody can tell
        causes.append("softmax")
    if bug.how == "unwritten" and case.precision.startswith("f16"):
        causes.append("inf")  # what the memory was filled with is beyond the largest f16
    if bug.name == "tampered" and not case.sees_part:
        if "inf" in causes:
            causes.append("nan")  # which is what a norm or a product makes of an infinity
        if bug.how in WITHIN_TOKENS:
            causes.append("rows")  # behind a norm or a product all numbers of these tokens are wrong, and which they
            # were is not to be seen any more
    if bug.name in ("norm_skipped", "norm_not_divided") and "norm" not in expected:
        causes.append("wrong-input")  # what comes out of the norm is not there: the next step takes what went into it
    return causes


def score(case, expected, report):
    """A row: what was looked at, what came of it."""
    found = (report.get("first_divergence") or {}).get("name")
    cause = (report.get("causes") or [{}])[0]
    row = dict(bug=bool(case.bug), captured=case.captured, located=False, named=False, alarm=False, text="",
               verdict=report.get("verdict"))
    if not case.bug:
        row["alarm"] = row["verdict"] != "match"
        if row["alarm"]:
            why = next((one["why"] for one in report.get("tensors", []) if one["why"] and
                        (one["name"] == found if found else one["verdict"] == "unknown")), None)
            row["text"] = f"ALARM verdict {row['verdict']}, first {found}: {why}"
        return row
    row["located"] = found == expected
    row["named"] = row["located"] and cause.get("id") in accepted(case, expected)
    if not row["located"]:
        row["text"] = f"MISS  first {found}, is {expected} ({row['verdict']})"
    elif not row["named"]:
        row["text"] = f"NAME  cause {cause.get('id')}, one of {', '.join(accepted(case, expected))}, at {found}"
    return row


def run_group(binary, seed, group, kind, only, keep):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    chance = random.Random(f"{seed} {group}")
    model = draw_model(FAMILIES[(seed + group) % len(FAMILIES)], chance.randrange(1 << 30))
    reference = Run(model, Precision("f32"))
    bugs = draw_bugs(model, chance)
    chance.shuffle(bugs)
    rows = []
    for index in range(GROUP):
        faulty = index % 2 == 0
        if (only is not None and index != only) or (kind != "both" and faulty != (kind == "bugs")):
            continue
        case = Case(model, bugs[index // 2] if faulty else None, random.Random(f"{seed} {group} {index}"))
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(keep or scratch)
            folder.mkdir(parents=True, exist_ok=True)
            expected = case.make(model, reference, folder)
            if expected is None:
                continue
            row = score(case, expected, judged(binary, folder))
        c = model.config
        row["case"] = (f"{group}.{index} {c.family} {case.precision}, {case.captured} captured, {c.layers} layers, "
                       f"{c.tokens} tokens, {c.style}")
        if case.bug:
            row["case"] += f", {case.bug.how} {case.bug.part or ''}".rstrip()
        rows.append(row)
    return rows


def summary(rows):
    bugs, honest = [row for row in rows if row["bug"]], [row for row in rows if not row["bug"]]

    def share(part, whole):
        return f"{part}/{whole} = {part / whole:.1%}" if whole else "0/0"

    return (f"located {share(sum(row['located'] for row in bugs), len(bugs))}, "
            f"named {share(sum(row['named'] for row in bugs), len(bugs))}, "
            f"alarms {share(sum(row['alarm'] for row in honest), len(honest))}")


def groups_of(given):
    if given.only:
        group, _, case = given.only.partition(".")
        return [int(group)], int(case) if case else None
    return range((given.count + GROUP - 1) // GROUP), None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=224, help="cases, honest and faulty ones together")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no further model after this long")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--kind", choices=("both", "honest", "bugs"), default="both")
    parser.add_argument("--only", help="one group, or one case of it")
    parser.add_argument("--keep", help="folder for the traces; they are overwritten by the next case")
    parser.add_argument("--verbose", action="store_true", help="a line for each failure")
    given = parser.parse_args()
    began, rows = time.monotonic(), []
    groups, only = groups_of(given)
    waiting = collections.deque(groups)
    with concurrent.futures.ProcessPoolExecutor(given.jobs) as pool:
        running = set()
        while running or (waiting and time.monotonic() - began < given.seconds):
            while waiting and len(running) < given.jobs and time.monotonic() - began < given.seconds:
                running.add(pool.submit(run_group, given.binary, given.seed, waiting.popleft(), given.kind, only,
                                        given.keep))
            done, running = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            for row in (row for job in done for row in job.result()):
                rows.append(row)
                if given.verbose and row["text"]:
                    print(f"{row['case']}: {row['text']}", flush=True)
    for captured in sorted({row["captured"] for row in rows}):
        print(f"  {captured} captured: {summary([row for row in rows if row['captured'] == captured])}")
    silent = sum(row["alarm"] and row["verdict"] == "incomplete" for row in rows)
    print(summary(rows) + (f" ({silent} of them incomplete)" if silent else ""))


if __name__ == "__main__":
    main()
