"""Model pairs: the same from the same seed, through a directory and back, or a clear refusal."""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel, dynamic_module_utils

from harness.models import TINY_PAIRS, ModelPair, PairError, load_pair, pair_names
from harness.tiny_pairs import WINDOW, make_draft, make_target

IDS = torch.tensor([[1, 2, 3, 4, 5, 6, 7, 0, 1, 3, 5, 7]])


@torch.no_grad()
def logits(model: PreTrainedModel, ids: torch.Tensor = IDS) -> torch.Tensor:
    return model(input_ids=ids).logits[0]


def refusal(**arguments: str) -> str:
    with pytest.raises(PairError) as caught:
        load_pair(**arguments)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path))
    return tmp_path


def test_a_tiny_pair_depends_on_its_name_alone() -> None:
    for name, recipe in TINY_PAIRS.items():
        torch.manual_seed(1)
        first = load_pair(name)
        following = torch.rand(1)
        torch.manual_seed(1)
        assert following == torch.rand(1)  # making a pair leaves the global generator alone
        torch.manual_seed(2)
        assert load_pair(name).fingerprint() == first.fingerprint()
        assert first.vocab_size == recipe.vocab
        widths = tuple(logits(model).shape[-1] for model in (first.target, first.draft))
        assert widths == tuple(recipe.vocab + columns for columns in recipe.padding)


def test_no_two_pairs_have_the_same_fingerprint() -> None:
    prints = {load_pair(name).fingerprint() for name in TINY_PAIRS}
    assert len(prints) == len(TINY_PAIRS)


def test_drafts_are_what_their_names_say() -> None:
    pairs = {kind: load_pair(f"tiny-{kind}") for kind in ("bad", "self", "hostile", "ties")}
    pairs["good"] = load_pair("tiny")

    def overlap(pair: ModelPair) -> float:
        p, q = (logits(m).softmax(-1) for m in (pair.target, pair.draft))
        return float(torch.minimum(p, q).sum(-1).mean())

    assert overlap(pairs["self"]) == pytest.approx(1)
    assert overlap(pairs["good"]) > 0.8
    assert overlap(pairs["hostile"]) < overlap(pairs["bad"]) < 0.5
    hostile = pairs["hostile"]
    assert torch.equal(logits(hostile.target).argmin(-1), logits(hostile.draft).argmax(-1))
    tied = logits(pairs["ties"].target.double())
    torch.testing.assert_close(tied[:, 0::2], tied[:, 1::2], atol=1e-12, rtol=0)


def test_padding_is_likely_and_leaves_the_other_logits_alone() -> None:
    wide, narrow = logits(load_pair("tiny-padded").draft), logits(load_pair("tiny").draft)
    torch.testing.assert_close(wide[:, :64], narrow)
    assert (wide.argmax(-1) >= 64).float().mean() > 0.8


def test_the_window_hides_what_is_far() -> None:
    target = load_pair("tiny-window").target
    layers = target.config.num_hidden_layers
    long = torch.arange(40).unsqueeze(0)
    reach = layers * (WINDOW - 1)
    for distance, seen in [(reach, True), (reach + 1, False)]:
        changed = long.clone()
        changed[0, -1 - distance] = 63
        same = torch.equal(logits(target, long)[-1], logits(target, changed)[-1])
        assert same != seen


@pytest.mark.parametrize("name", ["tiny", "tiny-window", "tiny-gpt2", "micro"])
def test_a_directory_holds_the_same_models(name: str, cache: Path) -> None:
    pair = load_pair(name)
    for role in ("target", "draft"):
        path = pair.directory(role)
        assert path.is_relative_to(cache)
        assert path == pair.directory(role) == load_pair(name).directory(role)
        loaded = AutoModelForCausalLM.from_pretrained(path).eval()
        assert torch.equal(logits(loaded), logits(getattr(pair, role)))

    again = load_pair(target=str(pair.directory("target")), draft=str(pair.directory("draft")))
    assert again.fingerprint() == pair.fingerprint()
    assert (again.vocab_size, again.context_length) == (pair.vocab_size, pair.context_length)
    assert again.eos == ()


def test_dtype_and_eval_mode() -> None:
    pair = load_pair("micro", dtype="bfloat16")
    assert {pair.target.dtype, pair.draft.dtype} == {torch.bfloat16}
    assert not pair.target.training
    assert not pair.draft.training


def test_an_unknown_pair_is_told_the_known_ones() -> None:
    message = refusal(name="huge")
    assert "'huge'" in message
    assert all(name in message for name in pair_names())
    assert "''" in refusal(name="")


@pytest.mark.parametrize("role", ["target", "draft"])
def test_a_target_needs_a_draft(role: str) -> None:
    assert "--target and --draft" in refusal(**{role: "somewhere"})


def test_a_directory_without_a_model_is_refused(tmp_path: Path) -> None:
    assert str(tmp_path) in refusal(target=str(tmp_path), draft=str(tmp_path))


def test_a_draft_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    paths = {}
    for role, vocab in [("target", 16), ("draft", 24)]:
        paths[role] = str(tmp_path / role)
        make_target("llama", vocab, seed=1).save_pretrained(paths[role])
    message = refusal(**paths)
    assert "16" in message
    assert "24" in message


def saved(directory: Path, vocab: int, words: int) -> str:
    """A model of ``vocab`` output columns with a tokenizer of ``words`` ids."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    make_target("llama", vocab, seed=1).save_pretrained(directory)
    ids = {f"w{n}": n for n in range(words)}
    tokenizer = Tokenizer(WordLevel(ids, unk_token="w0"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(directory)
    return str(directory)


def test_a_tokenizer_tells_which_columns_are_padding(tmp_path: Path) -> None:
    pair = load_pair(
        target=saved(tmp_path / "a", 24, words=16), draft=saved(tmp_path / "b", 20, words=16)
    )
    assert pair.vocab_size == 16
    assert pair.tokenizer is not None


def test_tokenizers_that_differ_are_refused(tmp_path: Path) -> None:
    one, other = saved(tmp_path / "a", 24, words=16), saved(tmp_path / "b", 24, words=17)
    assert "tokenizers" in refusal(target=one, draft=other)


def test_a_draft_without_some_of_the_ids_is_refused(tmp_path: Path) -> None:
    one, other = saved(tmp_path / "a", 16, words=16), saved(tmp_path / "b", 12, words=16)
    assert "12" in refusal(target=one, draft=other)


def test_an_unknown_kind_of_draft_is_refused() -> None:
    with pytest.raises(ValueError, match="'clever'"):
        make_draft("clever", load_pair("micro").target, "llama", 1)


def test_a_device_that_is_not_there_is_refused() -> None:
    devices = ["nonsense"] + ([] if torch.cuda.is_available() else ["cuda"])
    for device in devices:
        assert f"'{device}'" in refusal(name="micro", device=device)


WITHOUT_NETWORK = """
from harness.models import PairError, load_pair
for arguments in ({"name": "smollm2-135m"}, {"target": "nobody/nothing", "draft": "no/thing"}):
    try:
        load_pair(**arguments)
    except PairError as error:
        print(repr(str(error)))
"""


def without_network(tmp_path: Path, **environment: str) -> list[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "PIP_", "SPECDEC_"))}
    offline = {"HF_HUB_OFFLINE": "1", "PIP_NO_INDEX": "1", "HF_HOME": str(tmp_path / "hf")}
    cached = {"SPECDEC_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_NETWORK],
        env=clean | offline | cached | environment,
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout.splitlines()


def test_without_network_and_cache_the_real_pair_says_what_to_do(tmp_path: Path) -> None:
    real, other = without_network(tmp_path)
    assert "\\n" not in real + other
    assert "SPECDEC_SMOLLM2" in real
    assert "smollm2-135m" in real
    assert "'nobody/nothing'" in other


def test_a_named_directory_must_hold_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDEC_SMOLLM2", str(tmp_path))
    message = refusal(name="smollm2-135m")
    assert str(tmp_path) in message
    assert "config.json" in message


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    load_pair("micro").target.save_pretrained(tmp_path)
    return tmp_path


class Touches:
    """Unpickled, it leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "weights.ckpt"])
def test_a_pickle_is_refused_and_not_opened(directory: Path, name: str) -> None:
    (directory / "model.safetensors").unlink()
    (directory / name).write_bytes(pickle.dumps(Touches(directory / "touched")))
    message = refusal(target=str(directory), draft=str(directory))
    assert f"has its weights in {name}, a pickle" in message
    assert "convert it to safetensors" in message
    assert not (directory / "touched").exists()


def test_a_pickle_beside_safetensors_is_left_alone(directory: Path) -> None:
    (directory / "pytorch_model.bin").write_bytes(pickle.dumps(Touches(directory / "touched")))
    load_pair(target=str(directory), draft=str(directory))
    assert not (directory / "touched").exists()


def test_torn_weights_are_one_line(directory: Path) -> None:
    (directory / "model.safetensors").write_bytes(b"\xff" * 100)
    assert "cannot load" in refusal(target=str(directory), draft=str(directory))


def with_code(directory: Path) -> None:
    """A configuration that names a class of its own, which leaves a file behind."""
    path = directory / "config.json"
    found = json.loads(path.read_text())
    found["auto_map"] = {"AutoModelForCausalLM": "own.Own"}
    path.write_text(json.dumps(found))
    (directory / "own.py").write_text(
        "from pathlib import Path\n"
        "from transformers import LlamaForCausalLM\n"
        f"Path({str(directory / 'touched')!r}).touch()\n"
        "class Own(LlamaForCausalLM):\n    pass\n"
    )


def test_code_of_a_models_own_is_run_only_where_it_is_trusted(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(directory / "modules"))
    with_code(directory)
    message = refusal(target=str(directory), draft=str(directory))
    assert "brings Python of its own (auto_map in config.json), which is not run" in message
    assert "--trust-remote-code" in message
    assert not (directory / "touched").exists()
    pair = load_pair(target=str(directory), draft=str(directory), trust_remote_code=True)
    assert (directory / "touched").exists()
    assert pair.loaded_with["trust_remote_code"] is True


def test_code_of_a_tokenizers_own_is_refused_too(directory: Path) -> None:
    settings = {"auto_map": {"AutoTokenizer": ["own.Own", None]}}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    message = refusal(target=str(directory), draft=str(directory))
    assert "auto_map in tokenizer_config.json" in message


def test_nothing_in_the_project_unpickles() -> None:
    """Every place that loads weights says so, and says what it does not load."""
    root = Path(__file__).parent.parent
    for path in [*(root / "harness").rglob("*.py"), *(root / "reference_impl").rglob("*.py")]:
        text = path.read_text()
        for call in re.findall(r"torch\.load\([^)]*\)", text):
            assert "weights_only=True" in call, path
        assert not re.search(r"\bimport pickle|\bpickle\.load|allow_pickle=True|dill", text), path
        for call in re.findall(r"LM\.from_pretrained\((.*?)\)\n", text, re.DOTALL):
            assert any(word in call for word in ("use_safetensors=True", "gguf_file", "export")), (
                path
            )
