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
from support import HAVE_TORCH, PROGRAM, TorchCase, needs_program, needs_torch
from tsleuth import session
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

    def test_objects_that_are_caches(self):
        class CacheLayerMixin:
            pass

        class DynamicLayer(CacheLayerMixin):
            def __init__(self, x):
                self.keys, self.values, self.is_initialized, self._hidden = x, x + 1, True, x

        class DynamicCache:
            def __init__(self, x):
                self.layers = [DynamicLayer(x)]
                self.offloading = False

        class Attends(nn.Module):
            def forward(self, x):
                return x, DynamicCache(x)

        class Outer(nn.Module):
            def __init__(self):
                super().__init__()
                self.attends = Attends()

            def forward(self, x):
                return {"logits": x, "past_key_values": self.attends(x)[1]}

        self.assertEqual(list(self.capture(Outer(), torch.zeros(2))), ["attends.0", "logits"])
        tensors = self.capture(Outer(), torch.zeros(2), caches=True)
        self.assertEqual(list(tensors), ["attends.0", "attends.1.layers.0.keys", "attends.1.layers.0.values", "logits",
                                         "past_key_values.layers.0.keys", "past_key_values.layers.0.values"])
        self.assertEqual(tensors["past_key_values.layers.0.values"].values(), [1, 1])

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
        """The model goes on, what was written stays, what is missing is named, and what fits again is stored."""
        model = Two()
        trace = tsleuth.capture(model, self.path)
        with trace:
            model(torch.ones(1, 3))
            add = trace._file.add

            def full(name, *args):
                if name == "step_1.second":
                    raise OSError(28, "no space")
                add(name, *args)

            trace._file.add = full
            self.assertEqual(model(torch.ones(1, 3)).shape, (1, 2))
            self.assertTrue(any("from its tensor 5 on" in one for one in self.warned()), self.warned())
        self.assertEqual(list(self.load()), ["first", "second", "output", "step_1.first", "step_1.output"])
        self.assertEqual(self.skipped, {"step_1.second": "no space"})
        self.assertEqual((trace.lost, trace.count, trace.error.errno), (1, 5, 28))
        self.assertTrue(any("1 of 6 tensors could not be stored" in one for one in self.warned()), self.warned())
        with self.assertRaisesRegex(OSError, "no space"):
            trace = tsleuth.capture(None, self.path).start()
            trace._file.add = full
            tsleuth.tap("step_1.second", torch.ones(1))
            trace.stop(raising=True)

    def test_a_limit_on_file_sizes(self):
        """A file system that really says no, in the middle of a run."""
        text = ("import resource, torch, tsleuth, warnings\n"
                "warnings.simplefilter('ignore')\n"
                "model = torch.nn.Sequential(*[torch.nn.Identity() for _ in range(40)])\n"
                "with tsleuth.capture(model, 'out.safetensors') as trace:\n"
                "    resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, 4 << 20))\n"
                "    model(torch.arange(200000, dtype=torch.int32))\n"
                "    tsleuth.tap('small', torch.ones(3))\n"
                "print(trace.count, trace.lost)\n")
        done = self.script(text)
        self.assertEqual(done.returncode, 0, done.stderr)
        count, missing = map(int, done.stdout.split())
        tensors, metadata = strict.load(self.folder / "out.safetensors")
        self.assertEqual((len(tensors), len(support.lost(metadata)), count + missing), (count, missing, 42))
        self.assertTrue(2 <= count <= 4, count)
        self.assertEqual(tensors["small"].values(), [1, 1, 1])
        self.assertEqual(tensors["0"].values()[-1], 199999)

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

    def test_ranks_of_launchers(self):
        """The same as tsleuth_dump.h finds: tests/capture/run has these cases too."""
        names = ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE",
                 "SLURM_PROCID", "SLURM_NTASKS")
        before = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(before)))
        for expected, variables in (
                ((0, 1), dict(RANK="0", WORLD_SIZE="1")), ((0, 1), dict(RANK="three")), ((0, 1), dict(RANK="-1")),
                ((0, 1), dict(SLURM_PROCID="0", SLURM_NTASKS="1")), ((0, 1), dict(RANK="1", WORLD_SIZE="two")),
                ((12, None), dict(OMPI_COMM_WORLD_RANK="12")), ((12, None), dict(PMI_RANK="12")),
                ((2, 4), dict(SLURM_PROCID="2", SLURM_NTASKS="4")),
                ((9, 16), dict(RANK="9", WORLD_SIZE="16", SLURM_PROCID="1", SLURM_NTASKS="2")),
                ((3, 4), dict(RANK="0", WORLD_SIZE="1", SLURM_PROCID="3", SLURM_NTASKS="4")),
                ((5, 8), dict(OMPI_COMM_WORLD_RANK="5", OMPI_COMM_WORLD_SIZE="8", SLURM_PROCID="0"))):
            with self.subTest(**variables):
                for name in names:
                    os.environ.pop(name, None)
                os.environ.update(variables)
                self.assertEqual(session.find_rank(), expected)

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
        self.assertIn(b"different token ids", done.stdout)
        done = subprocess.run([PROGRAM, str(paths[0]), str(paths[0])], stdout=subprocess.PIPE)
        self.assertNotIn(b"different token ids", done.stdout)
