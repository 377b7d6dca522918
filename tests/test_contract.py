"""What a request says it needs, and how a senseless one is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from harness.contract import (
    CAPABILITIES,
    Completion,
    Decoder,
    Grammar,
    Request,
    Round,
    Sampling,
    validate,
)


@dataclass
class Size:
    vocab_size: int = 64
    context_length: int = 128


VALID = Request(prompt=(1, 63), max_new_tokens=126)

SENSELESS: dict[str, tuple[dict[str, Any], str]] = {
    "no prompt": ({"prompt": ()}, "empty prompt"),
    "prompt id": ({"prompt": (1, 64)}, "64"),
    "negative id": ({"prompt": (-1,)}, "-1"),
    "eos id": ({"eos": (999,)}, "999"),
    "stop id": ({"stop": ((1,), (2, 777))}, "777"),
    "empty stop": ({"stop": ((1,), ())}, "empty stop"),
    "nothing to do": ({"max_new_tokens": 0}, "max_new_tokens is 0"),
    "negative": ({"max_new_tokens": -3}, "max_new_tokens is -3"),
    "too long": ({"max_new_tokens": 127}, "= 129 exceeds the context of 128"),
    "no drafts": ({"draft_tokens": 0}, "draft_tokens is 0"),
}
SENSELESS_SAMPLING: dict[str, tuple[Any, str]] = {
    "temperature": (-0.5, "temperature is -0.5"),
    "top_k": (-1, "top_k is -1"),
    "top_p": (1.5, "top_p is 1.5"),
    "min_p": (1.25, "min_p is 1.25"),
    "repetition_penalty": (0.0, "repetition_penalty is 0.0"),
    "min_new_tokens": (-2, "min_new_tokens is -2"),
    "logit_bias": ({70: 1.0}, "70"),
}


def refusal(request: Request) -> str:
    with pytest.raises(ValueError, match=r".") as caught:
        validate(request, Size())
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 200
    return message


@pytest.mark.parametrize("case", SENSELESS)
def test_a_senseless_request_is_refused_in_one_line_with_its_value(case: str) -> None:
    changes, words = SENSELESS[case]
    assert words in refusal(msgspec.structs.replace(VALID, **changes))


@pytest.mark.parametrize("name", SENSELESS_SAMPLING)
def test_a_senseless_parameter_is_refused_in_one_line_with_its_value(name: str) -> None:
    value, words = SENSELESS_SAMPLING[name]
    sampling = Sampling(**{name: value})
    assert words in refusal(msgspec.structs.replace(VALID, sampling=sampling))


EXTREMES = [
    (name, value)
    for name in (
        "temperature",
        "top_p",
        "min_p",
        "repetition_penalty",
        "presence_penalty",
        "frequency_penalty",
    )
    for value in ("nan", "inf", "-inf")
]


@pytest.mark.parametrize(("name", "value"), EXTREMES)
def test_no_parameter_may_be_infinite_or_no_number(name: str, value: str) -> None:
    sampling = Sampling(**{name: float(value)})
    assert f"{name} is {value}" in refusal(msgspec.structs.replace(VALID, sampling=sampling))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_bias_that_leaves_no_law_is_refused(value: float) -> None:
    sampling = Sampling(logit_bias={3: value})
    assert f"logit_bias is {value}" in refusal(msgspec.structs.replace(VALID, sampling=sampling))


def test_a_bias_of_minus_infinity_bans_a_token() -> None:
    sampling = Sampling(logit_bias={3: -float("inf")})
    validate(msgspec.structs.replace(VALID, sampling=sampling), Size())


def test_a_temperature_that_overflows_the_logits_is_refused() -> None:
    sampling = Sampling(temperature=1e-40)
    assert "temperature is 1e-40" in refusal(msgspec.structs.replace(VALID, sampling=sampling))


def test_eos_ids_that_leave_nothing_to_emit_are_refused() -> None:
    every = Request(
        prompt=(1,), max_new_tokens=2, eos=tuple(range(64)), sampling=Sampling(min_new_tokens=1)
    )
    assert "min_new_tokens" in refusal(every)


def test_borders_are_valid() -> None:
    for sampling in (
        Sampling(),
        Sampling(temperature=1e-3, top_k=10**6, top_p=1e-6, min_p=1.0),
        Sampling(temperature=5.0, repetition_penalty=0.5, presence_penalty=-2.0),
        Sampling(min_new_tokens=1000, logit_bias={0: -100.0, 63: 100.0}),
    ):
        request = msgspec.structs.replace(
            VALID, sampling=sampling, eos=(0, 63), stop=((63,),), draft_tokens=1
        )
        validate(request, Size())


def test_every_field_names_the_capability_it_needs() -> None:
    assert VALID.capabilities() == {"greedy"}
    everything = Request(
        prompt=(1,),
        max_new_tokens=1,
        sampling=Sampling(
            temperature=1.0,
            top_k=1,
            top_p=0.5,
            min_p=0.1,
            presence_penalty=1.0,
            min_new_tokens=1,
            logit_bias={1: 1.0},
            grammar=Grammar(({1: 0},)),
        ),
        seed=0,
        eos=(1,),
        stop=((1,),),
        speculate=False,
        logprobs=True,
    )
    assert everything.capabilities() == {
        *("sampling", "top_k", "top_p", "min_p", "penalties", "min_new_tokens", "logit_bias"),
        *("grammar", "seed", "eos", "stop", "plain", "logprobs"),
    }
    assert everything.capabilities() <= set(CAPABILITIES)


@pytest.mark.parametrize("name", ["repetition_penalty", "presence_penalty", "frequency_penalty"])
def test_each_penalty_needs_the_history(name: str) -> None:
    assert Sampling(**{name: 1.5}).capabilities() == {"greedy", "penalties"}
    assert not Sampling(temperature=1.0, top_k=3).needs_history


def test_so_does_a_grammar() -> None:
    constrained = Sampling(grammar=Grammar(({1: 0},)))
    assert constrained.needs_history
    assert constrained.capabilities() == {"greedy", "grammar"}


def test_a_seed_means_nothing_to_greedy_decoding() -> None:
    assert "seed" not in msgspec.structs.replace(VALID, seed=1).capabilities()


def test_requests_and_completions_travel_as_json() -> None:
    """For decoders in another process: ids of a bias are strings in JSON, and come back as ids."""
    request = msgspec.structs.replace(
        VALID, sampling=Sampling(logit_bias={3: 1.5}), stop=((1, 2),), seed=2**63
    )
    assert msgspec.json.decode(msgspec.json.encode(request), type=Request) == request
    completion = Completion(tokens=[1], finish_reason="eos", rounds=[Round(2, 1)])
    assert msgspec.json.decode(msgspec.json.encode(completion), type=Completion) == completion


def test_anything_with_the_two_attributes_is_a_decoder() -> None:
    class Mine:
        capabilities = frozenset({"greedy"})

        def generate(self, requests: object) -> list[Completion]:
            return []

    assert isinstance(Mine(), Decoder)
    assert not isinstance(object(), Decoder)
