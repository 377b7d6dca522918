"""The simulated faults that statistics are measured on, and the public issues that report them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from harness.stats import faults
from harness.stats.simulated import (
    FILTERED,
    TEMPERATURE,
    Simulated,
    block,
    bonus_from_draft,
    coarse_coin,
    coarse_proposal,
    first_unverified,
    one_number,
    one_token,
    product_rule,
    shared_coin,
)

SOURCES: Mapping[str, tuple[str, ...]] = {
    "accept all": (
        "huggingface/transformers#28508",
        "vllm-project/vllm-ascend#13766",
    ),
    "softmax residual": ("huggingface/transformers#28508",),
    "argmax draft judged by q": ("huggingface/transformers#32867",),
    "q not normalised": ("NVIDIA/TensorRT-LLM#3278",),
    "draft from rounded logits": ("deepseek-ai/DeepSpec#31",),
    "coin of 6 bits, inclusive": ("sgl-project/sglang#35771",),
    "one number for coin and choice": ("flashinfer-ai/flashinfer#424",),
    "temperature twice": ("vllm-project/vllm-ascend#6685",),
    "argmax instead of a draw": ("sgl-project/sglang#31214",),
    "the row before": ("mlx-node/mlx-node#11",),
    "the same answer again": ("NVIDIA/TensorRT-LLM#19487",),
    "filters ignored": ("vllm-project/vllm#9834",),
    "top_p before top_k": ("sgl-project/sglang#36173",),
    "first of a block unverified": ("ohdearquant/lattice#243",),
    "product rule, token-wise residual": ("vllm-project/vllm-ascend#7807",),
    "one coin for a block": ("flashinfer-ai/flashinfer#424",),
}


def everything() -> list[Simulated]:
    """The named laws, and those of public sampling faults."""
    over = faults.over_accept
    return [
        one_token("accept all", partial(faults.leak, rate=1.0), "leak"),
        one_token("20% of tokens from the draft", partial(faults.leak, rate=0.2), "leak"),
        one_token("3% of tokens from the draft", partial(faults.leak, rate=0.03), "leak"),
        one_token("resample from target", faults.resample_from_target, "resample"),
        one_token("over-accept 1.02", partial(over, factor=1.02), "over-accept"),
        one_token("over-accept 1.1", partial(over, factor=1.1), "over-accept"),
        one_token("over-accept 1.5", partial(over, factor=1.5), "over-accept"),
        one_token("abs residual", faults.abs_residual, "residual"),
        one_token("softmax residual", faults.softmax_residual, "residual"),
        one_token("argmax of the residual", faults.argmax_residual, "residual"),
        one_token("q at another temperature", partial(faults.proposal_at, power=1 / 1.5),
                  "proposal"),
        one_token("argmax draft judged by q", faults.proposal_argmax, "proposal"),
        one_token("q not normalised", partial(faults.unnormalised_proposal, scale=3.0), "proposal"),
        one_token("draft from rounded logits", coarse_proposal, ""),
        one_token("coin of 6 bits, inclusive", coarse_coin, ""),
        one_token("one number for coin and choice", one_number, ""),
        one_token("temperature off by 5%", partial(faults.temperature, power=1 / 1.05),
                  "temperature"),
        one_token("temperature twice", partial(faults.temperature, power=1 / 0.7), "parameters",
                  TEMPERATURE),
        one_token("argmax instead of a draw", partial(faults.sharpen, rate=0.999), "sharpen"),
        one_token("1% noise", partial(faults.flatten, rate=0.01), "flatten"),
        one_token("the row before", partial(faults.shifted, rate=1.0), "shifted row"),
        one_token("the same answer again", partial(faults.replay, rate=1.0), "replay"),
        one_token("filters ignored", faults.without_filters, "parameters", FILTERED),
        one_token("top_p before top_k",
                  partial(faults.reparametrised, change=faults.top_p_of_everything),
                  "parameters", FILTERED),
        block("bonus from draft", bonus_from_draft, "leak"),
        block("first of a block unverified", first_unverified, ""),
        block("product rule, token-wise residual", product_rule, ""),
        block("one coin for a block", shared_coin, ""),
    ]  # fmt: skip
