"""A server under test, and what the tests say to it: the standard library alone."""
import http.client
import json
import os
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).resolve().parent.parent.parent
GOLDEN = ROOT / "tests" / "golden"
PATIENCE = 120
SANITIZED = "ASAN_OPTIONS" in os.environ
# Sanitizers keep books about every byte.
MEMORY = 2e9 if SANITIZED else 256e6


class Server:
    started = []

    def __init__(self, program, folder, *arguments):
        self.program, self.folder, self.arguments = program, folder, arguments
        folder.mkdir(parents=True, exist_ok=True)
        self.said = folder / "stderr.txt"
        self.start()

    def start(self):
        self.process = subprocess.Popen([str(self.program), "serve", "--workspaces", str(self.folder / "workspaces"),
                                         *([] if "--port" in self.arguments else ["--port", "0"]),
                                         *map(str, self.arguments)],
                                        stdout=subprocess.PIPE, stderr=self.said.open("a"), text=True)
        self.url = self.process.stdout.readline().strip()
        assert self.url.startswith("http://"), f"no address: {self.url!r} {self.errors()}"
        self.host = self.url.split("/")[2]
        self.port = int(self.host.rsplit(":", 1)[1])
        if self not in Server.started:
            Server.started.append(self)

    def alive(self):
        return self.process.poll() is None

    def errors(self):
        return self.said.read_text()[-4000:]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(PATIENCE)
        self.process.stdout.close()
        return status

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE)
        self.process.stdout.close()

    def resident(self):
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def request(self, method, path, body=None, headers=None, plain=False):
        """Status, headers, body; JSON is read unless it is to be left plain."""
        sent = {} if method in ("GET", "HEAD") else {"X-Tsleuth": "1"}
        sent.update(headers or {})
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        connection = self.connect()
        try:
            connection.request(method, path, body, {name: value for name, value in sent.items() if value is not None})
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        if not plain and answer.getheader("Content-Type") == "application/json" and data:
            data = json.loads(data)
        return answer.status, answer.headers, data

    def get(self, path, want=200):
        status, _, data = self.request("GET", "/api/v1/" + path)
        assert status == want, f"{path}: {status} {data!r}"
        return data

    def post(self, path, body=None, want=(200, 201, 202)):
        status, _, data = self.request("POST", "/api/v1/" + path, body)
        assert status in (want if isinstance(want, tuple) else (want,)), f"{path}: {status} {data!r}"
        return data

    def workspace(self):
        return "workspaces/" + self.post("workspaces", want=201)["id"]

    def put(self, workspace, side, name, data, want=201, headers=None):
        status, got, answer = self.request("PUT", f"/api/v1/{workspace}/{side}/files/{quote(name)}", data, headers)
        assert status == want, f"PUT {name}: {status} {answer!r}"
        return answer

    def upload(self, a=None, b=None):
        """A workspace with a file on each side."""
        workspace = self.workspace()
        for side, path in (("a", a), ("b", b)):
            if path:
                self.put(workspace, side, Path(path).name, Path(path).read_bytes())
        return workspace

    def wait(self, workspace, want="done"):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            state = self.get(workspace)
            if state["state"] not in ("busy",):
                assert state["state"] == want, f"{state}"
                return state
            time.sleep(0.02)
        raise AssertionError("the run does not end")

    def run(self, workspace, options=None, want="done"):
        self.post(workspace + "/run", options or {}, want=202)
        return self.wait(workspace, want)

    def compared(self, a, b=None, options=None):
        workspace = self.upload(a, b)
        self.run(workspace, options)
        return workspace

    def events(self, workspace):
        """Yields (name, data) until the stream ends."""
        connection = self.connect()
        try:
            connection.request("GET", f"/api/v1/{workspace}/events")
            answer = connection.getresponse()
            assert answer.status == 200 and answer.getheader("Content-Type") == "text/event-stream"
            name = None
            while True:
                line = answer.readline().decode()
                if not line:
                    return
                if line.startswith("event: "):
                    name = line[7:].strip()
                elif line.startswith("data: "):
                    yield name, json.loads(line[6:])
        finally:
            connection.close()

    def raw(self, data, wait=PATIENCE):
        """Sends bytes as they are; returns what comes back until the server closes or the wait is over."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=wait) as link:
            link.sendall(data)
            got = b""
            try:
                while piece := link.recv(65536):
                    got += piece
            except (TimeoutError, ConnectionError):
                pass
            return got


def column(listing, name):
    return listing["columns"].index(name)


def row_of(listing, name):
    return next(row for row in listing["rows"] if row[column(listing, "name")] == name)


def safetensors(path):
    """Name to (shape, values) of the f32 tensors, read here and by nobody else."""
    data = Path(path).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            first, last = entry["data_offsets"]
            tensors[name] = entry["shape"], struct.unpack(f"<{(last - first) // 4}f", data[8 + size + first:8 + size + last])
    return tensors


def write_safetensors(path, tensors, sparse=False):
    """tensors: name to (dtype, shape, bytes), or a number of zero bytes that the file does not really hold."""
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        size = data if isinstance(data, int) else len(data)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for dtype, shape, data in tensors.values():
            if isinstance(data, int):
                file.seek(data, os.SEEK_CUR)
            else:
                file.write(data)
        file.truncate(8 + len(text) + at)


def floats(data):
    return struct.unpack(f"<{len(data) // 4}f", data)
