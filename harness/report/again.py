"""How to measure once more what a record holds."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from harness.bench.tasks import DRAFTS
from harness.record import Header


def again(header: Header, decoder: str, tasks: Sequence[str]) -> str:
    """The command that measures one decoder on some tasks as this record was."""
    told = header.options
    options = {
        "--decoder": decoder,
        "--tasks": ",".join(tasks),
        "--pair": None if told.get("target") else header.pair.name,
        "--target": told.get("target"),
        "--draft": told.get("draft"),
        "--profile": told.get("profile"),
        "--prompts": told.get("prompts"),
        "--max-new-tokens": told.get("max_new_tokens"),
        "--draft-tokens": told.get("draft_tokens"),
        "--temperature": told.get("temperature") or None,
        "--batch-size": told["batch_size"] if told.get("batch_size", 1) > 1 else None,
        "--prompt-tokens": told.get("prompt_tokens"),
        "--draft-choice": told["draft_choice"]
        if told.get("draft_choice", "") in DRAFTS[1:]
        else None,
        "--device": header.pair.device,
        "--dtype": header.pair.dtype,
        "--seed": header.seed,
    }
    words = [word for name, value in options.items() if value is not None for word in (name, value)]
    for file in told.get("prompts_files", ()):
        words += ["--prompts-file", file["name"]]
    for name, value in told.get("decoder_options", {}).items():
        words += ["--decoder-option", f"{name}={value}"]
    return shlex.join(["python", "-m", "harness.report", *map(str, words)])
