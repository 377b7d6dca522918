"""A child on stdio that misbehaves in a named way where a prompt begins with 13.

``python hostile.py WAY DIRECTORY``. Everything else it answers by zeros. The ids of its processes
become names of files in DIRECTORY. It imports nothing of the harness, to be there at once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

WAY, DIRECTORY = sys.argv[1], Path(sys.argv[2])
STARTING = {  # what is said in place of ready, and what is other in ready
    "other protocol": {"protocol": 2},
    "unknown capability": {"capabilities": ["greedy", "telepathy"]},
    "no capabilities": {"capabilities": None},
    "not ready": {"type": "piece", "tokens": []},
    "broken": {"type": "error", "message": "no licence found"},
    "unsupported": {"type": "error", "message": "only bigrams", "reason": "unsupported"},
    "invalid": {"type": "error", "message": "no option 'depth'", "reason": "invalid"},
}


def leave(process: int) -> None:
    (DIRECTORY / str(process)).touch()


def write(text: str | bytes) -> None:
    sys.stdout.buffer.write(text.encode() if isinstance(text, str) else text)
    sys.stdout.buffer.flush()


def say(number: int, kind: str, **fields: Any) -> None:
    write(json.dumps({"id": number, "type": kind} | fields) + "\n")


def hang() -> None:
    time.sleep(600)


def grandchild() -> None:
    leave(subprocess.Popen(["sleep", "600"]).pid)


def misbehave(number: int, good: dict[str, Any]) -> None:
    """Answer in the wrong way, or not at all."""
    half = f'{{"id": {number}, "type": "compl'
    (DIRECTORY / "asked").touch()
    match WAY:
        case "noise":
            write("Loading model...\n")
        case "hangs" | "always hangs":
            hang()
        case "exits":
            print("out of\nmemory", file=sys.stderr)
            sys.exit(3)
        case "crashes":
            raise KeyError("weights")
        case "dies":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "half a line":
            write(half)
            sys.exit()
        case "half a line, then hangs":
            write(half)
            hang()
        case "endless line":
            while True:
                write("9" * 100_000)
        case "not UTF-8":
            write(half.encode() + b'\xff"}\n')
        case "empty line":
            write("\n")
        case "not an object":
            write("[1, 2]\n")
        case "other id":
            number += 1
        case "other type":
            say(number, "piece", tokens=[0])
        case "unknown type":
            say(number, "answer", tokens=[0])
        case "too few":
            good["completions"] = []
        case "NaN":
            good["completions"][0]["logprobs"] = [float("nan")]
        case "null":
            good["completions"][0]["logprobs"] = [None]
        case "float token":
            good["completions"][0]["tokens"] = [1.5]
        case "no finish_reason":
            del good["completions"][0]["finish_reason"]
        case "fails":
            say(number, "error", message="out of pages")
            return
        case "floods stderr":
            for _ in range(100):
                print("warning " * 10_000, file=sys.stderr)
        case "floods stderr, then exits":
            print("warning " * 100_000, file=sys.stderr)
            sys.exit("no more pages")
        case "closes stdout":
            os.close(1)
            hang()
        case "closes stdin":
            os.close(0)
            hang()
        case "leaves a grandchild":
            grandchild()
            sys.exit()
        case "hangs with a grandchild":
            grandchild()
            hang()
        case "answers twice":
            say(number, "completions", **good)
    say(number, "completions", **good)


def main() -> None:
    leave(os.getpid())
    for line in sys.stdin:
        message = json.loads(line)
        number, kind = message["id"], message["type"]
        if kind == "start":
            if WAY == "slow":
                time.sleep(1)
            if WAY == "exits at start":
                sys.exit("no licence found")
            ready = {"id": number, "type": "ready", "protocol": 1, "capabilities": ["greedy"]}
            write(json.dumps(ready | STARTING.get(WAY, {})) + "\n")
            if WAY == "reads no more":
                hang()
        elif kind == "generate":
            requests = message["requests"]
            answers = [
                {"tokens": [0] * r["max_new_tokens"], "finish_reason": "length"} for r in requests
            ]
            if WAY == "always hangs" or any(r["prompt"][0] == 13 for r in requests):
                misbehave(number, {"completions": answers})
            else:
                say(number, "completions", completions=answers)
        elif kind == "stop" and WAY != "does not stop":
            return


if __name__ == "__main__":
    main()
