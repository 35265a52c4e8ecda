"""The trace file by itself: what it holds at every moment, and what it refuses to overwrite."""
import json
import os
import struct
import unittest
from unittest import mock

import strict
from support import Case, needs_program
from tsleuth import writer
from tsleuth.writer import SPARE, TraceFile

RUN = {"tsleuth.run": "{}"}


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


class Growing(Case):
    def test_valid_after_every_tensor(self):
        file = TraceFile(self.path, RUN)
        strict.load(self.path)
        for index in range(50):
            file.add(f"layer.{index}", "F32", (1, 2), floats(index, -index))
            tensors, metadata = strict.load(self.path)
            self.assertEqual([name for name in tensors if name != SPARE], [f"layer.{i}" for i in range(index + 1)])
            self.assertEqual(tensors[f"layer.{index}"].values(), [index, -index])
            self.assertEqual(metadata["tsleuth.run"], "{}")
        file.close()
        tensors, metadata = strict.load(self.path)
        self.assertNotIn(SPARE, tensors)
        self.assertEqual(json.loads(metadata["tsleuth.order"]), list(tensors))
        self.assertEqual(tensors["layer.49"].values(), [49, -49])

    def test_valid_between_data_and_header(self):
        file = TraceFile(self.path, RUN)
        file.add("one", "F32", (1,), floats(1))
        write = file._write
        seen = []

        def stop_at_header(at, data):
            if at < file._reserve:
                raise OSError("killed here")
            write(at, data)
            seen.append(at)

        with mock.patch.object(file, "_write", stop_at_header), self.assertRaises(OSError):
            file.add("two", "F32", (1,), floats(2))
        self.assertTrue(seen)
        tensors, _ = strict.load(self.path)
        self.assertEqual(set(tensors), {"one", SPARE})
        file.add("two", "F32", (1,), floats(3))  # the place is used again
        file.close()
        tensors, _ = strict.load(self.path)
        self.assertEqual({name: one.values() for name, one in tensors.items()}, {"one": [1], "two": [3]})

    def test_valid_after_every_write(self):
        """Not only after every tensor: a kill can come behind each write, and none straddles two pages."""
        file = TraceFile(self.path, RUN)
        write, writes = file._write, []

        def watched(at, data):
            write(at, data)
            size = memoryview(data).nbytes
            if len(file.names) > 1:
                writes.append((at, size))
            strict.load(self.path, aligned=False)

        file._write = watched
        for index in range(150):
            file.add(f"model.layers.{index}.self_attn.q_proj", "F32", (2,), floats(index, 1))
        headers = [(at, size) for at, size in writes if at < file._reserve]
        self.assertGreaterEqual(len(headers), 149)
        self.assertTrue(all(at // 4096 == (at + size - 1) // 4096 for at, size in headers))
        self.assertGreater(headers[-1][0], 3 * 4096)
        file._write = write
        file.close()
        self.assertEqual(len(strict.load(self.path)[0]), 150)

    def test_valid_after_every_write_of_metadata(self):
        """Notes and the run's description change while the file is in use; small files may be replaced, large not."""
        for below in (4, writer.COMPACT_BELOW):
            with mock.patch.object(writer, "COMPACT_BELOW", below), mock.patch.object(writer, "LARGE_RESERVE", 1 << 17):
                file = TraceFile(self.path, RUN, reserve=1 << 17)
                file.add("x", "F32", (2,), floats(1, 2))
                inode = self.path.stat().st_ino
                write, widest = file._write, [0]

                def watched(at, data):
                    write(at, data)
                    if self.path.stat().st_ino == os.fstat(file._file.fileno()).st_ino:
                        widest[0] = max(widest[0], (at + memoryview(data).nbytes - 1) // 4096 - at // 4096)
                    tensors, _ = strict.load(self.path, aligned=False)
                    self.assertEqual(tensors["x"].values(), [1, 2])

                file._write = watched
                for index in range(200):
                    file.update({f"tsleuth.note.{index}": "n" * (index % 70), "tsleuth.run": "r" * index})
                file.update({"tsleuth.run": "y" * 10000, "tsleuth.note.0": "other"})
                _, metadata = strict.load(self.path)
                self.assertEqual(metadata["tsleuth.note.69"], "n" * 69)
                self.assertEqual(widest[0], 0)
                self.assertEqual(self.path.stat().st_ino == inode, below == 4)
                self.assertEqual(metadata["tsleuth.run"], "r" * 199 if below == 4 else "y" * 10000)
                file._write = write
                file.close()
                tensors, metadata = strict.load(self.path)
                self.assertEqual((metadata["tsleuth.run"], metadata["tsleuth.note.0"]), ("y" * 10000, "other"))
                self.assertEqual(list(tensors), ["x"])

    def test_grows_beyond_the_spare_part(self):
        file = TraceFile(self.path, RUN)
        big = bytes(range(256)) * 81920  # 20 MiB; two are more than the first spare part
        for index in range(3):
            file.add(f"big{index}", "U8", (len(big),), big)
            self.assertEqual(strict.load(self.path)[0][f"big{index}"].data, big)
        file.close()
        tensors, _ = strict.load(self.path)
        self.assertEqual(set(one.data for one in tensors.values()), {big})

    def test_a_small_trace_is_never_made_longer(self):
        """There is no moment in which length and header disagree."""
        file = TraceFile(self.path, RUN)
        size = os.path.getsize(self.path)
        for index in range(31):
            file.add(f"x{index}", "U8", (1 << 20,), bytes([index]) * (1 << 20))
            self.assertEqual(os.path.getsize(self.path), size)
        file.close()
        self.assertEqual(len(strict.load(self.path)[0]), 31)

    def test_header_outgrows_its_reserve(self):
        file = TraceFile(self.path, RUN, reserve=4096)
        for index in range(400):
            file.add(f"a.rather.long.name.for.a.tensor.{index}", "F32", (2,), floats(index, 0.5))
            if index % 37 == 0:
                strict.load(self.path)
        self.assertGreater(file._reserve, 16384)
        file.close()
        tensors, _ = strict.load(self.path)
        self.assertEqual(len(tensors), 400)
        for index in range(400):
            self.assertEqual(tensors[f"a.rather.long.name.for.a.tensor.{index}"].values(), [index, 0.5])
        self.assertEqual(os.listdir(self.folder), [self.path.name])

    def test_small_files_carry_no_reserve(self):
        file = TraceFile(self.path, RUN)
        file.add("x", "F32", (1,), floats(1))
        file.close()
        self.assertLess(self.path.stat().st_size, 512)

    def test_large_files_are_closed_in_place(self):
        with mock.patch.object(writer, "COMPACT_BELOW", 4):
            file = TraceFile(self.path, RUN)
            file.add("x", "F32", (2,), floats(1, 2))
            with mock.patch.object(file, "_rewrite", side_effect=AssertionError):
                file.close()
        self.assertEqual(self.path.stat().st_size, writer.LARGE_RESERVE + 8)
        tensors, metadata = strict.load(self.path)
        self.assertEqual(tensors["x"].values(), [1, 2])
        self.assertEqual(metadata["tsleuth.order"], "offset")

    def test_close_without_space_for_a_copy(self):
        file = TraceFile(self.path, RUN)
        file.add("x", "F32", (2,), floats(1, 2))
        with mock.patch.object(file, "_rewrite", side_effect=OSError(28, "no space")):
            file.close()
        self.assertEqual(strict.load(self.path)[0]["x"].values(), [1, 2])

    def test_odd_sizes_end_aligned(self):
        file = TraceFile(self.path, RUN)
        file.add("mask", "BOOL", (3,), b"\1\0\1")
        file.add("x", "F32", (1,), floats(5))
        file.add("half", "BF16", (1,), b"\x80\x3f")
        file.add("wide", "F64", (1,), struct.pack("<d", 7))
        strict.load(self.path, aligned=False)
        file.close()
        tensors, metadata = strict.load(self.path)
        self.assertEqual(list(tensors), ["mask", "x", "half", "wide"])
        self.assertEqual([tensors[name].values() for name in tensors], [[True, False, True], [5], [1], [7]])
        self.assertEqual(json.loads(metadata["tsleuth.order"]), ["mask", "x", "half", "wide"])

    def test_empty(self):
        TraceFile(self.path, RUN).close()
        self.assertEqual(strict.load(self.path)[0], {})

    def test_metadata_can_change(self):
        file = TraceFile(self.path, RUN, reserve=4096)
        file.add("x", "F32", (1,), floats(1))
        file.update({"tsleuth.run": "y" * 10000})
        self.assertEqual(strict.load(self.path)[1]["tsleuth.run"], "y" * 10000)
        file.add("z", "F32", (1,), floats(2))
        file.close()
        tensors, metadata = strict.load(self.path)
        self.assertEqual(metadata["tsleuth.run"], "y" * 10000)
        self.assertEqual(tensors["z"].values(), [2])

    @needs_program
    def test_program_reads_the_order_of_an_unfinished_file(self):
        file = TraceFile(self.path, RUN)
        names = ["b", "a", "c10", "c9"]
        for name in names:
            file.add(name, "F32", (1,), floats(1))
        found = [one["name"] for one in self.inspect(self.path)["tensors"]]
        self.assertEqual([name for name in found if name != SPARE], names)
        file.close()
        self.assertEqual([one["name"] for one in self.inspect(self.path)["tensors"]], names)


class Names(Case):
    def test_odd_names(self):
        names = ['quote"s', "back\\slash", "new\nline", "tab\t", "umlaut ü", "漢字", "\U0001f600", "a/b:c", "x" * 3000,
                 "nul\0byte", "lone \ud800 surrogate", "", " "]
        file = TraceFile(self.path, RUN)
        for name in names:
            file.add(writer.clean_name(name), "U8", (1,), b"\5")
            strict.load(self.path)
        file.close()
        tensors, _ = strict.load(self.path)
        self.assertEqual(list(tensors), [writer.clean_name(name) for name in names])
        self.assertIn("umlaut ü", tensors)
        self.assertIn("unnamed", tensors)
        self.assertFalse(any("\0" in name for name in tensors))

    def test_a_name_stands_once(self):
        file = TraceFile(self.path, RUN)
        file.add("x", "U8", (1,), b"\5")
        for name in ("x", "__metadata__", SPARE):
            with self.assertRaises(ValueError):
                file.add(name, "U8", (1,), b"\6")
        file.close()
        self.assertEqual(strict.load(self.path)[0]["x"].data, b"\5")


class Overwriting(Case):
    def write(self, **options):
        file = TraceFile(self.path, RUN, **options)
        file.add("x", "U8", (1,), b"\5")
        file.close()

    def test_a_trace_is_replaced(self):
        self.write()
        TraceFile(self.path, RUN).close()
        self.assertEqual(strict.load(self.path)[0], {})

    def test_an_unfinished_trace_is_replaced(self):
        TraceFile(self.path, RUN).abandon()
        self.write()
        self.assertEqual(list(strict.load(self.path)[0]), ["x"])

    @unittest.skipUnless(writer.fcntl, "there are no locks here")
    def test_one_that_is_being_written_is_not(self):
        first = TraceFile(self.path, RUN)
        first.add("x", "U8", (1,), b"\5")
        second = TraceFile(self.path, RUN, overwrite=True)
        third = TraceFile(self.path, RUN)
        self.assertIn("is being written by another program", self.warned()[0])
        self.assertIn(second.path, self.warned()[0])
        self.assertRegex(os.path.basename(second.path), r"^trace\.pid\d+\.safetensors$")
        for file, name in ((first, "y"), (second, "b"), (third, "c")):
            file.add(name, "U8", (1,), b"\6")
            file.update({"tsleuth.run": "z" * 9000})  # moves it to a new file, which is locked too
        fourth = TraceFile(self.path, RUN)
        self.assertEqual(len({first.path, second.path, third.path, fourth.path}), 4)
        for file in (first, second, third, fourth):
            file.close()
        self.assertEqual(list(strict.load(self.path)[0]), ["x", "y"])
        self.assertEqual(list(strict.load(second.path)[0]), ["b"])
        self.assertEqual(list(strict.load(third.path)[0]), ["c"])
        self.write()  # nobody writes it any more
        self.assertEqual(list(strict.load(self.path)[0]), ["x"])

    def test_weights_are_not(self):
        header = b'{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
        for content in (struct.pack("<Q", len(header)) + header + b"\7", b"some text that is long enough", b"abc",
                        struct.pack("<Q", 1 << 60) + b"{}", struct.pack("<Q", 2) + b"[]"):
            self.path.write_bytes(content)
            with self.assertRaisesRegex(FileExistsError, "overwrite=True"):
                self.write()
            self.assertEqual(self.path.read_bytes(), content)
        self.write(overwrite=True)
        self.assertEqual(list(strict.load(self.path)[0]), ["x"])

    def test_an_empty_file_is(self):
        self.path.write_bytes(b"")
        self.write()
        self.assertEqual(list(strict.load(self.path)[0]), ["x"])

    def test_a_folder_is_not(self):
        self.path.mkdir()
        with self.assertRaisesRegex(FileExistsError, "not a regular file"):
            self.write(overwrite=True)

    def test_a_device_is_not(self):
        with self.assertRaisesRegex(FileExistsError, "not a regular file"):
            TraceFile("/dev/null", RUN, overwrite=True)

    def test_the_target_of_a_link_is(self):
        self.write()
        link = self.folder / "link.safetensors"
        link.symlink_to(self.path)
        file = TraceFile(link, RUN)
        file.add("y", "U8", (1,), b"\5")
        file.close()
        self.assertTrue(link.is_symlink())
        self.assertEqual(list(strict.load(self.path)[0]), ["y"])

    def test_a_folder_that_is_missing(self):
        with self.assertRaises(FileNotFoundError):
            TraceFile(self.folder / "missing" / "x.safetensors", RUN)

    def test_a_folder_without_permission(self):
        self.folder.chmod(0o555)
        self.addCleanup(self.folder.chmod, 0o700)
        if os.geteuid() == 0:  # root writes everywhere
            os.seteuid(65534)
            self.addCleanup(os.seteuid, 0)
        with self.assertRaises(PermissionError):
            self.write()
