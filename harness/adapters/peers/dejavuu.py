"""dejavuu: drafts looked up in the text so far, verified as a chain or as a tree.

It draws by position: the seed and where a token stands decide. Its budget is K, of a tree too.
"""

from __future__ import annotations

from functools import partial

import torch

from harness.adapters.peers.base import GREEDY, SAMPLED, Peer, completion, one_eos
from harness.contract import Completion, Metrics, Request
from harness.pair_files import OnDisk


class DejaVuu(Peer):
    """``generate`` on its transformers backend.

    Parameters
    ----------
    method : str
        Name of one of its drafters.
    tree : bool
    """

    package = "dejavuu"
    capabilities = GREEDY | SAMPLED | {"top_p", "eos", "plain", "metrics"}

    def __init__(self, pair: OnDisk, method: str, tree: bool) -> None:
        from dejavuu.decoders.hf import HFBackend

        super().__init__(pair)
        self._method, self._tree = method, tree
        self._model = HFBackend(str(pair.file("target", "hf")), device="cpu")

    def one(self, request: Request) -> Completion:
        """Decode one request."""
        from dejavuu.core.engine import generate
        from dejavuu.core.sampling import Sampler
        from dejavuu.drafters import make_drafter

        s = request.sampling
        seed = int(torch.randint(1 << 31, ())) if request.seed is None else request.seed
        result = generate(
            self._model,
            list(request.prompt),
            request.max_new_tokens,
            make_drafter(self._method) if request.speculate else None,
            request.draft_tokens,
            one_eos(request),
            tree=self._tree and request.speculate,
            sampler=None if s.greedy else Sampler(s.temperature, s.top_p, seed),
        )
        tokens, calls = len(result.tokens), result.steps
        counts = Metrics(
            tokens=tokens, target_calls=calls, drafted=result.drafted, accepted=result.accepted
        )
        return completion(result.tokens, request, metrics=counts)


chain = partial(DejaVuu, method="pld", tree=False)
tree = partial(DejaVuu, method="token_recycling", tree=True)
