"""Every call ends soon after its deadline, wherever it is: the clock is one that counts.

usage: test_polls.py PROBE blocks|deadline

blocks    no model of operators.txt does more than MOST_BLOCKS basic blocks between two
          reads of the clock (a build with -DATTNRUN_COUNT=ON)
deadline  opening reads the clock all along where a rewrite pass goes over large constants, and
          running along lines of maps in blocks; and the deadline passes at the n-th read: the
          call that is under way fails with TIME and reads the clock no more, but for its start
"""
import re
import subprocess
import sys
import tempfile

import make_operators
import make_passes

LEAST_READS = 40  # for 4 MB that a pass makes and writes, or reads, or 800 million operations
MOST_BLOCKS = 3_000_000  # of scalar code: 10 million operations, or a megabyte of floats
PHASE = re.compile(r"(open|pack|plan|run) (\d+) (\d+) (\d+) ([\d.]+)")


def run(probe, *arguments):
    result = subprocess.run([probe, *map(str, arguments)], capture_output=True, text=True,
                            timeout=600)
    assert result.returncode == 0, f"{arguments}: {result.returncode} {result.stderr}"
    return result.stdout.strip()


def check_blocks(probe, made):
    wrong = 0
    for path, line in made:
        text = run(probe, path)
        phases = PHASE.findall(text)
        longest = max(int(phase[3]) for phase in phases)
        assert longest > 0, "this probe counts no blocks"
        bad = "failed" in text or longest > MOST_BLOCKS
        wrong += bad
        if bad:
            print(f"{longest} blocks between two polls ({line}): {text}")
    return wrong


def check_deadline(probe, made):
    """In opening and planning, at the first read of the run, and in its middle."""
    wrong = 0
    for path, line in made:
        phases = PHASE.findall(run(probe, path))
        before = sum(int(phase[1]) for phase in phases[:-1])
        reads = int(phases[-1][1])
        for at in sorted({1, 2, before, before + 1, before + reads // 2 + 1}):
            if at > before + (reads if reads > 1 else 0):  # the first one sets the deadline
                continue
            text = run(probe, "-d", at, path).split()
            phase, status, later = text[-3:]
            bad = status != "TIME" or int(later) > 1  # one where the deadline is set
            wrong += bad
            if bad:
                print(f"deadline at read {at} of {before}+{reads} ({line}): {phase} ended "
                      f"with {status} after {later} more")
    return wrong


def check_passes(probe, folder, make, sizes, phase, counted):
    """A phase of models that rewrite passes change reads the clock the more often, the larger."""
    wrong = 0
    small, large = [make_passes.write(folder, make(n)) for n in sizes]
    for name, path in large.items():
        few, text = run(probe, "-f", small[name]), run(probe, "-f", path)
        phases = PHASE.findall(text)
        more = int(phases[phase][1]) - int(PHASE.findall(few)[phase][1])
        bad = "failed" in text or more < LEAST_READS or (
            counted and int(phases[phase][3]) > MOST_BLOCKS)
        wrong += bad
        if bad:
            print(f"{name} reads the clock {more} times more often: {text}")
    return wrong


def main(probe, what):
    with tempfile.TemporaryDirectory() as folder:
        made = make_operators.write(folder)
        wrong = check_passes(probe, folder, make_passes.models, (4, 1024), 0, what == "blocks")
        wrong += check_passes(probe, folder, make_passes.lines, (3, 201), 3, what == "blocks")
        if what == "deadline":  # a part: every one takes its time to run
            wrong += check_deadline(probe, made[::6])
        else:
            wrong += check_blocks(probe, made)
    print(f"{wrong} of {len(made)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
