"""Makes tests/malformed/dumps: dumps of other tools that are wrong or hostile in one named way each.

Standard library only, and the same bytes every time. Run it anywhere.
"""
import json
import os
import shutil

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dumps")


def write(name, data, expect):
    path = os.path.join(FOLDER, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(data if isinstance(data, str) else json.dumps(data))
    if expect is not None:
        with open(path + ".expect", "w") as f:
            f.write(expect + "\n")


def folder(name, files, expect):
    for file, data in files.items():
        write(os.path.join(name, file), data, None)
    with open(os.path.join(FOLDER, name + ".expect"), "w") as f:
        f.write(expect + "\n")


# Call trees.
def tensor(value, shape="torch.Size([2])", dtype="torch.float32"):
    return {"shape": shape, "dtype": dtype, "value": value}


def tree(outputs, path="M.a"):
    return {"module_path": "M", "inputs": {}, "children": [{"module_path": path, "inputs": {}, "outputs": outputs}]}


def call_trees():
    good = tensor(["tensor([1., 2.])"])
    write("tree_words.json", tree([good, tensor(["tensor([1., zwei])"])]), "is not a number")
    write("tree_number.json", tree([good, tensor([1, 2])]), "expected the lines of a printed tensor as strings")
    write("tree_ragged.json", tree([good, tensor(["tensor([[1., 2.],", "[3.]])"], "torch.Size([2, 2])")]),
          "the bracketed lists differ in length")
    write("tree_open.json", tree([good, tensor(["tensor([1., 2."])]), "the text ends inside 1 open brackets")
    write("tree_shape.json", tree(tensor(["tensor([1., 2.])"], "torch.Size([99999999999, 99999999999])")),
          "")
    write("tree_count.json", tree(tensor(["tensor([1., 2.])"], "torch.Size([3])")),
          "the print has 2 values, its shape says torch.Size([3])")
    write("tree_corners.json", tree(tensor(["tensor([1., 2.,  ..., 5.])"], "torch.Size([2000])")),
          "the print has 3 values, its shape says torch.Size([2000])")
    write("tree_outside.json", tree([good, tensor("./../../etc/secret.safetensors")]), "which is not a plain path beside it")
    write("tree_missing.json", tree([good, tensor("./nowhere.safetensors")]), "no such file")
    write("tree_cut.json", json.dumps(tree([good, good]))[:-40], "ends")
    write("tree_summary.json", tree({"shape": "torch.Size([2])", "dtype": "torch.float32"}),
          "is a summary of 1 tensors (mean, std, min, max) without values")
    deep = '{"module_path": "M", "inputs": {}, "children": [' * 300
    write("tree_deep.json", deep, "nested")
    write("tree_name.json", tree({("k" * 5000): good}), "a name is longer than 4096 bytes")
    write("tree_itself.json", tree([good, tensor("./tree_itself.json.safetensors")]), "no such file")


# msprobe.
def probe(data, task="tensor"):
    return {"task": task, "level": "L0", "dump_data_dir": "/x", "data": data}


def record(name):
    return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "data_name": name}


def probes():
    key = "Module.a.Linear.forward.0"
    write("probe_statistics.json", probe({key: {"output": [{"type": "torch.Tensor", "shape": [2], "Max": 1}]}},
                                         "statistics"), "is a dump of statistics only (task statistics, level L0)")
    write("probe_outside.json", probe({key: {"output": [record("../../../etc/passwd")]}}), "which is not a plain path beside it")
    write("probe_absolute.json", probe({key: {"output": [record("/etc/passwd")]}}), "dump_tensor_data//etc/passwd")
    write("probe_missing.json", probe({key: {"output": [record("a.pt")]}}), "no such file")
    write("probe_cut.json", json.dumps(probe({key: {"output": [record("a.pt")]}}))[:-9], "ends")
    write("probe_deep.json", json.dumps(probe({}))[:-2] + '"a": ' + '{"b": ' * 300, "nested")
    write("probe_name.json", probe({key: {"output": {"k" * 5000: {}}}}), "a name is longer than 4096 bytes")
    folder("probe_twice", {
        "dump.json": probe({key: {"output": [record("a.npy"), record("a.npy")]}}),
        "dump_tensor_data/a.npy": "\n"}, "is named twice in dump.json, and read once")
    folder("probe_broken", {
        "dump.json": probe({key: {"output": [record("a.npy")]}}),
        "dump_tensor_data/a.npy": "\x93"}, "a.npy")
    folder("probe_itself", {"dump.json": probe({key: {"output": [record("dump.json")]}}),
                            "dump_tensor_data/dump.json": probe({key: {"output": [record("dump.json")]}})},
           "dump_tensor_data/dump.json: ")


# llama.cpp.
def log(name, ne, block, type_="f32"):
    return f"ggml_debug: {name:>24} = ({type_})        ADD(a{{1, 1, 1, 1}}, }}) = {{{ne}}}\n{block}"


def logs():
    good = log("good", "1, 1, 1, 1", "[\n [\n  [ 1.0000],\n ],\n]\nsum = 1.0\n")
    write("log_cut.log", good + log("cut", "2, 1, 1, 1", "[\n [\n  [ 1.00"), "the log ends inside its values")
    write("log_deep.log", good + log("deep", "2, 1, 1, 1", "[[[[[[1.0"), "brackets nest deeper than three levels")
    write("log_closed.log", good + log("closed", "2, 1, 1, 1", "[\n]\n]\n"), "a bracket closes that none opened")
    write("log_words.log", good + log("words", "2, 1, 1, 1", "[\n[\n[ 1.0000, main: done\n"), "neither a number")
    write("log_more.log", good + log("more", "1, 1, 1, 1", "[\n[\n[ 1.0, 2.0],\n],\n]\nsum = 1\n"),
          "2 entries are printed along ne[0], which has 1")
    write("log_fewer.log", good + log("fewer", "9, 1, 1, 1", "[\n[\n[ 1.0, 2.0],\n],\n]\nsum = 1\n"),
          "2 entries are printed along ne[0], which has 9")
    write("log_blocks.log", good + log("blocks", "1, 1, 1, 3", "[\n[\n[ 1.0],\n],\n]\nsum = 1\n\nmain: end\n"),
          "1 values are printed, where its brackets have room for 3")
    write("log_huge.log", good + log("huge", "9223372036854775807, 9223372036854775807, 1, 1",
                                     "[\n[\n[ 1.0, ..., 2.0],\n...\n],\n]\nsum = 1\n"), "")
    write("log_quantized.log", good + log("k", "32, 1, 1, 1", "", "q4_0"), "llama.cpp did not print its values (q4_0)")
    write("log_nothing.log", log("k", "32, 1, 1, 1", "", "q4_0"), "the log names operations and holds no values")


# Polygraphy.
def graphy():
    good = "k05VTVBZAQB2AHsnZGVzY3InOiAnPGY0JywgJ2ZvcnRyYW5fb3JkZXInOiBGYWxzZSwgJ3NoYXBlJzogKDEsKSwgfSAgICAgICAgICAg" \
           "ICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgIAoAAIA/"

    def outputs(**arrays):
        return {"lst": [["runner", [{"outputs": {k: {"values": {"array": v}} for k, v in arrays.items()}}]]]}
    write("graphy_digits.json", outputs(a=good, b="k05V*VBZ"), "expected base 64")
    write("graphy_other.json", outputs(a=good, b="SGVsbG8gd29ybGQh"), "neither an .npy, an .npz nor a torch file")
    write("graphy_short.json", outputs(a=good, b=good[:40]), "graphy_short.json:b")
    write("graphy_padding.json", outputs(a=good, b="k05V=VBZ"), "expected base 64")


if os.path.isdir(FOLDER):
    shutil.rmtree(FOLDER)
call_trees()
probes()
logs()
graphy()
