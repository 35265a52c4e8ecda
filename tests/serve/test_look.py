"""Looking at tensors: lists, values, statistics, tiles, causes, mappings, exports."""
import csv
import io
import json
import math
import random
import struct
import subprocess
import xml.dom.minidom

from client import GOLDEN, MEMORY, ROOT, Server, column, floats, row_of, safetensors, write_safetensors

TRACE = GOLDEN / "trace"
A, B = TRACE / "reference.safetensors", TRACE / "rope_theta.safetensors"


def opened(server, cache={}):  # noqa: B006: one comparison serves many tests
    key = server.process.pid
    if key not in cache:
        cache[key] = server.compared(A, B)
    return cache[key]


def tile(server, path):
    status, headers, data = server.request("GET", "/api/v1/" + path)
    assert status == 200, f"{path}: {status} {data!r}"
    sides, rows, columns = map(int, headers["X-Tsleuth-Shape"].split(","))
    values = floats(data)
    assert len(values) == sides * rows * columns
    half = rows * columns
    return rows, columns, values[:half], values[half:] if sides == 2 else None


def same(left, right):
    return len(left) == len(right) and all(x == y or (math.isnan(x) and math.isnan(y)) for x, y in zip(left, right))


def number(value):
    return float(value) if isinstance(value, str) else value


def test_health(server, _):
    health = server.get("health")
    assert health["name"] == "tsleuth" and health["schema"] == "tsleuth.api/1" and health["upload_limit"] > 0


def test_page(server, _):
    status, headers, data = server.request("GET", "/", plain=True)
    assert status == 200 and headers["Content-Encoding"] == "gzip" and data[:2] == b"\x1f\x8b"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert server.request("GET", "/app.js")[0] == 200
    assert server.request("GET", "/nothing")[0] == 404


def test_list_of_tensors(server, _):
    listing = server.get(opened(server) + "/tensors")
    names = list(safetensors(A))
    assert listing["verdict"] == "differ" and len(listing["rows"]) == len(names)
    assert sorted(row[column(listing, "name")] for row in listing["rows"]) == sorted(names)
    assert [row[0] for row in listing["rows"]] == list(range(len(names)))
    first = listing["rows"][listing["first"]]
    assert first[column(listing, "name")] == "layer_1_attn_q_rope" and first[column(listing, "layer")] == 1
    assert listing["causes"][0]["id"] == "rotation"
    assert listing["only_a"] == [] and listing["only_b"] == []


def test_list_is_the_report_of_compare(server, _):
    report = json.loads(subprocess.run([server.program, "compare", A, B, "--json", "-"], capture_output=True).stdout)
    listing = server.get(opened(server) + "/tensors")
    for row, tensor in zip(listing["rows"], report["tensors"]):
        for name in ("name", "name_b", "verdict", "shape", "max_abs", "rel_l2", "cosine", "how", "recipe"):
            assert row[column(listing, name)] == tensor[name], (name, row, tensor)


def test_values_are_those_of_the_file(server, _):
    workspace, listing = opened(server), None
    listing = server.get(workspace + "/tensors")
    for name, (shape, values) in safetensors(A).items():
        row = row_of(listing, name)
        got = server.get(f"{workspace}/tensors/{row[0]}/values")
        assert got["shape"] == shape and same([number(v) for v in got["a"]], values), name


def test_values_are_those_of_show(server, _):
    shown = json.loads(subprocess.run([server.program, "show", A, "layer_1_attn_q_rope[2:5,1:3,3:11]", "--json", "-"],
                                      capture_output=True).stdout)
    listing = server.get(opened(server) + "/tensors")
    row = row_of(listing, "layer_1_attn_q_rope")
    got = server.get(f"{opened(server)}/tensors/{row[0]}/values?start=2,1,3&count=3,2,8")
    assert [v for plane in shown["values"] for line in plane for v in line] == got["a"]
    assert got["start"] == [2, 1, 3] and got["count"] == [3, 2, 8]


def test_values_of_every_ggml_type(server, _):
    path = GOLDEN / "gguf" / "all_types.gguf"
    workspace = server.compared(path)
    listing = server.get(workspace + "/tensors")
    for row in listing["rows"]:
        name = row[column(listing, "name")]
        shown = json.loads(subprocess.run([server.program, "show", path, f"{name}[0,0:40]", "--json", "-"],
                                          capture_output=True).stdout)
        got = server.get(f"{workspace}/tensors/{row[0]}/values?start=0,0&count=1,40")
        assert shown["values"] == got["a"] and got["b"] is None, name


def test_integers_and_complex_numbers(server, folder):
    write_safetensors(folder / "x.safetensors", {
        "big": ("I64", [3], struct.pack("<3q", 2**63 - 1, -2**63, 9007199254740993)),
        "u": ("U64", [2], struct.pack("<2Q", 2**64 - 1, 0)),
        "scalar": ("F64", [], struct.pack("<d", math.pi)),
        "special": ("F32", [4], struct.pack("<4f", math.nan, math.inf, -math.inf, -0.0)),
        "empty": ("F32", [0, 5], b"")})
    workspace = server.compared(folder / "x.safetensors")
    listing = server.get(workspace + "/tensors")

    def values(name, query=""):
        return server.get(f"{workspace}/tensors/{row_of(listing, name)[0]}/values{query}")["a"]

    assert values("big") == [2**63 - 1, -2**63, 9007199254740993]
    assert values("u") == [2**64 - 1, 0]
    assert values("scalar") == [math.pi] and values("scalar", "?start=&count=") == [math.pi]
    assert values("special")[:3] == ["nan", "inf", "-inf"]
    assert values("empty") == []
    complex_workspace = server.compared(GOLDEN / "numpy" / "c8.npy")
    got = server.get(complex_workspace + "/tensors/a0/values")["a"]
    shown = json.loads(subprocess.run([server.program, "show", GOLDEN / "numpy" / "c8.npy", "--json", "-"],
                                      capture_output=True).stdout)
    assert all(len(pair) == 2 for pair in got) and len(got) == len(shown["values"])


def test_values_refuse_nonsense(server, _):
    base = opened(server) + "/tensors/28/values"  # [9,4,16]
    for query in ("?start=0,0&count=1,1,1", "?start=0,0,16&count=1,1,1", "?start=9,0,0&count=1,1,1", "?start=-1,0,0",
                  "?start=a,b,c", "?start=1e3,0,0", "?start=0,0,0&count=10,1,1", "?start=0,0,0,",
                  "?count=18446744073709551615,2,2", "?count=99999999999999999999999,1,1", "?start=nan,0,0",
                  "?start=0,0,0&count=1,1,0x10", "?start=%00,0,0", "?start=%zz", "?side=c", "?start=" + "1," * 70):
        answer = server.get(base + query, want=400)
        assert answer["error"]["message"], query
    for id_ in ("63", "-1", "99999999999", "a63", "b-1", "c1", "", "28x", "%00", "a", "0x1", "1.5", "nan"):
        status, _, answer = server.request("GET", f"/api/v1/{opened(server)}/tensors/{id_}/values")
        assert status in (400, 404), (id_, status)


def test_too_many_values(server, folder):
    write_safetensors(folder / "wide.safetensors", {"w": ("F32", [65537], bytes(4 * 65537))})
    workspace = server.compared(folder / "wide.safetensors")
    assert server.get(workspace + "/tensors/a0/values", want=400)["error"]["fix"]
    assert len(server.get(workspace + "/tensors/a0/values?start=0&count=65536")["a"]) == 65536


def test_tile_is_values(server, _):
    workspace = opened(server)
    for plane, at in (((0, 2), (0, 3, 0)), ((2, 0), (0, 1, 0)), ((1, 2), (7, 0, 0)), ((0, 1), (0, 0, 15))):
        rows, columns, a, b = tile(server, f"{workspace}/tensors/28/tile?axes={plane[0]},{plane[1]}&at={at[0]},{at[1]},{at[2]}")
        start, count = list(at), [1, 1, 1]
        for axis in plane:
            start[axis], count[axis] = 0, (9, 4, 16)[axis]
        got = server.get(f"{workspace}/tensors/28/values?start={','.join(map(str, start))}&count={','.join(map(str, count))}")
        assert (rows, columns) == (count[plane[0]], count[plane[1]])
        for side, values in (("a", a), ("b", b)):
            want = got[side]
            if plane[0] > plane[1]:
                want = [want[c * rows + r] for r in range(rows) for c in range(columns)]
            assert same(values, want), (plane, side)


def make_pair(folder, rows=600, columns=700, seed=5):
    random.seed(seed)
    a = [random.uniform(-1, 1) for _ in range(rows * columns)]
    a = struct.unpack(f"<{len(a)}f", struct.pack(f"<{len(a)}f", *a))
    b = list(a)
    for _ in range(200):
        b[random.randrange(len(b))] += random.uniform(-3, 3)
    b[3 * columns + 5] = math.nan
    b[311 * columns + 650] = math.inf
    b = struct.unpack(f"<{len(b)}f", struct.pack(f"<{len(b)}f", *b))
    for name, values in (("a", a), ("b", b)):
        write_safetensors(folder / f"{name}.safetensors", {"m": ("F32", [rows, columns], struct.pack(f"<{len(values)}f", *values))})
    return a, b


def badness(x, y):
    if math.isnan(x) or math.isnan(y):
        return math.inf
    return abs(struct.unpack("<f", struct.pack("<f", x - y))[0]) if math.isfinite(x - y) else math.inf


def test_reduced_tiles_keep_the_worst(server, folder):
    rows, columns = 600, 700
    a, b = make_pair(folder, rows, columns)
    workspace = server.compared(folder / "a.safetensors", folder / "b.safetensors")
    for level in (0, 1, 2, 4):
        size = 2**level
        for y in range((rows - 1) // (256 * size) + 1):
            for x in range((columns - 1) // (256 * size) + 1):
                out_rows, out_columns, got_a, got_b = tile(server, f"{workspace}/tensors/0/tile?axes=0,1&at=0,0&level={level}&x={x}&y={y}")
                for r in range(0, out_rows, 7 if level < 2 else 1):
                    for c in range(out_columns):
                        cells = [(i, j) for i in range((256 * y + r) * size, min((256 * y + r + 1) * size, rows))
                                 for j in range((256 * x + c) * size, min((256 * x + c + 1) * size, columns))]
                        worst = max(badness(a[i * columns + j], b[i * columns + j]) for i, j in cells)
                        p, q = got_a[r * out_columns + c], got_b[r * out_columns + c]
                        assert badness(p, q) == worst, (level, r, c, p, q, worst)
                        assert any(same((p, q), (a[i * columns + j], b[i * columns + j])) for i, j in cells)
    assert server.get(f"{workspace}/tensors/0/tile?level=2&x=1&y=0", want=404)["error"]


def test_tile_refuses_nonsense(server, _):
    base = opened(server) + "/tensors/28/tile"
    for query in ("?axes=0,0", "?axes=0,3", "?axes=1,2,0", "?axes=-1,0", "?level=41", "?level=-1", "?level=nan", "?x=-1",
                  "?at=9,0,0&axes=1,2", "?at=1,2&axes=0,1", "?y=99999999999999999999", "?axes=a,b"):
        server.get(base + query, want=400)
    for query in ("?x=1", "?y=9223372036854775807", "?level=40&x=1"):
        server.get(base + query, want=404)


def test_tiles_of_scalars_and_vectors(server, folder):
    write_safetensors(folder / "x.safetensors", {"s": ("F32", [], struct.pack("<f", 2.5)),
                                                  "v": ("F32", [300], struct.pack("<300f", *range(300))),
                                                  "none": ("F32", [0, 3], b"")})
    workspace = server.compared(folder / "x.safetensors")
    listing = server.get(workspace + "/tensors")
    assert tile(server, f"{workspace}/tensors/{row_of(listing, 's')[0]}/tile") == (1, 1, (2.5,), None)
    rows, columns, a, b = tile(server, f"{workspace}/tensors/{row_of(listing, 'v')[0]}/tile?axes=0&x=1")
    assert (rows, columns, a, b) == (1, 44, tuple(map(float, range(256, 300))), None)
    rows, columns, a, _ = tile(server, f"{workspace}/tensors/{row_of(listing, 'v')[0]}/tile?level=2")
    assert (rows, columns) == (1, 75) and a == tuple(float(4 * i + 3) for i in range(75))
    server.get(f"{workspace}/tensors/{row_of(listing, 'none')[0]}/tile", want=404)


def test_sampled_tiles_keep_the_known_worst(server, folder):
    size = 8192  # level 5 of all of it is one tile of 64 M elements: too many to look at each
    bad = 4567 * size + 1234
    for name, extra in (("a", 0.0), ("b", 7.5)):
        path = folder / f"{name}.safetensors"
        write_safetensors(path, {"m": ("F32", [size, size], 4 * size * size)})
        with open(path, "r+b") as file:
            offset = path.stat().st_size - 4 * size * size
            file.seek(offset + 4 * bad)
            file.write(struct.pack("<f", 1 + extra))
            file.seek(offset)
            file.write(struct.pack("<f", 1))
    own = Server(server.program, folder / "own", folder / "a.safetensors", folder / "b.safetensors")
    workspace = "workspaces/" + own.url.rsplit("/", 1)[1]
    own.wait(workspace)
    status, headers, data = own.request("GET", f"/api/v1/{workspace}/tensors/0/tile?level=5")
    assert status == 200 and headers["X-Tsleuth-Sampled"] == "1"
    values = floats(data)
    cell = (4567 >> 5) * 256 + (1234 >> 5)
    assert (values[cell], values[65536 + cell]) == (1, 8.5)
    assert sum(values[65536:]) == values[65536 + cell] + values[65536]
    assert own.resident() < MEMORY, own.resident()


def test_detail(server, folder):
    rows, columns = 600, 700
    a, b = make_pair(folder, rows, columns)
    workspace = server.compared(folder / "a.safetensors", folder / "b.safetensors")
    detail = server.get(workspace + "/tensors/0")
    good = [(x, y) for x, y in zip(a, b) if math.isfinite(x - y)]
    assert detail["shape"] == [rows, columns] and detail["nan_b"] == 1 and detail["inf_b"] == 1
    assert math.isclose(detail["max_abs"], max(abs(x - y) for x, y in good), rel_tol=1e-6)  # d is rounded to f32
    # of those that are finite on both sides
    assert math.isclose(detail["stats_a"]["mean"], sum(x for x, _ in good) / len(good), abs_tol=1e-9)
    for axis, size in ((0, rows), (1, columns)):
        profile = detail["profiles"][axis]
        bins = min(size, 512)
        assert profile["axis"] == axis and len(profile["rms"]) == bins == len(profile["max"])
        sums, counts, most = [0.0] * bins, [0] * bins, [0.0] * bins
        for i, (x, y) in enumerate(zip(a, b)):
            if math.isfinite(x - y):
                k = ((i // columns if axis == 0 else i % columns) * bins) // size
                sums[k] += (x - y) ** 2
                counts[k] += 1
                most[k] = max(most[k], abs(x - y))
        for k in range(bins):
            assert math.isclose(profile["rms"][k], math.sqrt(sums[k] / counts[k]), rel_tol=1e-9, abs_tol=1e-15)
            assert math.isclose(profile["max"][k], most[k], rel_tol=1e-6, abs_tol=1e-15)
    histogram = detail["histograms"]
    assert sum(histogram["a"]) == len(a) and sum(histogram["b"]) == len(b) - 2 and sum(histogram["difference"]) == len(good)
    assert len(histogram["edges"]) == len(histogram["a"]) + 1
    edges = histogram["edges"]
    assert math.isclose(edges[0], min(min(a), min(y for _, y in good)), rel_tol=1e-9)
    assert detail["quantiles"]["p50"] == 0 and math.isclose(detail["quantiles"]["p100"], detail["max_abs"], rel_tol=1e-6)
    assert detail["looked_at_all"] is True


def test_worst_elements(server, folder):
    rows, columns = 600, 700
    a, b = make_pair(folder, rows, columns)
    workspace = server.compared(folder / "a.safetensors", folder / "b.safetensors")
    order = sorted((i for i in range(len(a)) if badness(a[i], b[i]) > 0),
                   key=lambda i: (-(math.inf if not math.isfinite(a[i] - b[i]) else abs(a[i] - b[i])), i))
    for n in (0, 1, 2, 3, 50, len(order) - 1):
        got = server.get(f"{workspace}/tensors/0/worst?after={n}")
        assert got["index"] == [order[n] // columns, order[n] % columns], n
    got = server.get(f"{workspace}/tensors/0/worst?after=2")
    flat = got["index"][0] * columns + got["index"][1]
    assert got["a"] == a[flat] and got["b"] == b[flat] and got["difference"] == b[flat] - a[flat]
    first = got["neighbours"]["start"][0] * columns + got["neighbours"]["start"][1]
    assert same(got["neighbours"]["a"], a[first:first + got["neighbours"]["count"]])
    assert server.get(f"{workspace}/tensors/0/worst?first=nan")["index"] == [3, 5]
    assert server.get(f"{workspace}/tensors/0/worst?first=inf")["index"] == [311, 650]
    server.get(f"{workspace}/tensors/0/worst?after={len(order)}", want=404)
    for query in ("after=-1", "after=x", "first=zero", "after=99999999999999999999"):
        server.get(f"{workspace}/tensors/0/worst?{query}", want=400)


def test_block_statistics(server, folder):
    rows, columns = 600, 700
    a, b = make_pair(folder, rows, columns)
    workspace = server.compared(folder / "a.safetensors", folder / "b.safetensors")
    changed = next(i for i in range(100 * columns, 200 * columns) if a[i] != b[i] and 40 < i % columns < 600)
    top, left = changed // columns - 9, changed % columns - 17
    got = server.get(f"{workspace}/tensors/0/stats?start={top},{left}&count=30,40")
    block = [(a[i * columns + j], b[i * columns + j]) for i in range(top, top + 30) for j in range(left, left + 40)]
    assert got["elements"] == 1200 and all(math.isfinite(x - y) for x, y in block)
    assert got["a"]["min"] == min(x for x, _ in block) and got["b"]["max"] == max(y for _, y in block)
    assert math.isclose(got["mean_abs"], sum(abs(x - y) for x, y in block) / 1200, rel_tol=1e-12)
    dot, norms = sum(x * y for x, y in block), math.sqrt(sum(x * x for x, _ in block) * sum(y * y for _, y in block))
    assert math.isclose(got["cosine"], dot / norms, rel_tol=1e-12)
    worst = max(range(1200), key=lambda i: abs(block[i][0] - block[i][1]))
    assert got["worst"] == [top + worst // 40, left + worst % 40]
    nan = server.get(f"{workspace}/tensors/0/stats?start=3,5&count=1,1")
    assert nan["b"]["nan"] == 1 and nan["b"]["mean"] == "nan" and nan["non_finite_mismatch"] == 1


def test_scatter(server, _):
    workspace = opened(server)
    values = server.get(workspace + "/tensors/28/values")
    pairs = set(zip(values["a"], values["b"]))
    got = server.get(workspace + "/tensors/28/scatter?points=100")
    assert got["count"] == 100 == len(got["a"]) and set(zip(got["a"], got["b"])) <= pairs
    assert got == server.get(workspace + "/tensors/28/scatter?points=100")
    everything = server.get(workspace + "/tensors/28/scatter?points=65536")
    assert everything["a"] == values["a"] and everything["b"] == values["b"]
    server.get(workspace + "/tensors/28/scatter?points=65537", want=400)


def test_causes(server, _):
    workspace = opened(server)
    causes = server.get(workspace + "/tensors/28/causes")
    assert causes[0]["id"] == "rotation" and "theta" in causes[0]["summary"] and causes[0]["check"]
    assert server.get(workspace + "/tensors/0/causes") == []
    assert server.get(workspace + "/tensors")["causes"] == causes
    assert server.get(workspace + "/report")["causes"] == causes


def evidence(cause):
    assert all(item["text"] for item in cause["evidence"])
    return {item["name"]: item["value"] for item in cause["evidence"]}


def test_evidence_of_causes(server, folder):
    """Numbers that anybody can count up from the two files."""
    a, b = safetensors(A), safetensors(B)
    name = "layer_1_attn_q_rope"
    seen = evidence(server.get(opened(server) + "/tensors/28/causes")[0])
    # a rotation keeps the length of what it is given, which is the same in both: rotary is replayed exactly
    error = math.sqrt(sum((x - y) ** 2 for x, y in zip(a[name][1], b[name][1])) / sum(x * x for x in a[name][1]))
    assert math.isclose(seen["error"], error, rel_tol=1e-4), (seen, error)
    assert seen["left"] < 1e-6 and seen["explained"] > 0.9999 and seen["fitted"] >= 1
    assert 0 < seen["elements"] <= len(a[name][1]) and "replayed" in seen["against"]

    # one bad element of many is a finding: nothing was predicted, so nothing is said to be explained
    random.seed(5)
    values = [random.gauss(0, 1) for _ in range(12 * 20)]
    bad = values[:137] + [values[137] + 40] + values[138:]
    for side, numbers in (("a", values), ("b", bad)):
        write_safetensors(folder / f"{side}.safetensors", {"x": ("F32", [12, 20], struct.pack("<240f", *numbers))})
    causes = server.get(server.compared(folder / "a.safetensors", folder / "b.safetensors") + "/tensors/0/causes")
    seen = evidence(next(cause for cause in causes if cause["id"] == "sparse"))
    assert seen["elements"] == 1 and seen["against"] == "the reference's values"
    assert math.isclose(seen["error"], 40 / math.sqrt(sum(x * x for x in values)), rel_tol=1e-4)
    assert not {"explained", "left", "fitted"} & set(seen)


def test_ties_are_said(server, folder):
    """Ones that became twos: doubled, or one added? Nobody can tell."""
    for side, value in (("a", 1.0), ("b", 2.0)):
        write_safetensors(folder / f"{side}.safetensors", {"x": ("F32", [9, 16], struct.pack("<144f", *[value] * 144))})
    causes = server.get(server.compared(folder / "a.safetensors", folder / "b.safetensors") + "/tensors/0/causes")
    assert {"scaled", "offset"} <= {cause["id"] for cause in causes if cause.get("tied")}, causes
    for cause in causes:
        if cause["id"] in ("scaled", "offset"):
            assert evidence(cause)["left"] == 0 and evidence(cause)["error"] == 1 and evidence(cause)["fitted"] <= 1


def test_one_side_alone(server, _):
    path = GOLDEN / "archives" / "model1_tp8.zip"
    workspace = server.compared(path)
    listing = server.get(workspace + "/tensors")
    assert listing["b"] is None and listing["verdict"] is None and len(listing["rows"]) == 26
    assert listing["rows"][0][0] == "a0"
    assert any(finding["tensor"] == "3_post_attn" for finding in listing["findings"])
    detail = server.get(workspace + "/tensors/a0")
    assert detail["stats"]["count"] > 0 and detail["histograms"]["b"] is None
    assert server.get(workspace + "/tensors/a0/causes", want=409)["error"]
    assert server.get(workspace + "/report", want=409)["error"]["fix"]


def test_founding_archives(server, _):
    workspace = server.compared(GOLDEN / "archives" / "model1_tp8.tar.gz", GOLDEN / "archives" / "model2_tp1.zip")
    listing = server.get(workspace + "/tensors")
    assert listing["layer_offset"] == 3 and len(listing["rows"]) == 26
    bad = [row[column(listing, "name")] for row in listing["rows"] if row[column(listing, "verdict")] == "differs"]
    assert bad[0] == "4_post_mlp"
    row = row_of(listing, "3_query_final")
    assert row[column(listing, "recipe")]
    got = server.get(f"{workspace}/tensors/{row[0]}/values?start=1,0,0&count=1,2,4")
    assert all(abs(x - y) < 1e-3 for x, y in zip(got["a"], got["b"]))


def test_remap(server, folder):
    values = [random.random() for _ in range(24)]
    turned = [values[i * 8 + j * 4 + k] for j in range(2) for k in range(4) for i in range(3)]  # [2,4,3]
    write_safetensors(folder / "a.safetensors", {"x": ("F32", [3, 2, 4], struct.pack("<24f", *values)),
                                                  "y": ("F32", [4], struct.pack("<4f", 1, 2, 3, 4))})
    write_safetensors(folder / "b.safetensors", {"x": ("F32", [3, 2, 4], struct.pack("<24f", *reversed(values))),
                                                  "y": ("F32", [4], struct.pack("<4f", 1, 2, 3, 4)),
                                                  "other": ("F32", [2, 4, 3], struct.pack("<24f", *turned)),
                                                  "long": ("F32", [1, 10], struct.pack("<10f", *range(10)))})
    workspace = server.compared(folder / "a.safetensors", folder / "b.safetensors", {"map": {"x": "x", "y": "y"}})
    listing = server.get(workspace + "/tensors")
    x, y = row_of(listing, "x")[0], row_of(listing, "y")[0]
    before = server.get(f"{workspace}/tensors/{x}")
    after = server.post(f"{workspace}/tensors/{x}/remap", {"name_b": "other", "permute": [2, 0, 1]})
    assert after["identical"] is True and after["max_abs"] == 0 and after["remapped"] and after["name_b"] == "other"
    got = server.get(f"{workspace}/tensors/{x}/values")
    assert got["a"] == got["b"]
    assert row_of(server.get(workspace + "/tensors"), "x")[column(listing, "remapped")] is True
    cut = server.post(f"{workspace}/tensors/{y}/remap", {"name_b": "long", "slice": [{"axis": 1, "start": 1, "count": 4}]})
    assert cut["identical"] is True
    other = server.post(f"{workspace}/tensors/{y}/remap", {"name_b": "long", "slice": [{"axis": 1, "start": 2, "count": 4}], "swap": True})
    assert other["max_abs"] == 1 and other["name_b"] == "y" and other["mean"] == -1
    back = server.post(f"{workspace}/tensors/{x}/remap", {})
    assert back == before
    for wish in ({"name_b": "nothing"}, {"permute": [0, 1]}, {"permute": [0, 0, 1]}, {"permute": [0, 1, 9]}, {"name_b": "long"},
                 {"slice": [{"axis": 9}]}, {"slice": [{"axis": 0, "start": 4}]}, {"slice": [{"axis": 0, "start": 1, "count": 3}]},
                 {"slice": [{"axis": 0, "count": 0}]}, {"wrong": 1}, {"swap": 1}, {"permute": "x"}, {"slice": [{"axis": -1}]}, [1]):
        answer = server.post(f"{workspace}/tensors/{x}/remap", wish, want=(400, 422))
        assert answer["error"]["message"], wish


def test_reports(server, _):
    workspace = opened(server)
    report = server.get(workspace + "/report")
    assert report["schema"] == "tsleuth.report/1" and len(report["tensors"]) == 63
    part = server.get(workspace + "/report?offset=10&limit=5")
    assert part["tensors"] == report["tensors"][10:15] and part["first_divergence"] == report["first_divergence"]
    assert server.get(workspace + "/report?offset=62&limit=5")["tensors"] == report["tensors"][62:]
    assert server.get(workspace + "/report?offset=63")["tensors"] == []
    assert server.get(workspace + "/report?limit=0")["tensors"] == []
    for suffix, kind in (("html", "text/html"), ("csv", "text/csv"), ("xml", "application/xml"), ("json", "application/json")):
        status, headers, data = server.request("GET", f"/api/v1/{workspace}/report.{suffix}", plain=True)
        assert status == 200 and headers["Content-Type"].startswith(kind)
        assert headers["Content-Disposition"].startswith("attachment")
        assert "sandbox" in headers["Content-Security-Policy"]
        if suffix == "csv":
            assert len(list(csv.reader(io.StringIO(data.decode())))) == 64
        elif suffix == "xml":
            assert len(xml.dom.minidom.parseString(data).getElementsByTagName("testcase")) == 63
        elif suffix == "json":
            assert json.loads(data)["verdict"] == "differ"
        else:
            assert b"layer_1_attn_q_rope" in data and str(ROOT).encode() not in data
    status, _, data = server.request("GET", f"/api/v1/{workspace}/map", plain=True)
    assert status == 200 and data.count(b"layer_1_attn_q_rope") == 2


def test_paths_of_the_command_line(server, folder):
    own = Server(server.program, folder, A, B)
    workspace = "workspaces/" + own.url.rsplit("/", 1)[1]
    state = own.wait(workspace)
    assert state["a"]["local"] and state["a"]["bytes"] == A.stat().st_size
    assert own.get(workspace + "/tensors")["verdict"] == "differ"
    assert own.post("workspaces", {"a": str(A.resolve())}, want=201)["id"]
    for path in ("/etc/passwd", str(A.parent), "../x", ""):
        own.post("workspaces", {"a": path}, want=400)
    own.put(workspace, "a", "x.npy", b"", want=409)
    assert own.request("DELETE", "/api/v1/" + workspace)[0] == 204 and A.exists() and B.exists()
    own.get(workspace, want=404)
