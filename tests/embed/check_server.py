"""The embedding server under load: every answer is the one that ONNX Runtime gives for the text
alone, none is lost, memory stays within the plan, slow and simultaneous clients are served, a full
queue and bad requests are refused, and SIGTERM ends it after all that it took is answered.

usage: check_server.py SERVER [--requests N] [--clients N] [--model FILE] [--beside SERVER] [--page]
With --model, a text encoder of ids, mask and token types; else a small one made here. Prints p50
and p99 of the answers; with --beside, those of the same front over ONNX Runtime (ort_front), which
gets the same requests in turns, and with --page too, only these are measured, and written into
tools/manual/scale.md. ATTNRUN_TEST_SEED changes the texts.
"""
import argparse
import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

import numpy
import onnxruntime
from onnx import TensorProto, helper

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "tools"), str(ROOT / "tools" / "bench")]
import cli_models  # noqa: E402
import written  # noqa: E402

TOKENS = 48
LONG_US = 50_000_000  # longer than any part of this takes: no batch goes because of its time


def small_encoder(path, words=50, width=32):
    """Self-attention over embedded tokens, with a padding mask: what batches must not change."""
    random_numbers = numpy.random.default_rng(0)

    def weights(*shape):
        return random_numbers.normal(size=shape).astype("f")
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["x"]),
        helper.make_node("MatMul", ["x", "wq"], ["q"]),
        helper.make_node("MatMul", ["x", "wk"], ["k"]),
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "kt"], ["scores"]),
        helper.make_node("Cast", ["attention_mask"], ["maskf"], to=TensorProto.FLOAT),
        helper.make_node("Sub", ["one", "maskf"], ["away"]),
        helper.make_node("Mul", ["away", "low"], ["bias"]),
        helper.make_node("Unsqueeze", ["bias", "middle"], ["bias3"]),
        helper.make_node("Add", ["scores", "bias3"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "x"], ["y"]),
    ]
    return cli_models.save(
        path, nodes,
        [("ids", TensorProto.INT64, ["B", "S"]), ("attention_mask", TensorProto.INT64, ["B", "S"])],
        [("y", TensorProto.FLOAT, ["B", "S", width])],
        [("table", weights(words, width)), ("wq", weights(width, width) / 8),
         ("wk", weights(width, width) / 8), ("one", numpy.float32(1)),
         ("low", numpy.float32(-1e9)), ("middle", numpy.array([1]))])


class Reference:
    def __init__(self, path):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(path, options,
                                                    providers=["CPUExecutionProvider"])

    def embedding(self, ids):
        feeds = {}
        for i, value in enumerate(self.session.get_inputs()):
            kind = 1 if "mask" in value.name else 0
            feeds[value.name] = numpy.array([ids if i == 0 else [kind] * len(ids)])
        out = self.session.run(None, feeds)[0][0].astype("d")
        out = out.mean(0) if out.ndim == 2 else out
        return out / numpy.linalg.norm(out)


class Server:
    def __init__(self, program, model, *options):
        self.process = subprocess.Popen([program, model, "--port", "0", *map(str, options)],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        found = re.match(r"listening on 127\.0\.0\.1:(\d+), at most (\d+) bytes", line)
        if not found:
            sys.exit(f"the server does not start: {line}{self.process.stderr.read()}")
        self.port, self.most = int(found[1]), int(found[2])

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def ask(self, method, path, body=None, connection=None):
        own = connection or self.connect()
        own.request(method, path, body)
        response = own.getresponse()
        return response.status, response.read().decode()

    def metrics(self):
        return {name: int(value) for name, value in
                re.findall(r"^embed_(\w+) (\d+)$", self.ask("GET", "/metrics")[1], re.M)}

    def resident(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate(timeout=120)
        if self.process.returncode != 0:
            sys.exit(f"the server ended with {self.process.returncode}: {out}{err}")
        return out


def load(server, texts, clients):
    """Asks for all texts from so many connections at once; [(status, body, seconds)] in order."""
    answers = [None] * len(texts)
    next_text = iter(range(len(texts)))
    lock = threading.Lock()

    def client():
        connection = server.connect()
        while True:
            with lock:
                i = next(next_text, None)
            if i is None:
                return
            begin = time.perf_counter()
            status, body = server.ask("POST", "/embed", json.dumps({"ids": texts[i]}), connection)
            answers[i] = (status, body, time.perf_counter() - begin)
    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def check_answers(texts, answers, reference, seed):
    lost = sum(a is None or a[0] != 200 for a in answers)
    if lost:
        sys.exit(f"{lost} of {len(texts)} requests have no answer (seed {seed}): "
                 f"{next(a for a in answers if a is None or a[0] != 200)}")
    known = {}
    for ids, (_, body, _) in zip(texts, answers):
        if tuple(ids) not in known:
            known[tuple(ids)] = reference.embedding(ids)
        error = numpy.abs(numpy.array(json.loads(body)["embedding"]) - known[tuple(ids)]).max()
        if not error < 1e-4:
            sys.exit(f"an embedding of {len(ids)} tokens is off by {error} (seed {seed})")


def resident_peak(server):
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024


def measure(programs, model, asked, clients, reference, seed):
    """Each program's answers to the same requests, in five turns; rows of a table."""
    servers = {name: Server(program, model, "--tokens", TOKENS)
               for name, program in programs.items()}
    seconds, walls = {name: [] for name in servers}, dict.fromkeys(servers, 0)
    early, rows = {}, []
    part = -(-len(asked) // 5)
    for turn in range(6):  # the first one warms up
        texts = asked[max(turn - 1, 0) * part:][:part]
        for name, server in servers.items():
            begin = time.perf_counter()
            answers = load(server, texts, clients)
            took = time.perf_counter() - begin
            check_answers(texts, answers, reference, seed)  # ends where one is lost
            early.setdefault(name, server.resident())
            if turn > 0:
                seconds[name] += [a[2] for a in answers]
                walls[name] += took
    for name, server in servers.items():
        each, metrics = sorted(seconds[name]), server.metrics()
        p50, p99 = (1e3 * each[len(each) * p // 100] for p in (50, 99))
        print(f"{name}: {len(each)} answers, 0 lost; {len(each) / walls[name]:.0f} a second; "
              f"p50 {p50:.2f} ms, p99 {p99:.2f} ms; "
              f"{metrics['answered_total'] / metrics['batches_total']:.1f} texts a batch; resident "
              f"{early[name] / 1e6:.1f} MB at first, {server.resident() / 1e6:.1f} MB at the end, "
              f"at most {resident_peak(server) / 1e6:.1f} MB")
        rows.append([name, f"{len(each):,}", "0", f"{len(each) / walls[name]:.0f}",
                     f"{p50:.2f}", f"{p99:.2f}", f"{early[name] / 1e6:.1f}",
                     f"{server.resident() / 1e6:.1f}", f"{resident_peak(server) / 1e6:.1f}"])
        server.stop()
    return rows


def write_page(rows, given):
    clients = f"{given.clients} clients"
    head = ["engine", "answers", "lost", "answers/s", "p50, ms", "p99, ms", "resident at first, MB",
            "at the end, MB", "at most, MB"]
    sentence = written.measured("tests/embed/check_server.py --beside --page",
                                f"{os.cpu_count()} cores", clients)
    sentence += (": the same requests go to both servers in turns. \"At first\" is after the "
                 "requests that warm up. Each answer is compared with ONNX Runtime's for the text "
                 "alone.")
    written.write_rows(ROOT / "tools" / "manual" / "scale.md", "served",
                       textwrap.fill(sentence, 100), head, rows)


def check_refusals(server):
    assert server.ask("GET", "/health") == (200, "ok\n")
    for body in ("", "{}", '{"ids": []}', '{"ids": [1,]}', '{"ids": [-1]}', '{"ids": [1]} x',
                 '{"ids": [99999999999999999999]}', json.dumps({"ids": [1] * (TOKENS + 1)})):
        status, text = server.ask("POST", "/embed", body)
        assert status == 400 and "error" in json.loads(text), (body, status, text)
    status, text = server.ask("POST", "/embed", '{"ids": [1000000]}')  # no such word
    assert status == 400, (status, text)


def ask_and_wait(server, texts):
    """Asks for all texts at once; returns when all of them wait in the queue."""
    answers = []
    threads = [threading.Thread(target=lambda ids=ids: answers.append(
        server.ask("POST", "/embed", json.dumps({"ids": ids})))) for ids in texts]
    for thread in threads:
        thread.start()
    while server.metrics()["waiting"] < len(texts):
        assert all(thread.is_alive() for thread in threads), answers
    return threads, answers


def check_batches(program, model, texts):
    """A batch goes as soon as it is full: as many clients as it has places fill each."""
    server = Server(program, model, "--tokens", TOKENS, "--batch", 4, "--wait-us", LONG_US)
    answers = load(server, texts[:12], 4)
    assert [a[0] for a in answers] == [200] * 12, answers
    metrics = server.metrics()
    assert (metrics["batches_total"], metrics["answered_total"]) == (3, 12), metrics
    server.stop()


def check_connections(program, model, texts):
    """Clients that connect at the same moment, again and again, are all answered; so are one that
    says nothing for longer than the HTTP library waits by itself (5 s), and one whose body comes
    as late. The threads that serve them are as many as there were connections at a time."""
    server = Server(program, model, "--tokens", TOKENS)
    silent, late, body = server.connect(), server.connect(), json.dumps({"ids": texts[0]})
    assert server.ask("POST", "/embed", body, silent)[0] == 200
    late.putrequest("POST", "/embed")
    late.putheader("Content-Length", str(len(body)))
    late.endheaders()
    begin = time.monotonic()
    for _ in range(8):
        answers = load(server, texts, 32)
        assert all(a is not None and a[0] == 200 for a in answers), answers
    time.sleep(max(0, 6 - (time.monotonic() - begin)))
    late.send(body.encode())
    assert late.getresponse().status == 200
    assert server.ask("POST", "/embed", body, silent)[0] == 200
    threads = len(list(Path(f"/proc/{server.process.pid}/task").iterdir()))
    assert threads <= 32 + 2 + 2 * 32, threads  # closed connections may not be seen as such yet
    silent.close()
    late.close()
    server.stop()


def check_full_queue(program, model, texts):
    """What comes while the queue is full is refused; the server counts both."""
    server = Server(program, model, "--tokens", TOKENS, "--contexts", 1, "--batch", 64,
                    "--queue", 2, "--wait-us", LONG_US)
    threads, waited = ask_and_wait(server, texts[:2])
    for ids in texts[2:8]:
        status, _ = server.ask("POST", "/embed", json.dumps({"ids": ids}))
        assert status == 503, status
    assert server.metrics()["refused_total"] == 6
    out = server.stop()
    for thread in threads:
        thread.join()
    assert [a[0] for a in waited] == [200] * 2, waited
    assert "answered 2, refused 6, failed 0" in out, out


def check_stop(program, model, texts):
    """What waits when SIGTERM comes is still answered."""
    server = Server(program, model, "--tokens", TOKENS, "--contexts", 1, "--batch", 64,
                    "--wait-us", LONG_US)
    threads, answers = ask_and_wait(server, texts[:6])
    out = server.stop()
    for thread in threads:
        thread.join()
    assert [a[0] for a in answers] == [200] * 6, answers
    assert "answered 6, refused 0, failed 0" in out, out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("server")
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--model")
    parser.add_argument("--beside")
    parser.add_argument("--page", action="store_true")
    given = parser.parse_args()
    seed = int(os.environ.get("ATTNRUN_TEST_SEED", "20240229"))
    numbers = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        model = given.model or small_encoder(Path(folder) / "encoder.onnx")
        texts = [[numbers.randrange(1, 50) for _ in range(numbers.randrange(1, TOKENS + 1))]
                 for _ in range(64)]
        asked = [numbers.choice(texts) for _ in range(given.requests)]
        if given.beside:
            rows = measure({"attnrun": given.server, "onnxruntime": given.beside}, model, asked,
                           given.clients, Reference(model), seed)
            if given.page:
                write_page(rows, given)
                return
        server = Server(given.server, model, "--tokens", TOKENS)
        check_refusals(server)
        load(server, asked[:64], given.clients)
        early = server.resident()
        answers = load(server, asked, given.clients)
        check_answers(asked, answers, Reference(model), seed)
        metrics = server.metrics()
        assert metrics["memory_peak_bytes"] <= server.most, (metrics, server.most)
        seconds = sorted(a[2] for a in answers)
        print(f"{len(answers)} answers, 0 lost; p50 {seconds[len(seconds) // 2] * 1e3:.2f} ms, "
              f"p99 {seconds[len(seconds) * 99 // 100] * 1e3:.2f} ms; "
              f"{metrics['answered_total'] / metrics['batches_total']:.1f} texts a batch; resident "
              f"{early / 1e6:.1f} MB after 64, {server.resident() / 1e6:.1f} MB at the end")
        server.stop()
        check_batches(given.server, model, texts)
        check_connections(given.server, model, texts)
        check_full_queue(given.server, model, texts)
        check_stop(given.server, model, texts)


main()
