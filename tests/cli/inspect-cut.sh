# A file that is cut short while it is read: the message says which, once, however many threads were reading it.
python3 - << 'END'
import json, os, struct, subprocess, time

count = 1 << 30
header = json.dumps({"x": {"dtype": "F32", "shape": [count], "data_offsets": [0, 4 * count]}}).encode()
outcomes = set()
for turn in range(100):
    with open("cut.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + 4 * count)  # a hole: it takes no room
    process = subprocess.Popen([os.environ["TSLEUTH"], "inspect", "--stats", "cut.safetensors"], stderr=subprocess.PIPE,
                               stdout=subprocess.DEVNULL, text=True, env=dict(os.environ, TSLEUTH_THREADS="64"))
    while process.poll() is None and "cut.safetensors" not in open(f"/proc/{process.pid}/maps").read():
        time.sleep(0.001)
    time.sleep(0.01)
    os.truncate("cut.safetensors", 4096)
    outcomes.add((process.communicate()[1], process.returncode))
for words, status in outcomes:
    print(words, end="")
    print(status)
END
