"""Decoders that were reported as wrong and are exact: what the suites must not fail.

``CONTROLS`` names them all. Each is a factory like any decoder's, so the suites run on it with
``pytest suites/ --decoder reference_impl.controls:point_mass``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.adapters.reference import EngineDecoder
from harness.models import ModelPair
from reference_impl.branches import BranchDrafter, TwoBranches
from reference_impl.controls import engines
from reference_impl.drafters.model import ModelDrafter
from reference_impl.engine import SpeculativeEngine
from reference_impl.preemption import PreemptingEngine
from reference_impl.prefix_cache import PrefixCachedEngine


@dataclass(frozen=True)
class Control:
    """An exact decoder, and what was said against it.

    Attributes
    ----------
    engine : type
        The reference engine with one step overridden.
    claim : str
        What was reported, in one line.
    source : str
        Where: public issues and pull requests.
    exact_because : str
        Why the output is the target's nevertheless, in one line.
    drafter : type
        What proposes.
    """

    engine: type[SpeculativeEngine]
    claim: str
    source: str
    exact_because: str
    drafter: type[ModelDrafter] = ModelDrafter

    def __call__(self, pair: ModelPair) -> EngineDecoder:
        """Build the decoder on a pair."""
        return EngineDecoder(pair, self.drafter(pair.draft, pair.vocab_size), engine=self.engine)


point_mass = Control(
    engines.PointMass,
    claim="the draft is sampled, but its probabilities are not used in verification",
    source="vllm-project/vllm#40149 / 41044 (design 16899)",
    exact_because="for every d: p(d) of d, and else (1 - p(d)) of p without d, together are p",
)
sampler_match = Control(
    engines.SamplerMatch,
    claim="the draft runs at temperature 0 while the target samples: accepted only on equality",
    source="z-lab/dflash#74 / PR 77; lablup/mlxcel PR 992; FasterDecoding/Medusa 56",
    exact_because="every emitted token is a draw of the target's own",
    drafter=engines.ArgmaxDrafter,
)
candidates = Control(
    engines.Candidates,
    claim="the candidates of a top-k tree are verified with q = 1",
    source="SafeAILab/EAGLE#221 / 183 / 93",
    exact_because="fixed candidates are point masses: one after the other takes its share of p",
    drafter=engines.ArgmaxDrafter,
)
bare_draft = Control(
    SpeculativeEngine,
    claim="temperature, filters, penalties and grammar apply to the target's law, not the draft's",
    source="(toy)#-",
    exact_because="any q will do, if drafts are drawn from it and judged by it",
    drafter=engines.BareDrafter,
)
near_ties = Control(
    engines.NearTies,
    claim="greedy output with a draft differs from greedy output without",
    source="huggingface/transformers#39421",
    exact_because="it differs only where two logits are nearer than the kernels' rounding",
)
other_randomness = Control(
    engines.OtherRandomness,
    claim="with the same seed, sampled ids are not those of plain decoding",
    source="(toy)#-",
    exact_because="a seed fixes a decoder's own coins, not how another one reads them",
)

# The reference on the paths that keep state: nobody reported these, many reported such paths.
prefix_cache = Control(
    PrefixCachedEngine,
    claim="a prompt that begins as an earlier one is not fed again",
    source="(path)#-",
    exact_because="states depend on the ids before them alone, and those are compared",
)
preemption = Control(
    PreemptingEngine,
    claim="a row loses its cache between two rounds",
    source="(path)#-",
    exact_because="all its committed tokens are fed anew",
)
branches = Control(
    TwoBranches,
    claim="two chains a row are verified, and one of them dropped",
    source="(path)#-",
    exact_because="their first tokens are fixed, and tried in turn; then there is one chain",
    drafter=BranchDrafter,
)

CONTROLS: Mapping[str, Control] = {
    name: value for name, value in list(globals().items()) if isinstance(value, Control)
}
