#!/usr/bin/env python3
"""Keeps the README true: its commands exist or run, its code is the examples', its options are all.
Listings in docs/ that say where they are from are compared as well.

usage: readme_check.py [--kolorun-folder build/release/bin]
Every line of a ```sh block must be of a kind that is listed in KINDS below. Commands of programs
that are built are run; others are compared with the presets, scripts and flags that they name.
"""
import argparse
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BIN = "build/release/bin/"
TIMEOUT_S = 60


def blocks(language, text=README):
    pattern = rf"(?:<!-- from (\S+) -->\n)?```{language}\n(.*?)```"
    return re.findall(pattern, text, re.DOTALL)


def check_script(words, _folder):
    script = ROOT / words[0]
    if not os.access(script, os.X_OK):
        return f"{words[0]} is not an executable file"
    text = script.read_text(encoding="utf-8")
    unknown = [word for word in words[1:] if word not in text]
    return f"{words[0]} does not know {unknown}" if unknown else None


def check_workflow(words, _folder):
    presets = json.loads((ROOT / "CMakePresets.json").read_text(encoding="utf-8"))
    names = [preset["name"] for preset in presets["workflowPresets"]]
    return None if words[-1] in names else f"no workflow preset {words[-1]}"


def check_build(words, _folder):
    """Its preset is there, and so are the targets; building them again is not for a check."""
    presets = json.loads((ROOT / "CMakePresets.json").read_text(encoding="utf-8"))
    preset = words[words.index("--preset") + 1]
    kind = "buildPresets" if "--build" in words else "configurePresets"
    if preset not in [entry["name"] for entry in presets[kind]]:
        return f"no preset {preset} in {kind}"
    targets = words[words.index("--target") + 1:] if "--target" in words else []
    texts = "".join(p.read_text(encoding="utf-8") for p in ROOT.glob("*/**/CMakeLists.txt"))
    missing = [name for name in targets if f"add_executable({name} " not in texts]
    return f"no programs {missing}" if missing else None


def check_install(_words, _folder):
    texts = [p.read_text(encoding="utf-8") for p in ROOT.glob("*/CMakeLists.txt")]
    return None if any("install(" in text for text in texts) else "nothing is installed"


def check_prefix(words, _folder):
    """A line of the reader's own project: install_test runs its like. Here: it names our prefix."""
    prefix = re.search(r"^cmake --install \S+ --prefix (\S+)$", README, re.MULTILINE)[1]
    return None if f"$PWD/{prefix}" in " ".join(words) else f"is not of the prefix {prefix}"


def flags_of(words):
    return [word for word in words[1:] if word.startswith("-")]


def check_program(words, folder):
    """Runs a command of build/release/bin, or says why it cannot."""
    words = [str(folder / word.removeprefix(BIN)) if word.startswith(BIN) else word
             for word in words]
    missing = [word for word in words if word.startswith(str(folder)) and not os.path.exists(word)]
    if missing:
        return f"not built: {missing}"
    run = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
                         stdin=subprocess.DEVNULL)
    return None if run.returncode == 0 else f"ended with {run.returncode}: {run.stderr[-500:]}"


def check_launch(words, folder):
    """A job on hosts that are not here: its flags must be in kolorun's help."""
    kolorun = folder / "kolorun"
    if not kolorun.exists():
        return f"not built: {kolorun}"
    text = subprocess.run([kolorun, "--help"], capture_output=True, text=True, timeout=TIMEOUT_S,
                          check=False).stdout
    unknown = [flag for flag in flags_of(words) if not re.search(rf"(?<![\w-])-?{flag}\b", text)]
    return f"kolorun --help does not know {unknown}" if unknown else None


KINDS = [
    (r"scripts/\w+\.sh\b", check_script),
    (r"cmake --workflow --preset ", check_workflow),
    (r"cmake (--build )?--preset ", check_build),
    (r"cmake --install build/release ", check_install),
    (r"cmake -S your/|export PKG_CONFIG_PATH=|cc trainer\.c ", check_prefix),
    (BIN, check_program),
    (r"kolorun ", check_launch),
]


def check_commands(folder):
    for _, block in blocks("sh"):
        for line in filter(None, map(str.strip, block.splitlines())):
            kind = next((check for pattern, check in KINDS if re.match(pattern, line)), None)
            if kind is None:
                yield f"README: no check knows the command `{line}`"
            elif (fault := kind(shlex.split(line), folder)) is not None:
                yield f"README: `{line}`: {fault}"


def check_listings():
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for source, block in blocks("c", page.read_text(encoding="utf-8")):
            if source and block not in (ROOT / source).read_text(encoding="utf-8"):
                yield f"{page.name}: a listing differs from {source}, which it says it is from"


def check_options():
    table = (ROOT / "base/options.cc").read_text(encoding="utf-8")
    rows = re.findall(r'_row\("(\w+)", "([^"]*)"', table)
    if len(rows) < 10:
        yield "base/options.cc: the table of options was not understood"
    for key, default in rows:
        variable = f"`KOLO_{key.upper()}`"
        if variable not in README:
            yield f"README: the option {variable} is missing"
        row = re.search(rf"^\| {variable} \| ([^|]*) \|", README, re.MULTILINE)
        if row and row[1] and row[1].strip("` ") != default:
            yield f"README: {variable} has the default {default}, not {row[1]}"
    known = {key for key, _ in rows}
    for variable in set(re.findall(r"`KOLO_([A-Z_]+)`", README)):
        header = (ROOT / "bindings_c/include/kolo/kolo.h").read_text(encoding="utf-8")
        if variable.lower() not in known and not re.search(rf"\bKOLO_{variable}\b", header):
            yield f"README: KOLO_{variable} is neither an option nor in kolo.h"


def check_links():
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", README):
        if not (ROOT / target).exists():
            yield f"README: links to {target}, which is not there"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kolorun-folder", type=pathlib.Path, default=ROOT / BIN)
    folder = parser.parse_args().kolorun_folder.resolve()
    faults = [*check_listings(), *check_options(), *check_links(), *check_commands(folder)]
    print("\n".join(faults) or "README: every command, listing, option and link holds")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
