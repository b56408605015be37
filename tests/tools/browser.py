"""A browser without a window, driven through its DevTools protocol: a page in; keys go in as a
keyboard sends them, and the accessibility tree comes out as a screen reader gets it.

Source: chromedevtools.github.io/devtools-protocol, and RFC 6455 for the frames of the socket.
"""
import base64
import json
import os
import re
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request

KEYS = {"Tab": 9, "Enter": 13, " ": 32, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38,
        "ArrowRight": 39, "ArrowDown": 40}
SECONDS = 60  # for each answer; an idle machine takes less than one


class Browser:
    """One page of a headless Chromium; close() ends the process."""

    def __init__(self, program):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        more = ["--no-sandbox"] if os.geteuid() == 0 else []
        self.process = subprocess.Popen(
            [program, "--headless", "--disable-gpu", "--remote-debugging-port=0", *more,
             "--force-prefers-reduced-motion", "--window-size=1280,900",
             f"--user-data-dir={self.folder.name}", "about:blank"],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        self.calls, self.bytes, self.socket = 0, b"", None
        for line in self.process.stderr:
            if match := re.search(r"ws://([^:/]+):(\d+)/", line):
                break
        else:
            self.close()
            raise RuntimeError("the browser did not start")
        host, port = match[1], int(match[2])
        with urllib.request.urlopen(f"http://{host}:{port}/json", timeout=SECONDS) as answer:
            page = next(p for p in json.load(answer) if p["type"] == "page")
        self.connect(host, port, page["webSocketDebuggerUrl"].split(f":{port}", 1)[1])

    def close(self):
        if self.socket:
            self.socket.close()
        self.process.terminate()
        self.process.wait(SECONDS)
        self.process.stderr.close()
        self.folder.cleanup()

    def connect(self, host, port, path):
        self.socket = socket.create_connection((host, port), timeout=SECONDS)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall((f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\n"
                             f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
                             "Sec-WebSocket-Version: 13\r\n\r\n").encode())
        while b"\r\n\r\n" not in self.bytes:
            self.bytes += self.socket.recv(1 << 16)
        self.bytes = self.bytes.split(b"\r\n\r\n", 1)[1]

    def take(self, size):
        while len(self.bytes) < size:
            more = self.socket.recv(1 << 20)
            if not more:
                raise RuntimeError("the browser closed the connection")
            self.bytes += more
        taken, self.bytes = self.bytes[:size], self.bytes[size:]
        return taken

    def receive(self):
        text, last = b"", False
        while not last:
            first, second = self.take(2)
            size = second & 127
            if size >= 126:
                wide = 2 if size == 126 else 8
                size = int.from_bytes(self.take(wide), "big")
            part, last = self.take(size), bool(first & 128)
            if first & 15 in (0, 1):  # the others are pings and the like
                text += part
            else:
                last = False
        return json.loads(text)

    def call(self, method, **parameters):
        self.calls += 1
        text = json.dumps({"id": self.calls, "method": method, "params": parameters}).encode()
        size = (bytes([128 + len(text)]) if len(text) < 126 else
                bytes([254]) + struct.pack(">H", len(text)))
        self.socket.sendall(b"\x81" + size + bytes(4) + text)  # a mask of zeros
        while (answer := self.receive()).get("id") != self.calls:
            pass
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def open(self, address):
        self.call("Page.enable")
        self.call("Page.navigate", url=address)
        end = time.monotonic() + SECONDS
        while (self.evaluate("location.href"), self.evaluate("document.readyState")) != (
                address, "complete"):
            if time.monotonic() > end:
                raise RuntimeError(f"{address} did not load")
            time.sleep(0.02)

    def key(self, name):
        """Presses a key of KEYS, with Shift+ before its name if wished."""
        *shift, name = name.split("+")
        text = {"Enter": "\r", " ": " "}.get(name)
        what = {"key": name, "code": "Space" if name == " " else name,
                "windowsVirtualKeyCode": KEYS[name], "modifiers": 8 if shift else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **what,
                  **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **what)

    def accessibility(self):
        """The nodes that a screen reader is given: {id, parent, role, name, description,
        focusable}, without those that are ignored."""
        self.call("Accessibility.enable")
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        ignored = {n["nodeId"]: n.get("parentId") for n in nodes if n.get("ignored")}

        def parent(node):
            up = node.get("parentId")
            while up in ignored:
                up = ignored[up]
            return up

        def text(node, key):
            return str(node.get(key, {}).get("value", ""))

        return [{"id": n["nodeId"], "parent": parent(n), "role": text(n, "role"),
                 "name": text(n, "name"), "description": text(n, "description"),
                 "focusable": any(p["name"] == "focusable" and p["value"].get("value")
                                  for p in n.get("properties", []))}
                for n in nodes if not n.get("ignored")]
