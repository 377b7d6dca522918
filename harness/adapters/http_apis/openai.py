"""Any server with OpenAI's ``/v1/completions``, by OpenAI's fields alone.

Ids go in; what comes out is text. Text cannot be turned back into ids: another sequence of ids may
have the same. But ``logprobs.tokens`` has the text of every single token, and those are looked up
among the texts of the vocabulary. Where two ids have the same text, that answer is an error.
Servers that write ``token_id:7`` there (vLLM, with ``body.return_tokens_as_token_ids=true``), or
an ``id`` (llama.cpp), leave no such doubt. Fields are those of the reference at
platform.openai.com.

There is no way to name EOS ids, nor to go on after the model's own: ``eos`` is not declared. Seeds
are a best effort, the law behind ``logprobs`` is not said, and streams often come without them: say
``also=seed,logprobs,stream`` for a server that has all of these.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from typing import Any

from harness.adapters.http_apis.completions import Choice, CompletionsApi
from harness.adapters.http_client import ServerError
from harness.contract import Request

MARK = "token_id:"


class OpenAi(CompletionsApi):
    """OpenAI's legacy completions."""

    capabilities = frozenset({"greedy", "sampling", "top_p", "logit_bias"})
    streams = False
    together = 1  # whether requests are decoded together is not said

    def said_versions(self) -> dict[str, str]:
        """The model's name: no more is said."""
        return {"model": self.model.rpartition("/")[2]}

    def body(self, request: Request) -> dict[str, Any]:
        """``logprobs`` is asked of every request, for its tokens."""
        return super().body(request) | {"logprobs": 1}

    def ids(self, choice: Choice) -> list[int]:
        """Ids of the texts of single tokens."""
        found = choice.logprobs
        if found and found.content is not None:
            return [self._id(t.token) if t.id is None else t.id for t in found.content]
        if found and found.tokens is not None:
            return [self._id(text) for text in found.tokens]
        if choice.finish_reason and not choice.text:  # the end of a stream
            return []
        raise ServerError(
            f"{self.server.url}: the answer has no logprobs with single tokens, and text alone is "
            "no ids: use the engine's own api="
        )

    def _id(self, text: str) -> int:
        if text.startswith(MARK):
            try:
                return int(text.removeprefix(MARK))
            except ValueError:
                raise ServerError(f"{self.server.url}: {text!r} names no id") from None
        found = self._ids_of[text]
        if len(found) != 1:
            raise ServerError(
                f"{self.server.url}: the token {text!r} is that of the ids {found[:5]}: "
                "ids cannot be told from these texts, use the engine's own api="
            )
        return found[0]

    @functools.cached_property
    def _ids_of(self) -> dict[str, list[int]]:
        """Ids by their text; ``<7>`` for 7 in a pair that has no tokenizer, as in its GGUF."""
        tokenizer = self.pair.tokenizer
        ids: dict[str, list[int]] = defaultdict(list)
        for token in range(self.pair.vocab_size):
            ids[tokenizer.decode([token]) if tokenizer else f"<{token}>"].append(token)
        return ids


API = OpenAi
