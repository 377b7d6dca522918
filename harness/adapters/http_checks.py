"""What a server is asked before it is judged: whose model it has, and what it refuses."""

from __future__ import annotations

import random
from collections.abc import Mapping

import torch

from harness.adapters.http_apis import Api, OwnEosError
from harness.adapters.http_client import ServerError
from harness.contract import Request, Sampling

CONTROLS = 4  # prompts whose first greedy token says whose it is
NOISE = 0.05  # of the range of the logits: more than rounding or quantisation moves them

DOUBTS: Mapping[str, Sampling] = {
    "min_p": Sampling(temperature=1.0, min_p=0.1),
    "logit_bias": Sampling(logit_bias={0: 1.0}),
}


def check_target(api: Api) -> None:
    """Raise ValueError if the server decodes with another model than the pair's target.

    The first token of a greedy answer comes from the prompt alone, before any speculation: most of
    them must be among the target's best, whatever noise or quantisation there is.
    """
    pair = api.pair
    if "greedy" not in api.capabilities or not pair.has_weights:
        return
    strange = []
    for number in range(CONTROLS):
        prompt = tuple(random.Random(number).choices(range(pair.vocab_size), k=6))
        try:
            answer = api.generate(Request(prompt=prompt, max_new_tokens=1)).tokens
        except OwnEosError as error:
            answer = error.tokens
        with torch.inference_mode():
            ids = torch.tensor([prompt], device=pair.device)
            logits = pair.target(ids).logits[0, -1, : pair.vocab_size].float()
        lowest, highest = logits.aminmax()
        known = len(answer) == 1 and 0 <= answer[0] < pair.vocab_size
        if not known or highest - logits[answer[0]] > NOISE * (highest - lowest):
            strange.append(f"{list(prompt)} by {answer}, the target by [{int(logits.argmax())}]")
    if len(strange) > CONTROLS / 2:
        raise ValueError(
            f"{api.server.url} does not decode with the target of the pair {pair.name}: it answers "
            f"{strange[0]} (so in {len(strange)} of {CONTROLS} first greedy tokens, before any "
            "speculation): serve that target, or name what is served by --pair, or by --target "
            "and --draft"
        )


def refused(api: Api) -> set[str]:
    """Doubtful capabilities that this server refuses (HTTP 400) where it is asked for one token.

    What is answered wrongly, or by a crash, is not refused: that is for the suites to see. So no
    more is asked than is in doubt, for an engine that dies of a request here is never judged.
    """
    found = set()
    for capability in api.doubtful:
        request = Request(prompt=(0,), max_new_tokens=1, sampling=DOUBTS[capability])
        try:
            api.generate(request)
        except ServerError:
            continue
        except ValueError:
            found.add(capability)
    return found
