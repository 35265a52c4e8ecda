"""Uploads: whole, in pieces, broken off, killed, cancelled, as forms."""
import os
import signal
import socket
import threading
import time
from pathlib import Path

from client import GOLDEN, PATIENCE, Server, column

TRACE = GOLDEN / "trace"
DATA = (TRACE / "reference.safetensors").read_bytes()
IDLE = 60  # seconds after which the server gives a silent connection up


def received(server, workspace, name, side="a"):
    status, headers, _ = server.request("HEAD", f"/api/v1/{workspace}/{side}/files/{name}")
    return int(headers["X-Tsleuth-Received"]), status


def stored(server, workspace, name, side="0"):
    return server.folder / "workspaces" / workspace.split("/")[1] / side / name


def test_upload_and_read_back(server, _):
    workspace = server.workspace()
    answer = server.put(workspace, "a", "x.safetensors", DATA)
    assert answer["bytes"] == len(DATA) and answer["complete"] is True and answer["name"] == "x.safetensors"
    assert stored(server, workspace, "x.safetensors").read_bytes() == DATA
    assert received(server, workspace, "x.safetensors") == (len(DATA), 200)
    state = server.get(workspace)
    assert state["state"] == "ready" and state["a"]["bytes"] == len(DATA) and state["b"] is None


def test_pieces(server, _):
    workspace = server.workspace()
    half = len(DATA) // 2
    assert received(server, workspace, "x.safetensors") == (0, 404)
    first = server.put(workspace, "a", "x.safetensors", DATA[:half],
                       headers={"Content-Range": f"bytes 0-{half - 1}/{len(DATA)}"})
    assert first["bytes"] == half and first["complete"] is False
    assert received(server, workspace, "x.safetensors") == (half, 200)
    assert server.get(workspace)["a"]["state"] == "uploading" and server.get(workspace)["state"] == "empty"
    server.put(workspace, "a", "x.safetensors", DATA[half + 10:], want=409,
               headers={"Content-Range": f"bytes {half + 10}-{len(DATA) - 1}/{len(DATA)}"})
    # a piece that overlaps what is there replaces it
    last = server.put(workspace, "a", "x.safetensors", DATA[half - 100:],
                      headers={"Content-Range": f"bytes {half - 100}-{len(DATA) - 1}/{len(DATA)}"})
    assert last["complete"] is True and stored(server, workspace, "x.safetensors").read_bytes() == DATA


def test_ranges_refuse_nonsense(server, _):
    workspace = server.workspace()
    for text in ("bytes 0-9/5", "bytes 5-3/10", "bytes */10", "bytes 0-9/*", "bits 0-9/10", "bytes 0-9", "0-9/10",
                 "bytes -1-9/10", "bytes 0-8/10", "bytes 0-9/10 x", "bytes 0-99999999999999999999/999999999999999999999",
                 "bytes 1-10/18446744073709551615", ""):
        server.put(workspace, "a", "x", b"0123456789", want=400, headers={"Content-Range": text})


def start_put(server, workspace, name, total, data, range_=None):
    link = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
    head = f"PUT /api/v1/{workspace}/a/files/{name} HTTP/1.1\r\nHost: {server.host}\r\nX-Tsleuth: 1\r\nContent-Length: {total}\r\n"
    link.sendall((head + (f"Content-Range: {range_}\r\n" if range_ else "") + "\r\n").encode() + data)
    return link


def hang_up(server, link, data):
    """Sends what nobody wants any more and the end, and comes back when the server has let go of the connection. The
    server sees both at once, which is the worst case: it sleeps meanwhile, so little is sent."""
    link.settimeout(IDLE / 2)
    server.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, server.process.pid, os.WSTOPPED)
    try:
        link.sendall(data)
        link.shutdown(socket.SHUT_WR)
        server.process.send_signal(signal.SIGCONT)
        while link.recv(65536):
            pass
    except TimeoutError:
        raise AssertionError("the server keeps a connection whose client has gone") from None
    except ConnectionError:
        pass
    finally:
        server.process.send_signal(signal.SIGCONT)
        link.close()


def opened(descriptor):
    try:
        return os.readlink(descriptor)
    except FileNotFoundError:  # closed meanwhile
        return ""


def wait_for(condition, what):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def test_broken_connection_resumes(server, _):
    workspace = server.workspace()
    link = start_put(server, workspace, "x.safetensors", len(DATA), DATA[:100000])
    wait_for(lambda: received(server, workspace, "x.safetensors")[0] == 100000, "the bytes do not arrive")
    link.close()
    there = received(server, workspace, "x.safetensors")[0]
    assert there == 100000
    server.put(workspace, "a", "x.safetensors", DATA[there:],
               headers={"Content-Range": f"bytes {there}-{len(DATA) - 1}/{len(DATA)}"})
    assert stored(server, workspace, "x.safetensors").read_bytes() == DATA


def test_kill_in_the_middle_of_an_upload(server, folder):
    own = Server(server.program, folder)
    workspace = own.workspace()
    data = os.urandom(3 << 20)
    own.put(workspace, "b", "done.bin", data)
    own.put(workspace, "a", "big.bin", data[:1 << 20], headers={"Content-Range": f"bytes 0-{(1 << 20) - 1}/{len(data)}"})
    link = start_put(own, workspace, "big.bin", 2 << 20, data[1 << 20:1 << 21], f"bytes {1 << 20}-{len(data) - 1}/{len(data)}")
    wait_for(lambda: received(own, workspace, "big.bin")[0] == 2 << 20, "the bytes do not arrive")
    own.kill()
    link.close()
    own.start()
    assert stored(own, workspace, "done.bin", "1").read_bytes() == data
    there, _ = received(own, workspace, "big.bin")
    assert there == 2 << 20
    answer = own.put(workspace, "a", "big.bin", data[there:], headers={"Content-Range": f"bytes {there}-{len(data) - 1}/{len(data)}"})
    assert answer["complete"] and stored(own, workspace, "big.bin").read_bytes() == data


def test_cancel_an_upload(server, _):
    workspace = server.workspace()
    link = start_put(server, workspace, "x.bin", 10 << 20, b"x" * (1 << 20))
    wait_for(lambda: received(server, workspace, "x.bin")[0] == 1 << 20, "the bytes do not arrive")
    assert server.request("DELETE", f"/api/v1/{workspace}/a/files/x.bin")[0] == 204
    assert received(server, workspace, "x.bin") == (0, 404)
    hang_up(server, link, b"x" * 50000)
    assert received(server, workspace, "x.bin") == (0, 404)
    assert server.request("DELETE", f"/api/v1/{workspace}/a/files/x.bin")[0] == 404
    server.put(workspace, "a", "x.bin", b"again")


def test_delete_the_workspace_during_an_upload(server, _):
    workspace = server.workspace()
    folder = stored(server, workspace, "x").parent.parent
    server.put(workspace, "b", "deep/er/y.bin", b"y" * 1000)
    link = start_put(server, workspace, "x.bin", 2000000, b"x" * 1000000)
    wait_for(lambda: received(server, workspace, "x.bin")[0] == 1000000, "the bytes do not arrive")
    assert server.request("DELETE", "/api/v1/" + workspace)[0] == 204
    try:
        link.sendall(b"x" * 1000000)
        assert b" 201 " not in link.recv(4096)
    except OSError:
        pass
    link.close()
    wait_for(lambda: not folder.exists() and not list(folder.parent.glob("gone-*")), "the files stay")
    server.put(workspace, "a", "x.bin", b"", want=404)


def test_newer_upload_wins(server, _):
    workspace = server.workspace()
    link = start_put(server, workspace, "x.bin", 10 << 20, b"x" * 100000)
    wait_for(lambda: received(server, workspace, "x.bin")[0] == 100000, "the bytes do not arrive")
    server.put(workspace, "a", "x.bin", b"newer")
    hang_up(server, link, b"y" * 50000)
    assert stored(server, workspace, "x.bin").read_bytes() == b"newer"


def test_clients_that_hang_up_are_let_go(server, _):
    """Wherever they stop: in the head, in a body that is kept, written or thrown away."""
    workspace = server.workspace()
    folder = stored(server, workspace, "x").parent.parent
    common = f"Host: {server.host}\r\nX-Tsleuth: 1\r\n"
    put = f"PUT /api/v1/{workspace}/a/files/x.bin HTTP/1.1\r\n{common}"
    for what, head in (("head", f"GET /api/v1/{workspace} HTTP/1.1\r\nX-Tsl"),
                       ("map", f"POST /api/v1/{workspace}/run HTTP/1.1\r\n{common}Content-Length: 90000\r\n\r\n"),
                       ("upload", f"{put}Content-Length: 90000\r\n\r\n"),
                       ("chunks", f"{put}Transfer-Encoding: chunked\r\n\r\nfff0\r\n"),
                       ("refused", f"PUT /api/v1/nowhere HTTP/1.1\r\n{common}Content-Length: 90000\r\n\r\n")):
        link = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
        link.sendall(head.encode())
        try:
            hang_up(server, link, b"x" * 1000)
        except AssertionError as error:
            raise AssertionError(f"{what}: {error}") from None
    files = Path(f"/proc/{server.process.pid}/fd")
    wait_for(lambda: not any(str(folder) in opened(one) for one in files.iterdir()), "a file stays open")


def test_folders_and_mixtures(server, _):
    workspace = server.workspace()
    for i in range(12):
        server.put(workspace, "a", f"run/step {i}/ä&?#%.npy", (GOLDEN / "numpy" / "f4.npy").read_bytes())
    server.put(workspace, "b", "x.zip", (GOLDEN / "archives" / "model2_tp1.zip").read_bytes())
    server.put(workspace, "b", "loose.npy", (GOLDEN / "numpy" / "i8.npy").read_bytes())
    server.run(workspace)
    listing = server.get(workspace + "/tensors")
    assert listing["a"]["tensors"] == 12 and listing["b"]["tensors"] >= 1
    state = server.get(workspace)
    assert state["a"]["count"] == 12 and state["a"]["files"][0]["name"] == "run/step 0/ä&?#%.npy"
    names = [row[column(listing, "name")] for row in listing["rows"]] + [one["name"] for one in listing["only_a"]]
    assert any("step 11" in name for name in names), names


def test_chunked_upload_without_a_length(server, _):
    workspace = server.workspace()
    connection = server.connect()
    connection.request("PUT", f"/api/v1/{workspace}/a/files/x.safetensors", iter([DATA[:1000], DATA[1000:50000], DATA[50000:]]),
                       {"X-Tsleuth": "1", "Transfer-Encoding": "chunked"}, encode_chunked=True)
    assert connection.getresponse().status == 201
    connection.close()
    assert stored(server, workspace, "x.safetensors").read_bytes() == DATA


def form(parts, boundary="q1w2"):
    body = b""
    for field, filename, data in parts:
        name = f'; filename="{filename}"' if filename is not None else ""
        body += f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"{name}\r\n\r\n'.encode() + data + b"\r\n"
    return body + f"--{boundary}--\r\n".encode(), {"Content-Type": f"multipart/form-data; boundary={boundary}"}


def test_forms(server, _):
    workspace = server.workspace()
    other = (TRACE / "rope_theta.safetensors").read_bytes()
    body, headers = form([("a", "a.safetensors", DATA), ("b", "b.safetensors", other)])
    status, _, answer = server.request("POST", f"/api/v1/{workspace}/upload", body, headers)
    assert status == 201 and [(one["name"], one["side"], one["bytes"]) for one in answer] == [
        ("a.safetensors", "a", len(DATA)), ("b.safetensors", "b", len(other))]
    assert server.run(workspace)["summary"]["verdict"] == "differ"
    for parts in ([("c", "x", b"x")], [("a", "../x", b"x")], [("a", None, b"x")], [("a", "/etc/x", b"x")], []):
        body, headers = form(parts)
        assert server.request("POST", f"/api/v1/{workspace}/upload", body, headers)[0] in (400, 404), parts
    assert server.request("POST", f"/api/v1/{workspace}/upload", b"x", {"Content-Type": "text/plain"})[0] == 415


def test_names_that_leave_the_folder(server, folder):
    workspace = server.workspace()
    for name in ("../x", "a/../../x", "/etc/passwd", "a//b", "a/./b", ".", "..", "a/..", "a\\b", "..\\x", "a\nb", "a\x7fb", "a\x01",
                 "x" * 256, "/".join("y" * 200 for _ in range(6)), "/".join("z" for _ in range(40)), "a/", "%2e%2e/x"[0:0] + "..%2fx"[0:2]):
        server.put(workspace, "a", name, b"x", want=400)
    for raw in ("%2e%2e%2fx", "..%2Fx", "%2Fetc%2Fpasswd", "a%00b", "%ff%fe", "a%2", "%", "a%5cb", "%c0%ae%c0%ae/x", "..;/x/../../y"):
        status, _, answer = server.request("PUT", f"/api/v1/{workspace}/a/files/{raw}", b"x")
        assert status == 400, (raw, status, answer)
    files = [path for path in (server.folder / "workspaces").rglob("*") if path.is_file() and path.name != "workspace.json"
             and workspace.split("/")[1] in str(path)]
    assert files == [] and not (server.folder / "x").exists()
    server.put(workspace, "c", "x", b"x", want=404)


def test_a_file_where_a_folder_is(server, _):
    workspace = server.workspace()
    server.put(workspace, "a", "x/y", b"1")
    server.put(workspace, "a", "x", b"1", want=409)
    server.put(workspace, "a", "z", b"1")
    server.put(workspace, "a", "z/y", b"1", want=409)


def test_deleted_files_leave_no_folders(server, _):
    workspace = server.workspace()
    server.put(workspace, "a", "deep/er/x.npy", b"1")
    server.put(workspace, "a", "x.safetensors", DATA)
    assert server.request("DELETE", f"/api/v1/{workspace}/a/files/deep/er/x.npy")[0] == 204
    assert server.get(workspace)["a"]["name"] == "x.safetensors"


def test_upload_limit(server, folder):
    own = Server(server.program, folder, "--upload-limit", "1")
    workspace = own.workspace()
    link = start_put(own, workspace, "x", 1000000001, b"")
    assert b" 413 " in link.recv(4096)
    link.close()
    status, _, answer = own.request("PUT", f"/api/v1/{workspace}/a/files/x", b"x" * 10,
                                    {"Content-Range": "bytes 0-9/1000000001"})
    assert status == 413 and "command line" in answer["error"]["fix"]
    assert own.get("health")["upload_limit"] == 1000000000


def test_big_upload_in_little_memory(server, folder):
    own = Server(server.program, folder)
    workspace = own.workspace()
    size = 300 << 20
    most = []

    def watch():
        while own.alive() and len(most) < 10000 and not finished.is_set():
            most.append(own.resident())
            time.sleep(0.02)

    finished = threading.Event()
    thread = threading.Thread(target=watch)
    thread.start()
    piece = b"x" * (1 << 20)
    connection = own.connect()
    connection.request("PUT", f"/api/v1/{workspace}/a/files/x.bin", iter([piece] * 300),
                       {"X-Tsleuth": "1", "Content-Length": str(size)})
    answer = connection.getresponse()
    finished.set()
    thread.join()
    assert answer.status == 201 and stored(own, workspace, "x.bin").stat().st_size == size
    connection.close()
    assert max(most) - most[0] < 64e6, (most[0], max(most))


def test_many_uploads_at_once(server, _):
    workspace = server.workspace()
    trouble = []

    def send(number):
        try:
            data = bytes([number]) * (100000 + number)
            server.put(workspace, "a", f"{number}.bin", data)
            assert stored(server, workspace, f"{number}.bin").read_bytes() == data
        except Exception as error:  # noqa: BLE001
            trouble.append(error)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not trouble, trouble
    assert server.get(workspace)["a"]["count"] == 40
