#!/usr/bin/env python3
"""Man pages, completions and operator pages are made from the tables, and fit their readers.

usage: test_manual.py ROOT ATTNRUN
"""
import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import numpy

sys.path.insert(0, str(Path(__file__).parent))
import cli_models  # noqa: E402

ROOT, ATTNRUN = (Path(p).resolve() for p in sys.argv[1:3])


def attnrun(*arguments, code=0):
    done = subprocess.run([ATTNRUN, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


COMMANDS = attnrun("help", "--form", "commands").split()


def options_of(command):
    return re.findall(r"(?m)^  (?:-\w, |    )(--[a-z-]+)", attnrun("help", command))


class Manual(unittest.TestCase):
    def test_limits_are_those_of_the_headers(self):
        done = subprocess.run([sys.executable, ROOT / "tools/manual/limits.py", "--check"],
                              timeout=60)
        self.assertEqual(done.returncode, 0, "python3 tools/manual/limits.py writes the page")

    def test_models_are_those_of_the_tests(self):
        done = subprocess.run([sys.executable, ROOT / "tools/manual/models.py", "--check"],
                              timeout=60)
        self.assertEqual(done.returncode, 0, "python3 tools/manual/models.py writes the page")

    def test_a_page_for_each_command(self):
        self.assertIn("compare", COMMANDS)
        overview = attnrun("help", "--form", "man")
        for command in COMMANDS:
            page = attnrun("help", "--form", "man", command)
            self.assertTrue(page.startswith(f'.TH "ATTNRUN-{command.upper()}" 1 '))
            for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS"):
                self.assertIn(f".SH {section}\n", page)
            shown = page.replace("\\-", "-").replace("\\fB", "").replace("\\fR", "")
            for option in options_of(command):
                self.assertIn(option, shown)
            self.assertIn(f"attnrun\\-{command}", overview)
        for name in ("ATTNRUN_NUM_THREADS", "ATTNRUN_ISA", "ATTNRUN_LOG"):
            self.assertIn(name, overview)

    def test_texts_are_of_their_command(self):
        shown = {command: " ".join(attnrun("help", command).partition("\nExamples:")[0].split(
                     "\n\n")[-1].split())
                 for command in COMMANDS}
        for command, text in shown.items():
            self.assertNotRegex(text, rf"\b({'|'.join(COMMANDS)}): ", command)
        # What each says of an option: to the commands that take it, in all forms.
        self.assertIn("--inputs A,B the values that become the inputs", shown["extract"])
        self.assertIn("--inputs DIR all inputs", shown["run"])
        self.assertIn("attnrun_source model_NAME", shown["compile"])
        self.assertIn("--per-node show time, operations", shown["bench"])
        self.assertIn("no verdict", shown["bench"])
        self.assertIn("--inputs needs a value (A,B)", attnrun("extract", "--inputs", code=2))
        page = attnrun("help", "--form", "man", "extract").replace("\\-", "-")
        self.assertIn("\\fB--inputs\\fR \\fIA,B\\fR\nThe values", page)
        zsh = attnrun("help", "--form", "zsh").partition("\n    compile)")[2].partition(";;")[0]
        self.assertIn("--output=[the C file", zsh)
        fish = re.findall(r"_is ([a-z ]+)' -l (\w+) .*-d '(.*)'",
                          attnrun("help", "--form", "fish"))
        self.assertIn(("pack", "output", "the packed file"), fish)
        for option in ("--output", "--threads"):
            taken = [c for line, name, _ in fish if option == f"--{name}" for c in line.split()]
            self.assertEqual(sorted(taken),
                             sorted(c for c in COMMANDS if option in options_of(c)))

    def test_examples_run(self):
        with tempfile.TemporaryDirectory() as folder:
            cli_models.two_layers(Path(folder) / "model.onnx")
            numpy.save(f"{folder}/x.npy", numpy.ones((2, 5, 8), "f"))
            subprocess.run([ATTNRUN, "-q", "run", "model.onnx", "-i", "x=x.npy", "-o", "y.npz"],
                           cwd=folder, check=True, timeout=60)
            found = 0
            for command in set(COMMANDS) - {"convert"}:
                text = attnrun("help", command).partition("\nExamples:\n")[2]
                page = attnrun("help", "--form", "man", command).replace("\\-", "-")
                for line in re.findall(r"(?m)^  (attnrun .*)", text):
                    found += 1
                    self.assertIn(f"\\fB{line}\\fR", page)
                    done = subprocess.run(
                        ["bash", "-c", line], cwd=folder, timeout=120, capture_output=True,
                        text=True,
                        env={**os.environ, "PATH": f"{ATTNRUN.parent}:{os.environ['PATH']}"})
                    self.assertEqual(done.returncode, 0, (line, done.stderr))
            self.assertGreater(found, 15)
            # part.onnx of compare is not written, since nothing differs; extract's is.
            for name in ("out.npy", "out.npz", "plan.svg", "model.attnpack", "model.c",
                         "simple.onnx", "part.onnx", "used.txt", "growth.svg", "report.html"):
                self.assertTrue((Path(folder) / name).exists(), name)

    def test_troff_takes_the_pages(self):
        troff = shutil.which("groff") or shutil.which("mandoc")
        if troff is None:
            self.skipTest("no groff")
        for command in COMMANDS:
            page = attnrun("help", "--form", "man", command)
            done = subprocess.run([troff, "-man", "-ww", "-Tutf8"], input=page,
                                  capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""), command)

    @unittest.skipUnless(shutil.which("mandoc"), "there is no mandoc")
    def test_mandoc_finds_nothing(self):
        for page in (["help", "--form", "man"], *(["help", "--form", "man", c] for c in COMMANDS)):
            done = subprocess.run(["mandoc", "-T", "lint"], input=attnrun(*page), text=True,
                                  capture_output=True)
            self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""), page)

    def complete(self, *words, folder=None):
        """What bash offers behind these words."""
        quoted = " ".join(f"'{w}'" for w in words)
        done = subprocess.run(
            ["bash", "-c", f"source /dev/stdin; COMP_WORDS=({quoted}); "
             f"COMP_CWORD={len(words) - 1}; _attnrun; printf '%s\\n' \"${{COMPREPLY[@]}}\""],
            input=attnrun("help", "--form", "bash"), capture_output=True, text=True, cwd=folder)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_bash_completes(self):
        self.assertEqual(self.complete("attnrun", "ben"), ["bench"])
        self.assertEqual(self.complete("attnrun", "bench", "--rep"), ["--repeat"])
        self.assertEqual(self.complete("attnrun", "plan", "--rep"), [])
        self.assertEqual(self.complete("attnrun", "run", "--print", "s"), ["summary"])
        self.assertEqual(self.complete("attnrun", "help", "com"), ["compare", "compile"])
        self.assertEqual(self.complete(str(ATTNRUN), "run", "--isa", "bas"), ["base"])
        self.assertEqual(self.complete(str(ATTNRUN), "ops", "LocalAtt"), ["LocalAttention"])
        here = str(ATTNRUN)
        self.assertEqual(self.complete(here, "compare", "--with", "no"), ["no-fusion"])
        # bash cuts words at '='.
        self.assertEqual(self.complete(here, "compare", "--with", "isa", "=", "bas"), ["base"])
        self.assertEqual(self.complete(here, "compare", "--with", "=", "isa", "=", "bas"),
                         ["base"])
        self.assertEqual(self.complete(here, "compare", "--with", "isa", "="),
                         self.complete(here, "run", "--isa", ""))
        self.assertEqual(self.complete(here, "run", "--disable-pass", "skip"),
                         ["skip_layer_norm"])
        self.assertEqual(self.complete(here, "run", "--limit", "nod"), ["nodes="])
        self.assertEqual(self.complete(here, "ops", "--domain", "com."), ["com.microsoft"])
        self.assertIn("ai.onnx", self.complete(here, "ops", "--domain", ""))
        for command in set(COMMANDS) - {"convert", "help"}:
            self.assertEqual(sorted(self.complete("attnrun", command, "--")),
                             sorted(options_of(command)), command)

    def test_names_are_those_that_options_take(self):
        with tempfile.TemporaryDirectory() as folder:
            cli_models.two_layers(Path(folder) / "model.onnx")
            model = f"{folder}/model.onnx"
            for form, option in (("passes", "--disable-pass="), ("limits", "--limit=")):
                names = attnrun("help", "--form", form).split()
                self.assertGreater(len(names), 5)
                self.assertEqual(len(names), len(set(names)))
                for name in names:
                    value = name + "1" if name.endswith("=") else name
                    done = subprocess.run([ATTNRUN, "inspect", model, option + value], text=True,
                                          capture_output=True, timeout=60)
                    self.assertIn(done.returncode, (0, 6), done.stderr)  # or over the limit
            applied = json.loads(attnrun("inspect", model, "--json"))["passes"]
            self.assertEqual(list(applied), attnrun("help", "--form", "passes").split())
        for domain in attnrun("help", "--form", "domains").split():
            self.assertTrue(json.loads(attnrun("ops", "--json", "--domain", domain))["ops"])

    def test_other_shells_read_theirs(self):
        for shell in ("zsh", "fish"):
            text = attnrun("help", "--form", shell)
            for option in options_of("run"):
                self.assertIn(option.lstrip("-"), text)
            if shutil.which(shell):
                done = subprocess.run([shell, "-n", "/dev/stdin"], input=text, text=True,
                                      capture_output=True)
                self.assertEqual((done.returncode, done.stderr), (0, ""))

    def typed(self, shell, setup, line, wanted):
        """Types a line and Tab into a shell on a terminal: the line becomes `wanted`."""
        with tempfile.TemporaryDirectory() as folder:
            for name in ("my model.onnx", "part.onnx"):
                (Path(folder) / name).touch()
            (Path(folder) / "completion").write_text(
                attnrun("help", "--form", Path(shell[0]).name), "utf-8")
            ours, theirs = pty.openpty()
            # The prompt is told from the line that is typed, which the terminal echoes.
            with subprocess.Popen(
                    shell, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder,
                    start_new_session=True,
                    env={"HOME": folder, "TERM": "dumb", "PS1": "",
                         "PATH": f"{ATTNRUN.parent}:{os.environ['PATH']}"}) as child:
                os.close(theirs)
                text = b""
                try:
                    os.write(ours, f"{setup}; echo rea''dy\n".encode())
                    text = self.until(ours, b"ready\r\n")
                    os.write(ours, line.encode() + b"\t")
                    text = self.until(ours, wanted.encode())
                finally:
                    child.kill()
                    os.close(ours)
        self.assertIn(wanted, text.decode(errors="replace"))

    def until(self, terminal, wanted, seconds=60):
        """What a terminal shows until it shows `wanted`; an idle machine takes under a second."""
        text, end = b"", time.monotonic() + seconds
        while wanted not in text and time.monotonic() < end:
            if select.select([terminal], [], [], 0.1)[0]:
                text += os.read(terminal, 65536).replace(b"\a", b"")
        return text

    LINES = (("attnrun ben", "attnrun bench "), ("attnrun --json ru", "attnrun --json run "),
             ("attnrun run --print s", "--print summary "),
             ("attnrun run --print=s", "--print=summary "),
             ("attnrun compare --with=o", "--with=ort "),
             ("attnrun compare --with=isa=bas", "--with=isa=base "),
             ("attnrun compare --with pa", "--with part.onnx "),
             ("attnrun run --disable-pass skip", "--disable-pass skip_layer_norm "),
             ("attnrun run --disable-pass=skip", "--disable-pass=skip_layer_norm "),
             ("attnrun run --limit nod", "--limit nodes="),
             ("attnrun ops --domain com", "--domain com.microsoft "),
             ("attnrun part.onnx --vali", "part.onnx --validate "),
             ("attnrun run -o pa", "-o part.onnx "), ("attnrun run -i x=pa", "x=part.onnx "),
             ("attnrun run my", "run my\\ model.onnx "))

    def test_bash_completes_on_a_terminal(self):
        for line, wanted in self.LINES:
            self.typed(["bash", "--norc", "--noprofile", "-i"], "source ./completion", line, wanted)

    @unittest.skipUnless(shutil.which("zsh"), "there is no zsh")
    def test_zsh_completes_on_a_terminal(self):
        setup = ("autoload -Uz compinit; compinit -u -D; source ./completion 2>&-; "
                 "compdef _attnrun attnrun")
        for line, wanted in self.LINES:
            self.typed(["zsh", "-f", "-i"], setup, line, wanted.rstrip())

    def test_values_that_are_no_files(self):
        """A number or a name is not completed by the files that lie there."""
        with tempfile.TemporaryDirectory() as folder:
            for line in (("bench", "--set", ""), ("bench", "--set", "S", "="), ("run", "-t", "")):
                self.assertEqual(self.complete("attnrun", *line, folder=folder), [], line)
            (Path(folder) / "x.npy").touch()
            self.assertEqual(self.complete("attnrun", "check", "--ref", "", folder=folder),
                             ["x.npy"])

    @unittest.skipUnless(shutil.which("fish"), "there is no fish")
    def test_fish_completes(self):
        for line, words in (("attnrun ben", ["bench"]), ("attnrun run --print s", ["summary"]),
                            ("attnrun help com", ["compare", "compile"]),
                            ("attnrun run --isa bas", ["base"]),
                            ("attnrun ops LocalAtt", ["LocalAttention"]),
                            ("attnrun x.onnx --vali", ["--validate"]),
                            ("attnrun compare --set ", []), ("attnrun --json ben", ["bench"]),
                            ("attnrun compare --with no", ["no-fusion"]),
                            ("attnrun compare --with isa=bas", ["isa=base"]),
                            ("attnrun run --disable-pass skip", ["skip_layer_norm"]),
                            ("attnrun run --limit nod", ["nodes="]),
                            ("attnrun ops --domain com.", ["com.microsoft"])):
            with tempfile.TemporaryDirectory() as home:
                done = subprocess.run(
                    ["fish", "-c", f"source - ; complete -C '{line}'"], text=True,
                    input=attnrun("help", "--form", "fish"), capture_output=True, cwd=home,
                    env={"HOME": home, "PATH": f"{ATTNRUN.parent}:{os.environ['PATH']}"})
            self.assertEqual([w.split("\t")[0] for w in done.stdout.splitlines()], words, line)

    def test_operators_are_described(self):
        text = attnrun("ops", "LocalAttention")
        for word in ("operator    LocalAttention of attnrun", "inputs ",
                     "left_window: ints, required", "cost "):
            self.assertIn(word, text)
        self.assertLessEqual(max(map(len, text.splitlines())), 80)
        self.assertGreater(attnrun("ops", "Softmax").count("operator "), 1)
        self.assertIn("did you mean 'Relu'", attnrun("ops", "Relux", code=2))

    def test_attributes_have_a_meaning(self):
        self.assertRegex(attnrun("ops", "LocalAttention"),
                         r"left_window: ints, required\n +the number of keys before a query")
        known = {(op["name"], a["name"]): a.get("meaning")
                 for op in json.loads(attnrun("ops", "--domain", "attnrun", "--json"))["ops"]
                 for a in op["attributes"]}
        self.assertNotIn(None, known.values())
        rows = re.findall(r'(?m)^ATTRIBUTE\("(\w*)", "(\w+)", "(.*)"\)$',
                          (ROOT / "tools/cli/attribute_texts.def").read_text(encoding="utf-8"))
        self.assertEqual(len(rows), len({row[:2] for row in rows}))
        for op, attribute, text in rows:  # each is shown by some operator
            self.assertTrue([key for key, meaning in known.items()
                             if key[1] == attribute and op in ("", key[0]) and meaning == text],
                            (op, attribute))

    def test_pages_are_those_of_this_build(self):
        done = subprocess.run([sys.executable, ROOT / "tools/manual/operators.py", ATTNRUN,
                               "--check"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, f"{done.stdout}{done.stderr}: run "
                         "tools/manual/operators.py")

    def test_links_lead_somewhere(self):
        for page in (ROOT / "tools/manual").rglob("*.md"):
            text = page.read_text(encoding="utf-8")
            for target in re.findall(r"\]\(([^)#:]+)\)", text):
                self.assertTrue((page.parent / target).exists(), f"{page}: {target}")
            titles = {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-")
                      for title in re.findall(r"(?m)^#+ (.*)$", text)}
            for anchor in re.findall(r"\]\(#([^)]+)\)", text):
                self.assertIn(anchor, titles, page)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
