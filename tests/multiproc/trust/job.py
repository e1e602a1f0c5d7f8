"""What the tests of trust share: a job under kolorun, what its processes hold open, and a small
kolo handshake to attack with. Only the standard library.

All runs in a network namespace of its own where that is allowed (so that every socket in it is the
job's or the test's), else on this host's loopback."""

import hashlib
import hmac
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

LONG = os.environ.get("KOLO_TEST_LONG") == "1"


def enter_own_namespaces(needed):
    """Runs this program again in fresh network and mount namespaces, with /tmp and /dev/shm empty
    but for the folders `needed`; False if that is not allowed."""
    if os.environ.get("KOLO_TRUST_INSIDE") == "1":
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        handles = {path: os.open(path, os.O_PATH) for path in needed}
        for folder in ("/tmp", "/dev/shm"):
            subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=True)
        for path, handle in handles.items():
            if path.startswith(("/tmp/", "/dev/shm/")):
                os.makedirs(path, exist_ok=True)
                source = f"/proc/{os.getpid()}/fd/{handle}"
                subprocess.run(["mount", "-c", "--bind", source, path], check=True)
            os.close(handle)
        return True
    command = ["unshare", "--net", "--mount", "--propagation", "private", "--"]
    if os.getuid() != 0 or not shutil.which("unshare") or not shutil.which("ip"):
        return False
    if subprocess.run(command + ["true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        return False
    os.environ["KOLO_TRUST_INSIDE"] = "1"
    os.execvp(command[0], command + [sys.executable, "-B"] + sys.argv)
    return False


def children_of(root):
    """The living processes under `root`, itself first."""
    parents = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                fields = file.read().rsplit(b")", 1)[1].split()
        except OSError:
            continue
        if fields[0] != b"Z":
            parents.setdefault(int(fields[1]), []).append(int(entry))
    found = [root]
    for pid in found:
        found += parents.get(pid, [])
    return found


def listening(pids):
    """(address, port) of every listening TCP socket that one of the processes holds."""
    inodes = set()
    for pid in pids:
        try:
            for name in os.listdir(f"/proc/{pid}/fd"):
                target = os.readlink(f"/proc/{pid}/fd/{name}")
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
        except OSError:
            pass
    return {where for where, inode in tcp_listeners() if inode in inodes}


def tcp_listeners(pid="self"):
    """((address, port), inode) of every listening TCP socket in that process's network."""
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        try:
            with open(f"/proc/{pid}/net/{name}", encoding="ascii") as file:
                lines = file.readlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] != "0A":
                continue
            raw, port = fields[1].split(":")
            words = bytes.fromhex(raw)
            packed = b"".join(words[i : i + 4][::-1] for i in range(0, len(words), 4))
            yield (socket.inet_ntop(family, packed), int(port, 16)), fields[9]


def memory_of(pids):
    """Bytes of private and shared memory in RAM that the processes hold, each its own share."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
                for line in file:
                    if line.startswith("Pss:"):
                        total += int(line.split()[1]) << 10
        except OSError:
            pass
    return total


class Lag:
    """How long this machine makes a sleeper wait for its turn, at worst, while this is open."""

    def __enter__(self):
        self.worst = 0.0
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def watch(self):
        while not self.stop.is_set():
            start = time.monotonic()
            time.sleep(0.01)
            self.worst = max(self.worst, time.monotonic() - start - 0.01)

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()


class AnyJob:
    """trust_ranks in a folder of its own. Nothing of it outlives the object."""

    def __init__(self, size):
        self.folder = tempfile.mkdtemp(prefix="kolo-trust-")
        self.size = size
        self.out = open(self.folder + "/out", "wb")
        self.err = open(self.folder + "/err", "wb")
        self.started = time.monotonic()
        self.roots = []  # what was started: sessions of their own

    def begin(self, command, environment):
        self.roots.append(
            subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self.out,
                stderr=self.err,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.roots:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self.out.close()
        self.err.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def read(self, name):
        try:
            with open(f"{self.folder}/{name}", encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError:
            return ""

    def output(self):
        return self.read("err") + self.read("out")

    def has_ended(self):
        return any(process.poll() is not None for process in self.roots)

    def wait_ready(self, seconds=20):
        """Until every rank has made its first step; how long that took since the start."""
        limit = time.monotonic() + seconds
        while not all(self.read(f"ready.{rank}") for rank in range(self.size)):
            if self.has_ended() or time.monotonic() > limit:
                raise AssertionError("the job did not start: " + self.output())
            time.sleep(0.005)
        return time.monotonic() - self.started

    def rendezvous(self):
        host, port = self.read("ready.0").split("\n")[0].rsplit(":", 1)
        return host, int(port)

    def secret(self):
        return self.read("ready.0").split("\n")[1]

    def tag(self):
        """What stands for the job in a Hello."""
        return hashlib.sha256(self.read("ready.0").split("\n")[2].encode()).digest()

    def processes(self):
        return [pid for process in self.roots for pid in children_of(process.pid)]

    def ports(self):
        return sorted(listening(self.processes()))

    def stop(self):
        with open(self.folder + "/stop", "w", encoding="ascii"):
            pass

    def codes(self, seconds=30):
        limit = time.monotonic() + seconds
        return [process.wait(max(0, limit - time.monotonic())) for process in self.roots]

    def finish(self, test):
        """Ends the job, which must have been exact in every step on every rank; its errors."""
        self.stop()
        test.assertEqual(set(self.codes()), {0}, self.output())
        steps = {self.read(f"done.{rank}") for rank in range(self.size)}
        test.assertEqual(len(steps), 1, "ranks made different numbers of steps")
        test.assertGreater(int(steps.pop()), 0)
        return self.read("err")


class Job(AnyJob):
    """Under kolorun."""

    def __init__(self, kolorun, ranks, size=3, flags=(), environment=None):
        super().__init__(size)
        command = [kolorun, "-np", str(size), "--start-timeout", "10", "--grace", "2"]
        self.begin(command + list(flags) + [ranks, "steps", self.folder], environment)


class HandJob(AnyJob):
    """Ranks started by hand, over TCP, with a secret, a job's name and a port that may come again.
    The last rank comes `late` seconds after the others."""

    SECRET = "the secret of jobs by hand"

    def __init__(self, ranks, port, size=3, late=0, environment=None, more=()):
        super().__init__(size)
        for rank in range(size):
            if rank == size - 1:
                time.sleep(late)
            self.begin(
                [ranks, "steps", self.folder, *more],
                {
                    "KOLO_RANK": str(rank),
                    "KOLO_SIZE": str(size),
                    "KOLO_LOCAL_RANK": str(rank),
                    "KOLO_LOCAL_SIZE": str(size),
                    "KOLO_RENDEZVOUS": f"127.0.0.1:{port}",
                    "KOLO_SECRET": self.SECRET,
                    "KOLO_JOB": "by hand",
                    "KOLO_TRANSPORT": "tcp",
                    "KOLO_START_TIMEOUT_MS": "10000",
                    "KOLO_PEER_TIMEOUT_MS": "3000",
                    **(environment or {}),
                },
            )


# ---- kolo's handshake, as an outsider would write it (transport/handshake.h)

MAGIC = 0x4F4C4F4B
RENDEZVOUS, CONTROL, DATA, MEMORY = 1, 2, 3, 4
HELLO_BYTES, CHALLENGE_BYTES, VERDICT_BYTES = 96, 112, 40


def hello(job_tag, role=RENDEZVOUS, rank=1, protocol=1, to=-1, generation=0, stream=0):
    head = struct.pack("<IIIIiiQ", MAGIC, protocol, role, stream, rank, to, generation)
    return head + job_tag + os.urandom(32)


def code(secret, label, transcript, more=b""):
    return hmac.new(secret, label + transcript + more, hashlib.sha256).digest()


def frame(session_key, body, counter=0, kind=0):
    head = struct.pack("<IIQ", len(body), kind, counter)
    mac = hmac.new(session_key, struct.pack("<I", 1) + head + body, hashlib.sha256).digest()
    return head + mac[:16] + body


def read_exactly(sock, count):
    """What came, up to `count` bytes; fewer if the other side ended it."""
    data = b""
    while len(data) < count:
        try:
            more = sock.recv(count - len(data))
        except ConnectionError:
            break
        if not more:
            break
        data += more
    return data


def closed_after(sock, limit):
    """Seconds until the other side ends the connection; None if it does not within `limit`."""
    start = time.monotonic()
    while (left := start + limit - time.monotonic()) > 0:
        sock.settimeout(left)
        try:
            if not sock.recv(65536):
                return time.monotonic() - start
        except socket.timeout:
            break
        except ConnectionError:
            return time.monotonic() - start
    return None
