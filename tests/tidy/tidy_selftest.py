#!/usr/bin/env python3
"""Plants violations in a small tree and expects tidy.py to find each, and nothing else."""
import pathlib
import tempfile
import unittest

import tidy

HEADER = "// What it is. One thread.\n#pragma once\n"
LONG_BODY = "".join(f"  step({i});\n" for i in range(80))

# (file, contents, a piece of the finding's text)
VIOLATIONS = [
    # include direction
    ("base/a.cc", '#include "core/context.h"\n', "direction"),
    ("base/a.cc", '#include "transport/channel.h"\n', "direction"),
    ("ops/a.cc", '#include "transport/tcp/tcp_fabric.h"\n', "direction"),
    ("ops/a.cc", '#include "transport/rendezvous/rendezvous.h"\n', "direction"),
    ("ops/a.cc", '#include "coordinator/sequencer.h"\n', "direction"),
    ("transport/a.cc", '#include "ops/operation.h"\n', "direction"),
    ("coordinator/a.cc", '#include "transport/channel.h"\n', "direction"),
    ("coordinator/a.cc", "#include <thread>\n", "pure"),
    ("coordinator/a.cc", "#include <sys/socket.h>\n", "pure"),
    ("core/engine.cc", '#include "transport/tcp/tcp_fabric.h"\n', "direction"),
    ("core/engine.cc", '#include "kolo/kolo.h"\n', "direction"),
    ("core/engine.cc", "#include <boost/asio.hpp>\n", "Asio"),
    ("bindings_c/api.cc", '#include "core/engine.h"\n', "direction"),
    ("bindings_c/api.cc", '#include "transport/channel.h"\n', "direction"),
    ("bindings_c/include/kolo/kolo.h", HEADER + "#include <unistd.h>\n", "own headers"),
    ("launcher/main.cc", '#include "core/context.h"\n', "direction"),
    ("launcher/main.cc", '#include "transport/tcp/tcp_fabric.h"\n', "direction"),
    ("examples/a/a.c", '#include "base/status.h"\n', "direction"),
    ("ops/a.cc", "#include <nccl.h>\n", "loaded at run time"),
    ("base/a.cc", '#include "status.h"\n', "path from the root"),
    # banned calls
    ("core/a.cc", 'const char* x = std::getenv("X");\n', "base/options.h"),
    ("core/a.cc", "void f() { throw 1; }\n", "return a Status"),
    ("core/a.cc", "void f() { std::this_thread::sleep_for(1ms); }\n", "poller"),
    ("launcher/a.cc", "void f() { usleep(1); }\n", "poller"),
    ("core/a.cc", "void f() { std::cout << 1; }\n", "base/log.h"),
    ("core/a.cc", 'void f() { printf("x"); }\n', "base/log.h"),
    ("core/a.cc", 'void f() { std::fprintf(stderr, "x"); }\n', "base/log.h"),
    ("core/a.cc", "auto* x = new Thing(1);\n", "make_unique"),
    ("core/a.cc", "void f(Thing* x) { delete x; }\n", "unique_ptr"),
    ("core/a.cc", "void f() { std::abort(); }\n", "never ends the process"),
    ("core/a.cc", "void f() { exit(1); }\n", "never ends the process"),
    ("tests/unit/a.cc", '#pragma GCC diagnostic ignored "-Wall"\n', "fix the warning"),
    # sizes
    ("core/a.cc", "int f() {\n" + LONG_BODY + "}\n", "f has 82 lines"),
    ("core/a.cc", "Thing::Thing()\n    : a_{1},\n      b_(2) {\n" + LONG_BODY + "}\n",
     "Thing has 82 lines"),
    ("core/a.h", HEADER + "class A {\n  int f() const {\n" + LONG_BODY + "  }\n};\n", "f has 82"),
    ("core/a.cc", "int x;\n" * 501, "501 lines"),
    ("core/a.cc", "// " + "x" * 98 + "\n", "101 columns"),
    ("tests/tidy/baseline.txt", "core/a.cc:gone 99\n", "remove its entry"),
    # text
    ("core/a.h", "#pragma once\n", "opens with what it is"),
    ("core/a.h", "// What it is.\n", "#pragma once"),
    ("core/a.cc", "int x;  \n", "white space"),
    ("core/a.cc", "\tint x;\n", "a tab"),
    ("core/a.cc", "int x;", "no line end"),
    ("docs/a.md", "see /wo" "rk/x\n", "path of one machine"),
    ("core/a.cc", "// FIX" "ME\n", "plain words"),
    ("core/a.cc", "<" * 7 + " ours\n", "merge"),
]

# Much like a violation, but fine.
CLEAN = {
    "base/check.cc": "void f() { throw Bug(); }\n",
    "base/options.cc": 'const char* x = std::getenv("X");\n',
    "base/log.cc": 'void f() { std::fprintf(stderr, "x"); }\n',
    "bindings_c/include/kolo/kolo.h": "/* The API. */\n#ifndef KOLO_H_\n#define KOLO_H_\n"
                                      "#include <stdint.h>\n#endif\n",
    "bindings_c/api.cc": "void f() { try { g(); } catch (...) { delete new Thing; throw; } }\n",
    "core/context.cc": '#include "transport/tcp/tcp_fabric.h"\n',
    "core/clean.cc": "// throw, new Thing, printf( in a comment\n"
                     'const char* text = "new Thing; delete it; exit(1)";\n'
                     "Thing(const Thing&) = delete;\n"
                     "auto a = std::unique_ptr<Thing>(new Thing(1));\n"
                     "void f() { context.abort(reason); snprintf(b, 1, x); }\n"
                     "class C {\n  virtual Status abort(int reason) = 0;\n};\n",
    "core/long.cc": "int f() {\n" + LONG_BODY + "}\n",
    "launcher/main.cc": '#include "transport/rendezvous/rendezvous.h"\nint main() { exit(2); }\n',
    "ops/a.cc": '#include "transport/channel.h"\n',
    "tests/tidy/baseline.txt": "# comment\ncore/long.cc:f 82\n",
    "tests/unit/a.cc": '#include "coordinator/sequencer.h"\nvoid f() { throw 1; }\n',
}


def findings_in(files):
    with tempfile.TemporaryDirectory() as folder:
        for name, contents in files.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(contents)
        return [str(finding) for finding in tidy.check_tree(folder)]


class Tidy(unittest.TestCase):
    def test_each_planted_violation_is_found_alone(self):
        for name, contents, expected in VIOLATIONS:
            with self.subTest(file=name, expected=expected, contents=contents[:60]):
                findings = findings_in({name: contents})
                self.assertEqual(1, len(findings), findings)
                self.assertIn(expected, findings[0])
                self.assertTrue(findings[0].startswith(name), findings)

    def test_what_only_looks_like_one_is_left_alone(self):
        self.assertEqual([], findings_in(CLEAN))

    def test_a_function_that_has_shrunk_must_leave_its_baseline_entry(self):
        files = {"core/long.cc": "int f() {\n" + LONG_BODY + "}\n",
                 "tests/tidy/baseline.txt": "core/long.cc:f 90\n"}
        self.assertIn("has shrunk to 82", findings_in(files)[0])

    def test_the_ratchet_does_not_let_a_function_grow(self):
        files = {"core/long.cc": "int f() {\n" + LONG_BODY + "}\n",
                 "tests/tidy/baseline.txt": "core/long.cc:f 81\n"}
        self.assertIn("more than 81", findings_in(files)[0])


if __name__ == "__main__":
    unittest.main()
