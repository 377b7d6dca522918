"""mini-infer: its own Qwen2, which a Llama is with biases of zero; a step, and an engine without.

``speculative_step`` gives the tokens of one round; the loop that asks for the next one, and takes
no more than was asked for, is the adapter's.
"""

from __future__ import annotations

import json
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from harness.adapters.peers.base import GREEDY, SAMPLED, Peer, completion, ids
from harness.contract import Completion, Request, Round
from harness.pair_files import OnDisk, Role, UnsupportedPairError


class MiniInfer(Peer):
    """Rounds of ``speculative_step``, ``InferenceEngine`` without speculation."""

    package = "mini-infer"
    capabilities = GREEDY | SAMPLED | {"plain", "rounds", "model_draft"}

    def __init__(self, pair: OnDisk) -> None:
        self.versions = {name: metadata.version(name) for name in (self.package, "torch")}
        (self._target, self._config), (self._draft, _) = (
            _qwen2(pair, role) for role in ("target", "draft")
        )

    def one(self, request: Request) -> Completion:
        """Decode one request."""
        return self._rounds(request) if request.speculate else self._plain(request)

    def _rounds(self, request: Request) -> Completion:
        from mini_infer.speculative.verifier import speculative_step

        text, rounds, k = ids(request), [], request.draft_tokens
        before, temperature = len(request.prompt), request.sampling.temperature
        while text.shape[1] < before + request.max_new_tokens:
            new, accepted = speculative_step(self._target, self._draft, text, k, temperature)
            text = torch.cat([text, torch.tensor([new])], dim=1)
            rounds.append(Round(k, accepted))
        said = text[0, before : before + request.max_new_tokens].tolist()
        return completion(said, request, rounds=rounds)

    def _plain(self, request: Request) -> Completion:
        from mini_infer.engine import InferenceEngine

        engine = InferenceEngine(self._target, self._config, device=torch.device("cpu"))
        n, temperature = request.max_new_tokens, request.sampling.temperature
        sequence = engine.add_request(list(request.prompt), max_tokens=n, temperature=temperature)
        while len(sequence.output_token_ids) < n:
            engine.step()
        return completion(sequence.output_token_ids, request)


def _qwen2(pair: OnDisk, role: Role) -> Any:
    from mini_infer.models.loader import load_model_from_safetensors
    from safetensors.torch import load_file, save_file

    directory = pair.file(role, "hf")
    config = json.loads((directory / "config.json").read_text())
    if config["model_type"] != "llama":
        raise UnsupportedPairError(f"mini-infer reads Qwen2, which no {config['model_type']} is")
    weights = load_file(directory / "model.safetensors")
    for name in [
        name
        for name in weights
        if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))
    ]:
        weights[name.replace("weight", "bias")] = torch.zeros(len(weights[name]))
    with tempfile.TemporaryDirectory() as made:
        # transformers 5 keeps the base of the rotations where the library does not look.
        base = config["rope_parameters"]["rope_theta"]
        Path(made, "config.json").write_text(json.dumps(config | {"rope_theta": base}))
        save_file(weights, Path(made, "model.safetensors"))
        return load_model_from_safetensors(made, device="cpu", dtype=torch.float32)
