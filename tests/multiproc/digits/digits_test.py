#!/usr/bin/env python3
"""The digits trainer under kolorun ends with the weights of plain loops, bit for bit.

usage: digits_test.py KOLORUN DIGITS MPIEXEC [unittest arguments]
For 2, 3, 4 and 8 ranks and three fusion thresholds, each KOLO_TEST_REPETITIONS times (default 2;
10 with KOLO_TEST_LONG=1); and for 4 ranks on 1, 2 and 4 hosts (by name; all of them are this
machine) over every road. MPIEXEC is empty where kolo is built without MPICH. Everything is seeded
by the trainer's --seed, which is printed.
"""
import os
import pathlib
import sys
import unittest

from jobs import find, run, weights_of

RANKS = (2, 3, 4, 8)
THRESHOLDS = (0, 64 << 10, 64 << 20)
SEED = 1
LEAST_ACCURACY = 0.95
REPETITIONS = int(os.environ.get("KOLO_TEST_REPETITIONS")
                  or (10 if os.environ.get("KOLO_TEST_LONG") == "1" else 2))

KOLORUN, DIGITS = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
MPIEXEC = sys.argv[3]
LAYOUTS = {"1x4": "a:4", "2x2": "a:2,b:2", "4x1": "a:1,b:1,c:1,d:1"}


def reference(ranks):
    code, output = run([DIGITS, "--shards", ranks, "--seed", SEED])
    if code != 0:
        raise AssertionError(f"digits --shards {ranks} ended with {code}:\n{output}")
    return weights_of(output)


def train(ranks, threshold, *arguments):
    return run([KOLORUN, "-np", ranks, "-x", f"KOLO_FUSION_THRESHOLD_BYTES={threshold}",
                DIGITS, "--seed", SEED, *arguments])


def train_on(hosts, transport):
    """4 ranks on hosts by name."""
    settings = {"KOLO_TRANSPORT": transport, "KOLO_ADDRESSES": "127.0.0.1"}
    if transport.endswith("mpi"):
        launcher = [MPIEXEC, "-launcher", "fork", "-hosts", hosts, "-n", 4]
    else:
        launcher = [KOLORUN, "-H", hosts, "--launcher", "fork", "-np", 4]
    environment = [f"{key}={value}" for key, value in settings.items()]
    return run(["env", *environment, *launcher, DIGITS, "--seed", SEED])


class Digits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        print(f"seed {SEED}, {REPETITIONS} repetitions", flush=True)
        cls.references = {ranks: reference(ranks) for ranks in RANKS}

    def expect_reference(self, ranks, code, output):
        self.assertEqual(self.references[ranks], weights_of(output), output)
        self.assertIn("equal on all ranks", output)
        self.assertGreaterEqual(float(find(r"accuracy (\d\.\d+) on images", output)),
                                LEAST_ACCURACY, output)
        self.assertEqual(0, code, output)

    def test_references_differ_so_that_equality_means_something(self):
        self.assertEqual(len(RANKS), len(set(self.references.values())), self.references)

    def test_weights_equal_those_of_plain_loops(self):
        for ranks in RANKS:
            for threshold in THRESHOLDS:
                for repetition in range(REPETITIONS):
                    with self.subTest(ranks=ranks, threshold=threshold, repetition=repetition):
                        self.expect_reference(ranks, *train(ranks, threshold))

    def test_weights_are_the_same_on_all_hosts_over_all_roads(self):
        for layout, hosts in LAYOUTS.items():
            for transport in ("auto", "tcp", "shm+mpi", "mpi"):
                with self.subTest(layout=layout, transport=transport):
                    if transport.endswith("mpi") and not MPIEXEC:
                        self.skipTest("built without MPICH")
                    self.expect_reference(4, *train_on(hosts, transport))

    def test_a_run_that_skips_the_all_reduce_does_not_pass(self):
        code, output = train(4, THRESHOLDS[-1], "--no-allreduce")
        find(r"(weights [0-9a-f]{16} \(DIFFERENT)", output)  # it did train, each rank for itself
        with self.assertRaises(AssertionError):
            self.expect_reference(4, code, output)
        self.assertNotEqual(self.references[4], weights_of(output))
        self.assertNotEqual(0, code)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=2)
