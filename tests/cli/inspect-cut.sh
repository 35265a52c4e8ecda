# A file that is cut short while it is read: the message says which.
python3 - << 'END'
import json, os, struct, subprocess, time

count = 1 << 30
header = json.dumps({"x": {"dtype": "F32", "shape": [count], "data_offsets": [0, 4 * count]}}).encode()
with open("cut.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(header)) + header)
    file.truncate(8 + len(header) + 4 * count)  # a hole: it takes no room
process = subprocess.Popen([os.environ["TSLEUTH"], "inspect", "--stats", "cut.safetensors"], stderr=subprocess.PIPE,
                           stdout=subprocess.DEVNULL, text=True)
while process.poll() is None and "cut.safetensors" not in open(f"/proc/{process.pid}/maps").read():
    time.sleep(0.001)
os.truncate("cut.safetensors", 4096)
print(process.communicate()[1], end="")
print(process.returncode)
END
