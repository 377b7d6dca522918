"""Third parties' engines, each in a directory of its own.

Python packages want other versions of torch or transformers than the harness, so they run in a
virtual environment, as a child on stdio (``harness.host``); an engine that is a program is started
by its adapter. ``ci/third_party --install ENVIRONMENT`` makes such a directory.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import os
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import harness
from harness.adapters import NotInstalledError
from harness.adapters.peers import PEERS
from harness.adapters.stdio import StdioDecoder
from harness.contract import Decoder
from harness.models import ModelPair, cache_directory
from harness.pair_files import Form


@dataclass(frozen=True)
class Engine:
    """How a third party's decoder is run.

    Attributes
    ----------
    factory : str
        ``package.module:function``, which gets a ``PairFiles``.
    environment : str
        A script of that name in ``harness/adapters/recipes/`` installs it.
    forms : tuple of str
        In which it wants its models.
    timeout : float
        Seconds that one call may take.
    variables : mapping
        Environment variables that must be there before the engine is imported.
    """

    factory: str
    environment: str
    forms: tuple[Form, ...] = ("hf",)
    timeout: float = 600
    variables: Mapping[str, str] = field(default_factory=dict)

    def build(self, pair: ModelPair, **options: bool | int | float | str) -> StdioDecoder:
        """Start the engine on a pair.

        Raises
        ------
        NotInstalledError
            If its environment is not there.
        """
        python = environment(self.environment) / "bin" / "python"
        if not python.exists():
            raise NotInstalledError(
                f"{self.environment} is not installed: ci/third_party --install {self.environment}"
            )
        variables = {**os.environ, **self.variables, "PYTHONPATH": str(_harness_alone())}
        command = [str(python), "-m", "harness.host", self.factory]
        return StdioDecoder(command, pair.files(self.forms), options, self.timeout, variables)


@dataclass(frozen=True)
class Program:
    """An engine that is no Python package: its adapter, which runs here, starts it.

    Attributes
    ----------
    factory : str
        ``package.module:function``, which gets a ``ModelPair``.
    environment : str
        A script of that name in ``harness/adapters/recipes/`` installs it.
    options : mapping
        Handed to the factory, where the user does not say otherwise.
    """

    factory: str
    environment: str
    options: Mapping[str, bool | int | float | str] = field(default_factory=dict)

    def build(self, pair: ModelPair, **options: bool | int | float | str) -> Decoder:
        """Start the engine on a pair; NotInstalledError if it is not there."""
        factory, arguments = pkgutil.resolve_name(self.factory), {**self.options, **options}
        try:
            inspect.signature(factory).bind(pair, **arguments)
        except TypeError as error:
            raise ValueError(f"{self.factory}: {error}") from None
        decoder: Decoder = factory(pair, **arguments)
        return decoder


def environment(name: str) -> Path:
    """Where an engine is installed, or would be."""
    return engines_directory() / name


def engines_directory() -> Path:
    """SPECDEC_ENGINES, else in the cache."""
    return Path(os.environ.get("SPECDEC_ENGINES") or cache_directory() / "engines")


def _harness_alone() -> Path:
    """A directory that holds this package and nothing of what is installed beside it."""
    package = Path(harness.__file__).parent
    # One for each checkout: they may run at the same time.
    digest = hashlib.sha256(str(package).encode()).hexdigest()[:12]
    alone = engines_directory() / f"harness-alone-{digest}"
    alone.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (alone / "harness").symlink_to(package)
    return alone


_VLLM = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}

ENGINES: Mapping[str, Engine | Program] = {
    "vllm-ngram": Engine("harness.adapters.vllm:ngram", "vllm", variables=_VLLM),
    "vllm-draft": Engine("harness.adapters.vllm:draft", "vllm", variables=_VLLM),
    "mlx-draft": Engine(
        "harness.adapters.mlx:draft",
        "mlx",
        variables={"MLX_DISABLE_COMPILE": "1"},  # else it calls a C++ compiler as it goes
    ),
    "node-draft": Program("harness.adapters.node_llama_cpp:predictor", "node-llama-cpp"),
    "node-lookup": Program(
        "harness.adapters.node_llama_cpp:predictor", "node-llama-cpp", {"drafts": "lookup"}
    ),
    "llama-server": Program("harness.adapters.llama_server:draft", "llama-cpp"),
    "llama-probabilistic": Program(
        "harness.adapters.llama_server:draft", "llama-cpp", {"sampling": "probabilistic"}
    ),
    **{
        f"llama-ngram-{kind}": Program(
            "harness.adapters.llama_server:ngram", "llama-cpp", {"kind": kind}
        )
        for kind in ("simple", "map-k", "map-k4v", "mod", "cache")
    },
    "llama-synth": Program("harness.adapters.llama_server:synthetic", "llama-cpp"),
    **{
        name: Engine(f"harness.adapters.peers.{factory}", f"peers-transformers-{version}")
        for name, (factory, version) in PEERS.items()
    },
    "openvino-draft": Engine("harness.adapters.openvino:draft", "openvino"),
    "openvino-lookup": Engine("harness.adapters.openvino:lookup", "openvino"),
    "ort-draft": Engine("harness.adapters.onnxruntime_genai:draft", "onnxruntime-genai"),
    "ort-ngram": Engine("harness.adapters.onnxruntime_genai:ngram", "onnxruntime-genai"),
}
