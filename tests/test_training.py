"""Training of drafters, at a size where every step can be looked at."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import LlamaForCausalLM

from harness.contract import Request
from reference_impl.batch import Batch
from reference_impl.cache import features_of
from reference_impl.drafters.dataset import Batch as Exchange
from reference_impl.drafters.dataset import Exchanges
from reference_impl.drafters.eagle import EagleDrafter, load_eagle
from reference_impl.drafters.learners import EagleLearner, MedusaLearner, ModelLearner
from reference_impl.drafters.measure import evaluate
from reference_impl.drafters.medusa import load_medusa
from reference_impl.drafters.reduced import load_reduced_draft
from reference_impl.drafters.training import Learner, Training
from tests.test_reduced_draft import tiny_target

VOCABULARY = torch.arange(0, 64, 2)
LENGTHS, FIRSTS = (12, 9, 15, 10), (4, 3, 6, 5)
DEPTHS, WIDTH = (1, -1), 32


@pytest.fixture(scope="module")
def target() -> LlamaForCausalLM:
    return tiny_target()


@pytest.fixture(scope="module")
def data(target: LlamaForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> Exchanges:
    """Texts and the target's side of them, in the form that the corpus has."""
    rng = torch.Generator().manual_seed(3)
    ids = [torch.randint(64, (length,), generator=rng) for length in LENGTHS]
    with torch.no_grad():
        hidden = [target.model(text[None], output_hidden_states=True) for text in ids]
        features = [features_of(output, DEPTHS)[0] for output in hidden]
        log_z = [target.lm_head(states[:, -WIDTH:]).logsumexp(-1) for states in features]
    path = tmp_path_factory.mktemp("corpus") / "shard.safetensors"
    columns = {
        "ids": torch.cat(ids).int(),
        "features": torch.cat(features).bfloat16(),
        "log_z": torch.cat(log_z),
        "lengths": torch.tensor(LENGTHS),
        "answers": torch.tensor(FIRSTS),
        "tasks": torch.zeros(4, dtype=torch.int64),
        "temperatures": torch.ones(4),
    }
    save_file(columns, path)
    return Exchanges([path], WIDTH)


def of(batch: Exchange, depths: tuple[int, ...]) -> Exchange:
    """The same batch, with the states of the last so many depths."""
    return dataclasses.replace(batch, features=batch.features[..., -len(depths) * WIDTH :])


def learner(family: str, target: LlamaForCausalLM) -> Learner:
    torch.manual_seed(7)
    if family == "model":
        return ModelLearner(target, VOCABULARY)
    if family == "medusa":
        return MedusaLearner(target, VOCABULARY, 2)
    return EagleLearner(target, VOCABULARY, DEPTHS, 2)


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
    expected = data.features[start + 2 : start + 9, -WIDTH:]
    torch.testing.assert_close(targets.hidden[:7], expected)
    torch.testing.assert_close(targets.log_z[:7], data.log_z[start + 2 : start + 9])


def test_medusa_heads_look_further_from_the_same_state(
    target: LlamaForCausalLM, data: Exchanges
) -> None:
    """Untrained blocks are the identity: the prediction is the state so many tokens earlier."""
    batch = data.batch([0, 3])
    found = MedusaLearner(target, VOCABULARY, 2).predictions(batch)
    for ahead, states in enumerate(found, 1):
        torch.testing.assert_close(states[:, ahead:], batch.hidden[:, :-ahead].float())


@pytest.mark.parametrize("depths", [(-1,), DEPTHS])
def test_an_eagle_begins_as_the_identity(
    depths: tuple[int, ...], target: LlamaForCausalLM, data: Exchanges
) -> None:
    """It guesses the state before; then the one before that; all of one size, if it has a norm."""
    batch = of(data.batch([0, 3]), depths)
    hidden = batch.hidden.float()
    if len(depths) > 1:  # the target's own norm has weights of 1 here
        hidden = torch.nn.functional.rms_norm(hidden, (WIDTH,), eps=1e-6)
    for back, states in enumerate(
        EagleLearner(target, VOCABULARY, depths, 2).predictions(batch), 1
    ):
        torch.testing.assert_close(states[:, back:], hidden[:, :-back])


@torch.no_grad()
@pytest.mark.parametrize("depths", [(-1,), DEPTHS])
def test_an_eagle_is_trained_on_what_it_meets_when_it_drafts(
    depths: tuple[int, ...], target: LlamaForCausalLM, data: Exchanges
) -> None:
    """Every guess of a block, from every place of a text, is the drafter's own."""
    torch.manual_seed(8)
    trained = EagleLearner(target, VOCABULARY, depths, 3)
    for parameter in trained.layer.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    trained.layer.vocabulary = None
    exchange = of(data.batch([2]), depths)
    guesses = trained.predictions(exchange)
    text = exchange.ids[0].tolist()
    for length in range(2, len(text) - 2):
        batch = Batch([Request(prompt=tuple(text[:length]), max_new_tokens=3)], 64, target.device)
        drafter = EagleDrafter(trained.layer, target, 64)
        drafter.start(batch, 32)
        drafter.see(exchange.features[:, : length - 1].float(), np.zeros(1, dtype=np.int64))
        for step in range(3):
            logits = drafter.logits(batch, exchange.ids[:, length : length + step], step)
            expected = target.lm_head(guesses[step][:, length - 1 + step])
            torch.testing.assert_close(logits, expected, atol=1e-3, rtol=1e-3)


def test_a_drafter_is_measured_by_what_it_drafts(target: LlamaForCausalLM, data: Exchanges) -> None:
    """A head that looks one token ahead agrees where the target repeats its last choice."""
    trained = MedusaLearner(target, torch.arange(64), 1)
    figures = evaluate(trained, target.lm_head.weight, torch.arange(64), data)["all tasks"]
    choices = target.lm_head(data.features[:, -WIDTH:].float()).argmax(-1).tolist()
    repeated, start = [], 0
    for length, first in zip(LENGTHS, FIRSTS, strict=True):
        places = range(start + first - 1, start + length)
        repeated += [choices[t] == choices[t - 1] for t in places]
        start += length
    assert figures["all"]["positions"] == len(repeated)
    assert figures["all"]["agreement"] == pytest.approx([np.mean(repeated)], abs=1e-4)


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
            logits = heads[0](data.features[0, -WIDTH:].float())
            assert torch.isfinite(logits).nonzero().flatten().tolist() == VOCABULARY.tolist()
        else:
            layer = load_eagle(tmp_path)
            assert layer.depths == DEPTHS
            assert layer.vocabulary is not None
            assert torch.equal(layer.vocabulary, VOCABULARY)
