"""Temperature and filters that are wrong where drafts are judged."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from harness.stats import faults
from harness.verdict import FaultClass
from reference_impl import sampling
from reference_impl.batch import Batch
from reference_impl.mutants.processors import Judged, Misread
from reference_impl.mutants.registry import mutant
from reference_impl.sampling import Parameters

KIND = FaultClass.PARAMETERS
COLD = "sampling_params.law[micro-T=0.3]"
BOTH = "sampling_params.law[micro-T=1.5 top_k=4 top_p=0.7]"
MIN_P = "sampling_params.law[micro-T=1.5 min_p=0.25]"


@mutant(KIND, COLD, id="F33", source="vllm-project/vllm-ascend#6685")
class SoftmaxTwice(Judged):
    """Drafts are judged by the softmax of probabilities, taken for logits."""

    def law(self, processed: Tensor, batch: Batch) -> Tensor:
        p = super().law(processed, batch)
        return self.where_judged(p.softmax(-1), p)


@mutant(KIND, COLD, subtle={"times": 1.3})
class TemperatureTwice(Misread):
    """Drafts are judged at a temperature that was applied twice."""

    times = 2.0

    def misread(self, parameters: Parameters) -> Parameters:
        return replace(parameters, temperature=parameters.temperature**self.times)


@mutant(KIND, COLD, BOTH, id="F37", source="vllm-project/vllm#9834, 10198")
class DefaultParameters(Judged):
    """Drafts are judged at temperature 1, without filters, whatever was asked for."""

    def law(self, processed: Tensor, batch: Batch) -> Tensor:
        return self.where_judged(processed.softmax(-1), super().law(processed, batch))


class OtherFilters(Judged):
    """Judges drafts by the request's law, filtered in another way."""

    def law(self, processed: Tensor, batch: Batch) -> Tensor:
        parameters = self.spread(batch, processed.shape[1])
        wrong = self.filtered(processed.flatten(0, 1), parameters).view(processed.shape)
        return self.where_judged(wrong, super().law(processed, batch))

    def filtered(self, processed: Tensor, parameters: Parameters) -> Tensor:
        """Laws [R, V]."""
        raise NotImplementedError


@mutant(KIND, BOTH, id="F38", source="sgl-project/sglang#36173")
class TopPOfEverything(OtherFilters):
    """top_p looks at the whole law instead of at what top_k has left of it."""

    def filtered(self, processed: Tensor, parameters: Parameters) -> Tensor:
        return faults.top_p_of_everything(processed, parameters)


@mutant(KIND, BOTH)
class FiltersFirst(OtherFilters):
    """The filters look at the law before the temperature has changed it."""

    def filtered(self, processed: Tensor, parameters: Parameters) -> Tensor:
        return faults.filters_first(processed, parameters)


@mutant(KIND, MIN_P)
class MinPOfOne(OtherFilters):
    """min_p is a probability instead of a share of the most likely token's."""

    def filtered(self, processed: Tensor, parameters: Parameters) -> Tensor:
        p = sampling.normalise(processed, replace(parameters, min_p=0 * parameters.min_p))
        kept = torch.where(p < parameters.min_p, 0, p).to(p.dtype)
        total = kept.sum(-1, keepdim=True)
        return torch.where(total > 0, kept / total, p)


@mutant(KIND, BOTH)
class OneMoreInTopK(Misread):
    """top_k keeps one token too many where drafts are judged."""

    def misread(self, parameters: Parameters) -> Parameters:
        return replace(parameters, top_k=(parameters.top_k + 1).clamp(max=self.vocab))
