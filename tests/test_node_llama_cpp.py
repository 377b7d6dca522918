"""node-llama-cpp: what its adapter says where the engine is missing, and what it gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.adapters import DecoderError, NotInstalledError, load_decoder
from harness.adapters.engines import environment
from harness.adapters.node_llama_cpp import ENVIRONMENT
from harness.adapters.stdio import StdioDecoder
from harness.contract import Request, Sampling
from harness.models import load_pair

installed = pytest.mark.skipif(
    not environment(ENVIRONMENT).exists(),
    reason=f"not installed: ci/third_party --install {ENVIRONMENT}",
)


def test_where_it_is_not_installed_the_line_to_install_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDEC_ENGINES", str(tmp_path))
    with pytest.raises(NotInstalledError, match="ci/third_party --install node-llama-cpp"):
        load_decoder("node-draft", load_pair("tiny"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"drafts": "both"}, "drafts is 'both': give model or lookup"),
        ({"seeds": "7"}, "seeds is 7: give drawn or engine"),
        ({"depth": "7"}, "unexpected keyword argument 'depth'"),
    ],
)
def test_options_that_it_does_not_know_are_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(DecoderError) as caught:
        load_decoder("node-draft", load_pair("tiny"), options)
    assert words in str(caught.value)


@installed
@pytest.mark.parametrize("name", ["node-draft", "node-lookup"])
def test_it_decodes_with_speculation_and_without(name: str) -> None:
    decoder = load_decoder(name, load_pair("tiny"))
    assert isinstance(decoder, StdioDecoder)
    assert decoder.versions["node-llama-cpp"] == "3.21.1"
    request = Request(prompt=(1, 2, 3, 1, 2), max_new_tokens=10)
    right = load_decoder("reference", load_pair("tiny")).generate([request])[0].tokens
    biased = Sampling(temperature=1.0, logit_bias={right[0]: -1e30})
    answers = decoder.generate(
        [
            request,
            Request(prompt=request.prompt, max_new_tokens=10, speculate=False),
            Request(prompt=request.prompt, max_new_tokens=1, sampling=biased, seed=1),
        ]
    )
    assert [answer.tokens for answer in answers[:2]] == [right, right]
    assert answers[0].metrics
    assert answers[0].metrics.drafted
    assert answers[2].tokens != right[:1]
    decoder.close()
