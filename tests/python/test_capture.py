"""Captures of torch modules: what is stored, under which names, and that nothing is left behind."""
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
import unittest

import strict
import support
import tsleuth
from support import HAVE_TORCH, PROGRAM, Case, needs_program, needs_torch
from tsleuth.session import ACTIVE
from tsleuth.writer import SPARE

if HAVE_TORCH:
    import torch
    from torch import nn

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x):
            return self.second(torch.relu(self.first(x)))

    def flat(tensor):
        return tensor.detach().reshape(-1).tolist()


class TorchCase(Case):
    def load(self):
        tensors, metadata = strict.load(self.path)
        self.run_data = json.loads(metadata["tsleuth.run"])
        self.notes = support.notes(metadata)
        self.skipped = support.lost(metadata)
        self.assertEqual(json.loads(metadata["tsleuth.order"]), list(tensors))
        return tensors

    def capture(self, model, *args, **options):
        keywords = options.pop("keywords", {})
        with tsleuth.capture(model, self.path, **options) as self.trace:
            self.output = model(*args, **keywords)
        return self.load()


@needs_torch
class Outputs(TorchCase):
    def test_values_and_order(self):
        model, x = Two(), torch.randn(5, 3)
        tensors = self.capture(model, x)
        self.assertEqual(list(tensors), ["first", "second", "output"])
        self.assertEqual(tensors["first"].values(), flat(model.first(x)))
        self.assertEqual(tensors["output"].values(), flat(model(x)))
        self.assertEqual((tensors["first"].dtype, tensors["first"].shape), ("F32", (5, 4)))

    def test_in_place_after_the_hook(self):
        class InPlace(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner, self.act = nn.Linear(3, 3), nn.ReLU(inplace=True)

            def forward(self, x):
                y = self.inner(x)
                self.kept = y.detach().clone()
                tsleuth.tap("view", y[:, 1:])
                self.act(y)
                y.add_(100)
                return y

        model = InPlace()
        tensors = self.capture(model, torch.randn(4, 3))
        self.assertEqual(tensors["inner"].values(), flat(model.kept))
        self.assertEqual(tensors["view"].values(), flat(model.kept[:, 1:]))
        self.assertEqual(tensors["act"].values(), flat(model.kept.clamp(min=0)))
        self.assertEqual(tensors["output"].values(), flat(model.kept.clamp(min=0) + 100))

    def test_nests(self):
        class Nest(nn.Module):
            def forward(self, x):
                return x, {"key": x + 1, "list": [x + 2, None, (x + 3, "text")]}, None, 5

        class Outer(nn.Module):
            def __init__(self):
                super().__init__()
                self.nest = Nest()

            def forward(self, x):
                return {"logits": self.nest(x)[0], "past_key_values": ((x, x),), "loss": x.sum()}

        tensors = self.capture(Outer(), torch.zeros(2))
        self.assertEqual(list(tensors), ["nest.0", "nest.1.key", "nest.1.list.0", "nest.1.list.2.0", "logits", "loss"])
        self.assertEqual(tensors["nest.1.list.2.0"].values(), [3, 3])
        self.assertEqual(tensors["loss"].shape, ())
        tensors = self.capture(Outer(), torch.zeros(2), caches=True)
        self.assertIn("past_key_values.0", tensors)
        self.assertIn("past_key_values.1", tensors)

    def test_a_tuple_of_one_is_called_as_the_module(self):
        class One(nn.Module):
            def forward(self, x):
                return (x,)

        self.assertEqual(list(self.capture(nn.Sequential(One()), torch.ones(1))), ["0", "output"])
        self.assertEqual(list(self.capture(One(), torch.ones(1))), ["output"])

    def test_repeated_and_shared(self):
        class Shared(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(2, 2)
                self.b = self.a

            def forward(self, x):
                return self.b(self.a(self.a(x)))

        model, x = Shared(), torch.randn(1, 2)
        tensors = self.capture(model, x)
        self.assertEqual(list(tensors), ["a", "a#2", "a#3", "output"])
        self.assertEqual(tensors["a#2"].values(), flat(model.a(model.a(x))))

    def test_passes_are_steps(self):
        model = Two()
        with tsleuth.capture(model, self.path):
            for _ in range(3):
                model(torch.ones(1, 3))
                tsleuth.tap("sampled", 1.0)
        self.assertEqual(list(self.load()), [f"{step}{name}" for step in ("", "step_1.", "step_2.")
                                             for name in ("first", "second", "output", "sampled")])

    def test_parts_called_by_hand(self):
        model = Two()
        with tsleuth.capture(model, self.path):
            model.first(torch.ones(1, 3))
            model.first(torch.ones(1, 3))
            model(torch.ones(1, 3))
        self.assertEqual(list(self.load()), ["first", "first#2", "first#3", "second", "output"])

    def test_filters(self):
        self.assertEqual(list(self.capture(Two(), torch.ones(1, 3), include="^first$")), ["first"])
        self.assertEqual(list(self.capture(Two(), torch.ones(1, 3), include=["first", "put"])), ["first", "output"])
        self.assertEqual(list(self.capture(Two(), torch.ones(1, 3), exclude="s")), ["output"])
        self.assertEqual(list(self.capture(Two(), torch.ones(1, 3), include="nothing")), [])
        self.assertTrue(any("nothing was captured" in one for one in self.warned()))

    def test_inputs(self):
        class Keyword(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = Two()

            def forward(self, hidden_states, scale=None, *, input_ids=None, flag=True):
                return self.inner(x=hidden_states) * scale[0]

        x, scale, ids = torch.randn(2, 3), (torch.tensor(2.0), torch.tensor(3.0)), torch.tensor([[4, 5]])
        tensors = self.capture(Keyword(), x, keywords={"scale": scale, "input_ids": ids, "flag": False}, inputs=True)
        self.assertEqual(list(tensors), ["input", "input.scale.0", "input.scale.1", "input_ids", "inner.input",
                                         "inner.first.input", "inner.first", "inner.second.input", "inner.second",
                                         "inner", "output"])
        self.assertEqual(tensors["inner.input"].values(), flat(x))
        self.assertEqual(self.run_data["tokens"], [4, 5])

    def test_token_ids(self):
        class Ids(nn.Module):
            def forward(self, input_ids, mask=None):
                return input_ids * 2

        model = Ids()
        with tsleuth.capture(model, self.path, run={"prompt": "héllo"}):
            model(torch.tensor([[1, 2, 3]]))
            model(input_ids=torch.tensor([[4]]))
        self.load()
        self.assertEqual(self.run_data["tokens"], [1, 2, 3])
        self.assertEqual(self.run_data["step_tokens"], {"1": [4]})
        self.assertEqual(self.run_data["prompt"], "héllo")
        with tsleuth.capture(model, self.path):
            model(torch.tensor([[1, 2], [3, 4]]))
        self.load()
        self.assertEqual(self.run_data["tokens"], [[1, 2], [3, 4]])

    def test_run(self):
        self.capture(Two().to(torch.bfloat16).eval(), torch.ones(1, 3, dtype=torch.bfloat16))
        self.assertEqual((self.run_data["model"], self.run_data["precision"]), ("Two", "bfloat16"))
        self.assertEqual((self.run_data["torch"], self.run_data["training"]), (torch.__version__, False))
        self.assertRegex(self.run_data["start"], r"^\d{4}-\d\d-\d\dT")

    def test_gradients(self):
        torch.manual_seed(1)
        model, x = Two(), torch.randn(4, 3)
        hidden = model.first(x)
        loss = model.second(torch.relu(hidden)).pow(2).sum()
        expected = torch.autograd.grad(loss, [hidden, model.first.weight, model.second.bias])
        with tsleuth.capture(model, self.path, gradients=True):
            model(x).pow(2).sum().backward()
        tensors = self.load()
        self.assertEqual(tensors["first.grad"].values(), flat(expected[0]))
        self.assertEqual(tensors["first.weight.grad"].values(), flat(expected[1]))
        self.assertEqual(tensors["second.bias.grad"].values(), flat(expected[2]))
        names = list(tensors)
        self.assertLess(names.index("output.grad"), names.index("first.grad"))
        model(x).sum().backward()  # nothing listens any more
        self.assertEqual(list(self.load()), names)

    def test_no_gradients_without_grad(self):
        with torch.no_grad():
            self.assertEqual(list(self.capture(Two(), torch.ones(1, 3), gradients=True)), ["first", "second", "output"])


@needs_torch
class Types(TorchCase):
    def tapped(self, value):
        with tsleuth.capture(None, self.path):
            tsleuth.tap("x", value)
        return self.load().get("x")

    def test_types(self):
        for dtype, name in ((torch.float64, "F64"), (torch.float32, "F32"), (torch.float16, "F16"),
                            (torch.bfloat16, "BF16"), (torch.int64, "I64"), (torch.int32, "I32"), (torch.int16, "I16"),
                            (torch.int8, "I8"), (torch.uint8, "U8"), (torch.bool, "BOOL")):
            with self.subTest(str(dtype)):
                values = torch.tensor([[1, 0, 1], [0, 0, 1]]).to(dtype)
                found = self.tapped(values)
                self.assertEqual((found.dtype, found.shape, found.values()), (name, (2, 3), [1, 0, 1, 0, 0, 1]))

    def test_raw_bits(self):
        bits = torch.arange(0, 65536, 7, dtype=torch.int32).to(torch.int16)
        expected = struct.pack(f"<{len(bits)}h", *bits.tolist())
        for dtype in (torch.float16, torch.bfloat16):  # every NaN keeps its bits
            self.assertEqual(self.tapped(bits.view(dtype)).data, expected)
        for name, stored in (("float8_e4m3fn", "F8_E4M3"), ("float8_e5m2", "F8_E5M2")):
            if hasattr(torch, name):
                found = self.tapped(torch.arange(256).to(torch.uint8).view(getattr(torch, name)))
                self.assertEqual((found.dtype, found.data), (stored, bytes(range(256))))

    def test_layouts(self):
        grid = torch.arange(24.0).reshape(2, 3, 4)
        for value in (grid.transpose(0, 2), grid[:, 1:, ::2], grid[1], grid.expand(5, 2, 3, 4), grid[None].permute(3, 1, 0, 2),
                      torch.tensor(7.0), torch.zeros(0, 3), torch.zeros(2, 0, dtype=torch.bool),
                      nn.Parameter(torch.ones(2)), torch.tensor([3.0]).expand(4),
                      grid.to(memory_format=torch.contiguous_format)[:, :, 1]):
            found = self.tapped(value)
            self.assertEqual((found.shape, found.values()), (tuple(value.shape), flat(value)))

    def test_complex(self):
        value = torch.tensor([1 + 2j, 3 - 4j])
        for one, expected in ((value, [1, 2, 3, -4]), (value.conj(), [1, -2, 3, 4])):
            found = self.tapped(one)
            self.assertEqual((found.dtype, found.shape, found.values()), ("F32", (2, 2), expected))
            self.assertEqual(self.notes["x"]["complex"], "torch.complex64")
        self.assertEqual(self.tapped(value.conj().imag).values(), [-2, 4])  # a view with the negative bit

    def test_other_layouts(self):
        self.assertEqual(self.tapped(torch.eye(2).to_sparse()).values(), [1, 0, 0, 1])
        self.assertIn("layout", self.notes["x"])
        quantized = torch.quantize_per_tensor(torch.tensor([1.0, 2.0]), 0.5, 0, torch.quint8)
        self.assertEqual(self.tapped(quantized).values(), [1, 2])
        self.assertIn("quantized", self.notes["x"])

    def test_no_values(self):
        self.assertIsNone(self.tapped(torch.empty(2, device="meta")))
        self.assertIn("meta device", self.skipped["x"])

    def test_subclass(self):
        class Mine(torch.Tensor):
            pass

        self.assertEqual(self.tapped(torch.ones(2).as_subclass(Mine)).values(), [1, 1])

    def test_sharded(self):
        """As a DTensor shows itself: the local part is stored, and what it is a part of is noted."""
        class Shard(torch.Tensor):
            placements = ("Shard(dim=1)",)

            def to_local(self):
                return torch.full((2, 2), 3.0)

            def detach(self):
                return self

        self.assertEqual(self.tapped(torch.ones(2, 4).as_subclass(Shard)).values(), [3, 3, 3, 3])
        self.assertEqual((self.notes["x"]["placements"], self.notes["x"]["global_shape"]), (["Shard(dim=1)"], [2, 4]))

    def test_a_sum_under_way(self):
        """As what a collective operation returns before it is done."""
        class AsyncCollectiveTensor(torch.Tensor):
            def trigger_wait(self):
                return torch.full((2,), 4.0)

            def detach(self):
                return self

        self.assertEqual(self.tapped(torch.ones(2).as_subclass(AsyncCollectiveTensor)).values(), [4, 4])

    def test_odd_bytes_before_wide_ones(self):
        with tsleuth.capture(None, self.path):
            tsleuth.tap("mask", torch.tensor([True, False, True]))
            tsleuth.tap("x", torch.tensor([1.5, 2.5]))
            tsleuth.tap("ids", torch.tensor([9]))
        self.assertEqual([one.values() for one in self.load().values()], [[True, False, True], [1.5, 2.5], [9]])


@needs_torch
class Leaving(TorchCase):
    def hooks(self, model):
        return [(name, hooks) for name, module in model.named_modules()
                for hooks in (module._forward_hooks, module._forward_pre_hooks, module.__dict__.get("forward"))
                if hooks]

    def test_hooks_are_gone(self):
        model = Two()
        state = {name: dict(module.__dict__) for name, module in model.named_modules()}
        self.capture(model, torch.ones(1, 3), inputs=True, gradients=True)
        self.assertEqual(self.hooks(model), [])
        self.assertEqual({name: set(module.__dict__) for name, module in model.named_modules()},
                         {name: set(one) for name, one in state.items()})
        self.assertEqual(ACTIVE, [])
        before = self.path.read_bytes()
        model(torch.ones(1, 3))
        tsleuth.tap("late", torch.ones(1))
        self.assertEqual(self.path.read_bytes(), before)

    def test_a_forward_of_the_object_itself_comes_back(self):
        model = Two()
        model.forward = own = lambda x: model.second(model.first(x)) + 1
        self.capture(model, torch.ones(1, 3), inputs=True)
        self.assertIs(model.forward, own)

    def test_exception_inside_forward(self):
        class Broken(nn.Module):
            def __init__(self):
                super().__init__()
                self.good, self.bad = nn.Linear(2, 2), nn.Linear(3, 3)

            def forward(self, x):
                return self.bad(self.good(x))

        model = Broken()
        with self.assertRaisesRegex(RuntimeError, "shape|size"):
            self.capture(model, torch.ones(1, 2))
        self.assertEqual(list(self.load()), ["good"])
        self.assertEqual((self.hooks(model), ACTIVE), ([], []))

    def test_a_caught_exception_does_not_confuse_names(self):
        class Guarded(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = nn.Sequential(nn.Linear(3, 3))

            def forward(self, x):
                try:
                    self.inner(torch.ones(1, 7))
                except RuntimeError:
                    pass
                return self.after(x)

            def after(self, x):
                return x

        class Outer(nn.Module):
            def __init__(self):
                super().__init__()
                self.guarded = Guarded()

            def forward(self, x):
                self.guarded(x)
                return tsleuth.tap("here", x)

        self.assertEqual(list(self.capture(Outer(), torch.ones(1))), ["guarded", "here", "output"])

    def test_a_pass_after_one_that_failed(self):
        model = Two()
        with tsleuth.capture(model, self.path):
            for width in (7, 3):
                try:
                    model(torch.ones(1, width))
                except RuntimeError:
                    pass
        self.assertEqual(list(self.load()), ["step_1.first", "step_1.second", "step_1.output"])

    def test_the_path_is_refused_before_hooks(self):
        model = Two()
        with self.assertRaises(FileNotFoundError):
            tsleuth.capture(model, self.folder / "no" / "x.safetensors").start()
        self.assertEqual((self.hooks(model), ACTIVE), ([], []))

    def test_wrong_model(self):
        with self.assertRaisesRegex(TypeError, "tsleuth.tap"):
            tsleuth.capture("model", self.path).start()
        self.assertFalse(self.path.exists())

    def test_disk_full(self):
        model = Two()
        trace = tsleuth.capture(model, self.path)
        with self.assertRaisesRegex(OSError, "no space"):
            with trace:
                model(torch.ones(1, 3))
                add = trace._file.add

                def full(name, *args):
                    if name == "step_1.second":
                        raise OSError(28, "no space")
                    add(name, *args)

                trace._file.add = full
                self.assertEqual(model(torch.ones(1, 3)).shape, (1, 2))  # the model itself goes on
        self.assertEqual(list(self.load()), ["first", "second", "output", "step_1.first"])
        self.assertTrue(any("ends after 4 tensors" in one for one in self.warned()))

    def test_results_do_not_change(self):
        model, x = Two(), torch.randn(3, 3)
        expected = model(x)
        self.capture(model, x, inputs=True, gradients=True, functions=True)
        self.assertTrue(torch.equal(self.output, expected))
        self.assertTrue(self.output.requires_grad)


@needs_torch
class Together(TorchCase):
    def test_nested(self):
        model = Two()
        other = self.folder / "other.safetensors"
        with tsleuth.capture(model, self.path):
            model(torch.ones(1, 3))
            with tsleuth.capture(model, other, include="first"):
                model(torch.ones(1, 3))
            model(torch.ones(1, 3))
        self.assertEqual(len(self.load()), 9)
        self.assertEqual(list(strict.load(other)[0]), ["first"])

    def test_start_and_stop(self):
        model = Two()
        trace = tsleuth.capture(model, self.path)
        trace.start()
        with self.assertRaisesRegex(RuntimeError, "already"):
            trace.start()
        model(torch.ones(1, 3))
        self.assertIs(trace.stop(), trace)
        trace.stop()
        self.assertEqual((len(self.load()), os.fspath(trace)), (3, str(self.path)))

    def test_threads(self):
        model = Two()
        failed = []

        def work():
            try:
                for _ in range(20):
                    model.first(torch.ones(1, 3))
                    tsleuth.tap("mine", torch.ones(5))
            except Exception as error:
                failed.append(error)

        with tsleuth.capture(model, self.path):
            threads = [threading.Thread(target=work) for _ in range(4)]
            for one in threads:
                one.start()
            for one in threads:
                one.join()
        tensors = self.load()
        self.assertEqual((failed, len(tensors)), ([], 160))
        self.assertTrue(all(one.values() == [1] * 5 for name, one in tensors.items() if name.startswith("mine")))

    def test_taps_are_named_from_their_module(self):
        class Tapping(nn.Module):
            def forward(self, x):
                tsleuth.tap("inside", x)
                tsleuth.tap("/absolute", x)
                return x

        tensors = self.capture(nn.Sequential(Tapping(), Tapping()), torch.ones(1))
        self.assertEqual(list(tensors), ["0.inside", "absolute", "0", "1.inside", "absolute#2", "1", "output"])

    def test_wrappers(self):
        class Wrapper(nn.Module):
            def __init__(self, inner):
                super().__init__()
                self._orig_mod = inner

            def forward(self, *args):
                return self._orig_mod(*args)

        Wrapper.__name__ = "OptimizedModule"
        model = nn.Sequential(Wrapper(Two()))
        self.assertEqual(list(self.capture(model, torch.ones(1, 3))), ["0.first", "0.second", "0", "output"])
        self.assertEqual(list(self.capture(Wrapper(Two()), torch.ones(1, 3))), ["first", "second", "output"])
        if not hasattr(getattr(torch, "compiler", None), "set_stance"):
            self.assertTrue(any("compiled" in one for one in self.warned()))

    def test_parallel_wrapper(self):
        model = nn.DataParallel(Two())  # without a GPU it calls its module as it is
        self.assertEqual(list(self.capture(model, torch.ones(1, 3))), ["first", "second", "output"])

    def test_ranks(self):
        os.environ.update(RANK="3", WORLD_SIZE="8")
        self.addCleanup(lambda: [os.environ.pop(name) for name in ("RANK", "WORLD_SIZE")])
        with tsleuth.capture(None, self.path) as trace:
            tsleuth.tap("x", torch.ones(1))
        self.assertEqual(trace.path, str(self.folder / "trace.rank3.safetensors"))
        self.path = self.folder / "trace.rank3.safetensors"
        self.load()
        self.assertEqual((self.run_data["rank"], self.run_data["world_size"]), (3, 8))

    def test_distributed(self):
        if not torch.distributed.is_available():
            self.skipTest("this torch has no torch.distributed")
        store = self.folder / "store"
        text = ("import sys, torch, tsleuth\n"
                "torch.distributed.init_process_group('gloo', init_method='file://' + sys.argv[1], rank=int(sys.argv[2]),"
                " world_size=2)\n"
                "with tsleuth.capture(None, 'out.safetensors'):\n"
                "    tsleuth.tap('x', torch.full((2,), float(sys.argv[2])))\n")
        (self.folder / "ranks.py").write_text(text)
        jobs = [subprocess.Popen([sys.executable, "ranks.py", str(store), str(rank)], cwd=self.folder,
                                 stderr=subprocess.PIPE, env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"})
                for rank in range(2)]
        said = [job.communicate(timeout=120)[1] for job in jobs]
        self.assertEqual([job.returncode for job in jobs], [0, 0], said)
        for rank in range(2):
            tensors, _ = strict.load(self.folder / f"out.rank{rank}.safetensors")
            self.assertEqual(tensors["x"].values(), [rank, rank])

    @unittest.skipUnless(hasattr(os, "fork"), "no fork here")
    def test_a_forked_child_leaves_the_file_alone(self):
        with tsleuth.capture(None, self.path):
            tsleuth.tap("x", torch.ones(1))
            child = os.fork()
            if not child:
                tsleuth.tap("child", torch.ones(1))
                for one in list(ACTIVE):
                    one.stop()
                os._exit(0)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            self.assertEqual(set(strict.load(self.path)[0]), {"x", SPARE})
            tsleuth.tap("y", torch.ones(1))
        self.assertEqual(list(self.load()), ["x", "y"])

    def test_killed(self):
        # All of it fits into the first spare part: while the file is made longer, header and length disagree for an
        # instant, and a test must not depend on missing that.
        text = ("import time, torch, tsleuth\n"
                "trace = tsleuth.capture(None, 'trace.safetensors').start()\n"
                "for index in range(5000):\n"
                "    tsleuth.tap(f'model.layers.{index}.mlp', torch.full((32,), float(index)))\n"
                "    if index == 20: print('ready', flush=True)\n"
                "time.sleep(600)\n")
        (self.folder / "kill.py").write_text(text)
        for patience in (0.002, 0.02, 0.1):
            job = subprocess.Popen([sys.executable, "kill.py"], cwd=self.folder, stdout=subprocess.PIPE)
            self.assertEqual(job.stdout.readline(), b"ready\n")
            time.sleep(patience)
            job.send_signal(signal.SIGKILL)
            job.wait()
            job.stdout.close()
            tensors, _ = strict.load(self.path)
            tensors.pop(SPARE)
            self.assertGreater(len(tensors), 20)
            for index, (name, one) in enumerate(tensors.items()):
                self.assertEqual((name, one.values()), (f"model.layers.{index}.mlp", [index] * 32))

    def test_killed_while_the_metadata_change(self):
        """Every step has token ids, and every tensor a note."""
        text = ("import torch, tsleuth\n"
                "from tsleuth.session import Capture\n"
                "Capture._flush = lambda self: self._file.update(self._metadata())\n"
                "trace = tsleuth.capture(None, 'trace.safetensors').start()\n"
                "for index in range(1000000):\n"
                "    trace.step = index\n"
                "    trace.token_ids(torch.arange(index % 50))\n"
                "    tsleuth.tap('/x', torch.full((8,), index, dtype=torch.complex64))\n"
                "    if index == 20: print('ready', flush=True)\n")
        (self.folder / "kill.py").write_text(text)
        for turn in range(8):
            job = subprocess.Popen([sys.executable, "kill.py"], cwd=self.folder, stdout=subprocess.PIPE)
            self.assertEqual(job.stdout.readline(), b"ready\n")
            time.sleep(0.013 * turn)
            job.send_signal(signal.SIGKILL)
            job.wait()
            job.stdout.close()
            tensors, metadata = strict.load(self.path)
            tensors.pop(SPARE)
            self.assertGreater(len(tensors), 20)
            self.assertEqual(list(tensors), ["x"] + [f"step_{index}.x" for index in range(1, len(tensors))])
            for index, one in enumerate(tensors.values()):
                self.assertEqual(one.values(), [index, 0] * 8)
            noted = [name for name in tensors if f"tsleuth.note.{name}" in metadata]
            self.assertGreaterEqual(len(noted), len(tensors) - 1)

    @needs_program
    def test_the_program_reads_all_that_a_trace_says(self):
        """Under the keys that the capture for C uses as well."""
        import tiny_model

        def look(unfinished):
            done = subprocess.run([PROGRAM, "inspect", "--json", "-", str(self.path)], stdout=subprocess.PIPE)
            self.assertEqual(done.returncode, 2)  # something is missing
            report = json.loads(done.stdout)
            self.assertEqual([one["name"] for one in report["tensors"]],
                             ["z", "wave", "model.embed_tokens", "odd \"name\"\nü", "empty"])
            by_name = {one["name"]: one for one in report["tensors"]}
            self.assertEqual(by_name["wave"]["attributes"], {"complex": "torch.complex64"})
            self.assertEqual(by_name["z"]["attributes"], {"axes": "tokens,channels"})
            self.assertEqual(by_name["empty"]["shape"], [0, 3])
            self.assertEqual(report["order"], "order given in the metadata")
            (skip,) = report["skipped"]
            self.assertIn("meta device", skip["reason"])
            self.assertIn("nowhere", json.dumps(skip))
            facts = {one["key"]: one["value"] for one in report["metadata"]}
            run = json.loads(facts["tsleuth.run"])
            self.assertEqual(run["tokens"], tiny_model.IDS[0])
            self.assertEqual("tsleuth.spare" in facts, unfinished)

        model = tiny_model.make()
        trace = tsleuth.capture(model, self.path, include=r"^(z|wave|odd.*|empty|nowhere|model\.embed_tokens)").start()
        tsleuth.tap("z", torch.ones(2, 2), axes="tokens,channels")
        tsleuth.tap("wave", torch.full((2,), 1j, dtype=torch.complex64))
        tsleuth.tap("nowhere", torch.ones(3, device="meta"))
        with torch.no_grad():
            model(input_ids=torch.tensor(tiny_model.IDS))
        tsleuth.tap('odd "name"\nü', torch.ones(1))
        tsleuth.tap("empty", torch.ones(0, 3))
        trace._file.update(trace._metadata())
        look(True)
        trace.stop()
        look(False)

    @needs_program
    def test_other_tokens_are_told(self):
        import tiny_model
        paths = [self.folder / "a.safetensors", self.folder / "b.safetensors"]
        for path, change in zip(paths, (0, 1)):
            with tsleuth.capture(tiny_model.make(), path), torch.no_grad():
                trace = ACTIVE[-1]
                trace.model(input_ids=torch.tensor(tiny_model.IDS) + change)
        done = subprocess.run([PROGRAM, *map(str, paths)], stdout=subprocess.PIPE)
        self.assertIn(b"other token ids", done.stdout)
        done = subprocess.run([PROGRAM, str(paths[0]), str(paths[0])], stdout=subprocess.PIPE)
        self.assertNotIn(b"other token ids", done.stdout)


@needs_torch
@needs_program
class Compared(TorchCase):
    def traced(self, name, **changes):
        import tiny_model
        options = changes.pop("options", {})
        change = changes.pop("change", None)
        model = tiny_model.make(**changes)
        if change:
            change(model)
        path = self.folder / f"{name}.safetensors"
        with tsleuth.capture(model, path, functions=True, **options), torch.no_grad():
            model(input_ids=torch.tensor(tiny_model.IDS))
        return path

    def test_names_of_functions(self):
        tensors, _ = strict.load(self.traced("a"))
        names = [name for name in tensors if "layers.1.self_attn" in name]
        self.assertEqual(names, ["model.layers.1.self_attn." + name for name in (
            "q_proj", "k_proj", "v_proj", "q_rope", "k_rope", "attn_scores_masked", "attn_probs", "attn_context",
            "o_proj", "0", "1")])
        names = [name for name in tensors if "layers.1" in name and "self_attn" not in name]
        self.assertEqual(names, ["model.layers.1" + name for name in (
            ".input_layernorm", ".attn_residual", ".post_attention_layernorm", ".mlp.gate_proj", ".mlp.act_fn",
            ".mlp.up_proj", ".mlp.intermediate", ".mlp.down_proj", ".mlp", "")])
        self.assertEqual(list(tensors)[-2:], ["lm_head", "logits"])
        self.assertIn("model.rotary_emb.0", tensors)

    def test_functions_from_the_table(self):
        import tiny_model
        tensors, _ = strict.load(self.traced("a", implementation="other"))
        self.assertIn("model.layers.1.self_attn.attn_context", tensors)
        self.assertEqual(tiny_model.modeling.ALL_ATTENTION_FUNCTIONS._local_mapping, {})
        self.assertIs(tiny_model.modeling.eager_attention_forward, tiny_model.eager_attention_forward)
        self.assertIs(tiny_model.modeling.apply_rotary_pos_emb, tiny_model.apply_rotary_pos_emb)
        self.assertNotIn("wrapped", nn.functional.softmax.__qualname__)

    def test_functions_by_name(self):
        import tiny_model
        model = tiny_model.make()
        with tsleuth.capture(model, self.path, include="layers.0", functions={
                "transformers.models.tiny.modeling_tiny.apply_rotary_pos_emb": ("turned_q", "turned_k")}):
            model(input_ids=torch.tensor(tiny_model.IDS))
        names = list(self.load())
        self.assertIn("model.layers.0.self_attn.turned_q", names)
        self.assertNotIn("model.layers.0.self_attn.attn_context", names)
        with self.assertRaisesRegex(AttributeError, "no function nothing"):
            tsleuth.capture(model, self.path, functions=["json.nothing"]).start()
        self.assertEqual(ACTIVE, [])

    def test_the_same(self):
        report = tsleuth.compare(self.traced("a"), self.traced("b"))
        self.assertEqual((report.verdict, bool(report), report.first_divergence), ("match", True, None))
        self.assertIn("match", str(report))

    def test_half_precision_is_noise(self):
        report = tsleuth.compare(self.traced("a"), self.traced("b", change=lambda model: model.bfloat16()))
        self.assertNotEqual(report.verdict, "differ", str(report))

    def check(self, expected, cause, place=0, **changes):
        """`cause` stands at this place of the list."""
        a, b = self.traced("a"), self.traced("b", **changes)
        report = tsleuth.compare(a, b)
        self.assertEqual(report.verdict, "differ")
        self.assertEqual(report.first_divergence["name"], expected, str(report))
        self.assertEqual(report.causes[place]["id"], cause, str(report))
        self.assertIn(expected, str(report))
        explanation = tsleuth.explain(a, b, expected)
        self.assertEqual(explanation.causes[place]["id"], cause)
        self.assertIn(cause, str(explanation))

    def test_planted_eps(self):
        def change(model):
            model.model.layers[1].post_attention_layernorm.eps = 0.3
        self.check("model.layers.1.post_attention_layernorm", "row-scaled", change=change)

    def test_planted_activation(self):
        def change(model):
            model.model.layers[2].mlp.act_fn = nn.GELU()
        self.check("model.layers.2.mlp.act_fn", "activation", change=change)

    def test_planted_residual(self):
        def change(model):
            layer = model.model.layers[1]

            def forward(hidden_states, position_embeddings=None, mask=None):
                normed = layer.input_layernorm(hidden_states)
                attended = layer.self_attn(normed, position_embeddings, mask)[0]
                return hidden_states + attended + layer.mlp(layer.post_attention_layernorm(attended))

            layer.forward = forward
        # Without one of its two terms a sum is the other one: "skipped-op" is as true, and stands first.
        self.check("model.layers.1.attn_residual", "term-missing", place=1, change=change)

    def test_planted_rotation(self):
        import tiny_model

        def change(model):
            attention = model.model.layers[1].self_attn
            rotary = tiny_model.Rotary(8, 500.0)
            forward = attention.forward

            def turned(hidden_states, position_embeddings=None, mask=None):
                return forward(hidden_states, rotary(torch.arange(hidden_states.shape[1])), mask)

            attention.forward = turned
        self.check("model.layers.1.self_attn.q_rope", "rotation", change=change)

    def shards(self, whole, folder, change=None):
        """What two ranks of a tensor-parallel run would write."""
        folder.mkdir()
        for rank in range(2):
            with tsleuth.capture(None, folder / "run.safetensors", rank=rank):
                for name, one in whole.items():
                    value = torch.tensor(one.values()).reshape(one.shape)
                    if any(word in name for word in ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "act_fn")):
                        value = value.chunk(2, -1)[rank]
                    tsleuth.tap(name, change(name, rank, value) if change else value)
        return folder

    def test_ranks_are_put_together(self):
        path = self.traced("a", options={"include": "layers"})
        whole, _ = strict.load(path)
        report = tsleuth.compare(path, self.shards(whole, self.folder / "good"))
        self.assertEqual((report.verdict, len(report)), ("match", len(whole)))

        def change(name, rank, value):
            return value * 2 if rank == 1 and name == "model.layers.1.mlp.up_proj" else value

        report = tsleuth.compare(path, self.shards(whole, self.folder / "bad", change))
        self.assertEqual((report.verdict, report.first_divergence["name"]), ("differ", "model.layers.1.mlp.up_proj"))

    def test_generate(self):
        import tiny_model
        model = tiny_model.make()
        with tsleuth.capture(model, self.path, include=r"layers\.0\.mlp$|logits"), torch.no_grad():
            ids = model.generate(torch.tensor(tiny_model.IDS), 3)
        tensors = self.load()
        self.assertEqual(list(tensors), ["model.layers.0.mlp", "logits", "step_1.model.layers.0.mlp", "step_1.logits",
                                         "step_2.model.layers.0.mlp", "step_2.logits"])
        self.assertEqual(tensors["step_2.logits"].shape, (1, 10, 50))
        self.assertEqual(self.run_data["tokens"], tiny_model.IDS[0])
        self.assertEqual(self.run_data["step_tokens"]["2"], ids[0, :10].tolist())
        names = [one["name"] for one in self.inspect(self.path)["tensors"]]
        self.assertEqual(names, list(tensors))
