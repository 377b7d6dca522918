"""The reduced-vocabulary draft: exact logits, round trip, and use by `generate`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from reference_impl.drafters.dataset import Targets
from reference_impl.drafters.measure import greedy_accepted, sampled_accepted
from reference_impl.drafters.reduced import (
    ReducedVocabLlama,
    build_reduced_draft,
    load_reduced_draft,
    save_reduced_draft,
    with_full_head,
)
from reference_impl.drafters.training import distances

VOCABULARY = torch.arange(0, 64, 3)


def tiny_target(**changes: int) -> LlamaForCausalLM:
    torch.manual_seed(5)
    shape = {
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    ends = {"eos_token_id": 63, "pad_token_id": 63, "bos_token_id": 1}
    config = LlamaConfig(
        **(shape | changes), **ends, tie_word_embeddings=True, initializer_range=0.3
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def target() -> LlamaForCausalLM:
    return tiny_target()


@pytest.fixture(scope="module")
def draft(target: LlamaForCausalLM) -> ReducedVocabLlama:
    return build_reduced_draft(target, VOCABULARY)


@pytest.fixture(scope="module")
def ids() -> torch.Tensor:
    return torch.randint(64, (2, 9), generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def test_kept_logits_are_the_full_ones_and_the_rest_is_minus_infinity(
    target: LlamaForCausalLM, draft: ReducedVocabLlama, ids: torch.Tensor
) -> None:
    logits = draft(input_ids=ids).logits
    hidden = draft.model(input_ids=ids).last_hidden_state
    full = hidden @ target.lm_head.weight.T
    kept = torch.isin(torch.arange(64), VOCABULARY)
    assert logits.shape == (2, 9, 64)
    torch.testing.assert_close(logits[..., kept], full[..., kept])
    assert bool((logits[..., ~kept] == -torch.inf).all())


@torch.no_grad()
def test_logits_to_keep_takes_a_count_or_positions(
    draft: ReducedVocabLlama, ids: torch.Tensor
) -> None:
    logits = draft(input_ids=ids).logits
    where = torch.tensor([1, 4])
    last, chosen = (draft(input_ids=ids, logits_to_keep=keep).logits for keep in (3, where))
    torch.testing.assert_close(last, logits[:, -3:])
    torch.testing.assert_close(chosen, logits[:, where])


def test_embedding_is_shared(target: LlamaForCausalLM, draft: ReducedVocabLlama) -> None:
    assert draft.get_input_embeddings().weight is target.get_input_embeddings().weight


@torch.no_grad()
def test_round_trip(
    target: LlamaForCausalLM, draft: ReducedVocabLlama, ids: torch.Tensor, tmp_path: Path
) -> None:
    with torch.no_grad():  # bf16 is what the file holds
        for weight in (*draft.model.layers.parameters(), *draft.model.norm.parameters()):
            weight.copy_(weight.bfloat16())
    save_reduced_draft(draft, tmp_path)
    loaded = load_reduced_draft(target, tmp_path)
    assert loaded.dtype == target.dtype
    assert torch.equal(loaded(input_ids=ids).logits, draft(input_ids=ids).logits)


def test_wrong_target_is_refused(draft: ReducedVocabLlama, tmp_path: Path) -> None:
    save_reduced_draft(draft, tmp_path)
    with pytest.raises(ValueError, match="needs a target with intermediate_size=48, not 40"):
        load_reduced_draft(tiny_target(intermediate_size=40), tmp_path)


def test_assisted_generation_equals_plain_generation(
    target: LlamaForCausalLM, draft: ReducedVocabLlama, ids: torch.Tensor
) -> None:
    prompt = ids[:1]
    plain = target.generate(prompt, do_sample=False, max_new_tokens=24)
    assisted = target.generate(prompt, do_sample=False, max_new_tokens=24, assistant_model=draft)
    assert torch.equal(plain, assisted)


def test_gradient_of_the_training_loss_is_that_of_autograd() -> None:
    rng = torch.Generator().manual_seed(2)
    head, states, hidden = (torch.randn(n, 8, generator=rng) for n in (12, 5, 5))
    every = F.linear(hidden, torch.cat([head, torch.randn(4, 8, generator=rng)]))
    targets = Targets(hidden, every.logsumexp(-1))
    states.requires_grad_()
    p = every.softmax(-1)[:, :12]
    q = F.linear(states, head).softmax(-1)
    overlap = torch.minimum(p, q).sum(-1)
    loss = ((p * (p / q).log()).sum(-1) + 0.7 * (1 - overlap)).mean()
    loss.backward()
    other = torch.randn(5, 8, generator=rng)
    (gradient, figures), _ = distances([states.detach(), other], targets, head, mix=0.7)
    torch.testing.assert_close(gradient, states.grad)
    assert figures["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert figures["overlap"] == pytest.approx(overlap.mean().item(), rel=1e-5)


def test_accepted_lengths() -> None:
    # Blocks start at 0 (two accepted; the target adds one), 3 (one; it corrects), 5 (two).
    agreement = torch.tensor([[True, True, False, True, False, True, True]])
    assert greedy_accepted(agreement, 2) == [2, 1, 2]
    assert sampled_accepted(torch.tensor([[0.5, 0.5, 1.0]]), 2) == pytest.approx([0.75, 1.0])
    # One prediction for each token of a block: the second of every pair is the second's.
    agreement = torch.stack([agreement[0], torch.zeros(7, dtype=torch.bool)])
    assert greedy_accepted(agreement, 2) == [1, 0, 1, 1]
    both = torch.tensor([[0.5, 0.5, 1.0], [0.9, 0.2, 0.4]])
    assert sampled_accepted(both, 2) == pytest.approx([0.5 + 0.1, 0.5 + 0.2])


@torch.no_grad()
def test_full_head_is_the_same_draft_as_a_plain_llama(
    target: LlamaForCausalLM, draft: ReducedVocabLlama, ids: torch.Tensor, tmp_path: Path
) -> None:
    with_full_head(draft, target).save_pretrained(tmp_path)
    plain = LlamaForCausalLM.from_pretrained(tmp_path)
    kept = plain(ids).logits[..., VOCABULARY]
    torch.testing.assert_close(kept, draft(ids).logits[..., VOCABULARY])
    assert torch.equal(plain.lm_head.weight, target.lm_head.weight)
