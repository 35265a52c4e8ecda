"""The time numpy takes for the metrics of a comparison: two safetensors files of one f32 or bf16 tensor each.

In parts of 4 Mi numbers, which is faster than whole arrays that do not fit caches, and with sums in float64. numpy has
no bf16: its bits are shifted into f32.
"""
import json
import os
import sys
import time

import numpy

PART = 4 << 20
clock = time.process_time if os.environ.get("BENCH_CLOCK") == "cpu" else time.perf_counter


def numbers_of(path):
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        entry = json.loads(file.read(length))["weight"]
    first, last = entry["data_offsets"]
    kind = {"F32": "<f4", "BF16": "<u2"}[entry["dtype"]]
    size = numpy.dtype(kind).itemsize
    return numpy.memmap(path, dtype=kind, mode="r", offset=8 + length + first, shape=((last - first) // size,))


def widened(part):
    return (part.astype("<u4") << 16).view("<f4") if part.dtype.itemsize == 2 else part


def measure(a, b, rtol, atol):
    count = sum_a = sum_b = squares_a = squares_b = sum_abs = squares = product = 0.0
    least = [numpy.inf, numpy.inf]
    most = [-numpy.inf, -numpy.inf]
    max_abs = max_rel = 0.0
    worst = unequal = mismatched = 0
    close = [True, True, True]
    for start in range(0, len(a), PART):
        x, y = widened(a[start:start + PART]), widened(b[start:start + PART])
        finite = numpy.isfinite(x) & numpy.isfinite(y)
        if not finite.all():
            x, y = x[finite], y[finite]
        d = y - x
        distance, size = numpy.abs(d), numpy.abs(x)
        count += len(x)
        sum_a += float(x.sum(dtype="f8"))
        sum_b += float(y.sum(dtype="f8"))
        squares_a += float(numpy.square(x).sum(dtype="f8"))
        squares_b += float(numpy.square(y).sum(dtype="f8"))
        product += float((x * y).sum(dtype="f8"))
        sum_abs += float(distance.sum(dtype="f8"))
        squares += float(numpy.square(d).sum(dtype="f8"))
        least = [min(least[0], float(x.min())), min(least[1], float(y.min()))]
        most = [max(most[0], float(x.max())), max(most[1], float(y.max()))]
        place = int(distance.argmax())
        if distance[place] > max_abs:
            max_abs, worst = float(distance[place]), start + place
        with numpy.errstate(divide="ignore", invalid="ignore"):
            max_rel = max(max_rel, float(numpy.where(size > 0, distance / size, 0).max()))
        unequal += int(numpy.count_nonzero(d))
        mismatched += int(numpy.count_nonzero(distance > size * numpy.float32(rtol) + numpy.float32(atol)))
        for i, step in enumerate((1e-3, 1e-4, 1e-5)):
            close[i] = close[i] and not (distance > step + step * size).any()
    return {"rel_l2": (squares / squares_a) ** 0.5, "mean_abs": sum_abs / count, "max_abs": max_abs, "worst": worst,
            "cosine": product / (squares_a * squares_b) ** 0.5, "max_rel": max_rel, "unequal": unequal,
            "mismatched": mismatched, "close": close, "mean": [sum_a / count, sum_b / count], "min": least, "max": most}


one, other = numbers_of(sys.argv[1]), numbers_of(sys.argv[2])
begin = clock()
result = measure(one, other, *((1.3e-6, 1e-5) if one.dtype.itemsize == 4 else (1.6e-2, 1e-5)))
print(json.dumps({"seconds": clock() - begin, "numpy": numpy.__version__, "result": result}))
