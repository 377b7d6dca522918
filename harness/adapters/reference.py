"""The reference decoders as systems under test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn
from transformers import PreTrainedModel

from harness.contract import CAPABILITIES, Completion, Request, validate
from harness.models import TINY_PAIRS, ModelPair
from harness.pair_files import UnsupportedPairError
from reference_impl import autoregressive, speculative
from reference_impl.acceptance import BlockVerification, SamplerMatching, TypicalAcceptance
from reference_impl.branches import BranchDrafter, TwoBranches
from reference_impl.compiled import compiled
from reference_impl.drafters.branching import BranchingDrafter
from reference_impl.drafters.cascade import CascadeDrafter, ModelFollower
from reference_impl.drafters.eagle import EagleDrafter, EagleLayer, load_eagle
from reference_impl.drafters.eagle_tree import EagleTree
from reference_impl.drafters.early_exit import EarlyExitDrafter
from reference_impl.drafters.fitted import fitted_eagle, fitted_medusa
from reference_impl.drafters.medusa import MedusaDrafter, MedusaHeads, MedusaTree, load_medusa
from reference_impl.drafters.model import ModelDrafter
from reference_impl.drafters.ngram import NgramDrafter
from reference_impl.drafters.suffix import SuffixDrafter
from reference_impl.drafters.untrained import untrained_eagle, untrained_medusa
from reference_impl.engine import SpeculativeEngine
from reference_impl.preemption import PreemptingEngine
from reference_impl.prefix_cache import PrefixCachedEngine
from reference_impl.proposal import Drafter
from reference_impl.randomness import Seeded
from reference_impl.recurrent import is_recurrent
from reference_impl.tree import TreeEngine

Module = TypeVar("Module", bound=nn.Module)
_ALL = frozenset(CAPABILITIES) - {"declared_lossy", "exact_law"}


class EngineDecoder:
    """The engine behind the contract: it checks requests, the engine decodes them.

    Attributes
    ----------
    capabilities : frozenset of str
        ``model_draft`` among them where the drafter is a model that follows the request.
    """

    capabilities = _ALL - {"model_draft"}

    def __init__(
        self,
        pair: ModelPair,
        drafter: Drafter,
        engine: type[SpeculativeEngine] = SpeculativeEngine,
        max_batch: int | None = None,
    ) -> None:
        self._pair = pair
        if max_batch is not None:
            _whole("max_batch", max_batch)
        if isinstance(drafter, ModelDrafter) and drafter.follows_the_request:
            self.capabilities = _ALL
        self.engine = engine(pair.target, drafter, pair.vocab_size, max_batch)

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Decode all requests together."""
        for request in requests:
            validate(request, self._pair)
        return self.engine.generate(requests)

    def stream(self, request: Request) -> Iterator[list[int]]:
        """Decode one request, a round at a time."""
        validate(request, self._pair)
        return self.engine.stream(request)


def _whole(name: str, value: object, least: int = 1) -> None:
    """ValueError unless an option is a number of things."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} is {value!r}: give a whole number, at least {least}")


def _yes_or_no(name: str, value: object) -> None:
    """ValueError unless an option is a boolean."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}: give true or false")


def engine(
    pair: ModelPair, max_batch: int | None = None, compile: str = "", stop_below: float = 0.0
) -> EngineDecoder:
    """Reference engine with the pair's draft model.

    Both models are compiled, if a backend of ``torch.compile`` is named. ``stop_below`` ends a
    block where the draft's best token is less likely than that.
    """
    number = isinstance(stop_below, int | float) and not isinstance(stop_below, bool)
    if not number or not 0 <= stop_below < 1:
        raise ValueError(f"stop_below is {stop_below!r}: give a number, at least 0 and below 1")
    if compile:
        models = {role: compiled(getattr(pair, role), compile) for role in ("target", "draft")}
        pair = replace(pair, **models)
    drafter = ModelDrafter(pair.draft, pair.vocab_size, stop_below)
    return EngineDecoder(pair, drafter, max_batch=max_batch)


def engine_ngram(
    pair: ModelPair, max_ngram: int = 3, min_ngram: int = 1, max_batch: int | None = None
) -> EngineDecoder:
    """Reference engine with n-gram prompt lookup."""
    _whole("max_ngram", max_ngram)
    _whole("min_ngram", min_ngram)
    return EngineDecoder(pair, NgramDrafter(max_ngram, min_ngram), max_batch=max_batch)


def early_exit(pair: ModelPair, layers: int = 0, max_batch: int | None = None) -> EngineDecoder:
    """Reference engine with the target's own first layers as the draft: half of them, or some."""
    _whole("layers", layers, 0)
    layers = layers or max(1, pair.target.config.get_text_config().num_hidden_layers // 2)
    drafter = EarlyExitDrafter(pair.target, layers, pair.vocab_size)
    return EngineDecoder(pair, drafter, max_batch=max_batch)


def suffix(pair: ModelPair, min_match: int = 1, max_batch: int | None = None) -> EngineDecoder:
    """Reference engine with lookup of the longest suffix that occurred before."""
    _whole("min_match", min_match)
    return EngineDecoder(pair, SuffixDrafter(min_match), max_batch=max_batch)


def cascade(pair: ModelPair, min_match: int = 2, max_batch: int | None = None) -> EngineDecoder:
    """Reference engine with suffix lookup, and the pair's draft model where it finds nothing."""
    _whole("min_match", min_match)
    second = ModelFollower(pair.draft, pair.vocab_size)
    drafter = CascadeDrafter(SuffixDrafter(min_match), second, pair.vocab_size)
    return EngineDecoder(pair, drafter, max_batch=max_batch)


def eagle_cascade(
    pair: ModelPair, min_match: int = 2, layer: str = "", max_batch: int | None = None
) -> EngineDecoder:
    """Reference engine with suffix lookup, and an EAGLE layer where it finds nothing."""
    _whole("min_match", min_match)
    second = EagleDrafter(_eagle_layer(pair, layer), pair.target, pair.vocab_size)
    drafter = CascadeDrafter(SuffixDrafter(min_match), second, pair.vocab_size)
    return EngineDecoder(pair, drafter, max_batch=max_batch)


def block_verification(pair: ModelPair, max_batch: int | None = None) -> EngineDecoder:
    """Reference engine that judges a drafted block as a whole, with the pair's draft model."""
    drafter = ModelDrafter(pair.draft, pair.vocab_size)
    return EngineDecoder(pair, drafter, BlockVerification, max_batch)


def sampler_matching(pair: ModelPair, max_batch: int | None = None) -> EngineDecoder:
    """Reference engine that keeps the drafts which equal the target's own draws."""
    drafter = ModelDrafter(pair.draft, pair.vocab_size)
    return EngineDecoder(pair, drafter, SamplerMatching, max_batch)


def typical_acceptance(pair: ModelPair, max_batch: int | None = None) -> EngineDecoder:
    """Reference engine with Medusa's lossy rule, and the pair's draft model."""
    drafter = ModelDrafter(pair.draft, pair.vocab_size)
    decoder = EngineDecoder(pair, drafter, TypicalAcceptance, max_batch)
    decoder.capabilities |= {"declared_lossy"}
    return decoder


def tree(pair: ModelPair, replaced: bool = False, max_batch: int | None = None) -> EngineDecoder:
    """Reference engine with a tree of draws from the pair's draft model."""
    _yes_or_no("replaced", replaced)
    if is_recurrent(pair.draft) and not is_recurrent(pair.target):  # of which the engine says so
        raise UnsupportedPairError("a tree of draws needs a draft with keys and values")
    drafter = BranchingDrafter(pair.draft, pair.vocab_size, replaced=replaced)
    return EngineDecoder(pair, drafter, TreeEngine, max_batch)


def medusa(
    pair: ModelPair, heads: str = "", tree: bool = False, max_batch: int | None = None
) -> EngineDecoder:
    """Reference engine with Medusa heads: of a folder, else the pair's, else made for it."""
    _yes_or_no("tree", tree)
    found = _medusa_heads(pair, heads)
    drafter = (MedusaTree if tree else MedusaDrafter)(found, pair.vocab_size)
    return EngineDecoder(pair, drafter, TreeEngine if tree else SpeculativeEngine, max_batch)


def eagle(
    pair: ModelPair, layer: str = "", tree: bool = False, max_batch: int | None = None
) -> EngineDecoder:
    """Reference engine with an EAGLE layer: of a folder, else the pair's, else made for it."""
    _yes_or_no("tree", tree)
    found = _eagle_layer(pair, layer)
    drafter = (EagleTree if tree else EagleDrafter)(found, pair.target, pair.vocab_size)
    return EngineDecoder(pair, drafter, TreeEngine if tree else SpeculativeEngine, max_batch)


def _as(target: PreTrainedModel, module: Module) -> Module:
    """The module where the target is, and in its dtype but for buffers: positions stay exact."""
    for parameter in module.parameters():
        parameter.data = parameter.data.to(target.dtype)
    return module.to(target.device)


def _medusa_heads(pair: ModelPair, folder: str) -> MedusaHeads:
    target = pair.target
    if trained := folder or pair.heads.get("medusa"):
        width = int(target.get_input_embeddings().weight.shape[1])
        heads = load_medusa(Path(trained), target.get_output_embeddings(), width)
    elif _is_worth_fitting(pair):
        heads = fitted_medusa(target, pair.vocab_size)
    else:
        heads = untrained_medusa(target)
    return _as(target, heads)


def _eagle_layer(pair: ModelPair, folder: str) -> EagleLayer:
    if trained := folder or pair.heads.get("eagle"):
        layer = load_eagle(Path(trained))
    elif _is_worth_fitting(pair):
        layer = fitted_eagle(pair.target, pair.vocab_size)
    else:
        layer = untrained_eagle(pair.target)
    return _as(pair.target, layer)


def _is_worth_fitting(pair: ModelPair) -> bool:
    """Whether the pair is tiny, and its name promises drafts that are of use."""
    recipe = TINY_PAIRS.get(pair.name)
    return recipe is not None and recipe.draft in ("good", "self")


def medusa_tree(pair: ModelPair, heads: str = "", max_batch: int | None = None) -> EngineDecoder:
    """Reference engine with a tree of the likeliest tokens of Medusa heads."""
    return medusa(pair, heads, True, max_batch)


def eagle_tree(pair: ModelPair, layer: str = "", max_batch: int | None = None) -> EngineDecoder:
    """Reference engine with a tree that grows where an EAGLE layer is sure."""
    return eagle(pair, layer, True, max_batch)


def prefix_cache(pair: ModelPair, max_batch: int | None = None) -> EngineDecoder:
    """Reference engine that does not feed a text twice, with the pair's draft model."""
    drafter = ModelDrafter(pair.draft, pair.vocab_size)
    return EngineDecoder(pair, drafter, PrefixCachedEngine, max_batch)


def preemption(pair: ModelPair, max_batch: int | None = None) -> EngineDecoder:
    """Reference engine whose rows lose their cache now and then, with the pair's draft model."""
    drafter = ModelDrafter(pair.draft, pair.vocab_size)
    return EngineDecoder(pair, drafter, PreemptingEngine, max_batch)


def branches(pair: ModelPair, max_batch: int | None = None) -> EngineDecoder:
    """Reference engine with two drafted chains a row, by the pair's draft model."""
    drafter = BranchDrafter(pair.draft, pair.vocab_size)
    return EngineDecoder(pair, drafter, TwoBranches, max_batch)


class PageDecoder:
    """The algorithm on one page: no cache, one request at a time."""

    capabilities = _ALL - {"logprobs", "stream", "metrics"} | {"exact_law"}
    rule = staticmethod(speculative.decode)

    def __init__(self, pair: ModelPair) -> None:
        self._pair = pair

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Decode the requests one by one."""
        return [self._generate(request) for request in requests]

    @torch.inference_mode()
    def _generate(self, request: Request) -> Completion:
        pair = self._pair
        validate(request, pair)
        randomness = Seeded(request.seed)
        p = autoregressive.model_laws(pair.target, request, pair.vocab_size)
        if not request.speculate:
            return autoregressive.decode(p, request, randomness)
        q = autoregressive.model_laws(pair.draft, request, pair.vocab_size)
        return self.rule(p, speculative.draft_with(q), request, randomness)


def page(pair: ModelPair) -> PageDecoder:
    """Reference page with the pair's draft model."""
    return PageDecoder(pair)
