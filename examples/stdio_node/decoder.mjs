// Speculative decoding in Node (20 or newer) without any package: an example behind the stdio door.
//
//     pytest suites --decoder "cmd: node examples/stdio_node/decoder.mjs"

import { Llama, softmax } from "./llama.mjs";
import { Invalid, serve } from "./stdio.mjs";

class Decoder {
  capabilities = [
    "greedy", "sampling", "top_k", "logit_bias", "eos", "stop", "seed",
    "stream", "rounds", "model_draft", "plain", "validates",
  ];
  versions = { node: process.versions.node };

  constructor(pair) {
    this.pair = pair;
    this.target = new Llama(pair.target.hf);
    this.draft = new Llama(pair.draft.hf);
  }

  generate(requests) {
    requests.forEach((request) => this.#validate(request));
    return requests.map((request) => {
      const steps = [...this.#steps(request)];
      return {
        tokens: steps.flatMap((step) => step.tokens),
        finish_reason: steps.at(-1).reason,
        rounds: steps.map(({ drafted, accepted }) => ({ drafted, accepted })),
      };
    });
  }

  *stream(request) {
    this.#validate(request);
    for (const step of this.#steps(request)) yield step.tokens;
  }

  /** Draft, verify, accept: Leviathan et al. 2023. Without speculation K is 0. */
  *#steps(request) {
    const { prompt, max_new_tokens, sampling, speculate, draft_tokens } = request;
    const random = generator(request.seed);
    const output = [];
    for (let reason = null; reason === null; ) {
      const text = [...prompt, ...output];
      // The round ends with a token of the target's own: leave room for it.
      const k = speculate ? Math.min(draft_tokens, max_new_tokens - output.length - 1) : 0;
      const drafts = [];
      const q = [];
      while (drafts.length < k) {
        q.push(...this.#laws(this.draft, [...text, ...drafts], 1, sampling));
        drafts.push(pick(q.at(-1), random));
      }
      const p = this.#laws(this.target, [...text, ...drafts], k + 1, sampling);

      let accepted = 0;
      const likely = (i, d) => random() * q[i][d] < p[i][d];
      while (accepted < k && likely(accepted, drafts[accepted])) accepted++;

      const law = accepted < k ? residual(p[accepted], q[accepted]) : p[accepted];
      const tokens = [];
      for (const token of [...drafts.slice(0, accepted), pick(law, random)]) {
        tokens.push(token);
        output.push(token);
        reason = finished(output, request); // after every token: a block may end in its midst
        if (reason !== null) break;
      }
      yield { tokens, drafted: k, accepted, reason };
    }
  }

  /** What follows the last `count` prefixes, as probabilities. */
  #laws(model, tokens, count, { temperature, top_k, logit_bias }) {
    return model.logits(tokens, count).map((row) => {
      const logits = row.subarray(0, this.pair.vocab_size); // beyond it is padding
      for (const [token, bias] of Object.entries(logit_bias)) logits[token] += bias;
      if (temperature === 0) {
        const best = logits.indexOf(Math.max(...logits));
        return logits.map((_, token) => (token === best ? 1 : 0));
      }
      const kth = top_k ? logits.toSorted().at(-Math.min(top_k, logits.length)) : -Infinity;
      return softmax(logits.map((z) => (z < kth ? -Infinity : z / temperature)));
    });
  }

  #validate({ prompt, max_new_tokens, draft_tokens, sampling: s }) {
    const { vocab_size, context_length } = this.pair;
    const total = prompt.length + max_new_tokens;
    const problem =
      (prompt.length === 0 && "the prompt is empty") ||
      (prompt.some((id) => id < 0 || id >= vocab_size) && `ids are 0..${vocab_size - 1}`) ||
      (max_new_tokens < 1 && "max_new_tokens must be at least 1") ||
      (total > context_length && `${total} tokens exceed the context of ${context_length}`) ||
      (draft_tokens < 1 && "draft_tokens must be at least 1") ||
      (s.temperature < 0 && "temperature must be 0 or above") ||
      (s.top_k < 0 && "top_k must be 0 or above") ||
      ((s.top_p <= 0 || s.top_p > 1) && "top_p must be in (0, 1]");
    if (problem) throw new Invalid(problem);
  }
}

/** Why the output ends at its last token, null where it goes on. */
function finished(output, { eos, stop, max_new_tokens }) {
  if (eos.includes(output.at(-1))) return "eos";
  if (stop.some((ids) => ids.join() === output.slice(-ids.length).join())) return "stop";
  return output.length === max_new_tokens ? "length" : null;
}

/** Where the target wants more than the draft offered; pick() needs no normalisation. */
function residual(p, q) {
  const more = p.map((value, token) => Math.max(0, value - q[token]));
  return more.some((value) => value > 0) ? more : p;
}

function pick(weights, random) {
  const goal = random() * weights.reduce((a, b) => a + b);
  let sum = 0;
  return weights.findIndex((weight) => (sum += weight) > goal);
}

/** Uniform numbers in [0, 1): of a seed always the same (mulberry32). */
function generator(seed) {
  if (seed === null) return Math.random;
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let z = Math.imul(state ^ (state >>> 15), 1 | state);
    z = (z + Math.imul(z ^ (z >>> 7), 61 | z)) ^ z;
    return ((z ^ (z >>> 14)) >>> 0) / 2 ** 32;
  };
}

await serve((pair) => new Decoder(pair));
