"""Sample the target's own text, with its output laws, as training data for a draft.

Every sequence is one chat exchange. The target writes the user turn too (from a short
lead, or from nothing), so that no foreign text is needed and the contexts have the law
the draft meets in use. The state that enters the target's head is kept at each position:
with the head's matrix it gives back the target's law p in full, at no extra cost. States of
lower layers are kept beside it, for drafters that read them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

from harness.command_line import BadInput
from reference_impl.drafters.checkpoints import fingerprint, said_of
from reference_impl.drafters.leads import LEADS

TASKS = (*LEADS, "free")
USER_TEMPERATURE = 0.8
ANSWER_TEMPERATURES = (0.0, 0.3, 0.6, 0.8, 1.0)
ANSWER_TEMPERATURE_LAW = (0.28, 0.18, 0.18, 0.18, 0.18)
END = "<|im_end|>"
MAX_USER = 40
MAX_ANSWER = 220


@dataclass
class Row:
    """One exchange while it is sampled.

    `forced` holds the tokens still to be fed whatever the target says, last one first;
    `answer` is the position of the first token of the answer, -1 within the user turn.
    """

    index: int
    task: int
    temperature: float
    forced: list[int]
    ids: list[int]
    user: int = 0
    answer: int = -1


class BatchDecoder:
    """One-token-a-step decoder over a batch whose rows all have the same length.

    Rows of equal length need no mask, and the three query heads of one key head can be
    three queries of one attention call: about three times faster here than `generate`.
    """

    def __init__(
        self, model: LlamaForCausalLM, batch: int, length: int, depths: Sequence[int] = ()
    ) -> None:
        config = model.config
        self.model, self.position, self.depths = model, 0, depths
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.width = config.hidden_size // config.num_attention_heads
        shape = (config.num_hidden_layers, batch, self.kv_heads, length, self.width)
        self.keys = torch.zeros(shape, dtype=model.dtype)
        self.values = torch.zeros(shape, dtype=model.dtype)
        self.qkv = [
            torch.cat([a.q_proj.weight, a.k_proj.weight, a.v_proj.weight])
            for a in (layer.self_attn for layer in model.model.layers)
        ]

    def select(self, rows: torch.Tensor) -> None:
        """Keep (or repeat) the given batch rows of the cache, [B'] int64."""
        self.keys, self.values = self.keys[:, rows], self.values[:, rows]

    def step(self, ids: torch.Tensor) -> torch.Tensor:
        """Feed one token a row, [B] int64.

        Returns the states after ``depths`` layers and, last, the head's input, side by side,
        [B, (len(depths) + 1) * hidden].
        """
        x: torch.Tensor = self.model.model.embed_tokens(ids)
        states = []
        where = torch.tensor([[self.position]])
        cos, sin = (a[0, 0] for a in self.model.model.rotary_emb(x, where))
        for i, layer in enumerate(self.model.model.layers):
            x = x + layer.self_attn.o_proj(self.attend(i, layer.input_layernorm(x), cos, sin))
            x = x + layer.mlp(layer.post_attention_layernorm(x))
            if i + 1 in self.depths:
                states.append(x)
        self.position += 1
        return torch.cat([*states, self.model.model.norm(x)], -1)

    def attend(self, i: int, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Attention of layer `i` for [B, hidden], before the output projection."""
        heads = F.linear(x, self.qkv[i]).view(len(x), self.heads + 2 * self.kv_heads, self.width)
        turned, value = heads[:, : -self.kv_heads], heads[:, -self.kv_heads :]
        first, second = turned.chunk(2, dim=-1)
        turned = turned * cos + torch.cat((-second, first), dim=-1) * sin
        t = self.position
        self.keys[i, :, :, t], self.values[i, :, :, t] = turned[:, self.heads :], value
        query = turned[:, : self.heads].reshape(len(x), self.kv_heads, -1, self.width)
        keys, values = self.keys[i, :, :, : t + 1], self.values[i, :, :, : t + 1]
        return F.scaled_dot_product_attention(query, keys, values).reshape(len(x), -1)


def draw(logits: torch.Tensor, temperature: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Sample one token a row: [B, V] float32 and [B] temperatures (0: greedy) to [B] int64.

    Inverts the cumulative law, since `torch.multinomial` draws one exponential a token.
    """
    heat = temperature.clamp_min(1e-3)[:, None]
    cumulative = torch.softmax(logits / heat, dim=-1).cumsum(dim=-1)
    level = torch.rand(len(logits), 1, generator=rng) * cumulative[:, -1:]
    sampled = torch.searchsorted(cumulative, level, right=True)[:, 0]
    return torch.where(temperature > 0, sampled.clamp_max(logits.shape[1] - 1), logits.argmax(-1))


def chat_parts(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """Split the chat template around the user's text: ids before it and ids after it."""
    mark = "@@"
    if not tokenizer.chat_template:
        raise BadInput("the target's tokenizer has no chat template, which a corpus is made of")
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": mark}], tokenize=False, add_generation_prompt=True
    )
    parts = [tokenizer(part)["input_ids"] if part else [] for part in str(text).split(mark)]
    if len(parts) != 2 or not all(parts):
        raise BadInput("the chat template must say something before and after the user's text")
    return parts[0], parts[1]


def end_of_turn(tokenizer: PreTrainedTokenizerBase) -> int:
    """The id that ends what is said."""
    if END not in tokenizer.get_vocab():
        raise BadInput(f"the target's tokenizer has no {END}, which ends a turn of the corpus")
    return int(tokenizer.convert_tokens_to_ids(END))


def open_rows(tokenizer: PreTrainedTokenizerBase, batch: int, rng: torch.Generator) -> list[Row]:
    """Draw task, lead and temperature of each row: even rows have a lead, odd rows have none."""
    law = torch.tensor(ANSWER_TEMPERATURE_LAW)
    heats = torch.multinomial(law, batch, replacement=True, generator=rng).tolist()
    rows = []
    for i, heat in enumerate(heats):
        task = (i // 2) % len(LEADS) if i % 2 == 0 else len(LEADS)
        forced: list[int] = []
        if i % 2 == 0:
            leads = LEADS[TASKS[task]]
            lead = leads[int(torch.randint(len(leads), (), generator=rng))]
            forced = tokenizer(lead)["input_ids"][::-1]
        rows.append(Row(i, task, ANSWER_TEMPERATURES[heat], forced, []))
    return rows


def advance(row: Row, sampled: int, after: list[int], eos: int) -> int | None:
    """Choose the row's next token, given the target's sample; None at the end of the row."""
    if row.forced:
        return row.forced.pop()
    if row.answer >= 0:
        done = sampled == eos or len(row.ids) - row.answer >= MAX_ANSWER
        return None if done else sampled
    row.user += 1
    if sampled == eos or row.user > MAX_USER:
        row.forced = after[:0:-1]
        row.answer = len(row.ids) + len(after)
        return after[0]
    return sampled


@torch.no_grad()
def sample_shard(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    batch: int,
    seed: int,
    depths: Sequence[int] = (),
) -> dict[str, torch.Tensor]:
    """Sample `batch` exchanges.

    Parameters
    ----------
    depths : sequence of int, ascending
        After how many layers states are kept, beside what goes into the head.

    Returns
    -------
    dict of torch.Tensor
        Over the N positions of all sequences, one after the other: `ids` [N] int32;
        `features` [N, (len(depths) + 1) * hidden] in the model's dtype, the states there,
        the head's input last; `log_z` [N] float32, the log normaliser of the target's
        next-token law there.
        By sequence, [batch]: `lengths`, `answers` (first position of the answer) and
        `tasks` (index into `TASKS`), int32; `temperatures`, float32 (0: greedy).
        `prefix` [1] int32: how many first tokens are common to all sequences.
    """
    rng = torch.Generator().manual_seed(seed)
    before, after = chat_parts(tokenizer)
    eos = end_of_turn(tokenizer)
    rows = open_rows(tokenizer, batch, rng)
    longest = max(len(row.forced) for row in rows) + MAX_USER + len(after) + MAX_ANSWER + 2
    decoder = BatchDecoder(model, 1, len(before) + longest, depths)
    head, width = model.get_output_embeddings(), model.config.hidden_size
    features, log_z = [], []  # by position: [B, F], [B], scattered over all rows
    everyone = torch.arange(batch)
    live = rows
    for token in before:
        state = decoder.step(torch.tensor([token]))
        logits = head(state[:, -width:]).float()
        features.append(state.expand(batch, -1).clone())
        log_z.append(logits.logsumexp(-1).expand(batch).clone())
        for row in rows:
            row.ids.append(token)
    decoder.select(torch.zeros(batch, dtype=torch.int64))
    logits = logits.expand(batch, -1)
    finished: set[int] = set()
    slots = everyone  # the row index of each batch slot of the decoder
    while True:
        heat = torch.tensor([r.temperature if r.answer >= 0 else USER_TEMPERATURE for r in live])
        drawn = draw(logits, heat, rng).tolist()
        for row, sampled in zip(live, drawn, strict=True):
            if row.index in finished:
                continue
            token_or_end = advance(row, sampled, after, eos)
            if token_or_end is None:
                finished.add(row.index)
            else:
                row.ids.append(token_or_end)
        if len(finished) == batch:
            break
        # Rows that ended run on until a quarter of the slots is idle, then leave the cache.
        busy = [i for i, row in enumerate(live) if row.index not in finished]
        if len(busy) <= 0.75 * len(live):
            decoder.select(torch.tensor(busy))
            live = [live[i] for i in busy]
            slots = torch.tensor([row.index for row in live])
        state = decoder.step(torch.tensor([row.ids[-1] for row in live]))
        logits = head(state[:, -width:]).float()
        features.append(torch.zeros(batch, state.shape[1], dtype=state.dtype))
        features[-1][slots] = state
        log_z.append(torch.zeros(batch))
        log_z[-1][slots] = logits.logsumexp(-1)
    lengths = torch.tensor([len(row.ids) for row in rows])
    inside = torch.arange(len(features)) < lengths[:, None]
    return {
        "ids": torch.tensor([token for row in rows for token in row.ids], dtype=torch.int32),
        "features": torch.stack(features, dim=1)[inside],
        "log_z": torch.stack(log_z, dim=1)[inside],
        "lengths": lengths.int(),
        "answers": torch.tensor([row.answer for row in rows], dtype=torch.int32),
        "tasks": torch.tensor([row.task for row in rows], dtype=torch.int32),
        "temperatures": torch.tensor([row.temperature for row in rows]),
        "prefix": torch.tensor([len(before)], dtype=torch.int32),
    }


def sample_corpus(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    tokens: int,
    batch: int,
    seed: int,
    depths: Sequence[int] = (),
) -> list[Path]:
    """Sample shard after shard until the folder holds `tokens` tokens; return the shards.

    Shard i is a function of `seed + i`; a shard already there is not sampled again.

    Raises
    ------
    BadInput
        If one of them was sampled from another target, or with another batch, seed or depths.
    """
    folder.mkdir(parents=True, exist_ok=True)
    recipe = {"batch": batch, "depths": list(depths), "seed": seed, "target": fingerprint(model)}
    written = {"recipe": json.dumps(recipe)}
    for path in sorted(folder.glob("shard_*.safetensors")):
        if said_of(path) != written:
            raise BadInput(
                f"{path} was sampled from another target, or with another --batch, --seed or "
                "--depths: give another --work, or remove it"
            )
    shards: list[Path] = []
    total = 0
    while total < tokens:
        path = folder / f"shard_{len(shards):04d}.safetensors"
        if not path.exists():
            shard = sample_shard(model, tokenizer, batch, seed + len(shards), depths)
            partial = path.with_suffix(".partial")
            save_file(shard, partial, written)
            partial.rename(path)
        with safe_open(path, "pt") as stored:
            total += int(stored.get_tensor("lengths").sum())
        shards.append(path)
        print(f"corpus: {len(shards)} shards, {total} tokens", flush=True)
    return shards
