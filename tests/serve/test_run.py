"""Comparisons: progress, cancelling, failures, restarts."""
import threading
import time

from client import GOLDEN, MEMORY, PATIENCE, Server, column, row_of, write_safetensors

TRACE = GOLDEN / "trace"


def big(folder, gigabytes):
    """Two inputs that take a while: zeros that the disk does not hold."""
    for name in ("a", "b"):
        write_safetensors(folder / f"{name}.safetensors",
                          {f"layer_{i}_x": ("F32", [64, 1 << 20], 4 * 64 << 20) for i in range(4 * gigabytes)})
    return folder / "a.safetensors", folder / "b.safetensors"


def test_progress_is_told(server, folder):
    own = Server(server.program, folder / "own", *big(folder, 1))
    workspace = "workspaces/" + own.url.rsplit("/", 1)[1]
    stages, steps = set(), []
    for name, data in own.events(workspace):
        if name == "done":
            assert data["verdict"] == "match"
            break
        assert name == "progress", (name, data)
        stages.add(data["stage"])
        if data["stage"] == "comparing":
            assert 0 <= data["done"] <= data["total"]
            steps.append(data["done"])
    assert "comparing" in stages and steps == sorted(steps) and len(set(steps)) > 1, (stages, steps)
    assert own.resident() < MEMORY, own.resident()


def test_cancel_during_a_comparison(server, folder):
    own = Server(server.program, folder / "own", *big(folder, 4))
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
    own = Server(server.program, folder / "own", *big(folder, 4))
    long = "workspaces/" + own.url.rsplit("/", 1)[1]
    short = own.upload(TRACE / "reference.safetensors", TRACE / "rope_theta.safetensors")
    own.post(short + "/run", {})
    own.post(long + "/cancel")
    own.wait(long, "failed")
    own.wait(short)
    assert own.get(short + "/tensors")["verdict"] == "differ"


def test_requests_while_a_comparison_runs(server, folder):
    own = Server(server.program, folder / "own", *big(folder, 4))
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


def test_calls_wait_for_the_run(server, folder):
    own = Server(server.program, folder / "own", *big(folder, 1))
    workspace = "workspaces/" + own.url.rsplit("/", 1)[1]
    assert own.get(workspace)["state"] == "busy"
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(own.get(workspace + "/tensors/0/values?start=0,0&count=1,2")["a"]))
               for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert answers == [[0, 0]] * 10


def test_stop_while_busy(server, folder):
    own = Server(server.program, folder / "own", *big(folder, 4))
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


def test_old_workspaces_go(server, folder):
    own = Server(server.program, folder)
    old, fresh = own.workspace(), own.workspace()
    own.stop()
    saved = folder / "workspaces" / old.split("/")[1] / "workspace.json"
    text = saved.read_text()
    now = int(time.time())
    for stamp in range(now - 60, now + 1):
        text = text.replace(str(stamp), str(stamp - 40 * 86400))
    saved.write_text(text)
    own.start()
    own.get(old, want=404)
    assert own.get(fresh)["state"] == "empty" and not saved.parent.exists()
