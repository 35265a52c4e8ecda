"""Other sites, other hosts, garbage, slow and greedy clients."""
import random
import socket
import subprocess
import time

from client import GOLDEN, MEMORY, PATIENCE, Server

TRACE = GOLDEN / "trace"


def test_hosts(server, _):
    for host in ("evil.example", f"evil.example:{server.port}", f"127.0.0.1:{server.port}.evil.example", "", "127.0.0.1",
                 f"127.0.0.1:{server.port + 1}", f"127.0.0.1.nip.io:{server.port}", f"[::ffff:127.0.0.1]:{server.port}",
                 f"192.168.0.1:{server.port}", "127.0.0.1:", f"localhost.:{server.port}"):
        for path in ("/", "/api/v1/health", "/api/v1/workspaces"):
            status = server.request("GET", path, headers={"Host": host})[0]
            assert status in (400, 421), (host, path, status)
    for host in (f"localhost:{server.port}", f"127.0.0.1:{server.port}", f"LOCALHOST:{server.port}"):
        assert server.request("GET", "/api/v1/health", headers={"Host": host})[0] == 200
    got = server.raw(b"GET /api/v1/health HTTP/1.0\r\n\r\n")
    assert b" 421 " in got or b" 400 " in got, got


def test_other_sites(server, _):
    workspace = server.workspace()
    here = f"http://{server.host}"
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": f"https://{server.host}"},
                    {"Origin": here + ".evil.example"}, {"Origin": "http://127.0.0.1"}, {"X-Tsleuth": None},
                    {"Sec-Fetch-Site": "cross-site"}, {"X-Tsleuth": None, "Content-Type": "text/plain"}):
        for method, path in (("POST", "workspaces"), ("POST", workspace + "/run"), ("PUT", workspace + "/a/files/x"),
                             ("DELETE", workspace), ("POST", workspace + "/upload"), ("DELETE", workspace + "/a/files/x")):
            status, got, _ = server.request(method, "/api/v1/" + path, b"", headers)
            assert status == 403, (headers, method, path, status)
            assert "Access-Control-Allow-Origin" not in got
    assert server.request("OPTIONS", "/api/v1/workspaces", headers={"Origin": "http://evil.example"})[0] in (403, 405)
    assert server.request("GET", "/api/v1/workspaces", headers={"Sec-Fetch-Site": "cross-site"})[0] == 403
    assert server.request("POST", "/api/v1/workspaces", b"", {"Origin": here})[0] == 201
    assert server.get(workspace)["state"] == "empty"


def test_security_headers_everywhere(server, _):
    for path in ("/", "/nothing", "/api/v1/health", "/api/v1/nothing", "/api/v1/workspaces/x"):
        _, headers, _ = server.request("GET", path)
        assert headers["X-Content-Type-Options"] == "nosniff" and "default-src 'none'" in headers["Content-Security-Policy"]
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"


def test_token(server, folder):
    token = "sesame-sesame-sesame"
    own = Server(server.program, folder, "--token", token)
    assert own.url.endswith("/?token=" + token)
    assert own.request("GET", "/api/v1/health")[0] == 401
    assert own.request("GET", "/")[0] == 401
    for wrong in ("", "x", token[:-1], token + "x", token.upper()):
        assert own.request("GET", "/api/v1/health", headers={"Authorization": "Bearer " + wrong})[0] == 401
        assert own.request("GET", "/?token=" + wrong)[0] == 401
    assert own.request("GET", "/api/v1/health", headers={"Authorization": "Bearer " + token})[0] == 200
    status, headers, _ = own.request("GET", "/?token=" + token)
    cookie = headers["Set-Cookie"]
    assert status == 200 and "HttpOnly" in cookie and "SameSite=Strict" in cookie
    pair = cookie.split(";")[0]
    assert own.request("GET", "/api/v1/health", headers={"Cookie": "a=b; " + pair})[0] == 200
    assert own.request("GET", "/api/v1/health", headers={"Cookie": pair[:-1]})[0] == 401
    assert own.request("POST", "/api/v1/workspaces?token=" + token, b"")[0] == 401
    assert own.request("POST", "/api/v1/workspaces", b"", {"Cookie": pair})[0] == 201


def test_wrong_usage(server, folder):
    def refused(*arguments):
        done = subprocess.run([server.program, "serve", "--workspaces", folder / "w", *arguments], capture_output=True,
                              timeout=PATIENCE)
        assert done.returncode == 3 and done.stderr and not done.stdout, (arguments, done)
        return done.stderr.decode()

    assert "--token" in refused("--host", "0.0.0.0")
    refused("--token", "short")
    refused("--token", "with a blank in it all")
    refused("--port", "70000")
    refused("--port", str(server.port))
    refused("--workspaces", "/proc/nothing")
    refused("a", "b", "c")
    assert "cannot open" in refused("/nowhere/at/all")


def test_port_that_is_taken(server, folder):
    own = Server(server.program, folder, "--port", "0")
    taken = [socket.socket() for _ in range(1)]
    try:
        taken[0].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken[0].bind(("127.0.0.1", 8765))
            taken[0].listen(1)
        except OSError:
            pass  # somebody else has it: as good
        process = subprocess.Popen([str(server.program), "serve", "--workspaces", str(folder / "other")],
                                   stdout=subprocess.PIPE, text=True)
        url = process.stdout.readline()
        process.terminate()
        assert process.wait(PATIENCE) == 0
        process.stdout.close()
        port = int(url.split(":")[2].split("/")[0])
        assert 8765 < port
    finally:
        taken[0].close()
    assert own.alive()


def test_garbage(server, _):
    random.seed(3)
    host = server.host.encode()
    heads = [b"\0" * 100, b"\xff" * 5000, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\r\n" * 1000, b"PUT " + b"/" * 70000,
             b"GET /" + b"a" * 60000 + b" HTTP/1.1\r\nHost: " + host + b"\r\n\r\n",
             b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20000 + b"\r\n",
             b"POST /api/v1/workspaces HTTP/1.1\r\nHost: " + host + b"\r\nX-Tsleuth: 1\r\nContent-Length: -5\r\n\r\n",
             b"POST /api/v1/workspaces HTTP/1.1\r\nHost: " + host + b"\r\nX-Tsleuth: 1\r\nContent-Length: 99999999999999999999\r\n\r\n",
             b"POST /api/v1/workspaces HTTP/1.1\r\nHost: " + host + b"\r\nX-Tsleuth: 1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
             b"POST /api/v1/workspaces HTTP/1.1\r\nHost: " + host + b"\r\nX-Tsleuth: 1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n"]
    heads += [bytes(random.randrange(256) for _ in range(random.randrange(1, 400))) for _ in range(40)]
    for head in heads:
        try:
            server.raw(head + b"\r\n\r\n", wait=0.3)
        except OSError:
            pass
        assert server.alive(), head[:100]
    assert server.get("health")["name"] == "tsleuth"


def test_addresses_that_are_not_there(server, _):
    workspace = server.workspace()
    for path in ("/api/v1", "/api/v1/", "/api/v2/health", "/api/v1//health", "/api/v1/workspaces/", "/api/v1/workspaces//run",
                 f"/api/v1/{workspace}/tensors/", f"/api/v1/{workspace}/nothing", "/../etc/passwd", "/%2e%2e/etc/passwd",
                 "/api/v1/workspaces/../health", "/index.html/", "/api/v1/workspaces/%00", "/api/v1/workspaces/" + "w" * 500):
        status = server.request("GET", path)[0]
        assert status in (400, 404), (path, status)
    assert server.request("PATCH", "/api/v1/health")[0] in (403, 405)
    assert server.request("POST", "/api/v1/health", b"")[0] == 405
    assert server.request("BREW", "/api/v1/health")[0] == 405


def test_large_bodies_where_none_belong(server, _):
    workspace = server.workspace()
    status, _, answer = server.request("POST", f"/api/v1/{workspace}/run", b" " * (5 << 20))
    assert status == 413, answer
    assert server.alive()


def test_five_hundred_connections(server, folder):
    own = Server(server.program, folder)
    workspace = own.compared(TRACE / "reference.safetensors", TRACE / "rope_theta.safetensors")
    links = []
    try:
        for number in range(500):
            link = socket.create_connection(("127.0.0.1", own.port), timeout=PATIENCE)
            if number % 3 == 1:
                link.sendall(b"GET / HTTP/1.1\r\nHos")
            elif number % 3 == 2:
                link.sendall(f"PUT /api/v1/{workspace}/a/files/x{number} HTTP/1.1\r\nHost: {own.host}\r\n".encode())
            links.append(link)
        since = time.monotonic()
        for _ in range(20):
            assert own.get(workspace + "/tensors/28/values?start=0,0,0&count=1,1,1")["a"]
        assert time.monotonic() - since < PATIENCE / 2
        assert own.resident() < MEMORY, own.resident()
    finally:
        for link in links:
            link.close()
    assert own.get("health")["name"] == "tsleuth"


def test_client_that_does_not_read(server, folder):
    own = Server(server.program, folder)
    workspace = own.compared(TRACE / "reference.safetensors", TRACE / "rope_theta.safetensors")
    request = f"GET /api/v1/{workspace}/report HTTP/1.1\r\nHost: {own.host}\r\n\r\n".encode()
    links = []
    for _ in range(20):
        link = socket.socket()
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        link.connect(("127.0.0.1", own.port))
        link.sendall(request)
        links.append(link)
    for _ in range(20):
        assert own.get(workspace + "/tensors/28/values?start=0,0,0&count=1,1,1")["a"]
    for link in links:
        link.close()
    assert own.get(workspace + "/report")["verdict"] == "differ"


def test_slow_client(server, _):
    link = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
    for byte in f"GET /api/v1/health HTTP/1.1\r\nHost: {server.host}\r\nConnection: close\r\n\r\n".encode():
        link.sendall(bytes([byte]))
        time.sleep(0.003)
    got = b""
    while piece := link.recv(4096):
        got += piece
    link.close()
    assert b" 200 " in got and b"tsleuth" in got


def test_clients_that_go_away(server, folder):
    own = Server(server.program, folder)
    workspace = own.compared(TRACE / "reference.safetensors", TRACE / "rope_theta.safetensors")
    for number in range(60):
        link = socket.create_connection(("127.0.0.1", own.port), timeout=PATIENCE)
        path = ("tensors", "tensors/28/causes", "events", "report.html", "tensors/28")[number % 5]
        link.sendall(f"GET /api/v1/{workspace}/{path} HTTP/1.1\r\nHost: {own.host}\r\n\r\n".encode())
        link.close()
    assert own.get(workspace + "/tensors")["verdict"] == "differ"
    assert own.stop() == 0


def test_names_from_files_are_data(server, folder):
    from client import write_safetensors
    hostile = ['<script>alert(1)</script>', '"><img src=x onerror=alert(1)>', "a\nb\r\nSet-Cookie: x=y", "\u202egnp.x", "'; --"]
    write_safetensors(folder / "<b>&.safetensors", {name: ("F32", [1], b"\0\0\0\0") for name in hostile})
    workspace = server.compared(folder / "<b>&.safetensors", folder / "<b>&.safetensors")
    listing = server.get(workspace + "/tensors")
    assert sorted(row[1] for row in listing["rows"]) == sorted(hostile)
    for suffix in ("html", "csv", "xml", "json"):
        status, headers, data = server.request("GET", f"/api/v1/{workspace}/report.{suffix}", plain=True)
        assert status == 200 and "Set-Cookie" not in headers
        if suffix == "html":
            assert b"<script>alert" not in data and b"<img src=x" not in data
