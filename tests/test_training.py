"""Training of drafters, at a size where every step can be looked at."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from harness.adapters.reference import eagle, medusa
from harness.contract import Request
from harness.models import load_pair
from reference_impl.batch import Batch
from reference_impl.cache import features_of
from reference_impl.drafters import corpus, train
from reference_impl.drafters.dataset import Batch as Exchange
from reference_impl.drafters.dataset import Exchanges
from reference_impl.drafters.eagle import EagleDrafter, load_eagle
from reference_impl.drafters.learners import EagleLearner, MedusaLearner, ModelLearner
from reference_impl.drafters.measure import evaluate
from reference_impl.drafters.medusa import load_medusa
from reference_impl.drafters.reduced import load_reduced_draft
from reference_impl.drafters.training import Learner, Training, rate
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


# The command


WORDS = {
    "<|im_end|>": 0,
    "<|im_start|>": 1,
    "user": 2,
    "assistant": 3,
    "[UNK]": 4,
    "a": 5,
    "the": 6,
}
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }} {{ m.content }}<|im_end|>{% endfor %}"
    "<|im_start|>assistant"
)
STEPS = "--steps 3 --warm-up 0 --rows 2 --log-every 1 --lr 0.02"
SHARDS = "--tokens 700 --batch 6 --held-out 1 --vocabulary 24 --depths 1 --block 2"
ONE_THREAD = "--threads 1 --corpus-threads 1"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny target, and a tokenizer that knows a few words."""
    folder = tmp_path_factory.mktemp("target")
    load_pair("tiny").target.save_pretrained(folder)
    tokenizer = Tokenizer(WordLevel(WORDS, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    special = {"eos_token": "<|im_end|>", "additional_special_tokens": ["<|im_start|>"]}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", **special)
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    return folder


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Short turns, and the number of threads as it was."""
    monkeypatch.setattr(corpus, "MAX_USER", 6)
    monkeypatch.setattr(corpus, "MAX_ANSWER", 18)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def command(target: Path, folder: Path, options: str = "") -> int:
    """Options that come later count."""
    folders = ["--target", target, "--work", folder / "work", "--out", folder / "out"]
    given = f"{STEPS} {SHARDS} {ONE_THREAD} {options}".split()
    return train.main([*map(str, folders), *given])


def written(folder: Path) -> dict[str, bytes]:
    """All that does not depend on the clock."""
    shards = (folder / "work" / "corpus").glob("*.safetensors")
    return {f.name: f.read_bytes() for f in (*shards, *(folder / "out").glob("*.safetensors"))}


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("family", ["model", "medusa", "eagle"])
def test_the_command_trains_the_same_with_the_same_seed(
    family: str, directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        assert command(directory, folder, f"--family {family}") == 0
    assert written(one) == written(two)
    assert len(written(one)) >= 4  # at least two shards to train on, one held out, the weights
    target = load_pair("tiny").target
    log = [json.loads(line) for line in (one / "out" / "train_log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in log] == [1, 2, 3]
    assert (
        json.loads((one / "out" / "evaluation.json").read_text())["all tasks"]["all"]["answers"]
        == 6
    )
    if family == "medusa":
        heads = load_medusa(one / "out", target.lm_head, WIDTH)
        assert len(heads) == 2
        assert any(block.linear.weight.any() for head in heads for block in head[:1])
        decoder = medusa(load_pair("tiny"), heads=str(one / "out"))
    elif family == "eagle":
        assert load_eagle(one / "out").depths == DEPTHS
        decoder = eagle(load_pair("tiny"), layer=str(one / "out"))
    else:
        draft = load_reduced_draft(target, one / "out")
        assert len(draft.lm_head.vocabulary) >= 24
        return
    [answer] = decoder.generate([Request(prompt=(1, 2, 3), max_new_tokens=9)])
    assert sum(entry.drafted for entry in answer.rounds or ()) > 0
    assert command(directory, one, f"--family {family}") == 0  # nothing is left to do
    assert written(one) == written(two)
    assert not capsys.readouterr().err.count("error")


@pytest.mark.usefixtures("short")
def test_a_folder_is_of_one_recipe(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(directory, tmp_path, "--family medusa") == 0
    before = written(tmp_path)
    other = tmp_path / "other"
    shutil.copytree(directory, other)
    weights = load_file(other / "model.safetensors")
    weights["model.norm.weight"] *= 2
    save_file(weights, other / "model.safetensors", {"format": "pt"})
    capsys.readouterr()
    for target, options, words in (
        (directory, "--batch 7", "was sampled from another target, or with another --batch"),
        (directory, "--seed 2", "or with another --batch, --seed or --depths: give another --work"),
        (directory, "--depths", "was sampled from another target"),
        (other, "", "was sampled from another target"),
        (directory, "--steps 4", "is of a run with another --steps, 3: give another --work"),
        (directory, "--block 3", "is of a run with another --block, 2"),
        (directory, "--tokens 1000", "is of a run with another --tokens, 700"),
    ):
        assert command(target, tmp_path, f"--family medusa {options}") == 2, options
        [line] = [x for x in capsys.readouterr().err.splitlines() if x.startswith("error: ")]
        assert words in line
    assert command(directory, tmp_path, "--family medusa --log-every 2 --save-seconds 9") == 0
    assert before.items() <= written(tmp_path).items()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--steps 3 --warm-up 3", "--warm-up is 3, of 3 --steps: give at least 0, and fewer"),
        ("--steps 3 --warm-up 30", "--warm-up is 30, of 3 --steps"),
        ("--warm-up -1", "--warm-up is -1"),
        ("--steps 0", "--steps is 0: ask for at least 1"),
        ("--log-every 0", "--log-every is 0"),
        ("--corpus-threads 0", "--corpus-threads is 0"),
        ("--threads 0", "--threads is 0"),
        ("--held-out 0", "--held-out is 0"),
        ("--batch 0", "--batch is 0"),
        ("--rows 0", "--rows is 0"),
        ("--block 0", "--block is 0"),
        ("--tokens 0", "--tokens is 0"),
        ("--vocabulary 0", "--vocabulary is 0"),
        ("--lr nan", "--lr is nan: give a number, at least 0"),
        ("--weight-decay -1", "--weight-decay is -1.0"),
        ("--mix inf", "--mix is inf"),
        ("--seed -1", "--seed is -1"),
        ("--target nowhere", "--target nowhere is no directory"),
        ("--work {file}/work", "cannot write --work"),
        ("--out {file}", "cannot write --out"),
        ("--vocabulary 65", "--vocabulary is 65: the target has 64 ids, ask for less"),
        (
            "--depths 8 19",
            "--depths are 8 19: give numbers of layers in ascending order, from 1 to 1",
        ),
        ("--depths 1 1", "--depths are 1 1"),
        ("--depths 0", "--depths are 0"),
        ("--held-out 9", "leaves no shard: 700 --tokens may fill no more than 4 shards of 6: ask"),
        ("--batch 128", "--held-out is 1, and leaves no shard"),
        ("--rows 19", "--rows is 19, and may be more than there are exchanges, 18"),
        ("--nonsense", "unrecognized arguments: --nonsense"),
        ("--fam medusa", "unrecognized arguments: --fam"),
        ("--steps", "expected one argument"),
    ],
)
@pytest.mark.usefixtures("short")
def test_bad_options_are_refused_before_anything_is_sampled(
    options: str,
    words: str,
    directory: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def sample(*_: object) -> None:
        raise AssertionError("a corpus was sampled")

    monkeypatch.setattr(corpus, "sample_shard", sample)
    (tmp_path / "file").write_text("")
    try:
        status = command(directory, tmp_path, options.format(file=tmp_path / "file"))
    except SystemExit as ended:
        status = int(str(ended.code))
    printed = capsys.readouterr().err.splitlines()
    [line] = [line for line in printed if line and not line.startswith("Loading weights")]
    assert status == 2
    assert line.startswith("error: ")
    assert words in line


def test_targets_that_cannot_be_sampled_from(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, other, bare = (tmp_path / name for name in ("plain", "other", "bare"))
    for folder in (plain, other, bare):
        shutil.copytree(directory, folder)
    (plain / "chat_template.jinja").unlink()
    load_pair("tiny-gpt2").target.save_pretrained(other)
    for file in (*bare.glob("tokenizer*"), *bare.glob("special*")):
        file.unlink()
    capsys.readouterr()
    for target, words in (
        (plain, "has no chat template"),
        (other, "is a GPT2LMHeadModel: training samples from Llama models"),
        (bare, "has no tokenizer for its 64 ids"),
        (tmp_path, "cannot load"),
    ):
        assert command(target, tmp_path) == 2
        assert words in capsys.readouterr().err


def test_the_rate_rises_and_falls_and_is_never_below_zero() -> None:
    assert [rate(step, 4, 0) for step in range(4)] == [1, 0.75, 0.5, 0.25]
    assert [rate(step, 4, 1) for step in range(4)] == [1, 1, 2 / 3, 1 / 3]
    assert [rate(step, 4, 2) for step in range(4)] == [0.5, 1, 1, 0.5]
