"""Small libraries of speculative decoding on PyPI as subjects, a module each.

They run where the recipes ``peers-transformers-*`` install them, with the transformers that each
works with: several crop its cache in a way that 5.24 refuses. ``base`` has what they share.

What an adapter does to a library is said in its first lines. It never mends an output: tokens
beyond ``max_new_tokens``, an EOS that is left out or passed over are what the library gives. Where
a library has steps and no loop, the loop is the adapter's, and ends where it should.
"""

from __future__ import annotations

from collections.abc import Mapping

# Name of the decoder -> module:factory in here, and the transformers that the library works with.
PEERS: Mapping[str, tuple[str, str]] = {
    "flashspec": ("flashspec:Single", "5.24"),
    "flashspec-batch": ("flashspec:Batched", "5.24"),
    "specdec": ("specdec:SpecDec", "5.24"),
    "sequential-standard": ("sequential:standard", "5.24"),
    "sequential-naive": ("sequential:naive", "5.24"),
    "sequential-capped": ("sequential:capped", "5.24"),
    "economize": ("economize:Economize", "5.24"),
    "mini-infer": ("mini_infer:MiniInfer", "5.24"),
    "core-deepinfer": ("core_deepinfer:CoreDeepInfer", "5.24"),
    "speculative-decoding": ("speculative_decoding:SpeculativeDecoding", "5.24"),
    "flashmap": ("flashmap:FlashMap", "5.24"),
    "dflash": ("dflash:first", "5.24"),
    "dflash-2": ("dflash:second", "5.24"),
    "divine-mtp": ("divine_mtp:DivineMtp", "5.24"),
    "dejavuu-chain": ("dejavuu:chain", "5.15"),
    "dejavuu-tree": ("dejavuu:tree", "5.15"),
    "naive-speculate": ("naive_speculate:NaiveSpeculate", "5.15"),
    "uarc": ("uarc:Uarc", "5.15"),
    "csaq-quant": ("csaq:Csaq", "5.15"),
    "rotalabs-accel": ("rotalabs:Rotalabs", "5.15"),
}
