"""Plain functions as decoders: what they are told, what they may return, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.adapters import decoder
from harness.adapters.plain_callable import finish_reason
from harness.checks import greedy, smoke
from harness.checks.budget import PROFILES
from harness.checks.subject import Subject
from harness.contract import Completion, Request, Sampling
from harness.models import load_pair
from harness.pair_files import PairFiles
from harness.verdict import Status

ROOT = Path(__file__).resolve().parent.parent
FILES = PairFiles(
    name="p", vocab_size=9, context_length=32, eos=(), target={"hf": "t"}, draft={"hf": "d"}
)


def argmax(prompt, max_new_tokens, eos, target):
    """Plain greedy decoding, whatever the arm."""
    ids = torch.tensor([prompt])
    with torch.inference_mode():
        while ids.shape[1] < len(prompt) + max_new_tokens:
            token = target(ids).logits[0, -1].argmax()
            ids = torch.cat([ids, token.view(1, 1)], dim=1)
            if int(token) in eos:
                break
    return ids[0, len(prompt) :]


def asked(function: Any, *capabilities: str, **request: Any) -> Completion:
    """The answer to one request."""
    made = decoder(function, *capabilities)(FILES)
    [answer] = made.generate([Request(prompt=(1, 2), max_new_tokens=3, **request)])
    return answer


def test_a_function_of_five_lines_is_judged_like_any_decoder() -> None:
    pair = load_pair("tiny")
    build = decoder(argmax, "greedy", "eos", versions={"argmax": "1"})
    subject = Subject(build(pair), pair, "tests.test_plain_callable:argmax")
    assert subject.versions == {"argmax": "1"}
    assert smoke.wired(subject, PROFILES["smoke"]).status is Status.PASS
    assert greedy.identity(subject, PROFILES["smoke"]).status is Status.PASS


def test_parameters_are_filled_by_their_names() -> None:
    told: dict[str, Any] = {}

    def named(ids, max_new_tokens, temperature, *, seed, speculate, target, request, pair):
        told.update(locals())
        return [5]

    asked(named, seed=7, speculate=False, sampling=Sampling(temperature=0.5))
    assert told["ids"] == [1, 2]
    assert (told["max_new_tokens"], told["temperature"], told["seed"]) == (3, 0.5, 7)
    assert (told["speculate"], told["target"], told["pair"]) == (False, {"hf": "t"}, FILES)
    assert told["request"].prompt == (1, 2)


def test_options_fill_what_is_left() -> None:
    def generate(prompt, max_new_tokens, window, depth=2):
        return [window, depth]

    build = decoder(generate, "greedy")
    request = Request(prompt=(1,), max_new_tokens=2)
    assert build(FILES, window=4).generate([request])[0].tokens == [4, 2]
    assert build(FILES, window=4, depth=5).generate([request])[0].tokens == [4, 5]
    with pytest.raises(ValueError, match="'window' that nothing fills: give it a default"):
        build(FILES)
    with pytest.raises(ValueError, match=r"no option 'dept' \(did you mean depth\?\)"):
        build(FILES, window=4, dept=5)
    with pytest.raises(ValueError, match="no option 'max_new_tokens'"):
        build(FILES, window=4, max_new_tokens=5)


@pytest.mark.parametrize(
    "answer", [[4, 5], (4, 5), torch.tensor([4, 5]), torch.tensor([4, 5]).numpy(), iter([4, 5])]
)
def test_whatever_holds_ids_is_an_answer(answer: Any) -> None:
    def generate(prompt, max_new_tokens):
        return answer

    assert asked(generate) == Completion(tokens=[4, 5], finish_reason="length")


def test_a_completion_stays_as_it_is() -> None:
    made = Completion(tokens=[4], finish_reason="eos", logprobs=[-1.0])
    assert asked(lambda prompt, max_new_tokens: made) is made


@pytest.mark.parametrize(
    "answer", [torch.tensor([[4, 5]]), [4.0], None, "45", 3, [[4]], torch.tensor([0.5])]
)
def test_what_holds_no_ids_is_told(answer: Any) -> None:
    with pytest.raises(TypeError, match=r"returned .*: it must return the new ids, a list of int"):
        asked(lambda prompt, max_new_tokens: answer)


@pytest.mark.parametrize(
    ("tokens", "reason"),
    [([1, 9], "eos"), ([1, 7, 8], "stop"), ([7], "length"), ([9, 1], "length"), ([], "length")],
)
def test_why_an_output_ends(tokens: list[int], reason: str) -> None:
    request = Request(prompt=(1,), max_new_tokens=4, eos=(9,), stop=((7, 8),))
    assert finish_reason(tokens, request) == reason


def no_prompt():
    return []


def no_end(prompt):
    return []


def shortest(prompt, max_new_tokens):
    return []


@pytest.mark.parametrize(
    ("function", "capabilities", "words"),
    [
        (shortest, ["greddy"], r"unknown capability 'greddy' \(did you mean greedy\?\)"),
        (shortest, ["batch"], "'batch' is beyond a plain function: write a class"),
        (shortest, ["seed"], "shortest declares 'seed', and takes no parameter seed"),
        (shortest, ["plain"], "declares 'plain', and takes no parameter speculate"),
        (shortest, ["penalties"], "takes no parameter repetition_penalty, presence_penalty, "),
        (no_prompt, [], "no_prompt takes no prompt: its first parameter is a list of ids"),
        (no_end, [], "no_end is not told when to end: give it a parameter max_new_tokens"),
    ],
)
def test_what_cannot_be_is_refused(function: Any, capabilities: list[str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        decoder(function, *capabilities)


def test_a_name_that_is_nearly_right_is_told() -> None:
    def generate(prompt, max_new_tokens, temprature):
        return []

    with pytest.raises(ValueError, match=r"'temprature' that nothing .*\(did you mean temperature"):
        decoder(generate)(FILES)


def test_it_works_where_there_is_no_torch() -> None:
    code = (
        "import sys\nsys.modules['torch'] = sys.modules['transformers'] = None\n"
        "from harness.adapters import decoder\n"
        "decoder(lambda prompt, max_new_tokens: [], 'greedy')"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
