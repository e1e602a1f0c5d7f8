#!/usr/bin/env python3
"""The examples with tensors on GPUs, on the fakes of CUDA and NCCL.

usage: gpu_examples_test.py KOLORUN GPU_HELLO DIGITS FAKES [unittest arguments]
Both programs are linked to the fake runtime of the folder FAKES, where kolo finds it loaded. The
fakes end a rank with 86 if it leaks a handle or misuses CUDA or NCCL.
"""
import pathlib
import sys
import unittest

from jobs import find, run, weights_of

KOLORUN, GPU_HELLO, DIGITS, FAKES = (pathlib.Path(path).resolve() for path in sys.argv[1:5])
STAGED = "goes through host memory"
NO_DEVICE = 77
SEED = 1
LEAST_ACCURACY = 0.95


def run_on_fakes(ranks, *command, **settings):
    """A job of which each rank has its own device, unless FAKEGPU_DEVICES says otherwise."""
    environment = {"KOLO_NCCL_PATH": FAKES / "libnccl.so.2", "FAKEGPU_CENSUS": 1,
                   "FAKEGPU_DEVICES": 4, "KOLO_LOG_LEVEL": "info", **settings}
    return run(["env", *(f"{key}={value}" for key, value in environment.items()),
                KOLORUN, "-np", ranks, *command])


class GpuHello(unittest.TestCase):
    def expect_sums(self, ranks, code, output):
        self.assertEqual(0, code, output)
        total = ranks * (ranks + 1) // 2
        self.assertEqual(ranks, output.count(f"the sum is {total}\n"), output)

    def test_by_nccl(self):
        for ranks in (1, 2, 4):
            with self.subTest(ranks=ranks):
                code, output = run_on_fakes(ranks, GPU_HELLO)
                self.expect_sums(ranks, code, output)
                self.assertNotIn(STAGED, output)

    def test_two_ranks_on_one_device_go_through_host_memory_and_say_so(self):
        code, output = run_on_fakes(2, GPU_HELLO, FAKEGPU_DEVICES=1)
        self.expect_sums(2, code, output)
        self.assertIn(STAGED, output)
        self.assertIn("are on one GPU", output)

    def test_without_nccl_it_goes_through_host_memory_and_says_so(self):
        code, output = run_on_fakes(2, GPU_HELLO, KOLO_NCCL_PATH=FAKES / "none.so")
        self.expect_sums(2, code, output)
        self.assertIn(STAGED, output)

    def test_without_a_device_it_says_so(self):
        for settings in ({"FAKEGPU_DEVICES": 0}, {"FAKEGPU_DRIVER": "none"}):
            with self.subTest(**settings):
                code, output = run_on_fakes(2, GPU_HELLO, **settings)
                self.assertEqual(NO_DEVICE, code, output)
                self.assertIn("gpu_hello: no GPU here: ", output)


class Digits(unittest.TestCase):
    def train(self, ranks, *arguments, **settings):
        code, output = run_on_fakes(ranks, DIGITS, "--seed", SEED, *arguments, **settings)
        self.assertEqual(0, code, output)
        self.assertIn("equal on all ranks", output)
        accuracy = float(find(r"accuracy (\d\.\d+) on images", output))
        self.assertGreaterEqual(accuracy, LEAST_ACCURACY, output)
        return accuracy, output

    def test_by_nccl_it_learns_as_well_as_on_the_host(self):
        for ranks in (2, 4):
            with self.subTest(ranks=ranks):
                on_host, _ = self.train(ranks)
                on_device, output = self.train(ranks, "--device")
                self.assertIn("weights and gradients on devices", output)
                self.assertNotIn(STAGED, output)
                self.assertAlmostEqual(on_host, on_device, delta=0.01)

    def test_deterministic_ends_with_the_weights_of_plain_loops(self):
        for ranks in (2, 3, 4):
            with self.subTest(ranks=ranks):
                _, reference = run([DIGITS, "--shards", ranks, "--seed", SEED])
                _, output = self.train(ranks, "--device", KOLO_DETERMINISTIC=1)
                self.assertEqual(weights_of(reference), weights_of(output), output)
                self.assertIn("the option deterministic is set", output)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]], verbosity=2)
