"""Runs a job and reads what it printed; for the tests of the example trainers."""
import re
import subprocess

RUN_TIMEOUT_S = 120


def run(command):
    """(exit code, output); an overdue job is asked to end, and then made to."""
    with subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            output, _ = process.communicate(timeout=RUN_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.terminate()  # kolorun ends its ranks
            try:
                output, _ = process.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                output, _ = process.communicate()
            output += f"\n(not done after {RUN_TIMEOUT_S} s)"
        return process.returncode, output


def find(pattern, output):
    match = re.search(pattern, output)
    if match is None:
        raise AssertionError(f"no {pattern!r} in the output:\n{output}")
    return match[1]


def weights_of(output):
    return find(r"weights ([0-9a-f]{16}) ", output)
