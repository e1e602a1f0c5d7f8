"""Who is let in, and what is seen from outside: hostile clients against real jobs under kolorun.
Usage: trust_test.py KOLORUN TRUST_RANKS [unittest arguments]"""

import itertools
import os
import random
import re
import resource
import selectors
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import job as kit
import openings as strangers
from job import Job

KOLORUN, RANKS = (os.path.realpath(path) for path in sys.argv[1:3])
SEED = 71
BUILD = os.path.dirname(os.path.dirname(KOLORUN))
ISOLATED = kit.enter_own_namespaces([BUILD])
os.chdir("/")


def openings(count):
    """What strangers send, from a seed."""
    return itertools.islice(strangers.endless(random.Random(SEED)), count)


def assault(port, texts, at_once=100):
    """Sends each text over a connection of its own; the seconds until each was closed."""
    waiting = selectors.DefaultSelector()
    begun, times = {}, []
    texts = iter(texts)
    more = True
    while more or begun:
        while more and len(begun) < at_once:
            text = next(texts, None)
            if text is None:
                more = False
                break
            sock = socket.create_connection(port)
            begun[sock] = time.monotonic()
            sock.setblocking(False)
            try:
                sock.send(text)
            except ConnectionError:
                pass
            waiting.register(sock, selectors.EVENT_READ)
        for key, _ in waiting.select(0.5):
            sock = key.fileobj
            try:
                if sock.recv(65536):
                    continue
            except BlockingIOError:
                continue
            except ConnectionError:
                pass
            times.append(time.monotonic() - begun.pop(sock))
            waiting.unregister(sock)
            sock.close()
        late = [sock for sock, start in begun.items() if time.monotonic() - start > 5]
        for sock in late:
            times.append(float("inf"))
            waiting.unregister(sock)
            del begun[sock]
            sock.close()
    return times


def refusals(text):
    return [line for line in text.splitlines() if "did not prove the job's secret" in line]


class Trust(unittest.TestCase):
    def start(self, size=3, flags=(), environment=None):
        made = Job(KOLORUN, RANKS, size, flags, environment)
        self.addCleanup(made.__exit__)
        return made

    def test_S71_garbage_on_every_port(self):
        count = 10_000 if kit.LONG else 1_000
        for transport in ("shm", "tcp", "tcp without kolorun"):
            with self.subTest(transport=transport):
                if transport in ("shm", "tcp"):
                    job = self.start(flags=["--transport", transport])
                else:  # rank 0 itself serves the rendezvous
                    job = kit.HandJob(RANKS, 2971)
                    self.addCleanup(job.__exit__)
                job.wait_ready()
                ports = sorted(set(job.ports()) | {job.rendezvous()})
                before = kit.memory_of(job.processes())
                peak, start = before, time.monotonic()
                for port in ports:
                    done = threading.Event()
                    times = []

                    def attack(port=port, times=times, done=done):
                        times += assault(port, openings(count))
                        done.set()

                    with kit.Lag() as lag:
                        threading.Thread(target=attack).start()
                        while not done.wait(0.2):
                            peak = max(peak, kit.memory_of(job.processes()))
                    self.assertEqual(len(times), count)
                    # On a quiet machine, within 1 s; here, plus its turns in the queue.
                    self.assertLess(max(times), 1 + 4 * lag.worst, f"closed late, at port {port}")
                seconds = time.monotonic() - start
                err = job.finish(self)
                self.assertLess(peak - before, 16 << 20, "extra memory")
                lines = refusals(err)
                self.assertGreaterEqual(len(lines), 1)
                self.assertLessEqual(len(lines), len(ports) * (1 + seconds // 10), err)
                told = sum(int(re.search(r"refused (\d+)", line)[1]) for line in lines)
                print(f"S71 {transport}: ports {ports}, {count} connections each, closed after at "
                      f"most {max(times):.3f} s (lag {lag.worst:.3f}), "
                      f"{(peak - before) >> 10} KiB more, {told} told of in {len(lines)} line(s)",
                      flush=True)

    def test_S72_an_outsider_gets_nowhere(self):
        job = self.start()
        job.wait_ready()
        port = job.rendezvous()
        with socket.create_connection(port) as probe:  # who does not know the job learns nothing
            probe.sendall(kit.hello(bytes(32)))
            answer = kit.read_exactly(probe, 1 << 16)
            self.assertEqual(len(answer), kit.CHALLENGE_BYTES)
            self.assertEqual(answer[12:], bytes(100))
        tag = job.tag()  # from here on, the outsider has heard of the job
        wrong = b"a secret that the outsider made up"
        join = b"\x08\x01\x10\x03\x1a\x02\x08\x01"  # as Protobuf: protocol 1, size 3, peer rank 1
        attempts = {
            "a join without any proof": lambda h, c: kit.frame(bytes(32), join),
            "a join behind the wrong proof": lambda h, c: prove(wrong, h, c, join),
            "the other side's proof": lambda h, c: c[80:112] + kit.frame(bytes(32), join),
            "a shutdown": lambda h, c: prove(wrong, h, c, b"", kind=1),
            "harm": lambda h, c: prove(wrong, h, c, b""),
            "nothing, to read along": lambda h, c: b"",
            "zeros": lambda h, c: bytes(4096),
        }

        def prove(secret, first, challenge, body, kind=0):
            transcript = first + challenge[:80]
            proof = kit.code(secret, b"kolo connector's proof", transcript)
            key = kit.code(secret, b"kolo session key", transcript)
            return proof + kit.frame(key, body, kind=kind)

        for role in (kit.RENDEZVOUS, kit.CONTROL, kit.DATA, kit.MEMORY, 99):
            for rank in (0, 1, 7, -1):
                for what, answer in attempts.items():
                    if role != kit.RENDEZVOUS and rank != 1:
                        continue
                    with self.subTest(what=what, role=role, rank=rank):
                        with socket.create_connection(port) as sock:
                            first = kit.hello(tag, role, rank)
                            sock.sendall(first)
                            challenge = kit.read_exactly(sock, kit.CHALLENGE_BYTES)
                            self.assertEqual(len(challenge), kit.CHALLENGE_BYTES)
                            text = answer(first, challenge)
                            if not text and (role, rank) != (kit.RENDEZVOUS, 1):
                                continue  # two seconds each
                            try:
                                sock.sendall(text)
                            except ConnectionError:
                                pass
                            sock.settimeout(3)
                            start = time.monotonic()
                            self.assertEqual(kit.read_exactly(sock, 1), b"", "was answered")
                            self.assertLess(time.monotonic() - start, 2.5 if not text else 1)
        # Wrong proofs by the thousand (R14): refused alike, and told of in lines that are counted.
        for _ in range(100_000 if kit.LONG else 1_000):
            with socket.create_connection(port) as sock:
                first = kit.hello(tag)
                sock.sendall(first)
                challenge = kit.read_exactly(sock, kit.CHALLENGE_BYTES)
                sock.sendall(prove(wrong, first, challenge, join))
                self.assertEqual(kit.read_exactly(sock, 1), b"")
        err = job.finish(self)
        self.assertTrue(any("wrong secret" in line or "connection(s)" in line
                            for line in refusals(err)), err)

    def test_R13_a_start_beside_slow_strangers(self):
        port = 40000 + os.getpid() % 20000
        flags = ["--rendezvous-port", str(port)]

        def start_once():
            job = self.start(flags=flags)
            seconds = job.wait_ready()
            job.finish(self)
            return seconds

        alone = sorted(start_once() for _ in range(3))
        stop = threading.Event()
        counts = {"connections": 0, "longest": 0.0}

        def flood():
            """A thousand at a time, each with a byte a second of what might become a Hello."""
            held = {}
            while not stop.is_set():
                while len(held) < 1000:
                    sock = socket.socket()
                    sock.setblocking(False)
                    sock.connect_ex(("127.0.0.1", port))
                    held[sock] = [time.monotonic(), 0]
                now = time.monotonic()
                refused = True
                for sock, (since, sent) in list(held.items()):
                    try:
                        if sent < now - since and sent < 4:
                            sock.send(b"KOLO"[sent : sent + 1])
                            held[sock][1] += 1
                        if sock.recv(100):
                            continue
                    except BlockingIOError:
                        refused = False
                        continue
                    except OSError:
                        pass
                    if held[sock][1] > 0:
                        counts["connections"] += 1
                        counts["longest"] = max(counts["longest"], now - since)
                    sock.close()
                    del held[sock]
                time.sleep(0.05 if refused else 0.002)
            for sock in held:
                sock.close()

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < 2000:
            self.skipTest("needs 2000 descriptors")
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
        attacker = threading.Thread(target=flood)
        attacker.start()
        try:
            beside = sorted(start_once() for _ in range(5))
        finally:
            stop.set()
            attacker.join()
        print(f"R13: starts alone {alone}, beside the strangers {beside}; "
              f"{counts['connections']} of them, the longest for {counts['longest']:.2f} s")
        self.assertLess(beside[-1], alone[-1] + 1)
        self.assertGreater(counts["connections"], 100)
        self.assertLess(counts["longest"], 2.2)

    def test_R15_only_loopback_is_listened_on(self):
        if not ISOLATED:
            self.skipTest("needs a network namespace of its own (root)")
        seen, names = set(), set()
        for start in range(100 if kit.LONG else 10):
            job = self.start(flags=["--transport", ("shm", "tcp")[start % 2]])
            while not job.read("ready.2") and not job.has_ended():
                seen |= {address for (address, _), _ in kit.tcp_listeners()}
                with open("/proc/net/unix", encoding="utf-8", errors="replace") as file:
                    names |= {line.split()[7] for line in file.readlines()[1:]
                              if len(line.split()) > 7}
            job.wait_ready()
            seen |= {address for (address, _), _ in kit.tcp_listeners()}
            job.finish(self)
        print(f"R15: listened on {seen}, local sockets {len(names)}")
        self.assertEqual(seen, {"127.0.0.1"})
        for name in names:
            self.assertTrue(name.startswith("@kolo-") and len(name) > 40, name)

    def test_R15_several_hosts_listen_on_the_chosen_addresses(self):
        if not ISOLATED:
            self.skipTest("needs network namespaces (root)")

        def ip(*words):
            subprocess.run(["ip", *words], check=True)

        os.makedirs("/run/netns", exist_ok=True)
        hosts = [f"kolotrust{os.getpid()}h{number}" for number in range(2)]
        for number, host in enumerate(hosts):
            ip("netns", "add", host)
            self.addCleanup(ip, "netns", "del", host)
            ip("-n", host, "link", "set", "lo", "up")
        for net, wire in (("10.77.0", "wire0"), ("10.88.0", "spare0")):
            ip("link", "add", wire, "netns", hosts[0], "type", "veth",
               "peer", "name", wire, "netns", hosts[1])
            for number, host in enumerate(hosts):
                ip("-n", host, "address", "add", f"{net}.{number + 1}/24", "dev", wire)
                ip("-n", host, "link", "set", wire, "up")
        for start in range(20 if kit.LONG else 3):
            job = self.start(flags=["-H", f"{hosts[0]}:2,{hosts[1]}:1", "--launcher-exec",
                                    shutil.which("ip") + " netns exec",
                                    "--network-interfaces", "wire0"])
            seen = set()

            def look(job=job, seen=seen):
                for pid in job.processes():
                    seen.update(address for (address, _), _ in kit.tcp_listeners(pid))

            while not job.read("ready.2") and not job.has_ended():
                look()
            job.wait_ready()
            look()
            job.finish(self)
            # The rendezvous of each host's own ranks is on loopback.
            self.assertLessEqual(seen, {"127.0.0.1", "10.77.0.1", "10.77.0.2"})
            if start == 0:
                print(f"R15: two hosts listened on {seen}")

    def test_R15_the_secret_is_seen_nowhere(self):
        timeline = tempfile.mkdtemp(prefix="kolo-trust-timeline-")
        self.addCleanup(shutil.rmtree, timeline)
        job = self.start(flags=["--timeline-filename", timeline, "--log-level", "debug"])
        job.wait_ready()
        secret = job.secret()
        self.assertGreaterEqual(len(secret), 32)
        for pid in job.processes():
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                self.assertNotIn(secret.encode(), file.read())
            with open(f"/proc/{pid}/environ", "rb") as file:
                if secret.encode() in file.read():
                    with open(f"/proc/{pid}/comm", encoding="utf-8") as comm:
                        self.assertEqual(comm.read().strip(), "trust_ranks")
        err = job.finish(self)
        self.assertNotIn(secret, err + job.read("out"))
        files = [os.path.join(timeline, name) for name in os.listdir(timeline)]
        self.assertGreaterEqual(len(files), 3)
        for path in files:
            with open(path, encoding="utf-8") as file:
                self.assertNotIn(secret, file.read())

    def test_R15_no_core_of_kolorun(self):
        with open("/proc/sys/kernel/core_pattern", encoding="utf-8") as file:
            pattern = file.read().strip()
        if "/" in pattern or pattern.startswith("|"):
            self.skipTest("cores do not go to the working folder here: " + pattern)
        folder = tempfile.mkdtemp(prefix="kolo-trust-core-")
        self.addCleanup(shutil.rmtree, folder)

        def cores_after(command, find):
            process = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, start_new_session=True,
                preexec_fn=lambda: resource.setrlimit(
                    resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)))
            time.sleep(0.5)
            os.kill(find(process.pid), signal.SIGABRT)
            process.wait(timeout=30)
            time.sleep(0.2)
            found = [name for name in os.listdir(folder) if name.startswith("core")]
            for name in found:
                os.unlink(os.path.join(folder, name))
            return found

        if not cores_after(["sleep", "30"], lambda pid: pid):
            self.skipTest("no cores are written here")
        command = [KOLORUN, "-np", "2", "--grace", "1", "sleep", "30"]

        def kolorun_among(root):
            return [pid for pid in kit.children_of(root)
                    if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == "kolorun"]

        for at in range(3):  # kolorun itself, and its helpers, one after the other
            self.assertEqual(
                cores_after(command, lambda pid, at=at: (kolorun_among(pid) + [pid] * 3)[at]), [])

    def test_S75_planted_names(self):
        if not ISOLATED:
            self.skipTest("needs a mount namespace of its own (root)")
        victim = tempfile.mkdtemp(prefix="victim-", dir="/dev")
        self.addCleanup(shutil.rmtree, victim)
        target = victim + "/target"
        with open(target, "w", encoding="ascii") as file:
            file.write("precious")
        user = str(os.getuid())
        names = ["kolo", "kolo-" + user, "kolo_" + user, "kolorun", "kolorun-" + user,
                 "kolo.sock", "kolo-rendezvous", "kolo-secret", "kolo.log", "kolo-0.json", "kolo.0",
                 "kolo-shm", "kolo-segment", "kolo-segment-0", "sem.kolo", "libkolo-mpi-mpich.so"]
        planted = []
        for folder in ("/tmp", "/dev/shm"):
            for i, name in enumerate(names):
                path = f"{folder}/{name}"
                if i % 2 == 0:
                    os.symlink(target, path)
                else:
                    with open(path, "w", encoding="ascii") as file:
                        file.write("planted")
                    os.chown(path, 65534, 65534)
                planted.append(path)
        before = {path: os.lstat(path) for path in planted}
        known = set(os.listdir("/tmp")) | set(os.listdir("/dev/shm"))
        for transport in ("shm", "tcp"):
            job = self.start(flags=["--transport", transport])
            strange = set()
            while not all(job.read(f"ready.{rank}") for rank in range(3)):
                self.assertFalse(job.has_ended(), job.output())
                for folder in ("/tmp", "/dev/shm"):
                    strange |= set(os.listdir(folder)) - known
            job.finish(self)
            strange = {name for name in strange if not name.startswith("kolo-trust-")}  # the test's
            self.assertEqual(strange, set(), "names that others could foresee or block")
        for path, facts in before.items():
            now = os.lstat(path)
            self.assertEqual((now.st_ino, now.st_mtime_ns, now.st_size, now.st_mode),
                             (facts.st_ino, facts.st_mtime_ns, facts.st_size, facts.st_mode), path)
            if stat.S_ISREG(now.st_mode):
                with open(path, encoding="ascii") as file:
                    self.assertEqual(file.read(), "planted")
        with open(target, encoding="ascii") as file:
            self.assertEqual(file.read(), "precious")

    def test_S27_another_protocol_number(self):
        done = subprocess.run([KOLORUN, "-np", "2", "--start-timeout", "10", RANKS, "S27"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lines = [line for line in done.stdout.splitlines() if "protocol 2" in line]
        self.assertEqual(len(lines), 2, done.stdout)
        for line in lines:
            self.assertIn("rank 1", line)
            self.assertIn("speak 1", line)

    def test_a_secret_file_is_its_owners_alone(self):
        folder = tempfile.mkdtemp(prefix="kolo-trust-secret-")
        self.addCleanup(shutil.rmtree, folder)
        path = folder + "/secret"

        def run_by_hand():
            """Two ranks without kolorun, which meet at a port of their own."""
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            with open(folder + "/stop", "w", encoding="ascii"):
                pass
            ranks = [subprocess.Popen([RANKS, "steps", folder], stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, text=True,
                                      env={**os.environ, "KOLO_RANK": str(rank), "KOLO_SIZE": "2",
                                           "KOLO_LOCAL_RANK": str(rank), "KOLO_LOCAL_SIZE": "2",
                                           "KOLO_RENDEZVOUS": f"127.0.0.1:{port}",
                                           "KOLO_START_TIMEOUT_MS": "5000",
                                           "KOLO_SECRET_FILE": path})
                     for rank in range(2)]
            outs = [rank.communicate(timeout=30)[0] for rank in ranks]
            return [rank.returncode for rank in ranks], "".join(outs)

        with open(path, "w", encoding="ascii") as file:
            file.write("a-secret-of-sufficient-length\nmore\n")
        for mode, wanted in ((0o600, ""), (0o400, ""), (0o640, "chmod 600"), (0o604, "chmod 600"),
                             (0o620, "chmod 600")):
            os.chmod(path, mode)
            codes, out = run_by_hand()
            with self.subTest(mode=oct(mode)):
                if not wanted:
                    self.assertEqual(codes, [0, 0], out)
                else:
                    self.assertNotIn(0, codes)
                    self.assertIn(wanted, out)
                self.assertNotIn("a secret of", out)
        if os.getuid() == 0:
            os.chmod(path, 0o600)
            os.chown(path, 65534, 65534)
            codes, out = run_by_hand()
            self.assertNotIn(0, codes)
            self.assertIn("another user", out)
        os.unlink(path)
        os.mkfifo(path, 0o600)
        codes, out = run_by_hand()
        self.assertNotIn(0, codes)
        self.assertIn("not a regular file", out)


if __name__ == "__main__":
    print(f"seed {SEED}" + ("" if ISOLATED else "; no namespaces: some tests are skipped"))
    unittest.main(argv=[sys.argv[0]] + sys.argv[3:], verbosity=2)
