#!/usr/bin/env python3
"""The house rules that a machine can check: include direction, banned calls, sizes, spelling.

usage: tidy.py [--root FOLDER]      prints "file:line: what, and the cure" per finding; exit code 1

Rules are data at the top of this file; tests/tidy/tidy_selftest.py plants a violation of each and
expects it to be found. tests/tidy/baseline.txt lists the functions that may still be longer than
the limit: entries may only shrink and go.
"""
import argparse
import dataclasses
import pathlib
import re
import subprocess
import sys

ROOMS = ("base", "transport", "ops", "coordinator", "core", "bindings_c", "launcher")
SOURCES = {".h", ".hpp", ".cc", ".c", ".cuh", ".cu"}
TEXTS = SOURCES | {".py", ".sh", ".md", ".txt", ".cmake", ".proto", ".json", ".in", ".map"}
MAX_COLUMNS = 100
MAX_FILE_LINES = 500
# The one public header is one file by design, and most of it is its contract.
MAX_LINES_OF = {"bindings_c/include/kolo/kolo.h": 600}
MAX_FUNCTION_LINES = 70

# What a file may include of ours: (files, headers), first match of `files` counts. The interfaces
# of the transport are its headers outside its back-end folders.
INTERFACES = r"transport/[^/]+\.(h|pb\.h)"
INCLUDES = [
    (r"base/", r"base/"),
    (r"transport/", r"(base|transport)/"),
    (r"ops/", rf"(base|ops)/|{INTERFACES}$"),
    (r"coordinator/", r"(base|coordinator)/"),
    (r"core/context[^/]*\.(cc|h)$", r"(base|transport|ops|coordinator|core)/"),
    (r"core/", rf"(base|ops|coordinator|core)/|{INTERFACES}$"),
    (r"bindings_c/", r"base/|bindings_c/|kolo/(kolo\.h|\w+\.hpp)$"
                     r"|core/(context|request)\.h$"),
    (r"launcher/",
     r"(base|launcher)/|transport/rendezvous/|transport/(handshake[^/]*|frame[^/]*|fabric)\.h$"),
    (r"examples/", r"kolo/kolo\.(h|hpp)$"),
]

# Headers of others: (files, banned header, why).
BANNED_HEADERS = [
    (r"coordinator/", r"(thread|mutex|condition_variable|future|sys/.*|netinet/.*|unistd\.h)$",
     "the coordinator is pure: no threads, no locks, no sockets"),
    (r"(base|ops|coordinator|core|bindings_c)/", r"boost/asio",
     "Asio stays in transport and launcher"),
    (r"(base|coordinator|ops|bindings_c)/", r"openssl/", "authentication stays in transport"),
    (r"(?!tests/|bench/|examples/|transport/mpi/module/)",
     r"(mpi|cuda_runtime(_api)?|cuda|nccl)\.h$",
     "MPI, CUDA and NCCL are loaded at run time"),
    (r"bindings_c/include/", r"(?!std(bool|def|int)\.h$|cstddef$|cstdint$)[a-z0-9_]+\.h$",
     "the public header needs nothing but C99's own headers"),
]

LIBRARY = r"(base|transport|ops|coordinator|core|bindings_c)/"
PRODUCT = r"(base|transport|ops|coordinator|core|bindings_c|launcher)/"
# Banned in code (comments and strings left out): (files, except, pattern, cure).
BANNED_CALLS = [
    (PRODUCT, r"base/options\.cc|launcher/", r"\b(secure_)?getenv\s*\(",
     "read options through base/options.h, the one place that reads the environment"),
    (PRODUCT, r"base/check\.cc|bindings_c/include/kolo/\w+\.hpp", r"\bthrow\b(?!\s*(;|\(\s*\)))",
     "return a Status; a broken assumption is a KOLO_CHECK"),
    (PRODUCT, None, r"\b(sleep_for|sleep_until|usleep|nanosleep)\s*\(",
     "wait at the poller, or take `now` as an argument"),
    (PRODUCT, None, r"\bstd::(cout|cerr|clog)\b", "log through base/log.h"),
    (LIBRARY, r"base/log\.cc", r"(?<![\w:.>])(std::)?(v?f?printf|f?puts|putchar)\s*\(",
     "log through base/log.h"),
    # The C boundary hands bare objects to its caller, and gets them back to delete.
    (PRODUCT, r"bindings_c/", r"\bnew\s+[A-Za-z_][\w:]*",
     "std::make_unique, or std::unique_ptr<T>(new T...) for a private constructor"),
    (PRODUCT, r"bindings_c/", r"(?<!= )(?<!operator )\bdelete\b", "give it to a std::unique_ptr"),
    (PRODUCT, None, r"\b(std::)?(abort|exit|_exit|quick_exit|terminate)\s*\(",
     "the library never ends the process; return a Status"),
    (r".*", None, r"#\s*pragma\s+(GCC|clang)\s+diagnostic", "fix the warning instead"),
]
# The launcher is a program: it may end itself.
CALL_EXCEPTIONS = {"the library never ends the process; return a Status": r"launcher/"}

# In any text: (pattern, cure). Written in pieces so that this file does not find itself.
BANNED_WORDS = [
    ("/wo" r"rk/|/tm" r"p/k/|/ho" r"me/\w", "a path of one machine does not belong in the tree"),
    (r"\bFIX" r"ME\b|\bXX" r"X\b|\bHA" r"CK\b", "finish it, or say what is missing in plain words"),
    (r"^(<{7}|>{7}|={7})( |$)", "left over from a merge"),
    (r"[ \t]+$", "white space at the end of the line"),
    (r"\t", "a tab; indent with spaces"),
]
GENERATED = re.compile(r"(^|/)(LICENSE|digits\.csv)$|^tests/fuzz/.*corpus|\.patch$")


@dataclasses.dataclass
class Finding:
    path: str
    line: int
    text: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.text}"


def blank(match):
    return re.sub(r"[^\n]", " ", match.group())


def strip_comments_and_strings(text):
    """Blanks comments, string and character literals; keeps every line and column in place."""
    token = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^\s()\\]{0,16})\(.*?\)(?P=tag)"'
        r'|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
    return token.sub(blank, text)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def check_includes(path, text):
    rule = next(((allowed) for files, allowed in INCLUDES if re.match(files, path)), None)
    for match in re.finditer(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', text, re.MULTILINE):
        header, line = match[2], line_of(text, match.start(2))
        ours = header.split("/")[0] in ROOMS or header.startswith("kolo/")
        if rule and ours and not re.match(rule, header):
            yield Finding(path, line, f'includes "{header}": against the direction of the rooms '
                                      "(docs/architecture.md)")
        if match[1] == '"' and not ours and path.startswith(ROOMS) and "/" not in header \
                and not header.endswith(".pb.h"):
            yield Finding(path, line, f'includes "{header}": write the path from the root')
        for files, banned, why in BANNED_HEADERS:
            if re.match(files, path) and re.match(banned, header):
                yield Finding(path, line, f"includes <{header}>: {why}")


def is_owned_new(code, position):
    """std::unique_ptr<T>(new T...), std::shared_ptr likewise, or reset(new T...)."""
    before = code[max(0, position - 200):position].rstrip()
    return re.search(r"(unique_ptr<.*>\s*(\w+\s*)?|\.reset\s*)[({]$", before, re.DOTALL) is not None


def check_calls(path, code):
    for files, excepted, pattern, cure in BANNED_CALLS:
        excepted = CALL_EXCEPTIONS.get(cure, excepted)
        if not re.match(files, path) or (excepted and re.match(excepted, path)):
            continue
        for match in re.finditer(pattern, code):
            name = match.group().strip(" (")
            before = code[max(0, match.start() - 2):match.start()]
            if name.endswith("abort") and re.search(r"\w\s*$|[.>]$|::$", line_before(code, match)):
                continue  # a method or a declaration of that name
            if name.startswith("new") and is_owned_new(code, match.start()):
                continue
            if before.endswith(("->", ".")):
                continue
            yield Finding(path, line_of(code, match.start()), f"`{name}`: {cure}")


def line_before(code, match):
    return code[code.rfind("\n", 0, match.start()) + 1:match.start()]


# What comes before the brace of a class, a namespace or an initialised variable.
SCOPE = re.compile(r"\b(class|struct|enum|namespace|union)\s+[\w:]+[^()]*$|=\s*$")


def functions(code):
    """(name, first line, lines) of each function body. A heuristic that knows formatted code."""
    stack, head_start = [], 0
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", blank, code, flags=re.MULTILINE)
    for match in re.finditer(r"[{};]", code):
        at, what = match.start(), match.group()
        if what == "{":
            head = code[head_start:at]
            if any(entry[0] == "function" for entry in stack) or not code[at - 1].isspace():
                stack.append(("block", None, 0))
            elif "(" in head and not SCOPE.search(head):
                name = re.search(r"([~\w:]+|operator\s*\S+)\s*\(", head)
                stack.append(("function", name[1] if name else "?", at))
            else:
                stack.append(("scope", None, 0))
            if stack[-1][0] != "block":
                head_start = at + 1
        elif what == "}":
            if stack:
                kind, name, start = stack.pop()
                if kind == "function":
                    yield name, line_of(code, start), code.count("\n", start, at) + 1
                if kind == "block":
                    continue  # `a_{1}` in an initialiser list: the head goes on
            head_start = at + 1
        else:
            head_start = at + 1


def read_baseline(root):
    path = root / "tests/tidy/baseline.txt"
    entries = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        if line and not line.startswith("#"):
            name, lines = line.rsplit(" ", 1)
            entries[name] = int(lines)
    return entries


def check_functions(path, code, baseline):
    for name, line, lines in functions(code):
        key = f"{path}:{name}"
        allowed = max(baseline.pop(key, 0), MAX_FUNCTION_LINES)
        if lines > allowed:
            yield Finding(path, line, f"{name} has {lines} lines, more than {allowed}: split it")
        elif allowed > MAX_FUNCTION_LINES and lines < allowed:
            yield Finding("tests/tidy/baseline.txt", 1,
                          f"{key} has shrunk to {lines} lines: lower or remove its entry")


def check_text(path, text):
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > MAX_COLUMNS and not re.search(r"https?://\S{60,}|^\|", line):
            yield Finding(path, number, f"{len(line)} columns, more than {MAX_COLUMNS}")
        for pattern, cure in BANNED_WORDS:
            if re.search(pattern, line):
                yield Finding(path, number, cure)
    if text and not text.endswith("\n"):
        yield Finding(path, text.count("\n") + 1, "no line end at the end of the file")


def check_header(path, text):
    if not re.match(r"//|/\*", text):
        yield Finding(path, 1, "a header opens with what it is, its threads and its ownership")
    guarded = re.search(r"^#ifndef (KOLO_\w+)\n#define \1$", text, re.MULTILINE)
    if path.startswith(("bindings_c/include/", "examples/")) and guarded:
        return  # C99 has no #pragma once
    if "#pragma once\n" not in text:
        yield Finding(path, 1, "#pragma once is missing")


def check_file(path, text, baseline):
    suffix = pathlib.PurePath(path).suffix
    yield from check_text(path, text)
    if suffix in SOURCES:
        lines = text.count("\n")
        limit = MAX_LINES_OF.get(str(path), MAX_FILE_LINES)
        if lines > limit:
            yield Finding(path, lines, f"{lines} lines, more than {limit}: split it")
        code = strip_comments_and_strings(text)
        yield from check_includes(path, text)
        yield from check_calls(path, code)
        yield from check_functions(path, code, baseline)
    if suffix in {".h", ".hpp"}:
        yield from check_header(path, text)


def tree_files(root):
    """What git knows, or would add; every file where there is no repository."""
    listing = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"],
                             capture_output=True, text=True, check=False)
    if listing.returncode == 0 and (root / ".git").exists():
        return sorted(set(listing.stdout.splitlines()))
    return sorted(str(p.relative_to(root)) for p in root.rglob("*")
                  if p.is_file() and p.relative_to(root).parts[0] not in (".git", "build"))


def check_tree(root):
    root = pathlib.Path(root)
    baseline = read_baseline(root)
    findings = []
    for path in tree_files(root):
        full = root / path
        text_like = full.suffix in TEXTS or full.name in ("LICENSE", "run")
        if not text_like or GENERATED.search(path) or not full.is_file():
            continue
        findings += check_file(path, full.read_text(encoding="utf-8"), baseline)
    findings += [Finding("tests/tidy/baseline.txt", 1, f"{key} is gone or short: remove its entry")
                 for key in baseline]
    return findings


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parents[2])
    findings = check_tree(parser.parse_args().root)
    for finding in findings:
        print(finding)
    print(f"tidy: {len(findings)} findings" if findings else "tidy: the house is in order")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
