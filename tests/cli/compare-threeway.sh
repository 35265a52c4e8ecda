# judged against a third run, the bf16 candidate errs as much as itself, and the bug does not
$TSLEUTH compare "$GOLDEN/trace/bfloat16.safetensors" "$GOLDEN/trace/bfloat16.safetensors" --high-precision "$GOLDEN/trace/reference.safetensors" | tail -1
$TSLEUTH compare "$GOLDEN/trace/bfloat16.safetensors" "$GOLDEN/trace/rope_theta.safetensors" --high-precision "$GOLDEN/trace/reference.safetensors" --json - | grep -A1 '"first_divergence"'
$TSLEUTH compare "$GOLDEN/trace/bfloat16.safetensors" "$GOLDEN/trace/bfloat16.safetensors" --high-precision "$GOLDEN/trace/reference.safetensors" --json - | grep -o '"[a-z0-9]*_over_own": 1,' | sort -u

# one rounding to bf16 is no error of a candidate, however large the elements that it fell on
values() { # EXPRESSION of i
    awk "function bf16(x, step) { step = 2 ^ (int(log(x * x) / log(4) + 200) - 207); return int(x / step + (x < 0 ? -0.5 : 0.5)) * step }
        BEGIN { printf \"{\\\"x\\\": {\\\"shape\\\": [30, 40], \\\"values\\\": [\"
        for (i = 0; i < 1200; i++) { x = sin(i * i * 0.37 + 1) * (i % 97 ? 1 : 9.7); printf \"%s%.9g\", i ? \", \" : \"\", $1 }
        print \"]}}\" }"
}
values x > truth.json
values 'bf16(x)' > rounded.json
values 'bf16(x) + (i == 97) * 0.3' > wrong.json
$TSLEUTH compare truth.json rounded.json --high-precision truth.json | tail -1
$TSLEUTH compare truth.json wrong.json --high-precision truth.json | tail -1

# whatever both sides are: complex numbers against real ones, layers counted from elsewhere, three tensors in one
python3 - << 'END'
import json, math, struct

def write(path, tensors):
    header, body = {}, b""
    for name, (kind, shape, values) in tensors.items():
        data = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)

def numbers(seed, error):  # error is relative, and of no direction
    return [math.sin(i * i * 0.37 + seed) * (1 + error * math.sin(i * i * 0.73 + 3 * seed)) for i in range(480)]

def layers(first, error):
    return {f"layers.{first + i}.attn_q": ("F32", [20, 24], numbers(i, error)) for i in range(1, 3)}

def fused(error):
    parts = [numbers(7, 1e-4), numbers(8, error), numbers(9, 1e-4)]
    return {"layers.0.attn_qkv": ("F32", [20, 72], [x for i in range(20) for p in parts for x in p[24 * i:24 * i + 24]])}

for name, error in ("truth", 0), ("reference", 1e-4), ("same", 2e-4), ("worse", 1e-2):
    write(f"{name}-real.st", {"x": ("F32", [20, 12, 2], numbers(5, error))})
    write(f"{name}-complex.st", {"x": ("C64", [20, 12], numbers(5, error))})
    write(f"{name}-layers.st", layers(2, error))
    write(f"{name}-from-0.st", layers(-1, error))
    write(f"{name}-fused.st", fused(error))
write("truth-parts.st", {f"layers.0.attn_{p}": ("F32", [20, 24], numbers(s, 0)) for p, s in zip("qkv", (7, 8, 9))})
END
for candidate in same worse; do
    for truth in real complex; do
        $TSLEUTH compare reference-real.st $candidate-complex.st --high-precision truth-$truth.st | tail -1
        $TSLEUTH compare reference-complex.st $candidate-real.st --high-precision truth-$truth.st --json - | grep -o '"l2_over_own": [0-9]*'
    done
    for truth in layers from-0; do
        $TSLEUTH compare reference-layers.st $candidate-from-0.st --layer-offset 3 --high-precision truth-$truth.st | tail -1
    done
    $TSLEUTH compare reference-fused.st $candidate-fused.st --high-precision truth-parts.st | grep -A2 "^note\|^[mdi].*:"
done

# a factor on complex numbers is found as one on real ones is, and numbers of few bits are known in both
python3 - << 'END'
import json, math, struct
values = [math.sin(i * i * 0.37 + 1) for i in range(1200)]
short = [struct.unpack("<f", struct.pack("<I", struct.unpack("<I", struct.pack("<f", x))[0] + 0x8000 & 0xffff0000))[0] for x in values]
for name, numbers in ("whole", values), ("factor", [1.01 * x for x in values]), ("bf16", short):
    for kind, shape in ("C64", [30, 20]), ("F32", [30, 40]):
        text = json.dumps({"x": {"dtype": kind, "shape": shape, "data_offsets": [0, 4800]}}).encode()
        with open(f"{name}-{kind}.st", "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + struct.pack("<1200f", *numbers))
END
for kind in F32 C64; do
    $TSLEUTH compare whole-$kind.st factor-$kind.st | tail -1
    $TSLEUTH compare whole-$kind.st bf16-$kind.st --json - | grep '"precision_b"\|"verdict"'
done
