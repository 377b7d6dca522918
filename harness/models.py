"""Model pairs, loaded.

``load_pair`` knows pairs made from a seed, tiny ones to test on and large ones to time, the real
pair ``smollm2-135m``, and any two Hugging Face directories, hub ids or GGUF files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from harness import model_files, precision, smollm2, timing_pairs, tiny_pairs
from harness.model_pair import Elsewhere
from harness.model_pair import ModelPair as ModelPair
from harness.model_pair import NoWeightsError as NoWeightsError
from harness.model_pair import PairError as PairError
from harness.model_pair import cache_directory as cache_directory


@dataclass(frozen=True)
class _Tiny:
    architecture: str = "llama"
    draft: str = "good"
    vocab: int = 64
    ties: bool = False
    padding: tuple[int, int] = (0, 0)  # columns that mean no token, of target and draft
    seed: int = 1


TINY_PAIRS: Mapping[str, _Tiny] = {
    "tiny": _Tiny(),
    "tiny-bad": _Tiny(draft="bad"),
    "tiny-self": _Tiny(draft="self"),
    "tiny-hostile": _Tiny(draft="hostile"),
    "tiny-ties": _Tiny(ties=True),
    "tiny-ties-self": _Tiny(ties=True, draft="self"),
    "tiny-padded": _Tiny(padding=(0, 16)),
    "tiny-gpt2": _Tiny(architecture="gpt2"),
    "tiny-gpt2-bad": _Tiny(architecture="gpt2", draft="bad"),
    "tiny-gpt2-self": _Tiny(architecture="gpt2", draft="self"),
    "tiny-window": _Tiny(architecture="mistral"),
    "tiny-window-bad": _Tiny(architecture="mistral", draft="bad"),
    "tiny-window-self": _Tiny(architecture="mistral", draft="self"),
    "tiny-mamba": _Tiny(architecture="mamba"),
    "tiny-mamba-bad": _Tiny(architecture="mamba", draft="bad"),
    "tiny-mamba-self": _Tiny(architecture="mamba", draft="self"),
    "micro": _Tiny(vocab=8),
    "micro-bad": _Tiny(vocab=8, draft="bad"),
    "micro-self": _Tiny(vocab=8, draft="self"),
    "micro-hostile": _Tiny(vocab=8, draft="hostile"),
}


WEIGHTLESS = "weightless"


def pair_names() -> list[str]:
    """Names that ``load_pair`` knows without a path."""
    return [*TINY_PAIRS, smollm2.NAME, smollm2.FULL_DRAFT, *timing_pairs.RECIPES]


def heads(name: str) -> dict[str, Path]:
    """Folders of the drafters that were trained for a pair, by family; the pair is not loaded."""
    return smollm2.heads() if name in (smollm2.NAME, smollm2.FULL_DRAFT) else {}


def check_name(name: str) -> None:
    """Raise PairError unless ``load_pair`` knows the name."""
    if name not in pair_names():
        raise PairError(f"unknown pair {name!r}: known are {', '.join(pair_names())}")


def load_pair(
    name: str = "",
    target: str | None = None,
    draft: str | None = None,
    device: str = "cpu",
    dtype: str = "float32",
    vocab_size: int = 0,
    context_length: int = 128,
    trust_remote_code: bool = False,
) -> ModelPair:
    """Load a pair by name, or from two directories or hub ids; or none, given a vocabulary.

    Parameters
    ----------
    name : str
    target, draft : str, optional
        A directory, a hub id or a GGUF file each, instead of a name.
    device : str
    dtype : str
        Of ``pair_files.DTYPES``, or float64.
    vocab_size, context_length : int
        Instead of models.
    trust_remote_code : bool
        Whether Python that comes with ``target`` or ``draft`` is run; it is refused otherwise.

    Raises
    ------
    PairError
        In one line that says what is wrong and what to do.
    """
    if vocab_size:
        elsewhere: Any = Elsewhere()
        pair = ModelPair(WEIGHTLESS, elsewhere, elsewhere, vocab_size, context_length)
        pair.loaded_with = {"vocab_size": vocab_size, "context_length": context_length}
        return pair
    if target or draft:
        if not (target and draft):
            raise PairError("give both --target and --draft (a directory or a hub id each)")
        pair = _from_paths(target, draft, trust_remote_code)
    elif name in TINY_PAIRS:
        pair = _tiny(name, TINY_PAIRS[name])
    elif name in timing_pairs.RECIPES:
        pair = _timing(name, device)
    else:
        check_name(name)
        pair = _smollm2(name)
    for model in (pair.target, pair.draft):
        try:
            precision.convert(model, dtype)
        except ValueError as error:
            raise PairError(f"{error}: choose another --dtype") from None
        model.to(_device(device)).eval()
    pair.loaded_with = {"target": target, "draft": draft} if target else {"name": name}
    if trust_remote_code:
        pair.loaded_with["trust_remote_code"] = True
    pair.loaded_with |= {"device": device, "dtype": dtype}
    return pair


def _device(device: str) -> torch.device:
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise PairError(
            f"device {device!r} cannot be used here: {str(error).splitlines()[0]}"
        ) from None
    return torch.device(device)


def _tiny(name: str, recipe: _Tiny) -> ModelPair:
    target = tiny_pairs.make_target(recipe.architecture, recipe.vocab, recipe.seed)
    if recipe.ties:
        tiny_pairs.tie_outputs(target)
    draft = tiny_pairs.make_draft(recipe.draft, target, recipe.architecture, recipe.seed)
    for model, columns in zip((target, draft), recipe.padding, strict=True):
        if columns:
            tiny_pairs.pad_outputs(model, columns)
    return ModelPair(
        name=name,
        target=target,
        draft=draft,
        vocab_size=recipe.vocab,
        context_length=tiny_pairs.CONTEXT,
        source=f"made from seed {recipe.seed}",
    )


def _timing(name: str, device: str) -> ModelPair:
    target, draft = timing_pairs.make(name, _device(device))
    return ModelPair(
        name=name,
        target=target,
        draft=draft,
        vocab_size=int(target.config.vocab_size),
        context_length=timing_pairs.CONTEXT,
        source=f"made from seed {timing_pairs.SEED}",
    )


def _smollm2(name: str) -> ModelPair:
    from reference_impl.drafters.reduced import load_reduced_draft, with_full_head

    try:
        directory, source = smollm2.find(cache_directory())
    except smollm2.NotFound as error:
        raise PairError(str(error)) from None
    target = model_files.load(str(directory))
    draft = load_reduced_draft(target, smollm2.DRAFT)
    return ModelPair(
        name=name,
        target=target,
        draft=with_full_head(draft, target) if name == smollm2.FULL_DRAFT else draft,
        vocab_size=int(target.config.vocab_size),
        context_length=int(target.config.max_position_embeddings),
        eos=smollm2.EOS,
        tokenizer=AutoTokenizer.from_pretrained(directory, trust_remote_code=False),
        source=source,
        heads=heads(name),
        _directories={"target": directory},
    )


def _from_paths(target: str, draft: str, trust: bool) -> ModelPair:
    models = [model_files.load(path, trust) for path in (target, draft)]
    tokenizers = [model_files.tokenizer(path, trust) for path in (target, draft)]
    if all(tokenizers):
        first, second = (t.get_vocab() for t in tokenizers)
        if first != second:
            raise PairError(
                f"the tokenizers of {target!r} and {draft!r} differ: "
                "a draft must share the target's ids"
            )
    shared = len(tokenizers[0]) if tokenizers[0] else models[0].config.vocab_size
    sizes = [int(m.config.vocab_size) for m in models]
    if sizes[0] != sizes[1] and not all(tokenizers):
        raise PairError(
            f"vocabularies differ ({sizes[0]} and {sizes[1]}), and there is no tokenizer to say "
            "that only the padding does: use a draft with the target's vocabulary"
        )
    if sizes[1] < min(sizes[0], shared):
        raise PairError(
            f"the draft {draft!r} knows {sizes[1]} ids, the target uses {min(sizes[0], shared)}: "
            "use a draft with all of them"
        )
    eos = models[0].generation_config.eos_token_id
    return ModelPair(
        name=f"{Path(target).name}+{Path(draft).name}",
        target=models[0],
        draft=models[1],
        vocab_size=min(sizes[0], shared),
        context_length=int(getattr(models[0].config, "max_position_embeddings", 0) or 2048),
        eos=tuple(eos) if isinstance(eos, list) else (eos,) if eos is not None else (),
        tokenizer=tokenizers[0],
        source=f"{target} and {draft}",
    )
