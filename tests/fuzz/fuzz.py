#!/usr/bin/env python3
"""Runs a fuzz target, and sums up what targets have done.

  fuzz.py run TARGET MAX_LEN CORPUS FOUND SOURCE...
      Runs TARGET on inputs of up to MAX_LEN bytes, grown from those of both folders; keeps new ones
      in FOUND, and notes in FOUND.json the executions and how many lines of each SOURCE all inputs
      together reach. Fails as the target does.
  fuzz.py table FOLDER
      Prints a table of all *.json there.

KOLO_TEST_FUZZ_SECONDS (default 5) or, if set, KOLO_TEST_FUZZ_RUNS says how long. An input may take
1 s, and allocate 64 MiB at a time: Protobuf reserves up to 50,000,000 bytes, once for each frame,
for a string whose stated length fits the message around it, where that one's length is a lie too.
They are freed untouched when the input ends too soon.
"""
import glob
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ATTEMPTS = 3
# Short stacks and a small quarantine, for speed; a run of one input has the usual ones.
SANITIZER = "malloc_context_size=4:quarantine_size_mb=16"
LIMITS = ["-timeout=1", "-malloc_limit_mb=64", "-rss_limit_mb=2048"]


def length():
    runs = os.environ.get("KOLO_TEST_FUZZ_RUNS")
    if runs:
        return ["-runs=" + runs]
    return ["-max_total_time=" + os.environ.get("KOLO_TEST_FUZZ_SECONDS", "5")]


def statistic(log, name):
    found = re.search(rf"stat::{name}:\s+(\d+)", log)
    return int(found.group(1)) if found else 0


def say(command, profile):
    """Runs a command, which writes its profile there, and gives its exit code and output."""
    own = {"LLVM_PROFILE_FILE": profile}
    own["ASAN_OPTIONS"] = ":".join([SANITIZER, os.environ.get("ASAN_OPTIONS", "")]).rstrip(":")
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", env=os.environ | own, check=False)
    return done.returncode, done.stdout


def lines_reached(target, found, sources, profile):
    """[reached, all] lines by source; empty without clang's tools."""
    tools = {}
    for tool in ("llvm-profdata", "llvm-cov"):
        version = sorted(glob.glob(f"/usr/lib/llvm-*/bin/{tool}"))
        tools[tool] = shutil.which(tool) or (version or [None])[-1]
        if tools[tool] is None:
            return {}
    data = found + ".profdata"
    subprocess.run([tools["llvm-profdata"], "merge", "-sparse", profile, "-o", data], check=True)
    export = subprocess.run([tools["llvm-cov"], "export", "-summary-only",
                             "-instr-profile=" + data, target],
                            stdout=subprocess.PIPE, text=True, check=True)
    reached = {}
    for file in json.loads(export.stdout)["data"][0]["files"]:
        for source in sources:
            if file["filename"].endswith("/" + source):
                lines = file["summary"]["lines"]
                reached[source] = [lines["covered"], lines["count"]]
    return reached


def was_only_the_machine(target, limits, found):
    """Whether each input that took too long takes its time when tried again by itself."""
    slow = glob.glob(f"{found}/timeout-*")
    for path in slow:
        if subprocess.run([target, *limits, path], capture_output=True, check=False).returncode:
            return False
        os.unlink(path)
    return bool(slow)


def run(target, max_len, corpus, found, sources):
    os.makedirs(found, exist_ok=True)
    report = pathlib.Path(found + ".json")
    report.unlink(missing_ok=True)
    limits = LIMITS + ["-max_len=" + max_len]
    command = [target, *limits, "-print_final_stats=1", "-entropic=0",
               f"-artifact_prefix={found}/", *length(), found, corpus]
    print(" ".join(command), flush=True)
    for _ in range(ATTEMPTS):
        code, log = say(command, "/dev/null")
        print("\n".join(log.splitlines()[-60:]), flush=True)
        if code == 0 or not was_only_the_machine(target, limits, found):
            break
        print("the machine was busy: once more", flush=True)
    if code != 0:
        return code
    profile = found + ".profraw"
    code, again = say([target, *limits, "-runs=0", found, corpus], profile)
    if code != 0:
        print(again)
        return code
    report.write_text(json.dumps({
        "target": os.path.basename(target),
        "executions": statistic(log, "number_of_executed_units"),
        "per_second": statistic(log, "average_exec_per_sec"),
        "peak_mib": statistic(log, "peak_rss_mb"),
        "lines": lines_reached(target, found, sources, profile)}))
    table([report])
    return 0


def table(reports):
    print(f"{'target':<18}{'executions':>12}{'per s':>8}{'MiB':>6}  lines reached")
    for report in reports:
        one = json.loads(report.read_text())
        reached = ", ".join(f"{os.path.basename(source)} {100 * hit // max(1, all_)}%"
                            for source, (hit, all_) in one["lines"].items())
        print(f"{one['target']:<18}{one['executions']:>12}{one['per_second']:>8}"
              f"{one['peak_mib']:>6}  {reached or 'unknown without llvm-cov'}", flush=True)


def main():
    if sys.argv[1:2] == ["run"] and len(sys.argv) > 5:
        return run(*sys.argv[2:6], sys.argv[6:])
    if sys.argv[1:2] == ["table"] and len(sys.argv) == 3:
        table(sorted(pathlib.Path(sys.argv[2]).glob("*.json")))
        return 0
    print(__doc__)
    return 2


sys.exit(main())
