"""Text goes on: decode.c with the folder's own tokenizer.

usage: decode.py DECODE FOLDER TEXT [OPTION of decode...]"""
import subprocess
import sys

from tokenizers import Tokenizer

decode, folder, text, *options = sys.argv[1:]
tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
prompt = " ".join(map(str, tokenizer.encode(text).ids))
with subprocess.Popen([decode, folder, *options], stdin=subprocess.PIPE,
                      stdout=subprocess.PIPE, text=True) as program:
    program.stdin.write(prompt)
    program.stdin.close()
    ids, shown = [], ""
    for line in program.stdout:
        ids.append(int(line))
        whole = tokenizer.decode(ids)  # a token may change what those before it mean
        if not whole.endswith("\N{REPLACEMENT CHARACTER}"):
            print(whole[len(shown):], end="", flush=True)
            shown = whole
    print()
sys.exit(program.returncode)
