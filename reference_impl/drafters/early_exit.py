"""The target's own first layers, and its head on top of them, as the draft.

Draft & Verify (Zhang et al. 2023) and LayerSkip (Elhoushi et al. 2024). No weight is added. How
good such a draft is depends on how the target was trained: one that was not trained for it needs
most of its layers.
"""

from __future__ import annotations

from torch import nn
from transformers import PreTrainedModel

from reference_impl.drafters.model import ModelDrafter
from reference_impl.sharing import copy_that_shares


class EarlyExitDrafter(ModelDrafter):
    """Draws from the target cut off after ``layers`` layers.

    Parameters
    ----------
    target : PreTrainedModel
    layers : int
        At least 1, and fewer than the target has.
    vocab : int
        Token ids in use.
    """

    follows_the_request = False  # it is not the pair's draft that it follows

    def __init__(self, target: PreTrainedModel, layers: int, vocab: int) -> None:
        super().__init__(first_layers(target, layers), vocab)


def first_layers(target: PreTrainedModel, layers: int) -> PreTrainedModel:
    """The target without its later layers; what is left is shared with it, not copied.

    Raises
    ------
    ValueError
        If the target has no more layers than that, or they are not in one list.
    """
    most = int(target.config.get_text_config().num_hidden_layers)
    if not 1 <= layers < most:
        raise ValueError(f"layers is {layers}: this target exits after 1 to {most - 1}")
    draft = copy_that_shares(target)
    config = draft.config.get_text_config()
    config.num_hidden_layers = layers
    if len(getattr(config, "layer_types", None) or ()) > layers:  # some models tell them by number
        config.layer_types = config.layer_types[:layers]
    for module in draft.modules():
        for name, child in module.named_children():
            if isinstance(child, nn.ModuleList) and len(child) == most:
                setattr(module, name, child[:layers])
                return draft
    raise ValueError(f"no list of {most} layers in {type(target).__name__}")
