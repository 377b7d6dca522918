"""Train a drafter on the target's own text (self-distillation).

`python -m reference_impl.drafters.train --target DIR --work DIR --out DIR` samples the
corpus, trains and evaluates. Each stage resumes where it stopped, and on one machine with
fixed numbers of threads the result is a function of the arguments.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

from harness import model_files, precision, record
from harness.command_line import BadInput, Parser, refuse, require_positive
from reference_impl.drafters import corpus
from reference_impl.drafters.corpus import chat_parts, end_of_turn, sample_corpus
from reference_impl.drafters.dataset import Exchanges
from reference_impl.drafters.leads import LEADS
from reference_impl.drafters.learners import EagleLearner, MedusaLearner, ModelLearner
from reference_impl.drafters.measure import evaluate
from reference_impl.drafters.training import Learner, Training, require_muon

FAMILIES = ("model", "medusa", "eagle")
COUNTS = ("block", "tokens", "batch", "held_out", "vocabulary", "steps", "rows", "log_every")
SIZES = ("lr", "norm_lr", "weight_decay", "mix", "save_seconds")
MOST_SEED = 2**62


def learner(
    target: LlamaForCausalLM, vocabulary: torch.Tensor, args: argparse.Namespace
) -> Learner:
    """The family that was asked for, as it is before training."""
    torch.manual_seed(args.seed)  # some of an EAGLE's matrices are random at first
    if args.family == "medusa":
        return MedusaLearner(target, vocabulary, args.block)
    if args.family == "eagle":
        return EagleLearner(target, vocabulary, (*args.depths, -1), args.block)
    return ModelLearner(target, vocabulary)


def _parser() -> argparse.ArgumentParser:
    parser = Parser("python -m reference_impl.drafters.train", __doc__)
    add = parser.add_argument
    add("--target", type=Path, required=True, help="target in HF format, with its tokenizer")
    add("--work", type=Path, required=True, help="corpus and checkpoint go here")
    add("--out", type=Path, required=True, help="draft and its figures go here")
    add("--family", choices=FAMILIES, default="model")
    add("--block", type=int, default=3, help="Medusa heads; guesses of an EAGLE")
    add(
        "--depths", type=int, nargs="*", default=[8, 19], help="layers an EAGLE reads, and the last"
    )
    add("--tokens", type=int, default=500_000, help="size of the corpus, at least")
    add("--batch", type=int, default=128, help="exchanges of one corpus shard")
    add("--held-out", type=int, default=2, help="last shards, for evaluation")
    add("--vocabulary", type=int, default=8192, help="tokens the draft may say")
    add("--steps", type=int, default=1450)
    add("--warm-up", type=int, default=30, help="steps to full learning rate; 0: none")
    add("--rows", type=int, default=8, help="exchanges of one step")
    add("--lr", type=float, default=0.05, help="Muon, for the matrices")
    add("--norm-lr", type=float, default=0.002, help="AdamW, for the norms")
    add("--weight-decay", type=float, default=0.01)
    add("--mix", type=float, default=1.0, help="weight of the rejection term")
    add("--seed", type=int, default=1000)
    add("--corpus-threads", type=int, default=2, help="to sample the corpus")
    add("--threads", type=int, default=1, help="to train and evaluate")
    add("--log-every", type=int, default=10, help="steps")
    add("--save-seconds", type=float, default=180)
    return parser


def check_options(args: argparse.Namespace) -> None:
    """Raise ValueError for options that cannot be, whatever the target is."""
    require_positive(args, *COUNTS, "corpus_threads", "threads")
    if not 0 <= args.warm_up < args.steps:
        raise BadInput(
            f"--warm-up is {args.warm_up}, of {args.steps} --steps: give at least 0, and fewer "
            "than there are steps"
        )
    for name in SIZES:
        if not 0 <= (value := getattr(args, name)) < math.inf:
            option = name.replace("_", "-")
            raise BadInput(f"--{option} is {value}: give a number, at least 0")
    if not 0 <= args.seed < MOST_SEED:
        raise BadInput(f"--seed is {args.seed}: give at least 0, and less than 2^62")
    require_muon()
    if not args.target.is_dir():
        raise BadInput(f"--target {args.target} is no directory: give one in Hugging Face format")
    record.check_writable("--work", args.work / "corpus" / "shard")
    record.check_writable("--out", args.out / "evaluation.json")


def load(args: argparse.Namespace) -> tuple[LlamaForCausalLM, PreTrainedTokenizerBase]:
    """Target in float32, and tokenizer; ValueError unless the options fit them."""
    target = model_files.load(str(args.target))
    if not isinstance(target, LlamaForCausalLM) or target.config.attention_bias:
        raise BadInput(
            f"--target is a {type(target).__name__}: training samples from Llama models without "
            "attention biases only"
        )
    layers, ids = int(target.config.num_hidden_layers), int(target.config.vocab_size)
    if args.depths != sorted({*args.depths} & {*range(1, layers)}):
        raise BadInput(
            f"--depths are {' '.join(map(str, args.depths))}: give numbers of layers in ascending "
            f"order, from 1 to {layers - 1} for this target, or none"
        )
    if args.vocabulary > ids:
        raise BadInput(f"--vocabulary is {args.vocabulary}: the target has {ids} ids, ask for less")
    tokenizer = model_files.tokenizer(str(args.target))
    if tokenizer is None or len(tokenizer) > ids:
        raise BadInput(
            f"--target {args.target} has no tokenizer for its {ids} ids, which the corpus needs: "
            "put it beside the weights"
        )
    chat_parts(tokenizer)
    end_of_turn(tokenizer)
    check_shards(args, least_shards(tokenizer, args.tokens, args.batch))
    return target, tokenizer


def least_shards(tokenizer: PreTrainedTokenizerBase, tokens: int, batch: int) -> int:
    """How many shards of ``batch`` exchanges ``tokens`` tokens are, if all are of full length."""
    lead = max(len(tokenizer(lead)["input_ids"]) for leads in LEADS.values() for lead in leads)
    longest = lead + sum(map(len, chat_parts(tokenizer))) + corpus.MAX_USER + corpus.MAX_ANSWER
    return -(-tokens // (batch * longest))


def check_shards(args: argparse.Namespace, shards: int) -> None:
    """Raise BadInput unless a corpus of so many shards is enough to train and to evaluate."""
    more = "ask for more --tokens, or a smaller --batch"
    have = f"{args.tokens} --tokens may fill no more than {shards} shards of {args.batch}"
    if args.held_out >= shards:
        raise BadInput(f"--held-out is {args.held_out}, and leaves no shard: {have}: {more}")
    if args.rows > (exchanges := (shards - args.held_out) * args.batch):
        raise BadInput(
            f"--rows is {args.rows}, and may be more than there are exchanges, {exchanges}: ask "
            "for fewer, or for more --tokens"
        )


def train(
    target: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, args: argparse.Namespace
) -> None:
    """Sample the corpus, train and evaluate."""
    shards = _shards(target, tokenizer, args)
    torch.set_num_threads(args.threads)
    width = int(target.config.hidden_size)
    data = Exchanges(shards[: -args.held_out], width)
    vocabulary = data.frequent_tokens(args.vocabulary, tokenizer.all_special_ids)
    training = Training(learner(target, vocabulary, args), data, args)
    training.resume()
    training.run()
    for parameter in training.learner.module.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.to(torch.bfloat16).float()  # as it is written
    held_out = Exchanges(shards[-args.held_out :], width)
    figures = evaluate(training.learner, target.lm_head.weight, vocabulary, held_out)
    figures["training_cpu_seconds"] = round(training.seconds)
    (args.out / "evaluation.json").write_text(json.dumps(figures, indent=2) + "\n")


def _shards(
    target: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, args: argparse.Namespace
) -> list[Path]:
    """The corpus, sampled in bfloat16."""
    torch.set_num_threads(args.corpus_threads)
    small = copy.deepcopy(target)
    precision.convert(small, "bfloat16")
    folder = args.work / "corpus"
    return sample_corpus(small, tokenizer, folder, args.tokens, args.batch, args.seed, args.depths)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, and write the draft and its figures."""
    args = _parser().parse_args(arguments)
    try:
        check_options(args)
        target, tokenizer = load(args)
    except ValueError as error:  # an option, a target or a folder that cannot be had
        return refuse(error)
    try:
        train(target, tokenizer, args)
    except BadInput as error:  # --work holds something else
        return refuse(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
