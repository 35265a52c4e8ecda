"""Arrays of any library through tap(), without torch: plain buffers, numpy, and stand-ins for what is not installed."""
import array
import ctypes
import json
import struct
import sys
import types
from collections import namedtuple
from dataclasses import dataclass

import strict
import support
import tsleuth
from support import Case, needs_numpy


class Tapped(Case):
    def capture(self, **values):
        with tsleuth.capture(None, self.path) as trace:
            for name, value in values.items():
                self.assertIs(tsleuth.tap(name, value), value)
        tensors, metadata = strict.load(self.path)
        self.notes = support.notes(metadata)
        self.skipped = support.lost(metadata)
        self.assertEqual(trace.count, len(tensors))
        return tensors


class Taps(Tapped):
    def test_nothing_happens_without_a_capture(self):
        marker = object()
        self.assertIs(tsleuth.tap("x", marker), marker)

    def test_numbers(self):
        tensors = self.capture(a=1.5, b=-3, c=True)
        self.assertEqual([(one.dtype, one.shape, one.values()) for one in tensors.values()],
                         [("F64", (), [1.5]), ("I64", (), [-3]), ("BOOL", (), [True])])

    def test_a_number_that_does_not_fit(self):
        tensors = self.capture(a=1 << 70, b=1)
        self.assertEqual(list(tensors), ["b"])
        self.assertIn("OverflowError", self.skipped["a"])

    def test_buffers(self):
        grid = memoryview(array.array("f", range(6))).cast("B").cast("f", (2, 3))
        tensors = self.capture(f=array.array("d", [1, 2]), grid=grid, half=grid[1:], strided=memoryview(b"abcdef")[::2],
                               c=(ctypes.c_int32 * 3)(7, 8, 9), none=array.array("h"))
        self.assertEqual(tensors["f"].values(), [1, 2])
        self.assertEqual((tensors["grid"].shape, tensors["grid"].values()), ((2, 3), [0, 1, 2, 3, 4, 5]))
        self.assertEqual((tensors["half"].shape, tensors["half"].values()), ((1, 3), [3, 4, 5]))
        self.assertEqual(tensors["strided"].data, b"ace")
        self.assertEqual((tensors["c"].dtype, tensors["c"].values()), ("I32", [7, 8, 9]))
        self.assertEqual((tensors["none"].dtype, tensors["none"].shape), ("I16", (0,)))

    def test_nests(self):
        Pair = namedtuple("Pair", "left right")

        @dataclass
        class Output:
            hidden: object
            extra: object = None

        one, two = array.array("f", [1]), array.array("f", [2])
        tensors = self.capture(t=(one, two), d={"k": one, "n": [two, {"m": one}]}, p=Pair(one, two), o=Output(two),
                               single=(one,), words=("a", b"b", None, 3))
        self.assertEqual({name: one.values()[0] for name, one in tensors.items()},
                         {"t.0": 1, "t.1": 2, "d.k": 1, "d.n.0": 2, "d.n.1.m": 1, "p.left": 1, "p.right": 2,
                          "o.hidden": 2, "single": 1})

    def test_a_nest_without_end(self):
        nest = []
        nest += [nest, array.array("f", [1])]
        self.assertGreater(len(self.capture(x=nest)), 0)

    def test_array_interface(self):
        memory = (ctypes.c_float * 4)(1, 2, 3, 4)

        class Interface:
            __array_interface__ = {"shape": (2, 2), "typestr": "<f4", "version": 3,
                                   "data": (ctypes.addressof(memory), True)}

        tensors = self.capture(x=Interface())
        self.assertEqual((tensors["x"].dtype, tensors["x"].shape, tensors["x"].values()), ("F32", (2, 2), [1, 2, 3, 4]))

    def test_mlx(self):
        """As mlx.core.array shows itself: a buffer, and bfloat16 only as another type's bits."""
        class Bits(ctypes.Array):
            _type_, _length_ = ctypes.c_uint16, 2
            dtype, shape = "mlx.core.uint16", (2,)

        class Floats(ctypes.Array):
            _type_, _length_ = ctypes.c_float, 2
            dtype, shape = "mlx.core.float32", (2,)

        class Half:
            dtype, shape = "mlx.core.bfloat16", (2,)

            def view(self, kind):
                assert kind == "uint16"
                return Bits(0x3f80, 0xc000)

        Half.__module__ = Bits.__module__ = Floats.__module__ = "mlx.core"
        core = types.ModuleType("mlx.core")
        core.uint16 = "uint16"
        sys.modules["mlx.core"] = core
        self.addCleanup(sys.modules.pop, "mlx.core")
        tensors = self.capture(x=Floats(3, 4), y=Half())
        self.assertEqual((tensors["x"].dtype, tensors["x"].values()), ("F32", [3, 4]))
        self.assertEqual((tensors["y"].dtype, tensors["y"].values()), ("BF16", [1, -2]))

    def test_what_cannot_be_read_does_not_stop_the_run(self):
        class Tracer:
            __dlpack__ = None

            def numpy(self):
                raise RuntimeError("no values while tracing\nsecond line")

        tensors = self.capture(x=Tracer(), y=array.array("f", [1]))
        self.assertEqual(list(tensors), ["y"])
        self.assertIn("no values while tracing", self.skipped["x"])
        self.assertTrue(any("1 of 2 tensors could not be stored" in one for one in self.warned()))


@needs_numpy
class Numpy(Tapped):
    def test_types(self):
        import numpy as np
        for dtype, name in (("f8", "F64"), ("f4", "F32"), ("f2", "F16"), ("i8", "I64"), ("i4", "I32"), ("i2", "I16"),
                            ("i1", "I8"), ("u8", "U64"), ("u4", "U32"), ("u2", "U16"), ("u1", "U8"), ("?", "BOOL")):
            with self.subTest(dtype):
                values = np.array([[1, 0, 1], [0, 1, 1]], dtype)
                tensors = self.capture(x=values)
                self.assertEqual((tensors["x"].dtype, tensors["x"].shape), (name, (2, 3)))
                self.assertEqual(tensors["x"].data, values.tobytes())

    def test_layouts(self):
        import numpy as np
        grid = np.arange(24, dtype="f4").reshape(2, 3, 4)
        tensors = self.capture(t=grid.T, f=np.asfortranarray(grid), s=grid[:, ::-1, 1::2], scalar=np.float32(5),
                               zero=np.array(6.0), empty=np.zeros((0, 3), "f4"), big=grid.astype(">f4"),
                               one=np.ones((1, 1, 1), "i4"))
        for name, expected in (("t", grid.T), ("f", grid), ("s", grid[:, ::-1, 1::2]), ("big", grid)):
            self.assertEqual(tensors[name].shape, expected.shape)
            self.assertEqual(tensors[name].values(), expected.reshape(-1).tolist())
        self.assertEqual((tensors["scalar"].shape, tensors["scalar"].values()), ((), [5]))
        self.assertEqual((tensors["zero"].shape, tensors["zero"].values()), ((), [6]))
        self.assertEqual((tensors["empty"].shape, tensors["empty"].data), ((0, 3), b""))
        self.assertEqual(tensors["one"].shape, (1, 1, 1))

    def test_complex(self):
        import numpy as np
        tensors = self.capture(c=np.array([1 + 2j, 3 - 4j], "c8"), d=np.array([[5j]], "c16"))
        self.assertEqual((tensors["c"].dtype, tensors["c"].shape, tensors["c"].values()), ("F32", (2, 2), [1, 2, 3, -4]))
        self.assertEqual((tensors["d"].dtype, tensors["d"].shape, tensors["d"].values()), ("F64", (1, 1, 2), [0, 5]))
        self.assertEqual(self.notes["c"], {"complex": "complex64"})

    def test_long_double(self):
        import numpy as np
        tensors = self.capture(x=np.array([1.5], np.longdouble))
        self.assertEqual((tensors["x"].dtype, tensors["x"].values()), ("F64", [1.5]))
        self.assertIn("stored_as", self.notes["x"])

    def test_no_numbers(self):
        import numpy as np
        tensors = self.capture(o=np.array([object()]), s=np.array(["a"]), t=np.array(["2020-01-01"], "M8[D]"),
                               r=np.zeros(2, [("a", "f4"), ("b", "i4")]), good=np.zeros(1, "f4"))
        self.assertEqual(list(tensors), ["good"])
        self.assertEqual(set(self.skipped), {"o", "s", "t", "r"})

    def test_masked(self):
        import numpy as np
        tensors = self.capture(m=np.ma.array([1.0, 2.0], mask=[0, 1]))
        self.assertEqual(tensors["m"].shape, (2,))
        self.assertEqual(self.notes["m"], {"masked": True})

    def test_array_method(self):
        """As a JAX array shows itself."""
        import numpy as np

        class Jax:
            def __array__(self, dtype=None, copy=None):
                return np.array([[1.0, 2.0]], "f4")

        tensors = self.capture(x=Jax())
        self.assertEqual((tensors["x"].shape, tensors["x"].values()), ((1, 2), [1, 2]))

    def test_strided_interface(self):
        import numpy as np
        memory = np.arange(6, dtype="f4")

        class Interface:
            __array_interface__ = {**memory[::2].__array_interface__}

        self.assertEqual(self.capture(x=Interface())["x"].values(), [0, 2, 4])

    def test_changed_after_the_tap(self):
        import numpy as np
        with tsleuth.capture(None, self.path):
            values = np.ones(3, "f4")
            tsleuth.tap("before", values)
            values += 1
            tsleuth.tap("after", values)
        tensors, _ = strict.load(self.path)
        self.assertEqual((tensors["before"].values(), tensors["after"].values()), ([1, 1, 1], [2, 2, 2]))


class Repeated(Case):
    def test_numbers(self):
        with tsleuth.capture(None, self.path):
            for index in range(3):
                tsleuth.tap("x", float(index))
            tsleuth.tap("y#2", 1.0)
            tsleuth.tap("y", 2.0)
            tsleuth.tap("y", 3.0)
            tsleuth.tap("__metadata__", 4.0)
            tsleuth.tap("/x", 5.0)
        tensors, _ = strict.load(self.path)
        self.assertEqual({name: one.values()[0] for name, one in tensors.items()},
                         {"x": 0, "x#2": 1, "x#3": 2, "y#2": 1, "y": 2, "y#3": 3, "__metadata__#2": 4, "x#4": 5})

    def test_steps_by_hand(self):
        with tsleuth.capture(None, self.path) as trace:
            for _ in range(3):
                trace.next_step()
                tsleuth.tap("logits", 1.0)
        self.assertEqual(list(strict.load(self.path)[0]), ["logits", "step_1.logits", "step_2.logits"])

    def test_ten_thousand(self):
        with tsleuth.capture(None, self.path) as trace:
            for index in range(10000):
                tsleuth.tap(f"model.layers.{index}.self_attn.q_proj", 0.5)
            strict.load(self.path)
        tensors, metadata = strict.load(self.path)
        self.assertEqual((trace.count, len(tensors)), (10000, 10000))
        self.assertEqual(json.loads(metadata["tsleuth.order"])[9999], "model.layers.9999.self_attn.q_proj")
        self.assertEqual(tensors["model.layers.4321.self_attn.q_proj"].data, struct.pack("<d", 0.5))
