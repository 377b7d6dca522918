"""Train a drafter on the target's own text (self-distillation).

`python -m reference_impl.drafters.train --target DIR --work DIR --out DIR` samples the
corpus, trains and evaluates. Each stage resumes where it stopped, and on one machine with
fixed numbers of threads the result is a function of the arguments.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from reference_impl.drafters.corpus import sample_corpus
from reference_impl.drafters.dataset import Exchanges
from reference_impl.drafters.learners import EagleLearner, MedusaLearner, ModelLearner
from reference_impl.drafters.measure import evaluate
from reference_impl.drafters.training import Learner, Training

FAMILIES = ("model", "medusa", "eagle")


def learner(
    target: LlamaForCausalLM, vocabulary: torch.Tensor, args: argparse.Namespace
) -> Learner:
    """The family that was asked for, as it is before training."""
    if args.family == "medusa":
        return MedusaLearner(target, vocabulary, args.block)
    if args.family == "eagle":
        return EagleLearner(target, vocabulary, (*args.depths, -1), args.block)
    return ModelLearner(target, vocabulary)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", type=Path, required=True, help="target in HF format")
    parser.add_argument("--work", type=Path, required=True, help="corpus and checkpoint go here")
    parser.add_argument("--out", type=Path, required=True, help="draft and its figures go here")
    parser.add_argument("--family", choices=FAMILIES, default="model")
    parser.add_argument("--block", type=int, default=3, help="Medusa heads; guesses of an EAGLE")
    parser.add_argument(
        "--depths", type=int, nargs="*", default=[8, 19], help="layers an EAGLE reads, and the last"
    )
    parser.add_argument("--tokens", type=int, default=500_000, help="size of the corpus, at least")
    parser.add_argument("--batch", type=int, default=128, help="exchanges of one corpus shard")
    parser.add_argument("--held-out", type=int, default=2, help="last shards, for evaluation")
    parser.add_argument("--vocabulary", type=int, default=8192, help="tokens the draft may say")
    parser.add_argument("--steps", type=int, default=1450)
    parser.add_argument("--warm-up", type=int, default=30, help="steps to full learning rate")
    parser.add_argument("--rows", type=int, default=8, help="exchanges of one step")
    parser.add_argument("--lr", type=float, default=0.05, help="Muon, for the matrices")
    parser.add_argument("--norm-lr", type=float, default=0.002, help="AdamW, for the norms")
    parser.add_argument("--weight-decay", type=float, default=0.01)
    parser.add_argument("--mix", type=float, default=1.0, help="weight of the rejection term")
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--corpus-threads", type=int, default=2, help="to sample the corpus")
    parser.add_argument("--threads", type=int, default=1, help="to train and evaluate")
    parser.add_argument("--log-every", type=int, default=10, help="steps")
    parser.add_argument("--save-seconds", type=float, default=180)
    return parser.parse_args()


def main() -> None:
    args = parse()
    torch.set_num_threads(args.corpus_threads)
    for folder in (args.work, args.out):
        folder.mkdir(parents=True, exist_ok=True)
    small = AutoModelForCausalLM.from_pretrained(
        args.target, dtype=torch.bfloat16, use_safetensors=True
    )
    tokenizer = AutoTokenizer.from_pretrained(args.target)
    folder = args.work / "corpus"
    shards = sample_corpus(
        small, tokenizer, folder, args.tokens, args.batch, args.seed, args.depths
    )
    torch.set_num_threads(args.threads)
    target = AutoModelForCausalLM.from_pretrained(
        args.target, dtype=torch.float32, use_safetensors=True
    )
    width = int(target.config.hidden_size)
    data = Exchanges(shards[: -args.held_out], width)
    vocabulary = data.frequent_tokens(args.vocabulary, tokenizer.all_special_ids)
    training = Training(learner(target, vocabulary, args), data, args)
    training.resume()
    training.run()
    for parameter in training.learner.module.parameters():
        parameter.data = parameter.to(torch.bfloat16).float()  # as it is written
    held_out = Exchanges(shards[-args.held_out :], width)
    figures = evaluate(training.learner, target.lm_head.weight, vocabulary, held_out)
    figures["training_cpu_seconds"] = round(training.seconds)
    (args.out / "evaluation.json").write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
