#!/usr/bin/env python3
"""kolorun under an interactive shell, on a terminal of its own: terminal.py KOLORUN CASE ROUNDS.

Prints nothing and ends with 0 if all is as it should be, in each round, and nothing but the shell
is left afterwards; else says what was seen, and ends with 1.
"""
import os
import pty
import re
import select
import signal
import sys
import time

KOLORUN, CASE, ROUNDS = sys.argv[1:4]
PROMPT = b"ready> "
MARK = "KOLO_TERMINAL=" + os.getcwd()


def holders(mark):
    """The living processes whose environment has it."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if mark.encode() in file.read().split(b"\0"):
                    found.append(int(pid))
        except OSError:
            pass
    return found


class Shell:
    """An interactive shell with job control on a pseudo-terminal."""

    def __init__(self):
        self.seen = b""
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.environ.update(PS1=PROMPT.decode(), ENV="", TERM="dumb", NO_COLOR="1")
            os.execv("/bin/sh", ["sh", "-i"])
        self.expect(PROMPT)
        self.command("stty -echo")
        self.command(f"export '{MARK}'")

    def expect(self, pattern, seconds=20):
        """All output up to and including `pattern`."""
        end = time.monotonic() + seconds
        while pattern not in self.seen:
            ready, _, _ = select.select([self.terminal], [], [], max(0, end - time.monotonic()))
            if not ready:
                self.fail(f"no {pattern!r}")
            self.seen += os.read(self.terminal, 4096)
        at = self.seen.index(pattern) + len(pattern)
        text, self.seen = self.seen[:at], self.seen[at:]
        return text.decode(errors="replace")

    def command(self, line, seconds=20):
        """Runs a line; its output."""
        os.write(self.terminal, line.encode() + b"\n")
        return self.expect(PROMPT, seconds)

    def expect_nobody(self, seconds=1):
        """All that this shell has started have its mark in their environment; it does not."""
        end = time.monotonic() + seconds
        while left := holders(MARK):
            if time.monotonic() > end:
                self.fail(f"left: {left}")
            time.sleep(0.01)

    def fail(self, what):
        print(f"{what}; seen: {self.seen.decode(errors='replace')!r}")
        self.close()
        sys.exit(1)

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.close(self.terminal)
        os.waitpid(self.pid, 0)


def background(shell):
    """In the background, also where the terminal stops those who write to it."""
    for setting in ("-tostop", "tostop"):
        shell.command(f"stty {setting}")
        to = "" if setting == "-tostop" else ">out.txt 2>&1 "
        shell.command(f"{KOLORUN} -np 2 sh -c 'cat; sleep 0.3; echo rank $RANK is done' {to}&")
        text = shell.command("wait $!; echo code $?")
        if to:
            text += open("out.txt").read()
        stopped = re.search(r"[Ss]topped|Suspended", text)
        whole = all(f"rank {rank} is done" in text for rank in (0, 1)) and "code 0" in text
        if stopped or not whole:
            shell.fail(f"stty {setting}: {text!r}")


def loop(shell):
    """`while read`: the loop's lines are the loop's, not the ranks'."""
    shell.command("printf 'one\\ntwo\\nthree\\n' >list.txt")
    text = shell.command(
        f"while read line; do {KOLORUN} -np 2 sh -c 'wc -c'; echo \"line $line\"; done <list.txt")
    if re.findall(r"line (\w+)", text) != ["one", "two", "three"] or text.count("] 0") != 6:
        shell.fail(f"loop: {text!r}")


def closed(shell):
    text = shell.command(f"{KOLORUN} -np 2 sh -c 'cat; echo rank $RANK is done' <&-; echo code $?")
    if "rank 1 is done" not in text or "code 0" not in text:
        shell.fail(f"closed stdin: {text!r}")


def interrupt(shell, deaf, presses):
    """Ctrl-C as the terminal sends it."""
    os.write(shell.terminal,
             f"{KOLORUN} -np 2 --grace 20 sh -c \"{deaf}echo here; sleep 300 & "
             "while :; do sleep 1; done\"\n".encode())
    shell.expect(b"] here")
    shell.expect(b"] here")
    for _ in range(presses):
        os.write(shell.terminal, b"\x03")
        time.sleep(0.3)
    shell.expect(PROMPT)
    text = shell.command("echo code $?")
    if "code 130" not in text:
        shell.fail(f"Ctrl-C {presses} times: {text!r}")


def interrupt_once(shell):
    interrupt(shell, "", 1)


def interrupt_twice(shell):
    """Ranks that are deaf to all but SIGKILL."""
    interrupt(shell, "trap '' INT TERM; ", 2)


def main():
    shell = Shell()
    case = {"background": background, "loop": loop, "closed": closed, "once": interrupt_once,
            "twice": interrupt_twice}[CASE]
    for _ in range(int(ROUNDS)):
        case(shell)
        shell.expect_nobody()
    shell.close()


main()
