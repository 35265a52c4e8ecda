"""Comparisons: progress, cancelling, failures, restarts."""
import json
import random
import re
import struct
import subprocess
import threading

from client import GOLDEN, MEMORY, PATIENCE, SANITIZED, Server, column, row_of, write_safetensors

TRACE = GOLDEN / "trace"
# Tensors of a quarter of a gigabyte a side. No machine is through with so many before it is asked to stop.
ENDLESS = 256
A_WHILE = 1 if SANITIZED else 4


def big(folder, tensors):
    """Two inputs that take a while, many of them longer than any test waits: zeros that the disk does not hold."""
    for name in ("a", "b"):
        write_safetensors(folder / f"{name}.safetensors",
                          {f"layer_{i}_x": ("F32", [64, 1 << 20], 4 * 64 << 20) for i in range(tensors)})
    return folder / "a.safetensors", folder / "b.safetensors"


def test_progress_is_told(server, folder):
    own = Server(server.program, folder / "own", *big(folder, ENDLESS))
    workspace = "workspaces/" + own.url.rsplit("/", 1)[1]
    steps = []
    for name, data in own.events(workspace):
        assert name == "progress", (name, data)
        if data["stage"] == "comparing":
            assert 0 <= data["done"] <= data["total"]
            steps.append(data["done"])
            if len(set(steps)) > 3:
                break
    assert steps == sorted(steps), steps
    assert own.resident() < MEMORY, own.resident()


def test_the_end_is_told(server, folder):
    own = Server(server.program, folder / "own", *big(folder, A_WHILE))
    workspace = "workspaces/" + own.url.rsplit("/", 1)[1]
    for name, data in own.events(workspace):
        if name != "progress":
            break
    assert name == "done" and data["verdict"] == "match", (name, data)
    assert own.resident() < MEMORY, own.resident()


def test_cancel_during_a_comparison(server, folder):
    own = Server(server.program, folder / "own", *big(folder, ENDLESS))
    workspace = "workspaces/" + own.url.rsplit("/", 1)[1]
    for name, data in own.events(workspace):
        if name == "progress" and data["stage"] == "comparing":
            own.post(workspace + "/cancel")
        elif name != "progress":
            break
    assert name == "failed" and data["message"] == "cancelled", (name, data)
    assert own.get(workspace)["state"] == "failed"
    assert own.get(workspace + "/tensors", want=422)["error"]["message"] == "cancelled"


def test_one_comparison_cancelled_the_other_not(server, folder):
    own = Server(server.program, folder / "own", *big(folder, ENDLESS))
    long = "workspaces/" + own.url.rsplit("/", 1)[1]
    short = own.upload(TRACE / "reference.safetensors", TRACE / "rope_theta.safetensors")
    own.post(short + "/run", {})
    own.post(long + "/cancel")
    own.wait(long, "failed")
    own.wait(short)
    assert own.get(short + "/tensors")["verdict"] == "differ"


def test_requests_while_a_comparison_runs(server, folder):
    own = Server(server.program, folder / "own", *big(folder, ENDLESS))
    long = "workspaces/" + own.url.rsplit("/", 1)[1]
    short = own.compared(TRACE / "reference.safetensors", TRACE / "rope_theta.safetensors")
    for _ in range(20):
        assert own.get(short + "/tensors/28/values?start=0,0,0&count=1,1,1")["a"]
    assert own.get(long)["state"] == "busy"
    own.post(long + "/run", {}, want=409)
    own.put(long, "a", "x.npy", b"", want=409)


def test_two_workspaces_are_independent(server, _):
    one = server.compared(TRACE / "reference.safetensors", TRACE / "rope_theta.safetensors")
    two = server.compared(TRACE / "reference.safetensors", TRACE / "bfloat16.safetensors")
    assert server.get(one + "/tensors")["verdict"] == "differ"
    assert server.get(two + "/tensors")["verdict"] == "match"
    server.put(two, "b", "extra.npy", (GOLDEN / "numpy" / "f4.npy").read_bytes())
    assert server.get(two)["state"] == "ready"
    assert server.get(one)["state"] == "done" and server.get(one + "/tensors")["verdict"] == "differ"
    assert server.request("DELETE", "/api/v1/" + two)[0] == 204
    server.get(two, want=404)
    assert server.get(one + "/tensors")["verdict"] == "differ"
    listed = [entry["id"] for entry in server.get("workspaces")]
    assert one.split("/")[1] in listed and two.split("/")[1] not in listed


def test_ids_cannot_be_guessed(server, _):
    ids = {server.workspace() for _ in range(20)}
    assert len(ids) == 20 and all(len(each.split("/")[1]) == 33 for each in ids)


def test_options_of_a_run(server, folder):
    workspace = server.upload(TRACE / "reference.safetensors", TRACE / "bfloat16.safetensors")
    assert server.run(workspace)["summary"]["verdict"] == "match"
    assert server.run(workspace, {"rtol": 0, "atol": 0})["summary"]["verdict"] == "differ"
    assert server.run(workspace, {"rtol": 1, "atol": 100})["summary"]["verdict"] == "match"
    server.run(workspace, {"map": {"layer_0_attn_q_proj_raw": "layer_1_attn_q_proj_raw"}})
    listing = server.get(workspace + "/tensors")
    assert row_of(listing, "layer_0_attn_q_proj_raw")[column(listing, "name_b")] == "layer_1_attn_q_proj_raw"
    server.run(workspace, {"order": ["logits", "input_embeddings"]})
    for options in ("{", "[]", "1", '{"rtol": -1}', '{"rtol": "x"}', '{"rtol": 1e999}', '{"atol": NaN}', '{"layer_offset": 1.5}',
                    '{"layer_offset": 99999999999}', '{"what": 1}', '{"map": []}', '{"order": [1]}', '{"order": ["a\\nb"]}',
                    '{"dims": 3}', "{}x", '{"map": {"a": "b"', "\0", '{"dims": "\\ud800"}'):
        answer = server.post(workspace + "/run", options, want=400)
        assert answer["error"]["message"], options
    server.post(workspace + "/run", b"[" * 100000, want=400)
    assert server.run(workspace, {"layer_offset": 0})["state"] == "done"


def test_swap(server, _):
    workspace = server.compared(TRACE / "reference.safetensors", TRACE / "rope_theta.safetensors")
    before = server.get(workspace + "/tensors/28/values")
    server.post(workspace + "/swap")
    state = server.get(workspace)
    assert state["a"]["name"] == "rope_theta.safetensors" and state["state"] == "ready"
    server.get(workspace + "/tensors", want=409)
    server.run(workspace)
    after = server.get(workspace + "/tensors/28/values")
    assert (after["a"], after["b"]) == (before["b"], before["a"])


def test_nothing_to_run(server, _):
    workspace = server.workspace()
    assert server.get(workspace)["state"] == "empty"
    assert "upload" in server.post(workspace + "/run", {}, want=409)["error"]["message"]
    assert server.get(workspace + "/tensors", want=409)["error"]["fix"]


def test_corrupt_uploads_say_why(server, _):
    whole = (TRACE / "reference.safetensors").read_bytes()
    for name, data in (("cut.safetensors", whole[:500]), ("empty.safetensors", b""), ("text.pt", b"hello"),
                       ("cut.zip", (GOLDEN / "archives" / "model1_tp8.zip").read_bytes()[:3000])):
        workspace = server.workspace()
        server.put(workspace, "a", name, data)
        state = server.run(workspace, want="failed")
        assert name in state["error"]["message"] and state["error"]["fix"], state
        assert str(server.folder) not in state["error"]["message"]
        assert server.get(workspace + "/tensors", want=422)["error"]["message"] == state["error"]["message"]
        events = server.events(workspace)
        assert next(events) == ("failed", state["error"])
        events.close()
        server.put(workspace, "a", name, b"")
        assert server.request("DELETE", f"/api/v1/{workspace}/a/files/{name}")[0] == 204
        assert server.get(workspace)["state"] == "empty"


def test_restart_keeps_workspaces(server, folder):
    own = Server(server.program, folder)
    workspace = own.compared(TRACE / "reference.safetensors", TRACE / "rope_theta.safetensors")
    before = own.get(workspace + "/tensors")
    assert own.stop() == 0
    own.start()
    state = own.get(workspace)
    assert state["a"]["name"] == "reference.safetensors" and state["a"]["files"][0]["complete"]
    assert own.get(workspace + "/tensors") == before  # opened again by itself
    own.kill()
    own.start()
    assert own.get(workspace + "/tensors/28/values?start=0,0,0&count=1,1,1")["a"]


def mapped(folder):
    """A tensor, what it became (turned, and in the middle of more), and somebody else under its name."""
    random.seed(11)
    rows = [[random.gauss(0, 1) for _ in range(4)] for _ in range(6)]
    decoy = [random.gauss(0, 1) for _ in range(24)]
    wide = [[random.gauss(0, 1)] * 2 + [rows[i][j] for i in range(6)] + [7.0] for j in range(4)]
    pack = lambda values: struct.pack(f"<{len(values)}f", *values)  # noqa: E731
    write_safetensors(folder / "a.safetensors", {"first": ("F32", [6, 4], pack(sum(rows, []))), "second": ("F32", [3], pack([1, 2, 3]))})
    write_safetensors(folder / "b.safetensors", {"first": ("F32", [6, 4], pack(decoy)), "other": ("F32", [4, 9], pack(sum(wide, []))),
                                                 "second": ("F32", [3], pack([1, 2, 4]))})
    return folder / "a.safetensors", folder / "b.safetensors"


HOW = {"name_b": "other", "permute": [1, 0], "slice": [{"axis": 0, "start": 2, "count": 6}], "swap": False}


def test_mappings_survive_a_restart(server, folder):
    own = Server(server.program, folder / "own")
    workspace = own.compared(*mapped(folder))
    before = own.get(workspace + "/tensors/0")
    assert before["rel_l2"] > 0.1 and not before["remapped"]
    own.post(workspace + "/tensors/1/remap", {"swap": True})
    by_hand = own.post(workspace + "/tensors/0/remap", HOW)
    assert by_hand["identical"] and by_hand["mapping"] == HOW and by_hand["shape"] == [6, 4]
    own.kill()
    own.start()
    assert own.get(workspace)["state"] == "done"
    again = own.get(workspace + "/tensors/0")
    assert again == by_hand
    assert own.get(workspace + "/tensors/1")["mapping"] == {"swap": True}
    listing = own.get(workspace + "/tensors")
    assert [row[column(listing, "remapped")] for row in listing["rows"]] == [True, True]
    first = listing["rows"][0]
    assert (first[column(listing, "name_b")], first[column(listing, "verdict")], first[column(listing, "rel_l2")]) == ("first", "ok", 0)
    # the map file speaks of it: the partner given by hand, and nobody holds on to the one before
    text = own.request("GET", f"/api/v1/{workspace}/map", plain=True)[2].decode().splitlines()
    assert "first = other | permute 1 0 | slice 0 2:8" in text and "= first" in text and "second = second" in text, text
    # and the command line takes it as it is
    (folder / "saved.map").write_text("\n".join(text) + "\n")
    compared = subprocess.run([server.program, "compare", *mapped(folder), "--map", folder / "saved.map", "--all"],
                              capture_output=True, text=True, timeout=60)
    assert compared.returncode in (1, 2) and "B: permute 1 0, slice 0 2:8" in compared.stdout, compared
    # another run keeps it, taking it back is kept too
    own.run(workspace, {"rtol": 0.5})
    assert own.get(workspace + "/tensors/0")["mapping"] == HOW
    assert own.post(workspace + "/tensors/0/remap", {})["remapped"] is False
    assert own.stop() == 0
    own.start()
    back = own.get(workspace + "/tensors/0")
    assert not back["remapped"] and "mapping" not in back and back["rel_l2"] == before["rel_l2"]
    assert own.get(workspace + "/tensors/1")["remapped"]
    # other inputs, other pairs
    own.put(workspace, "b", "more.npy", (GOLDEN / "numpy" / "f4.npy").read_bytes())
    assert own.request("DELETE", f"/api/v1/{workspace}/b/files/more.npy")[0] == 204
    own.run(workspace)
    assert not own.get(workspace + "/tensors/1")["remapped"]


def test_hostile_mapping_files(server, folder):
    own = Server(server.program, folder / "own")
    workspace = own.compared(*mapped(folder))
    own.post(workspace + "/tensors/0/remap", HOW)
    path = folder / "own" / "workspaces" / workspace.split("/")[1] / "mappings.json"
    good = path.read_text()
    entry = json.loads(good)["mappings"][0]
    bad_hows = ("", "{", "[]", "{}", "null", '{"name_b": "nobody"}', '{"permute": [0, 0]}', '{"permute": [9999999999999]}', "[" * 5000,
                '{"slice": [{"axis": 5}]}', '{"slice": [{"axis": 0, "start": 18446744073709551615, "count": 18446744073709551615}]}')
    files = [b"", b"\0" * 100, b"{", b"[]", b'{"mappings": 3}', b'{"mappings": [3]}', b'{"mappings": [{}]}', b'{"mappings": [[[[',
             b"\xff" * 1000, good[:-10].encode(), b'{"mappings": [' + b"[" * 100000, b" " * (5 << 20) + good.encode()]
    files += [json.dumps({"mappings": [{**entry, "how": how}]}).encode() for how in bad_hows]
    files += [json.dumps({"mappings": [{**entry, "name": "x"}, {**entry, "name_b": 3}, {"name": "first"}]}).encode()]
    own.stop()
    for data in files:
        path.write_bytes(data)
        own.start()
        answer = own.get(workspace + "/tensors/0")
        # a list that is cut behind its first entry may still give that one
        assert answer["name"] == "first" and (not answer["remapped"] or good.encode().startswith(data[:50])), data[:80]
        assert own.stop() == 0
    path.unlink()
    path.mkdir()
    own.start()
    assert own.get(workspace + "/tensors/0")["remapped"] is False
    path.rmdir()
    path.symlink_to("/dev/zero")
    assert own.stop() == 0
    own.start()
    assert own.get(workspace + "/tensors/0")["remapped"] is False
    assert own.post(workspace + "/tensors/0/remap", HOW)["remapped"]
    assert not path.is_symlink() and json.loads(path.read_text())["mappings"][0]["name"] == "first"


def test_restart_keeps_the_state(server, folder):
    """Done stays done, failed keeps its reason, a run that was cut short says so and is not begun by itself."""
    own = Server(server.program, folder / "own", *big(folder, ENDLESS))
    long = "workspaces/" + own.url.rsplit("/", 1)[1]
    done = own.compared(TRACE / "reference.safetensors", TRACE / "rope_theta.safetensors")
    failed = own.workspace()
    own.put(failed, "a", "cut.safetensors", b"cut")
    own.run(failed, want="failed")
    ready = own.upload(TRACE / "reference.safetensors")
    changed = own.compared(TRACE / "reference.safetensors")
    own.put(changed, "b", "x.safetensors", (TRACE / "rope_theta.safetensors").read_bytes())
    before = {each: own.get(each) for each in (done, failed, ready, changed)}
    assert own.get(long)["state"] == "busy"
    for end in (own.kill, own.stop):
        end()
        own.arguments = ()
        own.start()
        for each, state in before.items():
            now = own.get(each)
            assert {**now, "used": 0, "summary": 0} == {**state, "used": 0, "summary": 0}, (now, state)
        cut = own.get(long)
        assert cut["state"] == "failed" and "server ended" in cut["error"]["message"] and cut["error"]["fix"], cut
        assert own.get(done + "/tensors")["first"] is not None
        own.post(long + "/run", {}, want=202)


def ask_while_it_runs(own, workspace, want):
    """Ten calls at once for what only the run can tell, and a list for what they are answered."""
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(
        own.get(workspace + "/tensors/0/values?start=0,0&count=1,2", want=want))) for _ in range(10)]
    for thread in threads:
        thread.start()
    return threads, answers


def test_calls_wait_for_the_run(server, folder):
    own = Server(server.program, folder / "own", *big(folder, A_WHILE))
    threads, answers = ask_while_it_runs(own, "workspaces/" + own.url.rsplit("/", 1)[1], 200)
    for thread in threads:
        thread.join(PATIENCE)
    assert [answer["a"] for answer in answers] == [[0, 0]] * 10


def test_calls_that_wait_are_told_of_the_end(server, folder):
    own = Server(server.program, folder / "own", *big(folder, ENDLESS))
    workspace = "workspaces/" + own.url.rsplit("/", 1)[1]
    threads, answers = ask_while_it_runs(own, workspace, 422)
    threads[0].join(0.2)
    assert own.get(workspace)["state"] == "busy" and answers == []
    own.post(workspace + "/cancel")
    for thread in threads:
        thread.join(PATIENCE)
    assert [answer["error"]["message"] for answer in answers] == ["cancelled"] * 10, answers


def test_stop_while_busy(server, folder):
    own = Server(server.program, folder / "own", *big(folder, ENDLESS))
    events = own.events("workspaces/" + own.url.rsplit("/", 1)[1])
    next(events)
    assert own.stop() == 0
    events.close()


def test_a_file_that_shrinks_under_the_server(server, folder):
    path = folder / "x.safetensors"
    write_safetensors(path, {"x": ("F32", [1 << 20], b"\0\0\x80\x3f" * (1 << 20))})
    own = Server(server.program, folder / "own", path)
    workspace = "workspaces/" + own.url.rsplit("/", 1)[1]
    own.wait(workspace)
    with open(path, "r+b") as file:
        file.truncate(4096)
    answer = own.get(f"{workspace}/tensors/a0/values?start=1000000&count=4")
    assert len(answer["a"]) == 4
    assert own.get("health")["name"] == "tsleuth"


def age(own, workspace, seconds):
    """Makes a workspace of a server that is stopped look unused for so long."""
    saved = own.folder / "workspaces" / workspace.split("/")[1] / "workspace.json"
    saved.write_text(re.sub(r"\b\d{10}\b", lambda stamp: str(int(stamp.group()) - seconds), saved.read_text()))


def test_large_workspaces_go(server, folder):
    own = Server(server.program, folder)
    sizes = {}
    for name, size in (("oldest", 700), ("older", 600), ("recent", 900), ("new", 0)):
        sizes[name] = own.workspace()
        own.put(sizes[name], "a", "x.bin", b"x")
        path = own.folder / "workspaces" / sizes[name].split("/")[1] / "0" / "x.bin"
        with path.open("r+b") as file:
            file.truncate(size * 1000000)
    own.stop()
    for name, seconds in (("oldest", 9000), ("older", 8000), ("recent", 7000)):
        age(own, sizes[name], seconds)
    own.arguments = ("--keep-size", "2")
    own.start()
    own.get(sizes["oldest"], want=404)
    for name in ("older", "recent", "new"):
        assert own.get(sizes[name])["a"]["count"] == 1
    own.stop()
    age(own, sizes["recent"], 3600)
    age(own, sizes["older"], -3600)  # used within the hour, or nearly
    age(own, sizes["older"], -3600)
    own.arguments = ("--keep-size", "1")
    own.start()
    own.get(sizes["recent"], want=404)
    assert own.get(sizes["older"])["a"]["count"] == 1


def test_old_workspaces_go(server, folder):
    own = Server(server.program, folder)
    old, fresh = own.workspace(), own.workspace()
    own.stop()
    saved = folder / "workspaces" / old.split("/")[1] / "workspace.json"
    age(own, old, 40 * 86400)
    own.start()
    own.get(old, want=404)
    assert own.get(fresh)["state"] == "empty" and not saved.parent.exists()
