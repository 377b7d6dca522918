"""Decoders by name, and the adapters of transformers against plain decoding."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from hypothesis import given
from strategies import GREEDY, examples, requests

from harness.adapters import BUILT_IN, GROUP, DecoderError, decoder_names, load_decoder
from harness.adapters.transformers import assisted, early_exit, prompt_lookup
from harness.adapters.transformers_universal import universal
from harness.contract import CAPABILITIES, Completion, Request, Sampling
from harness.models import ModelPair, load_pair
from reference_impl import autoregressive
from reference_impl.randomness import Seeded

load = functools.cache(load_pair)

STRANGER = """
class Decoder:
    capabilities = frozenset({"greedy"})
    def generate(self, requests):
        return []

def build(pair, **options):
    decoder = Decoder()
    decoder.options = options
    return decoder

def strict(pair, size=1):
    return Decoder()

def choosy(pair):
    raise ValueError("this pair is too small")

def needy(pair):
    import a_library_that_is_not_installed

def wrong(pair):
    return object()

number = 5
"""


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Somebody's module, importable."""
    (tmp_path / "stranger_decoder.py").write_text(STRANGER)
    (tmp_path / "broken_decoder.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(str(tmp_path))
    return "stranger_decoder"


def refusal(name: str, options: dict[str, str] | None = None) -> str:
    with pytest.raises(DecoderError) as caught:
        load_decoder(name, load("micro"), options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_any_factory_is_found_by_its_path(stranger: str) -> None:
    options = {"a": "3", "b": "0.5", "c": "true", "d": "False", "e": "x1", "f": "1e-3", "g": ""}
    decoder = load_decoder(f"{stranger}:build", load("micro"), options)
    assert decoder.options == {
        "a": 3,
        "b": 0.5,
        "c": True,
        "d": False,
        "e": "x1",
        "f": 1e-3,
        "g": "",
    }
    assert isinstance(decoder.options["a"], int)
    assert load_decoder(f"{stranger}:strict", load("micro"), {"size": "2"}).generate([]) == []


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("stranger_decoder:missing", "no function 'missing'"),
        ("stranger_decoder:number", "no function 'number'"),
        ("no_such_module:build", "cannot import 'no_such_module'"),
        ("broken_decoder:build", "ZeroDivisionError"),
        ("stranger_decoder:choosy", "this pair is too small"),
        ("stranger_decoder:needy", "a_library_that_is_not_installed"),
        ("stranger_decoder:wrong", "returned a object"),
    ],
)
def test_what_is_no_decoder_is_refused_in_one_line(stranger: str, path: str, words: str) -> None:
    assert words in refusal(path)


def test_options_that_a_factory_does_not_take_are_refused(stranger: str) -> None:
    assert "colour" in refusal(f"{stranger}:strict", {"colour": "red"})
    assert "colour" in refusal("reference", {"colour": "red"})
    assert "max_ngram 1" in refusal("reference-ngram", {"max_ngram": "1", "min_ngram": "2"})


def test_an_unknown_name_is_told_the_known_ones() -> None:
    message = refusal("refrence")
    assert "'refrence'" in message
    assert all(name in message for name in decoder_names())


def test_entry_points_of_installed_packages_are_decoders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\nacme = harness.adapters.reference:engine\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "acme" in decoder_names()
    assert "greedy" in load_decoder("acme", load("micro")).capabilities


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_every_built_in_decoder_decodes(name: str) -> None:
    pair = load("micro", dtype="float64")
    decoder = load_decoder(name, pair)
    assert decoder.capabilities <= set(CAPABILITIES)
    request = Request(prompt=(1, 2), max_new_tokens=9)
    assert results(decoder.generate([request, request])) == [plain(pair, request)] * 2
    with pytest.raises(ValueError, match="exceeds the context"):
        decoder.generate([Request(prompt=(1,), max_new_tokens=10**6)])


def plain(pair: ModelPair, request: Request) -> tuple[list[int], str]:
    laws = autoregressive.model_laws(pair.target, request, pair.vocab_size)
    return results([autoregressive.decode(laws, request, Seeded(0))])[0]


def results(completions: list[Completion]) -> list[tuple[list[int], str]]:
    return [(c.tokens, c.finish_reason) for c in completions]


@pytest.mark.parametrize("factory", [assisted, early_exit, universal, prompt_lookup])
@pytest.mark.parametrize("name", ["tiny", "tiny-bad"])
def test_transformers_greedy_is_plain_decoding(name: str, factory: type) -> None:
    """With EOS, stop sequences, bias and least length, speculating or not."""
    pair = load(name, dtype="float64")
    decoder = factory(pair)

    @examples(25)
    @given(requests(pair.vocab_size, GREEDY, longest=12))
    def check(request: Request) -> None:
        if request.capabilities() <= decoder.capabilities:
            assert results(decoder.generate([request])) == [plain(pair, request)]

    check()


@pytest.mark.parametrize("speculate", [True, False])
def test_only_the_request_says_what_ends_it(speculate: bool) -> None:
    """An EOS in the model's own configuration is not the request's."""
    pair = load_pair("tiny", dtype="float64")
    request = Request(prompt=(1, 2, 3), max_new_tokens=12, speculate=speculate)
    expected = plain(pair, request)
    pair.target.generation_config.eos_token_id = expected[0][4]
    assert results(assisted(pair).generate([request])) == [expected]


def test_a_bias_may_be_a_whole_number() -> None:
    request = Request(prompt=(1,), max_new_tokens=3, sampling=Sampling(logit_bias={3: 50}))
    assert assisted(load("tiny")).generate([request])[0].tokens == [3, 3, 3]


def test_early_exit_counts_no_drafting_as_rounds() -> None:
    request = Request(prompt=(3, 4, 5, 6), max_new_tokens=24, draft_tokens=4)
    (completion,) = early_exit(load("tiny")).generate([request])
    assert completion.rounds is not None
    assert sum(r.accepted + 1 for r in completion.rounds) == 24
    assert completion.rounds[0].drafted == 4
    with pytest.raises(ValueError, match="exits after 1 to 1"):
        early_exit(load("tiny"), layers=2)


def test_another_tokenizer_has_other_ids_for_the_same_words() -> None:
    """The same draft: where all goes well, as much is accepted."""
    request = Request(prompt=(3, 4, 5, 6), max_new_tokens=24, draft_tokens=4)
    same, other = (make(load("tiny")).generate([request])[0] for make in (assisted, universal))
    assert same.tokens == other.tokens
    assert other.rounds is not None
    assert sum(r.accepted for r in other.rounds) > 0


def test_transformers_repeats_itself_with_a_seed() -> None:
    decoder = assisted(load("tiny"))
    sampling = Sampling(temperature=1.0, top_k=20)
    one, two = (
        Request(prompt=(1,), max_new_tokens=20, sampling=sampling, seed=seed) for seed in (1, 2)
    )
    first, second, third = decoder.generate([one, two, one])
    assert first.tokens == third.tokens != second.tokens
