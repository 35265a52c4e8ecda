"""What the tests share: a scratch folder each, the program, and whether torch and numpy are there."""
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import warnings
from pathlib import Path

import strict
import tsleuth

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "capture" / "python"
PROGRAM = os.environ.get("TSLEUTH", "")
HAVE_TORCH = importlib.util.find_spec("torch") is not None
HAVE_NUMPY = importlib.util.find_spec("numpy") is not None

needs_torch = unittest.skipUnless(HAVE_TORCH, "torch is not installed")
needs_numpy = unittest.skipUnless(HAVE_NUMPY, "numpy is not installed")
needs_program = unittest.skipUnless(PROGRAM, "no tsleuth program was given")


def notes(metadata):
    """What a trace says about single tensors."""
    start = "tsleuth.note."
    return {key[len(start):]: json.loads(value) for key, value in metadata.items() if key.startswith(start)}


def lost(metadata):
    """Which tensors a trace lacks, and why."""
    start = "tsleuth.lost."
    return {key[len(start):]: value for key, value in metadata.items() if key.startswith(start)}


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="tsleuth-python-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.path = self.folder / "trace.safetensors"
        caught = warnings.catch_warnings(record=True)
        self.warnings = caught.__enter__()
        warnings.simplefilter("always")
        self.addCleanup(caught.__exit__, None, None, None)

    def warned(self):
        return [str(one.message) for one in self.warnings if "tsleuth" in str(one.message)]

    def inspect(self, path):
        """What the program says of a file."""
        done = subprocess.run([PROGRAM, "inspect", "--json", "-", str(path)], stdout=subprocess.PIPE)
        self.assertEqual(done.returncode, 0)
        return json.loads(done.stdout)

    def script(self, text, *words, env=None, name="script.py"):
        """Runs a script in another process; returns it when done."""
        file = self.folder / name
        file.write_text(text)
        return subprocess.run([sys.executable, *words, str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              cwd=self.folder, universal_newlines=True, env={**os.environ, **(env or {})})


class TorchCase(Case):
    def load(self):
        tensors, metadata = strict.load(self.path)
        self.run_data = json.loads(metadata["tsleuth.run"])
        self.notes = notes(metadata)
        self.skipped = lost(metadata)
        self.assertEqual(json.loads(metadata["tsleuth.order"]), list(tensors))
        return tensors

    def capture(self, model, *args, **options):
        keywords = options.pop("keywords", {})
        with tsleuth.capture(model, self.path, **options) as self.trace:
            self.output = model(*args, **keywords)
        return self.load()
