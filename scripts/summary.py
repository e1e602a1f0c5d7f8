#!/usr/bin/env python3
"""Adds up ctest's JUnit reports: what was skipped and why, what failed, and one closing line.

usage: summary.py [--skipped "WHAT: WHY"] ... REPORT.xml ...
exit code 1 if a test failed, a report is missing or is empty; what --skipped names counts as one
test that was skipped
"""
import argparse
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

# How a test program says why it skips: GoogleTest's GTEST_SKIP() << reason, or "SKIPPED: reason".
GTEST_SKIP = re.compile(r"^.*: Skipped\n(?P<reason>.+)$", re.MULTILINE)
PLAIN_SKIP = re.compile(r"^SKIPPED: (?P<reason>.+)$", re.MULTILINE)


def skip_reasons(output):
    found = [m["reason"].strip() for m in GTEST_SKIP.finditer(output)]
    found += [m["reason"].strip() for m in PLAIN_SKIP.finditer(output)]
    return sorted(set(found))


def main(words):
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--skipped", action="append", default=[])
    parser.add_argument("reports", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args(words)
    passed, failed, skipped = 0, [], len(arguments.skipped)
    for what in arguments.skipped:
        print(f"skipped  {what}")
    for path in arguments.reports:
        stage = f"{path.parent.name}/{path.stem.removeprefix('junit-')}"
        if not path.exists():
            failed.append(f"{stage}: no report; the stage did not run")
            continue
        cases = ElementTree.parse(path).getroot().findall("testcase")
        if not cases:
            failed.append(f"{stage}: no test was found")
        for case in cases:
            name = f"{stage}: {case.get('name')}"
            reasons = skip_reasons(case.findtext("system-out") or "")
            not_run = case.find("skipped")
            message = "" if not_run is None else not_run.get("message", "")
            if message.startswith(("SKIP_", "Disabled")):
                skipped += 1
                print(f"skipped  {name}: {'; '.join(reasons) or message}")
            elif case.get("status") != "run" or case.find("failure") is not None:
                failed.append(f"{name} {message}".rstrip())
            else:
                passed += 1
                if reasons:  # some cases inside a program that passed
                    print(f"skipped in part  {name}: {'; '.join(reasons)}")
    for name in failed:
        print(f"FAILED   {name}")
    print(f"{passed} passed, {len(failed)} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
