"""What a job feels of hostile clients: its step time in windows with and without an attack on its
port, one after the other in the same run, and which refusals kolo_info counted.

Usage: attack_test.py TRUST_RANKS [options]; see --help. The job is two ranks over TCP
that were started by hand, so that rank 0 itself serves the port that is attacked. Attacker and job
share this machine: the attack has a steady pace, and runs at the lowest priority, as it would run
elsewhere; what the system does for its connections counts."""

import argparse
import array
import json
import multiprocessing
import os
import random
import selectors
import socket
import statistics
import sys
import time

import job as kit
import openings

EDGE = 0.1  # seconds at the ends of a window that count for neither kind
WRONG_SECRET = b"a secret that the outsider made up"


class Client:
    """One connection: what it says at once, and its answer to a Challenge."""

    def __init__(self, source, target, text, answer=None):
        self.begun = time.monotonic()
        self.got = b""
        self.answer = answer
        self.sock = socket.create_connection(target, timeout=5, source_address=(source, 0))
        self.sock.setblocking(False)
        self.say(text)

    def say(self, text):
        try:
            self.sock.send(text)
        except (ConnectionError, BlockingIOError):
            pass

    def ended(self):
        """Takes what has come; whether the other side has ended it."""
        try:
            more = self.sock.recv(65536)
        except BlockingIOError:
            return False
        except ConnectionError:
            return True
        self.got += more
        if self.answer and len(self.got) >= kit.CHALLENGE_BYTES:
            self.say(self.answer(self.got))
            self.answer = None
        return not more


class Attack:
    """Opens connections at a steady pace and closes each when the job has, or after 5 s."""

    def __init__(self, target, tag, recorded, seed):
        self.target = target
        self.tag = tag
        self.recorded = recorded
        self.garbage = openings.endless(random.Random(seed))
        self.waiting = selectors.DefaultSelector()
        self.counts = {"garbage": 0, "replay": 0, "wrong secret": 0}
        self.longest = 0.0
        self.faults = []

    def open_one(self):
        number = sum(self.counts.values())
        kind = {0: "replay", 1: "wrong secret"}.get(number % 10, "garbage")
        text, answer = self.recorded, None
        if kind == "garbage":
            text = next(self.garbage)
        elif kind == "wrong secret":
            text = kit.hello(self.tag)
            answer = lambda challenge, text=text: prove(WRONG_SECRET, text, challenge)
        source = f"127.0.1.{1 + number % 16}"  # more ports than one address has
        client = Client(source, self.target, text, answer)
        self.waiting.register(client.sock, selectors.EVENT_READ, client)
        self.counts[kind] += 1

    def look(self, seconds):
        for key, _ in self.waiting.select(max(0, seconds)):
            if key.data.ended():
                self.close(key.data)
        for key in list(self.waiting.get_map().values()):
            if time.monotonic() - key.data.begun > 5:
                self.faults.append("not closed within 5 s")
                self.close(key.data)

    def close(self, client):
        self.longest = max(self.longest, time.monotonic() - client.begun)
        if len(client.got) not in (0, kit.CHALLENGE_BYTES):
            self.faults.append(f"was answered: {client.got[:200]!r}")
        self.waiting.unregister(client.sock)
        client.sock.close()

    def window(self, count, rate):
        """(begin, end) of `count` connections."""
        begin = time.monotonic()
        for i in range(count):
            while (left := begin + i / rate - time.monotonic()) > 0:
                self.look(left)
            self.look(0)
            self.open_one()
        end = time.monotonic()
        while self.waiting.get_map():
            self.look(0.1)
        return begin, end


def prove(secret, hello, challenge):
    return kit.code(secret, b"kolo connector's proof", hello + challenge[:80])


def record(job):
    """What somebody who knows the secret says, of a kind that this port does not want."""
    with socket.create_connection(job.rendezvous()) as sock:
        hello = kit.hello(job.tag(), kit.DATA)
        sock.sendall(hello)
        challenge = kit.read_exactly(sock, kit.CHALLENGE_BYTES)
        proof = prove(job.secret().encode(), hello, challenge)
        sock.sendall(proof)
        kit.read_exactly(sock, 1 << 16)
        return hello + proof


def attack(pipe, job, recorded, wishes):
    """In a process of its own: windows without and with connections, in turns."""
    os.nice(19)
    attacker = Attack(job.rendezvous(), job.tag(), recorded, wishes.seed)
    quiet, busy = [], []
    each = wishes.connections // wishes.windows
    length = each / wishes.rate
    for _ in range(wishes.windows):
        begin = time.monotonic()
        time.sleep(length)
        quiet.append((begin, time.monotonic()))
        busy.append(attacker.window(each, wishes.rate))
        length = busy[-1][1] - busy[-1][0]  # on a busy machine it may not keep its pace
    pipe.send((quiet, busy, attacker.counts, attacker.longest, attacker.faults))


def lengths(times, windows):
    """Microseconds of the steps that lie in the windows, and of their all-reduces."""
    steps, calls = [], []
    begun = times[0::2]
    at = 0
    for begin, end in windows:
        low, high = int((begin + EDGE) * 1e9), int((end - EDGE) * 1e9)
        while at < len(begun) and begun[at] < low:
            at += 1
        while at + 1 < len(begun) and begun[at + 1] <= high:
            steps.append((begun[at + 1] - begun[at]) / 1e3)
            calls.append(times[2 * at + 1] / 1e3)
            at += 1
    return steps, calls


def compare(what, without, beside):
    """Prints medians and tails; the ratio of the medians."""
    def tail(values):
        return sorted(values)[int(0.99 * len(values))]

    ratio = statistics.median(beside) / statistics.median(without)
    print(f"{what}: median {statistics.median(without):.1f} us without, "
          f"{statistics.median(beside):.1f} us beside the attack: {100 * (ratio - 1):+.2f} %; "
          f"p99 {tail(without):.0f} and {tail(beside):.0f} us; "
          f"{len(without)} and {len(beside)} steps")
    return ratio


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ranks", help="the program trust_ranks")
    parser.add_argument("--connections", type=int, default=100_000 if kit.LONG else 1_000)
    parser.add_argument("--rate", type=float, default=500, help="of them in a second (500)")
    parser.add_argument("--windows", type=int, default=20 if kit.LONG else 2,
                        help="of each kind, in turns")
    parser.add_argument("--most", type=float, default=0,
                        help="fail above so many %% more step time; 0: only print it")
    parser.add_argument("--seed", type=int, default=71)
    return parser.parse_args(words)


def main():
    wishes = parse(sys.argv[1:])
    ranks = os.path.realpath(wishes.ranks)
    isolated = kit.enter_own_namespaces([os.path.dirname(os.path.dirname(ranks))])
    os.chdir("/")
    print(f"seed {wishes.seed}" + ("" if isolated else "; no namespaces"), flush=True)
    with kit.HandJob(ranks, 2975, size=2, more=["times"]) as job:
        job.wait_ready()
        recorded = record(job)
        mine, its = multiprocessing.Pipe()
        attacker = multiprocessing.Process(target=attack, daemon=True,
                                           args=(its, job, recorded, wishes))
        attacker.start()
        its.close()
        quiet, busy, counts, longest, faults = mine.recv()
        attacker.join()
        job.stop()
        codes = job.codes()
        if set(codes) != {0}:
            sys.exit(f"the job was not exact: {codes}\n" + job.output())
        info = json.loads(job.read("info.0"))
        times = array.array("q")
        with open(job.folder + "/times.0", "rb") as file:
            times.frombytes(file.read())
        told = len([line for line in job.read("err").splitlines() if "did not prove" in line])
    seconds = sum(end - begin for begin, end in busy)
    return judge(wishes, seconds, counts, longest, faults, info["refused"], told,
                 lengths(times, quiet), lengths(times, busy))


def judge(wishes, seconds, counts, longest, faults, refused, told, without, beside):
    made = sum(counts.values())
    print(f"{made} connections, {made / seconds:.0f} a second in {wishes.windows} windows, each "
          f"after one without: " + ", ".join(f"{count} {kind}" for kind, count in counts.items()))
    print(f"the longest was closed after {longest:.3f} s; told of in {told} line(s)")
    print(f"refused, by rank 0's kolo_info: {refused}, {sum(refused.values())} in all")
    if not without[0] or not beside[0]:
        print("FAILED: no step lies whole in the windows of a kind; ask for longer ones")
        return 1
    ratio = compare("step", without[0], beside[0])
    compare("its all-reduce", without[1], beside[1])
    proofs = counts["replay"] + counts["wrong secret"]
    # A starved attacker's proof may come too late to be looked at.
    if not proofs - refused["late"] <= refused["wrong_secret"] <= proofs:
        faults.append(f"{refused['wrong_secret']} of {proofs} wrong proofs were counted")
    if refused["unwanted"] != 1:  # the one that was recorded
        faults.append(f"{refused['unwanted']} proved connections, instead of 1")
    if sum(refused.values()) != made + 1:
        faults.append(f"{sum(refused.values())} of {made + 1} connections were refused")
    if wishes.most and ratio > 1 + wishes.most / 100:
        faults.append(f"steps took {100 * (ratio - 1):.2f} % longer")
    for fault in sorted(set(faults)):
        print(f"FAILED: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
