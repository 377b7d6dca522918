"""``python -m harness``: what there is to run."""

from __future__ import annotations

import inspect
import pkgutil
from importlib import metadata

COMMANDS = {
    "python -m harness.report": "measure speedup and losslessness of decoders, and write a report",
    "python -m harness.report --from FILE": "render a record that was written before",
    "python -m harness.report --advise --from FILE": "whether to speculate, by task, and which K",
    "python -m harness.bench.sweep AXIS VALUES": "the same over K, batch size, temperature, ...",
    "pytest suites/": "judge a decoder: the conformance suites",
    "python -m harness.fleet": "the suites on many workers or machines (docs/scale.md)",
    "python -m harness.evidence_shards": "the evidence on sampled output from many workers",
    "python -m harness.record_merge": "records of one run's shards as one",
    "python -m harness.report --conformance": "the table of what the suites said of many decoders",
    "python -m harness.new_decoder NAME": "write an adapter to begin with (docs/your-decoder.md)",
    "ci/third_party NAME": "install a third party's decoder, and judge it",
    "python -m harness.mutants": "the kill matrix: which check catches which known-wrong decoder",
    "python -m harness.gallery": "the known-wrong decoders as Markdown (docs/faults.md)",
    "python -m harness.bench.throughput": "tokens per second of batched sampling on a tiny pair",
    "python -m harness.bench.calibrate": "whether timing on this machine finds known speedups",
    "python -m reference_impl.drafters.train": "train a draft for a target on its own text",
}


def main() -> None:
    """Print the commands, and the decoders and pairs that they know."""
    from harness import __version__, smollm2
    from harness.adapters import BUILT_IN, GROUP
    from harness.adapters.engines import ENGINES
    from harness.models import TINY_PAIRS

    installed = {entry.name: entry.value for entry in metadata.entry_points(group=GROUP)}
    decoders = {**installed, **BUILT_IN}
    pairs = {
        name: f"made from a seed: {recipe.architecture}, {recipe.vocab} ids, {recipe.draft} draft"
        + (", tied logits" if recipe.ties else "")
        for name, recipe in TINY_PAIRS.items()
    }
    pairs[smollm2.NAME] = f"{smollm2.HUB_ID} with its trained draft"
    pairs[smollm2.FULL_DRAFT] = "the same, the draft with the whole vocabulary: for engines"
    print(f"specdec-harness {__version__}: is it lossless, and what does it buy?")
    _print("commands (each has --help)", COMMANDS)
    _print("decoders", {name: _summary(path) for name, path in sorted(decoders.items())})
    print("  your own: --decoder package.module:factory, with factory(pair, **options) -> Decoder")
    print('            "cmd: COMMAND" for a child process on stdio, or the URL of a server')
    _print("third parties' engines", {name: e.environment for name, e in ENGINES.items()})
    _print("model pairs", pairs)
    print("  your own: --target PATH_OR_ID --draft PATH_OR_ID")


def _summary(path: str) -> str:
    """First line of a factory's docstring."""
    try:
        return (inspect.getdoc(pkgutil.resolve_name(path)) or "").partition("\n")[0]
    except Exception as error:  # an installed package that does not import must not hide the rest
        return f"cannot be imported: {type(error).__name__}"


def _print(title: str, entries: dict[str, str]) -> None:
    width = max(map(len, entries))
    print(f"\n{title}:")
    for name, meaning in entries.items():
        print(f"  {name:<{width}}  {meaning}")


if __name__ == "__main__":
    main()
