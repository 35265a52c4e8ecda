#!/usr/bin/env python3
"""Measures `tsleuth serve` on this machine: how soon the first view is there, how long values and tiles take, how fast
uploads are beside plain writing, how smooth the page is with ten thousand tensors, and how much memory it holds through
all of it.

usage: bench/serve.py [PROGRAM]        (make bench builds first)

environment:
  TMPDIR             where the data goes: 2 GiB for the upload; build/bench-data when it is not set. Removed at the end.
  BENCH_GIGABYTES=N  size of the file that values are read from (a hole: it takes no space on the disk); 10

Clients are threads of this program with plain sockets, so their own time is in every figure. A target that is missed is
marked "below target" and does not change the exit status.
"""
import json
import os
import random
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GIGABYTES = int(os.environ.get("BENCH_GIGABYTES") or 10)
CLIENTS = 16
UPLOAD = 1 << 30
PIECE = 1 << 20


def row(what, ours, beside="", peer="", ratio=None, target="", reached=True):
    ratio = "" if ratio is None else f"{ratio:.2f}"
    mark = "" if reached else "  below target"
    print(f"{what:<44} {ours:>12}  {beside:<22} {peer:>10} {ratio:>6}  {target}{mark}".rstrip(), flush=True)


def milliseconds(seconds):
    return f"{seconds * 1000:.1f} ms"


def write_safetensors(path, tensors):
    """tensors: name, shape, bytes or the size of a hole; f32 all of them."""
    header, at = {}, 0
    for name, shape, data in tensors:
        size = data if isinstance(data, int) else len(data)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors:
            if isinstance(data, int):
                file.seek(data, os.SEEK_CUR)
            else:
                file.write(data)
        file.truncate(8 + len(text) + at)


class Client:
    """One connection that stays."""

    def __init__(self, server):
        self.server = server
        self.link = socket.create_connection(("127.0.0.1", server.port))
        self.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.room = bytearray(4 << 20)

    def get(self, path):
        self.link.sendall(f"GET /api/v1/{path} HTTP/1.1\r\nHost: {self.server.host}\r\n\r\n".encode())
        view, got, whole = memoryview(self.room), 0, None
        while whole is None or got < whole:
            size = self.link.recv_into(view[got:])
            if not size:
                raise ConnectionError("the server went away")
            got += size
            if whole is None and (end := self.room.find(b"\r\n\r\n", 0, got)) >= 0:
                head = bytes(self.room[:end]).decode()
                if " 200 " not in head.split("\r\n")[0]:
                    raise RuntimeError(head)
                length = next(line for line in head.split("\r\n") if line.lower().startswith("content-length:"))
                whole = end + 4 + int(length.split(":")[1])
                if whole > len(self.room):
                    raise RuntimeError("larger than this client takes")
        return bytes(self.room[end + 4:whole])


class Server:
    def __init__(self, program, folder, *arguments):
        self.process = subprocess.Popen([str(program), "serve", "--port", "0", "--workspaces", str(folder), *map(str, arguments)],
                                        stdout=subprocess.PIPE, text=True)
        self.started = time.perf_counter()
        self.url = self.process.stdout.readline().strip()
        self.host = self.url.split("/")[2]
        self.port = int(self.host.split(":")[1])
        self.most, self.watching = 0, True
        self.watcher = threading.Thread(target=self.watch, daemon=True)
        self.watcher.start()

    def workspace(self):
        return "workspaces/" + self.url.rsplit("/", 1)[1]

    def watch(self):
        while self.watching:
            try:
                for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
                    if line.startswith("VmRSS:"):
                        self.most = max(self.most, int(line.split()[1]) * 1024)
            except OSError:
                pass
            time.sleep(0.01)

    def stop(self):
        self.watching = False
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()


def percentile(times, share):
    times = sorted(times)
    return times[min(len(times) - 1, int(share * len(times)))]


def load(server, clients, requests, make_path):
    """Times of all requests of so many clients at once, none of them ever resting."""
    times, trouble = [[] for _ in range(clients)], []

    def work(number):
        chooser = random.Random(number)
        try:
            client = Client(server)
            for _ in range(requests):
                path = make_path(chooser)
                since = time.perf_counter()
                client.get(path)
                times[number].append(time.perf_counter() - since)
        except Exception as error:  # noqa: BLE001
            trouble.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
    since = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if trouble:
        raise trouble[0]
    return [one for list_ in times for one in list_], time.perf_counter() - since


def first_view(program, folder):
    """500 tensors of 64 KB on each side, from the start of the program to the list with its verdict."""
    chooser = random.Random(1)
    block = struct.pack("<16384f", *(chooser.gauss(0, 1) for _ in range(16384)))
    for name in ("a", "b"):
        write_safetensors(folder / f"{name}.safetensors",
                          [(f"model.layers.{i // 10}.mlp.w{i % 10}.weight", [128, 128], block) for i in range(500)])
    server = Server(program, folder / "w1", folder / "a.safetensors", folder / "b.safetensors")
    cold = json.loads(Client(server).get(server.workspace() + "/tensors"))
    first = time.perf_counter() - server.started
    assert len(cold["rows"]) == 500
    client, times = Client(server), []
    for _ in range(50):
        since = time.perf_counter()
        client.get(server.workspace() + "/tensors")
        times.append(time.perf_counter() - since)
    server.stop()
    row("first view of 500 tensors, start to list", milliseconds(first), target="300 ms", reached=first < 0.3)
    row("the list again, median", milliseconds(percentile(times, 0.5)))
    return server.most


def look(program, folder):
    count = GIGABYTES * 10**9 // (4 * 8192 * 8192)
    for name in ("a", "b"):
        write_safetensors(folder / f"big_{name}.safetensors",
                          [(f"layer_{i}_x", [8192, 8192], 4 * 8192 * 8192) for i in range(count)])
    server = Server(program, folder / "w2", folder / "big_a.safetensors")
    workspace = server.workspace()
    Client(server).get(workspace + "/tensors")  # opened, and its statistics made
    opened = time.perf_counter() - server.started

    def values(chooser):
        start = f"{chooser.randrange(8192 - 8)},{chooser.randrange(8192 - 16)}"
        return f"{workspace}/tensors/a{chooser.randrange(count)}/values?start={start}&count=8,16"

    def tile(chooser):
        return f"{workspace}/tensors/a{chooser.randrange(count)}/tile?x={chooser.randrange(32)}&y={chooser.randrange(32)}"

    for what, path, requests in (("values of any slice", values, 2000), ("tile of 256 x 256", tile, 500)):
        for clients in (1, CLIENTS):
            times, seconds = load(server, clients, requests if clients == 1 else requests // 4, path)
            worst = percentile(times, 0.99)
            row(f"{what}, {clients} client{'s' if clients > 1 else ''}, p99", milliseconds(worst),
                f"p50 {milliseconds(percentile(times, 0.5))}, {len(times) / seconds:.0f}/s",
                target="20 ms", reached=worst < 0.020)
    server.stop()
    row(f"opened with statistics, {GIGABYTES} GB", f"{opened:.1f} s")
    return server.most


def plain_write(path):
    piece = os.urandom(PIECE)
    since = time.perf_counter()
    with open(path, "wb", buffering=0) as file:
        for _ in range(UPLOAD // PIECE):
            file.write(piece)
        os.fsync(file.fileno())
    seconds = time.perf_counter() - since
    os.unlink(path)
    return seconds


def upload(program, folder):
    server = Server(program, folder / "w3")
    piece = os.urandom(PIECE)

    def send():
        link = socket.create_connection(("127.0.0.1", server.port))
        link.sendall(f"POST /api/v1/workspaces HTTP/1.1\r\nHost: {server.host}\r\nX-Tsleuth: 1\r\nContent-Length: 0\r\n\r\n".encode())
        id_ = json.loads(link.recv(65536).split(b"\r\n\r\n")[1])["id"]
        since = time.perf_counter()
        link.sendall(f"PUT /api/v1/workspaces/{id_}/a/files/x HTTP/1.1\r\nHost: {server.host}\r\nX-Tsleuth: 1\r\n"
                     f"Content-Length: {UPLOAD}\r\n\r\n".encode())
        for _ in range(UPLOAD // PIECE):
            link.sendall(piece)
        answer = link.recv(65536)
        seconds = time.perf_counter() - since
        assert b" 201 " in answer, answer
        link.sendall(f"DELETE /api/v1/workspaces/{id_} HTTP/1.1\r\nHost: {server.host}\r\nX-Tsleuth: 1\r\n\r\n".encode())
        link.recv(65536)
        link.close()
        return seconds

    ours, plain = [], []
    for _ in range(3):  # in turns: the disk is not the same all the time
        plain.append(plain_write(folder / "plain"))
        ours.append(send())
    server.stop()
    ratio = min(plain) / min(ours)
    row("upload of 1 GiB", f"{UPLOAD / min(ours) / 1e6:.0f} MB/s", "write and fsync", f"{UPLOAD / min(plain) / 1e6:.0f} MB/s",
        ratio, "0.5", ratio >= 0.5)
    return server.most


def in_browser(server, *words):
    """What bench/page.mjs measures; without a browser nothing, which is said."""
    try:
        done = subprocess.run(["node", ROOT / "bench" / "page.mjs", server.url, *words], capture_output=True, text=True, timeout=600)
        said = json.loads(done.stdout.splitlines()[-1])
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired) as error:
        said = {"skip": f"it could not be measured: {error}"}
    if "skip" in said:
        print(f"the page was not measured: {said['skip']}")
    return said.get("milliseconds", {})


def page(program, folder):
    """The page in a browser: how soon 500 tensors are seen, and how smooth ten thousand are."""
    server = Server(program, folder / "w4", folder / "a.safetensors", folder / "b.safetensors")
    Client(server).get(server.workspace() + "/tensors")
    for figure in in_browser(server, "first").values():
        row("500 tensors in the browser, after the load", f"{figure:.0f} ms", target="300 ms", reached=figure < 300)
    server.stop()
    most = server.most
    chooser = random.Random(2)
    for name, factor in (("many-a", 0), ("many-b", 0.01)):
        chooser.seed(2)
        write_safetensors(folder / f"{name}.safetensors",
                          [(f"model.layers.{i // 100}.w{i % 100}", [8],
                            struct.pack("<8f", *(chooser.gauss(0, 1) * (1 + factor * (i % 7 == 0)) for _ in range(8))))
                           for i in range(10000)])
    server = Server(program, folder / "w5", folder / "many-a.safetensors", folder / "many-b.safetensors")
    Client(server).get(server.workspace() + "/tensors")
    for what, figure in in_browser(server).items():
        row(f"10 000 tensors, {'' if what.startswith('from') else 'longest task, '}{what}", f"{figure:.0f} ms")
    server.stop()
    return max(most, server.most)


def main():
    program = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "tsleuth").resolve()
    place = os.environ.get("TMPDIR") or ROOT / "build" / "bench-data"
    Path(place).mkdir(parents=True, exist_ok=True)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores at the start", flush=True)
    with tempfile.TemporaryDirectory(prefix="tsleuth-serve-", dir=place) as name:
        folder = Path(name)
        most = max(measure(program, folder) for measure in (first_view, look, upload, page))
    row("resident memory through all of it", f"{most / 1e6:.0f} MB", target="256 MB", reached=most < 256e6)
    return 0


if __name__ == "__main__":
    sys.exit(main())
