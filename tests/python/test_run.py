"""Scripts captured untouched, the program called from Python, and the package installed."""
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

import strict
import tsleuth
from support import PACKAGE, ROOT, Case, needs_program, needs_torch
from tsleuth import program

SCRIPT = """
import sys, torch
from torch import nn
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(2, 2)
    def forward(self, x):
        return self.proj(x)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return nn.Tanh()(x)
assert __name__ == "__main__"
torch.manual_seed(0)
net, head = Net(), nn.Linear(2, 1)
"""


@needs_torch
class Scripts(Case):
    def run_script(self, text, *words, script=(), name="job.py"):
        (self.folder / name).write_text(text)
        return subprocess.run([sys.executable, "-m", "tsleuth", "run", *words, name, *script], cwd=self.folder,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)

    def test_a_script(self):
        done = self.run_script(SCRIPT + "y = head(net(torch.ones(1, 2)))\nprint(sys.argv, y.shape)", "-o",
                               "out.safetensors", script=("--include", "x"))
        self.assertEqual((done.returncode, done.stdout), (0, "['job.py', '--include', 'x'] torch.Size([1, 1])\n"),
                         done.stderr)
        self.assertIn("7 tensors in ", done.stderr)
        tensors, metadata = strict.load(self.folder / "out.safetensors")
        self.assertEqual(list(tensors), ["blocks.0.proj", "blocks.0", "blocks.1.proj", "blocks.1", "Tanh", "output",
                                         "Linear.output"])
        self.assertEqual(json.loads(metadata["tsleuth.run"])["model"], "Net")

    def test_parts_are_named_from_the_whole(self):
        done = self.run_script(SCRIPT + "x = torch.ones(1, 2)\nfor block in net.blocks: x = block(x)\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(list(strict.load(self.path)[0]), ["blocks.0.proj", "blocks.0", "blocks.1.proj", "blocks.1"])

    def test_filters_and_steps(self):
        done = self.run_script(SCRIPT + "net(torch.ones(1, 2)); net(torch.ones(1, 2))", "--include", r"blocks\.1$",
                               "--include", "output")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(list(strict.load(self.path)[0]), ["blocks.1", "output", "step_1.blocks.1", "step_1.output"])

    def test_functions_of_a_model_that_is_imported_late(self):
        done = self.run_script("import torch, tiny_model\n"
                               "tiny_model.make()(input_ids=torch.tensor(tiny_model.IDS))", "--functions")
        self.assertEqual(done.returncode, 0, done.stderr)
        names = list(strict.load(self.path)[0])
        self.assertIn("model.layers.0.self_attn.q_rope", names)
        self.assertIn("model.layers.2.self_attn.attn_context", names)
        self.assertEqual(names[-1], "logits")

    def test_a_script_that_fails(self):
        done = self.run_script(SCRIPT + "net(torch.ones(1, 2)); sys.exit(7)")
        self.assertEqual(done.returncode, 7)
        self.assertEqual(len(strict.load(self.path)[0]), 6)
        done = self.run_script(SCRIPT + "net(torch.ones(1, 2)); raise KeyError('lost')")
        self.assertEqual(done.returncode, 1)
        self.assertIn("KeyError: 'lost'", done.stderr)
        self.assertEqual(len(strict.load(self.path)[0]), 6)

    def test_a_module(self):
        done = self.run_script(SCRIPT + "net(torch.ones(1, 2))")
        self.assertEqual(done.returncode, 0)
        done = subprocess.run([sys.executable, "-m", "tsleuth", "run", "-m", "job"], cwd=self.folder,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_what_is_not_a_trace_stays(self):
        self.path.write_text("precious, and longer than eight bytes")
        done = self.run_script(SCRIPT)
        self.assertEqual(done.returncode, 3)
        self.assertIn("overwrite", done.stderr)
        self.assertEqual(self.path.read_text(), "precious, and longer than eight bytes")


@needs_program
class Program(Case):
    def trace(self, name, **values):
        path = self.folder / f"{name}.safetensors"
        with tsleuth.capture(None, path) as trace:
            for key, value in values.items():
                tsleuth.tap(key, value)
        return trace

    def test_compare(self):
        import array
        a = self.trace("a", x=array.array("f", range(64)), **{"<b>&": array.array("f", [1, 2])})
        b = self.trace("b", x=array.array("f", [2 * n for n in range(64)]), **{"<b>&": array.array("f", [1, 2])})
        report = tsleuth.compare(a, b)
        self.assertEqual((report.verdict, report.matches, len(report)), ("differ", False, 2))
        self.assertEqual((report.first_divergence["name"], report.causes[0]["id"]), ("x", "scaled"))
        self.assertEqual(report["x"]["verdict"], "differs")
        self.assertEqual([one["name"] for one in report], ["x", "<b>&"])
        self.assertIn("first divergence: x", str(report))
        with self.assertRaises(KeyError):
            report["none"]
        self.assertEqual(tsleuth.compare(a, a, exact=True).verdict, "match")
        self.assertEqual(tsleuth.compare(a, b, rtol=1.5).verdict, "match")
        self.assertEqual(tsleuth.compare(a, b, rule=["x: cosine > 0.9", "<b>: cosine > 0.9"]).verdict, "match")

    def test_html_is_escaped(self):
        import array
        name = "<script>alert(1)</script>"
        a = self.trace("a", **{name: array.array("f", range(8))})
        b = self.trace("b", **{name: array.array("f", range(1, 9))})
        shown = tsleuth.compare(a, b)._repr_html_() + tsleuth.explain(a, b, name)._repr_html_()
        self.assertIn("&lt;script&gt;", shown)
        self.assertNotIn("<script", shown)

    def test_trouble(self):
        with self.assertRaisesRegex(tsleuth.ProgramError, "missing.safetensors"):
            tsleuth.compare(self.folder / "missing.safetensors", self.folder / "missing.safetensors")
        with self.assertRaisesRegex(tsleuth.ProgramError, "no-such-option"):
            tsleuth.compare("a", "b", no_such_option=True)

    def test_search(self):
        given = os.environ.pop("TSLEUTH")
        path = os.environ["PATH"]
        self.addCleanup(os.environ.update, TSLEUTH=given, PATH=path)
        os.environ["PATH"] = str(self.folder)
        (self.folder / "tsleuth").symlink_to(given)
        self.assertEqual(program.find_program(), str(self.folder / "tsleuth"))
        os.environ["PATH"] = "/nowhere"
        built = ROOT / "build" / "tsleuth"
        if built.exists():
            self.assertEqual(program.find_program(), str(built))
        else:
            with self.assertRaisesRegex(tsleuth.ProgramError, "PATH"):
                program.find_program()
        os.environ["TSLEUTH"] = "/nowhere/tsleuth"
        with self.assertRaisesRegex(tsleuth.ProgramError, "/nowhere/tsleuth"):
            tsleuth.compare("a", "b")


@unittest.skipUnless(importlib.util.find_spec("pip") and importlib.util.find_spec("setuptools")
                     and importlib.util.find_spec("wheel"), "pip, setuptools or wheel is not installed")
class Installed(Case):
    def test_pip(self):
        source = self.folder / "source"
        shutil.copytree(PACKAGE, source)  # the build writes beside what it builds
        target = self.folder / "target"
        done = subprocess.run([sys.executable, "-m", "pip", "install", "--no-build-isolation", "--no-deps", "--no-index",
                               "--quiet", "--target", str(target), str(source)], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)
        done = self.script("import tsleuth; print(tsleuth.__file__)", env={"PYTHONPATH": str(target)})
        self.assertEqual(Path(done.stdout.strip()), target / "tsleuth" / "__init__.py", done.stderr)
        modules = {file.name for file in (PACKAGE / "tsleuth").glob("*.py")}
        self.assertEqual({file.name for file in (target / "tsleuth").glob("*.py")}, modules)
