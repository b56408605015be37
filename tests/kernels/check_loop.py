#!/usr/bin/env python3
"""The inner loop of a function, as objdump shows it: of the blocks that end with a jump back
to their own start, the one with the most products. None of its instructions goes to memory
relative to the stack pointer, and the given share of them are products. Other members of the
library may have a function of that name, too.

usage: check_loop.py OBJDUMP LIBRARY MEMBER FUNCTION PRODUCT LEAST_SHARE
"""
import re
import subprocess
import sys

LINE = re.compile(r"^\s*([0-9a-f]+):\s+(\S+)\s*(.*)$")
JUMP = re.compile(r"^(b|b\.\w+|cbn?z|tbn?z|ret|br|blr?)$")


def loops(text):
    """Blocks of (address, name, operands) from the target of a jump back to that jump,
    without another jump or target of one between."""
    lines = [LINE.match(line) for line in text.splitlines()]
    code = [(int(m[1], 16), m[2], m[3]) for m in lines if m]
    start = {address: i for i, (address, _, _) in enumerate(code)}
    for end, (_, name, operands) in enumerate(code):
        target = re.search(r"\b([0-9a-f]+) <", operands)
        first = start.get(int(target[1], 16)) if target and JUMP.match(name) else None
        if first is not None and first <= end and \
                not any(JUMP.match(other) for _, other, _ in code[first:end]):
            yield code[first:end + 1]


def main():
    objdump, library, member, function, product, least = sys.argv[1:]
    text = subprocess.run([objdump, "-d", "--no-show-raw-insn", f"--disassemble={function}",
                           library], capture_output=True, text=True, check=True).stdout
    best, products = [], 0
    # Of each instruction set there is one of the name, and addresses begin again in each.
    for part in re.split(r"^(?=\S+: +file format)", text, flags=re.MULTILINE):
        for block in loops(part) if part.startswith(member + ":") else ():
            n = sum(name == product for _, name, _ in block)
            if n > products:
                best, products = block, n
    if not best:
        sys.exit(f"{member}, {function}: no loop with {product}")
    share = products / len(best)
    stack = [f"{name} {operands}" for _, name, operands in best if "[sp" in operands]
    print(f"{function}: {products} {product} of {len(best)} instructions ({share:.1%}), "
          f"{len(stack)} to the stack")
    for line in stack:
        print("    " + line)
    return 1 if stack or share < float(least) else 0


if __name__ == "__main__":
    sys.exit(main())
