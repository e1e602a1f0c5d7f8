"""Somebody on the path records, replays, reorders and flips bits, between real ranks started by
hand. Usage: path_test.py TRUST_RANKS [unittest arguments]"""

import os
import random
import socket
import sys
import threading
import time
import unittest

import job as kit
import middle as path
from job import HandJob
from middle import Middle

RANKS = os.path.realpath(sys.argv[1])
SEED = 73
ISOLATED = kit.enter_own_namespaces([os.path.dirname(os.path.dirname(RANKS))])
os.chdir("/")
JOB_PORT = 2973


def replay(port, text):
    """Sends it all; what came back. The other side must have ended the connection soon."""
    with path.connect_aside(port) as sock:
        try:
            sock.sendall(text)
        except ConnectionError:
            pass
        sock.settimeout(5)
        start = time.monotonic()
        answer = kit.read_exactly(sock, 1 << 16)
        if time.monotonic() - start > 1:
            raise AssertionError(f"closed only after {time.monotonic() - start:.2f} s")
        return answer


@unittest.skipUnless(ISOLATED and path.available(), "needs root, namespaces and nft")
class OnThePath(unittest.TestCase):
    def start(self, **how):
        job = HandJob(RANKS, JOB_PORT, **how)
        self.addCleanup(job.__exit__)
        return job

    def record(self, job, middle):
        """A whole valid join, and a connection of each kind with its first 100 messages."""
        job.wait_ready()
        limit = time.monotonic() + 20
        while time.monotonic() < limit:
            control = [made for made in middle.of_role(kit.CONTROL) if len(made.frames()) >= 100]
            data = [made for made in middle.of_role(kit.DATA) if len(made.up) >= 1 << 16]
            joins = [made for made in middle.of_role(kit.RENDEZVOUS) if made.frames()]
            if control and data and len(joins) == job.size:
                return joins, control, data
            time.sleep(0.05)
        raise AssertionError(f"too little to record: {[len(c.up) for c in middle.connections]}")

    def variants(self, joins, control, data):
        """Streams as recorded, with messages swapped, and with flipped bits."""
        greeting = kit.HELLO_BYTES + 32
        for made in joins + control + data:
            yield bytes(made.up[: 1 << 16])
        for made in control:
            frames = made.frames()[:100]
            for at in range(0, 98, 7):
                order = frames[:at] + [frames[at + 1], frames[at]] + frames[at + 2 :]
                yield bytes(made.up[:greeting]) + b"".join(order)
        draw = random.Random(SEED)
        for made in (joins[1], control[0]):
            bits = range(8 * min(len(made.up), 4096))
            for bit in bits if kit.LONG else draw.sample(bits, 250):
                text = bytearray(made.up[:8192])
                text[bit // 8] ^= 1 << bit % 8
                yield bytes(text)

    def expect_refused(self, port, text):
        answer = replay(port, text)
        # A Challenge is all that anybody ever gets without a proof.
        self.assertIn(len(answer), (0, kit.CHALLENGE_BYTES), answer)

    def test_S73_replays_to_the_same_and_the_next_job(self):
        with Middle() as middle:
            job = self.start()
            recorded = self.record(job, middle)
            variants = list(self.variants(*recorded))
            port = ("127.0.0.1", JOB_PORT)
            self.assertEqual(job.ports(), [port])
            repeats = 10_000 if kit.LONG else 700
            for i in range(max(repeats, len(variants))):
                self.expect_refused(port, variants[i % len(variants)])
            job.finish(self)
        print(f"S73: {len(variants)} different streams, {max(repeats, len(variants))} replays")
        # The next job has the same secret, name and port; its last rank comes late, so that all
        # ports of the others are found open while they wait.
        thread_result = {}

        def attack():
            tried = 0
            end = time.monotonic() + 2.5
            while time.monotonic() < end:
                for where, _ in list(kit.tcp_listeners()):
                    try:
                        with path.connect_aside(where) as sock:
                            sock.sendall(variants[tried % len(variants)])
                            tried += 1
                    except OSError:
                        pass
                time.sleep(0.01)
            thread_result["tried"] = tried

        attacker = threading.Thread(target=attack)
        attacker.start()
        job = self.start(late=1.5)
        job.wait_ready()
        attacker.join()
        for text in variants[:100]:
            self.expect_refused(port, text)
        job.finish(self)
        self.assertGreater(thread_result["tried"], 10)
        print(f"S73: {thread_result['tried']} more at the next job's ports while it started")

    def run_changed(self, change, environment=None, seconds=0.0):
        """A job with that change on its path: (codes, output)."""
        with Middle(change):
            job = self.start(environment=environment)
            limit = time.monotonic() + 15
            while not job.has_ended() and time.monotonic() < limit:
                ready = all(job.read(f"ready.{rank}") for rank in range(job.size))
                if ready and seconds <= 0:
                    break
                seconds -= 0.05 if ready else 0
                time.sleep(0.05)
            if not job.has_ended():
                job.stop()
            codes = job.codes()
        return codes, job.output()

    def test_S73_messages_swapped_on_the_way(self):
        codes, out = self.run_changed(path.swap_frames(60), seconds=5)
        self.assertNotIn(0, codes, out)
        self.assertNotIn("wrong at", out)
        self.assertIn("out of sequence", out)

    def test_S73_bits_flipped_on_the_way(self):
        draw = random.Random(SEED)
        refused = 0
        cases = [(kit.CONTROL, draw.randrange(128, 4096)) for _ in range(10 if kit.LONG else 1)]
        cases += [(kit.RENDEZVOUS, draw.randrange(400)) for _ in range(50 if kit.LONG else 2)]
        cases += [(kit.DATA, draw.randrange(128)) for _ in range(20 if kit.LONG else 1)]
        for role, offset in cases:
            with self.subTest(role=role, offset=offset):
                codes, out = self.run_changed(
                    path.flip_at(role, offset, draw.randrange(8)),
                    {"KOLO_START_TIMEOUT_MS": "2000"}, seconds=2 if role == kit.CONTROL else 0.2)
                # A connection that a flip broke may be made again before the job has begun; never
                # is a result wrong.
                self.assertNotIn("wrong at", out)
                if role == kit.CONTROL:
                    self.assertNotEqual(set(codes), {0}, out)
                refused += set(codes) != {0}
        self.assertGreater(refused, 0)

    def test_a_flipped_bit_of_data_is_caught_by_the_checksum(self):
        draw = random.Random(SEED)
        for _ in range(20 if kit.LONG else 2):
            offset = 128 + 40 + 8 * draw.randrange(1000, 5000)
            codes, out = self.run_changed(path.flip_at(kit.DATA, offset, draw.randrange(8)),
                                          {"KOLO_CHECKSUM": "1"}, seconds=3)
            self.assertNotIn(0, codes, out)
            self.assertNotIn("wrong at", out)
            self.assertRegex(out, r"peer lost|is cut off")
            self.assertRegex(out, r"damaged on its way \(its checksum is 0x[0-9a-f]{8} here, "
                                  r"0x[0-9a-f]{8} was sent\)")
            self.assertIn("with tag", out)

    def test_without_the_checksum_such_a_bit_arrives(self):
        """What the option is for; and that the test above can fail."""
        codes, out = self.run_changed(path.flip_at(kit.DATA, 128 + 40 + 8 * 2000), seconds=3)
        self.assertIn("wrong at", out)
        self.assertIn(90, codes)


if __name__ == "__main__":
    print(f"seed {SEED}")
    unittest.main(argv=[sys.argv[0]] + sys.argv[2:], verbosity=2)
