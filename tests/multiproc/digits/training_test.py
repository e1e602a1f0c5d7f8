#!/usr/bin/env python3
"""The C++ trainer under kolorun learns the digits, with all of kolo/training.hpp, on 1 to 3 ranks.

usage: training_test.py KOLORUN TRAINER [unittest arguments]
Everything is seeded by the trainer's --seed, which is printed. So the weights are the same in every
run and over every road.
"""
import pathlib
import re
import sys
import unittest

from jobs import find, run, weights_of

RANKS = (1, 2, 3)
SEED = 1
LEAST_ACCURACY = 0.95
KOLORUN, TRAINER = (pathlib.Path(path).resolve() for path in sys.argv[1:3])


def train(ranks, transport="auto"):
    return run([KOLORUN, "-np", ranks, "--transport", transport, TRAINER, "--seed", SEED])


class Training(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        print(f"seed {SEED}", flush=True)
        cls.runs = {ranks: train(ranks) for ranks in RANKS}

    def expect_trained(self, ranks, code, output):
        self.assertEqual(0, code, output)
        self.assertIn("equal on all ranks", output)
        new = float(find(r"accuracy (\d\.\d+) on images it has never seen", output))
        self.assertGreaterEqual(new, LEAST_ACCURACY, output)
        if ranks > 1:  # there is another half of the ranks
            known = float(find(r"accuracy (\d\.\d+) on images it was trained on", output))
            self.assertGreaterEqual(known, LEAST_ACCURACY, output)

    def test_learns_on_any_number_of_ranks_and_over_any_road(self):
        for ranks in RANKS:
            with self.subTest(ranks=ranks):
                self.expect_trained(ranks, *self.runs[ranks])
                for transport in ("auto", "tcp"):
                    code, output = train(ranks, transport)
                    self.expect_trained(ranks, code, output)
                    self.assertEqual(weights_of(self.runs[ranks][1]), weights_of(output), transport)

    def test_the_loss_scaler_and_the_join_have_work_to_do(self):
        for ranks in RANKS:
            _, output = self.runs[ranks]
            self.assertGreater(int(find(r"(\d+) skipped", output)), 0, output)
            epochs = re.findall(r"steps by rank:((?: \d+)+)", output)
            self.assertGreater(len(epochs), 1, output)
            uneven = [steps for steps in epochs if len(set(steps.split())) > 1]
            self.assertEqual(ranks > 1, bool(uneven), output)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
