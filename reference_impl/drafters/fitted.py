"""Heads and layers fitted to a tiny target's own text, in less than a second.

What ``train.py`` does for a large target in hours, made small: the loss is how far the draft's laws
are from the target's, on text that the target said. It is enough for some of the drafts to be
accepted. The same target gives the same weights.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div, linear
from transformers import PreTrainedModel

from harness.contract import Request, Sampling
from reference_impl.cache import features_of
from reference_impl.drafters.eagle import EagleLayer
from reference_impl.drafters.medusa import MedusaHeads
from reference_impl.drafters.untrained import untrained_eagle, untrained_medusa
from reference_impl.engine import SpeculativeEngine

TEXTS, PROMPT, TOKENS = 32, 4, 44  # half of the texts are greedy, half are sampled
STEPS, WARM_UP, RATE = 60, 10, 1e-2


def fitted_eagle(target: PreTrainedModel, vocab: int) -> EagleLayer:
    """A layer that has learned the next state from a state and the token after it."""
    layer = untrained_eagle(target).float()

    def guesses(tokens: Tensor, states: Tensor) -> list[Tensor]:
        inputs = layer.inputs(tokens[:, 1:], states[:, :-1])
        return [layer.llama(inputs_embeds=inputs, use_cache=False).last_hidden_state]

    _fit(layer, guesses, target, vocab)
    return layer


def fitted_medusa(target: PreTrainedModel, vocab: int) -> MedusaHeads:
    """Heads of which the k-th has learned the law k tokens further; the last layer is shared."""
    heads = untrained_medusa(target)
    blocks = nn.ModuleList(head.get_submodule("0").float() for head in heads)

    def guesses(tokens: Tensor, states: Tensor) -> list[Tensor]:
        return [block(states[:, :-ahead]) for ahead, block in enumerate(blocks, 1)]

    _fit(blocks, guesses, target, vocab)
    return heads


def _fit(
    module: nn.Module,
    guesses: Callable[[Tensor, Tensor], list[Tensor]],
    target: PreTrainedModel,
    vocab: int,
) -> None:
    """Adam, with a linear warm-up and a linear decay to zero, on KL(p || q).

    Parameters
    ----------
    guesses : callable
        From embeddings and states of texts, [TEXTS, T, D] each, to guessed states of their last
        positions, [TEXTS, T - 1 or fewer, D]: what goes into the head for the law q after them.
    """
    ids = _own_text(target, vocab)
    with torch.no_grad():
        states = features_of(target(ids, output_hidden_states=True, use_cache=False), (-1,))
        assert states is not None
        states, tokens = states.float(), target.get_input_embeddings()(ids).float()
        head = target.get_output_embeddings().weight[:vocab].float()
        p = linear(states, head).log_softmax(-1)
    optimiser = torch.optim.Adam(module.parameters(), RATE)
    for step in range(STEPS):
        factor = min((step + 1) / WARM_UP, (STEPS - step) / (STEPS - WARM_UP))
        optimiser.param_groups[0]["lr"] = RATE * factor
        optimiser.zero_grad()
        for guess in guesses(tokens, states):
            q = linear(guess, head).log_softmax(-1).flatten(0, 1)
            true = p[:, -guess.shape[1] :].flatten(0, 1)
            loss = kl_div(q, true, log_target=True, reduction="batchmean")
            loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    module.requires_grad_(False)


def _own_text(target: PreTrainedModel, vocab: int) -> Tensor:
    """Ids of texts that the target says, [TEXTS, PROMPT + TOKENS]."""
    draws = torch.Generator().manual_seed(1)
    prompts = torch.randint(vocab, (TEXTS, PROMPT), generator=draws).tolist()
    requests = [
        Request(
            prompt=tuple(prompt),
            max_new_tokens=TOKENS,
            sampling=Sampling(temperature=seed % 2),
            seed=seed,
        )
        for seed, prompt in enumerate(prompts)
    ]
    said = SpeculativeEngine(target, None, vocab).generate(requests)
    texts = [[*prompt, *answer.tokens] for prompt, answer in zip(prompts, said, strict=True)]
    return torch.tensor(texts, device=target.device)
