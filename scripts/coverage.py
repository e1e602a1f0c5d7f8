#!/usr/bin/env python3
"""Reports line coverage by folder, from what gcov counted, and the functions of kolo.h reached.

A line counts as reached if it was in any of the programs that contain it (headers are in many).
Fails if a folder under --hold stays below --percent, or a function of kolo.h was never entered.
"""

import argparse
import collections
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys

FOLDERS = ("base", "bindings_c", "coordinator", "core", "launcher", "ops", "transport")


def read_counts(data):
    """What gcov tells of one object: files with lines and functions, also if it never ran."""
    run = subprocess.run(
        ["gcov", "--json-format", "--stdout", str(data)],
        capture_output=True, check=True, text=True, cwd=data.parent)
    return [file for line in run.stdout.splitlines() if line for file in json.loads(line)["files"]]


def collect(root, build):
    lines = collections.defaultdict(dict)  # file -> line -> reached
    entered = collections.Counter()  # calls by name of a C function
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for files in pool.map(read_counts, sorted(build.rglob("*.gcno"))):
            for file in files:
                path = pathlib.Path(file["file"])
                path = path if path.is_absolute() else build / path
                try:
                    name = str(path.resolve().relative_to(root))
                except ValueError:
                    continue
                if name.startswith("build/"):
                    continue
                known = lines[name]
                for line in file["lines"]:
                    number = line["line_number"]
                    known[number] = known.get(number, False) or line["count"] > 0
                for function in file["functions"]:
                    entered[function["name"]] += function["execution_count"]
    return lines, entered


def report_folders(lines, held, percent, verbose):
    good = True
    print(f"{'folder':<14}{'lines':>8}{'reached':>9}{'':>4}percent")
    for folder in FOLDERS:
        files = {name: known for name, known in lines.items() if name.startswith(folder + "/")}
        total = sum(len(known) for known in files.values())
        reached = sum(sum(known.values()) for known in files.values())
        share = 100 * reached / total if total else 0
        low = folder in held and share < percent
        good = good and not low
        print(f"{folder:<14}{total:>8}{reached:>9}{share:>11.1f}{'  too low' if low else ''}")
        if not (low or verbose):
            continue
        worst = sorted(files, key=lambda name: sum(files[name].values()) - len(files[name]))
        for name in worst[:12]:
            missed = sorted(number for number, hit in files[name].items() if not hit)
            if missed:
                print(f"    {name}: {len(missed)} of {len(files[name])} not reached: "
                      f"{', '.join(map(str, missed[:12]))}{' ...' if len(missed) > 12 else ''}")
    return good


def report_functions(root, entered):
    header = (root / "bindings_c/include/kolo/kolo.h").read_text()
    wanted = sorted(set(re.findall(r"KOLO_API\s[^;(]*?\b(kolo_\w+)\s*\(", header)))
    missed = [name for name in wanted if entered[name] == 0]
    print(f"functions of kolo.h reached: {len(wanted) - len(missed)} of {len(wanted)}"
          + (f"; not: {', '.join(missed)}" if missed else ""))
    return not missed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--percent", type=float, default=90)
    parser.add_argument("--hold", nargs="*", default=[])
    parser.add_argument("--verbose", action="store_true", help="the least reached files of all")
    options = parser.parse_args()
    root = options.root.resolve()
    lines, entered = collect(root, options.build.resolve())
    if not any(any(known.values()) for known in lines.values()):
        print("coverage: nothing was counted; run scripts/coverage.sh without --report")
        return 1
    good = report_folders(lines, options.hold, options.percent, options.verbose)
    return 0 if report_functions(root, entered) and good else 1


if __name__ == "__main__":
    sys.exit(main())
