"""A stand-in for llama-server: its log, its API, and a few ways in which it can fail.

Tokens of an answer are its K, again and again. The variable FAKE_LLAMA names what goes wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FAULT = os.environ.get("FAKE_LLAMA", "")
parser = argparse.ArgumentParser()
parser.add_argument("--spec-draft-n-max", type=int, default=0)
parser.add_argument("-np", type=int)
GIVEN, _ = parser.parse_known_args()


class Handler(BaseHTTPRequestHandler):
    """The few paths that the harness asks for."""

    def do_GET(self) -> None:
        """What the server is."""
        if self.path == "/props":
            self.answer({"build_info": "b0-fake", "total_slots": GIVEN.np})
        else:
            self.answer({"data": [{"id": "fake", "meta": {"n_vocab": 64}}]})

    def do_POST(self) -> None:
        """Texts of ids, and completions."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/detokenize":
            self.answer({"content": "".join(f"<{token}>" for token in body["tokens"])})
            return
        if FAULT == "dies" and body["n_predict"] == 13:
            print("GGML_ASSERT(false) failed", flush=True)
            os.kill(os.getpid(), signal.SIGABRT)
            time.sleep(10)
        tokens = [GIVEN.spec_draft_n_max] * body["n_predict"]
        self.answer({"tokens": tokens, "stop": True, "stop_type": "limit"})

    def answer(self, value: Any) -> None:
        """JSON."""
        content = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


if FAULT == "exits":
    print("error: failed to load model", flush=True)
    sys.exit(1)
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(f"pid {os.getpid()}", flush=True)
print(f"srv  main: listening on http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
