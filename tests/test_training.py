"""Training of drafters, at a size where every step can be looked at."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import LlamaForCausalLM

from reference_impl.drafters.dataset import Exchanges
from reference_impl.drafters.eagle import load_eagle
from reference_impl.drafters.learners import EagleLearner, MedusaLearner, ModelLearner
from reference_impl.drafters.medusa import load_medusa
from reference_impl.drafters.reduced import load_reduced_draft
from reference_impl.drafters.training import Learner, Training
from tests.test_reduced_draft import tiny_target

VOCABULARY = torch.arange(0, 64, 2)
LENGTHS, FIRSTS = (12, 9, 15, 10), (4, 3, 6, 5)


@pytest.fixture(scope="module")
def target() -> LlamaForCausalLM:
    return tiny_target()


@pytest.fixture(scope="module")
def data(target: LlamaForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> Exchanges:
    """Texts and the target's side of them, in the form that the corpus has."""
    rng = torch.Generator().manual_seed(3)
    ids = [torch.randint(64, (length,), generator=rng) for length in LENGTHS]
    with torch.no_grad():
        hidden = [target.model(text[None]).last_hidden_state[0] for text in ids]
        log_z = [target.lm_head(states).logsumexp(-1) for states in hidden]
    path = tmp_path_factory.mktemp("corpus") / "shard.safetensors"
    columns = {
        "ids": torch.cat(ids).int(),
        "hidden": torch.cat(hidden).bfloat16(),
        "log_z": torch.cat(log_z),
        "lengths": torch.tensor(LENGTHS),
        "answers": torch.tensor(FIRSTS),
        "tasks": torch.zeros(4, dtype=torch.int64),
        "temperatures": torch.ones(4),
    }
    save_file(columns, path)
    return Exchanges([path])


def learner(family: str, target: LlamaForCausalLM) -> Learner:
    torch.manual_seed(7)
    if family == "model":
        return ModelLearner(target, VOCABULARY)
    if family == "medusa":
        return MedusaLearner(target, VOCABULARY, 2)
    return EagleLearner(target, VOCABULARY)


def training(family: str, target: LlamaForCausalLM, data: Exchanges, folder: Path) -> Training:
    given = {"out": folder, "work": folder, "family": family, "steps": 60, "rows": 2, "seed": 1}
    rates = {"lr": 0.02, "norm_lr": 0.002, "weight_decay": 0.01, "warm_up": 2, "mix": 1.0}
    args = argparse.Namespace(**given, **rates, log_every=5, save_seconds=1e9)
    begun = Training(learner(family, target), data, args)
    begun.resume()
    return begun


def test_a_batch_is_the_exchanges_side_by_side(data: Exchanges) -> None:
    batch = data.batch([1, 2])
    assert batch.ids.shape == (2, 15)
    assert batch.scored[0].nonzero().flatten().tolist() == list(range(2, 9))
    assert batch.scored[1].nonzero().flatten().tolist() == list(range(5, 15))
    targets = batch.targets(batch.scored)
    start = LENGTHS[0]
    torch.testing.assert_close(targets.hidden[:7], data.hidden[start + 2 : start + 9])
    torch.testing.assert_close(targets.log_z[:7], data.log_z[start + 2 : start + 9])


def test_medusa_heads_look_further_from_the_same_state(
    target: LlamaForCausalLM, data: Exchanges
) -> None:
    """Untrained blocks are the identity: the prediction is the state so many tokens earlier."""
    batch = data.batch([0, 3])
    found = MedusaLearner(target, VOCABULARY, 2).predictions(batch)
    for ahead, (states, targets) in enumerate(found, 1):
        places = [(row, t) for row, t in batch.scored.nonzero().tolist() if t >= ahead]
        expected = torch.stack([batch.hidden[row, t - ahead] for row, t in places])
        torch.testing.assert_close(states, expected.float())
        here = torch.stack([batch.hidden[row, t] for row, t in places])
        torch.testing.assert_close(targets.hidden, here)


def test_an_eagle_reads_states_and_the_tokens_after_them(
    target: LlamaForCausalLM, data: Exchanges
) -> None:
    """An untrained layer is the identity: it guesses the state before; then the one before that."""
    batch = data.batch([0, 3])
    first, second = EagleLearner(target, VOCABULARY, 2).predictions(batch)
    places = batch.scored.nonzero().tolist()
    for back, (states, targets) in ((1, first), (2, second)):
        expected = [batch.hidden[row, max(0, t - back)] for row, t in places]
        torch.testing.assert_close(states, torch.stack(expected).float())
        torch.testing.assert_close(targets.log_z, batch.log_z[batch.scored])


@pytest.mark.parametrize("family", ["model", "medusa", "eagle"])
def test_training_learns_and_in_two_parts_the_same(
    family: str, target: LlamaForCausalLM, data: Exchanges, tmp_path: Path
) -> None:
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    for folder in (whole, halves):
        folder.mkdir()
    one = training(family, target, data, whole)
    one.run()
    log = [json.loads(line) for line in (whole / "train_log.jsonl").read_text().splitlines()]
    assert log[-1]["loss"] < 0.8 * log[0]["loss"]
    first = training(family, target, data, halves)
    while first.step < 30:
        first.update()
    first.save()
    other = training(family, target, data, halves)
    assert other.step == 30
    other.run()
    learned = dict(other.learner.module.named_parameters())
    for name, parameter in one.learner.module.named_parameters():
        torch.testing.assert_close(parameter, learned[name])


def test_what_was_learned_is_loaded(
    target: LlamaForCausalLM, tmp_path: Path, data: Exchanges
) -> None:
    for family in ("model", "medusa", "eagle"):
        learner(family, target).save(tmp_path)
        if family == "model":
            draft = load_reduced_draft(target, tmp_path)
            assert torch.equal(draft.lm_head.vocabulary, VOCABULARY)
        elif family == "medusa":
            heads = load_medusa(tmp_path, target.lm_head, 32)
            logits = heads[0](data.hidden[0].float())
            assert torch.isfinite(logits).nonzero().flatten().tolist() == VOCABULARY.tolist()
        else:
            layer = load_eagle(tmp_path)
            assert layer.vocabulary is not None
            assert torch.equal(layer.vocabulary, VOCABULARY)
