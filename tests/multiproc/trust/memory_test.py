"""What is left of the job's secret in the memory of kolorun and of its agents, which root may read.
Usage: memory_test.py KOLORUN TRUST_RANKS [unittest arguments]"""

import os
import sys
import unittest

from job import Job

KOLORUN, RANKS = (os.path.realpath(path) for path in sys.argv[1:3])


def memory_of(pid):
    """All that is the process's own and that it can write to."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, \
            open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            span, rights = line.split()[:2]
            if rights != "rw-p":
                continue
            begin, end = (int(number, 16) for number in span.split("-"))
            memory.seek(begin)
            yield memory.read(end - begin)


def copies_in(pid, text):
    return sum(part.count(text) for part in memory_of(pid))


class Memory(unittest.TestCase):
    def test_the_launcher_keeps_what_it_still_needs(self):
        if os.geteuid() != 0:
            self.skipTest("needs root, to read the memory of processes that write no core")
        job = Job(KOLORUN, RANKS)
        self.addCleanup(job.__exit__)
        job.wait_ready()
        secret = job.secret().encode()
        launchers = [pid for pid in job.processes()
                     if os.path.realpath(f"/proc/{pid}/exe") == KOLORUN]
        self.assertIn(job.roots[0].pid, launchers)
        copies = {pid: copies_in(pid, secret) for pid in launchers}
        print(f"copies of the secret: {copies}")
        ranks = set(job.processes()) - set(launchers)
        # The look itself works: ranks have it in their environment.
        self.assertTrue(any(copies_in(pid, secret) > 0 for pid in ranks))
        self.assertEqual(copies.pop(job.roots[0].pid), 0)
        # An agent proves it to each rank that comes, for which one copy does.
        for pid, count in copies.items():
            self.assertLessEqual(count, 1, f"in helper {pid}")
        job.finish(self)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[3:], verbosity=2)
