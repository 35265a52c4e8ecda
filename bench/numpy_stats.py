"""The time numpy takes for the mean, standard deviation, least and largest of an f32 safetensors file of one tensor."""
import json
import os
import sys
import time

import numpy

clock = time.process_time if os.environ.get("BENCH_CLOCK") == "cpu" else time.perf_counter
path = sys.argv[1]
with open(path, "rb") as file:
    length = int.from_bytes(file.read(8), "little")
    first, last = json.loads(file.read(length))["weight"]["data_offsets"]
numbers = numpy.memmap(path, dtype="<f4", mode="r", offset=8 + length + first, shape=((last - first) // 4,))
start = clock()
result = [float(numbers.mean()), float(numbers.std()), float(numbers.min()), float(numbers.max())]
print(json.dumps({"seconds": clock() - start, "numpy": numpy.__version__, "result": result}))
