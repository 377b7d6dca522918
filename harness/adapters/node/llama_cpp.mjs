// node-llama-cpp as a decoder on stdio: `node llama_cpp.mjs NODE_MODULES`. Its options are those of
// harness/adapters/node_llama_cpp.py.
//
// Its evaluation is a stream of single tokens that the caller ends: EOS, stop sequences and length
// are found here. top_p is not declared: the engine applies it before the temperature, which only at
// temperature 1 is the contract's law. min_p has the same place, and min_p ** temperature there is
// the same filter.

import { randomInt } from "node:crypto";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { serve } from "./stdio.mjs";

const ENGINE = pathToFileURL(join(process.argv[2], "node-llama-cpp", "dist", "index.js"));
const engine = await import(ENGINE);

class Decoder {
  capabilities = [
    "greedy", "sampling", "top_k", "min_p", "logit_bias", "eos", "stop", "seed",
    "logprobs", "stream", "metrics", "plain",
  ];

  constructor(target, draft, { drafts, seeds, rows, penalties }) {
    this.target = target;
    this.draft = drafts === "model" ? draft : null;
    this.seeds = seeds;
    this.rows = rows;
    if (rows > 1) this.capabilities.push("batch");
    if (drafts === "model") this.capabilities.push("model_draft");
    if (penalties) this.capabilities.push("penalties");
  }

  async generate(requests) {
    const answers = [];
    for (let row = 0; row < requests.length; row += this.rows) {
      const together = requests.slice(row, row + this.rows);
      answers.push(...(await Promise.all(together.map((request) => this.#answer(request)))));
    }
    return answers;
  }

  async *stream(request) {
    for await (const { token } of this.#evaluate(request)) yield [token];
  }

  async #answer(request) {
    const answer = { tokens: [], finish_reason: "length" };
    if (request.logprobs) answer.logprobs = [];
    for await (const { token, confidence, reason, metrics } of this.#evaluate(request)) {
      answer.tokens.push(token);
      answer.logprobs?.push(Math.max(-1e30, Math.log(confidence)));
      if (reason) Object.assign(answer, { finish_reason: reason, metrics });
    }
    return answer;
  }

  async *#evaluate(request) {
    const draft = request.speculate && this.draft ? this.draft.getSequence() : null;
    const tokenPredictor = request.speculate ? predictor(draft, request) : undefined;
    const sequence = this.target.getSequence({ tokenPredictor });
    const output = [];
    try {
      const options = this.#options(request, output);
      const metadata = { confidence: request.logprobs };
      for await (const result of sequence.evaluateWithMetadata(request.prompt, metadata, options)) {
        output.push(result.token);
        const reason = finished(output, request);
        yield { ...result, reason, metrics: reason && counts(sequence, output) };
        if (reason) return;
      }
    } finally {
      await sequence.dispose();
      await draft?.dispose();
    }
  }

  #options({ prompt, seed, sampling: s }, output) {
    return {
      temperature: s.temperature,
      topK: s.top_k,
      topP: 1,
      minP: s.min_p && s.min_p ** s.temperature,
      seed: seed ?? (this.seeds === "engine" ? undefined : randomInt(2 ** 32)),
      tokenBias: bias(this.target.model, s.logit_bias),
      repeatPenalty: penalties(s, prompt, output),
      yieldEogToken: true,
    };
  }
}

/**
 * Always K tokens, however sure the draft is of them. It would be handed the target's biases, refuse
 * them as another model's, and end the process: hence biases of its own.
 */
function predictor(draft, { prompt, draft_tokens: k, sampling }) {
  if (draft) {
    const evaluateOptions = { tokenBias: bias(draft.model, sampling.logit_bias) };
    const options = { minTokens: k, maxTokens: k, minConfidence: 0, evaluateOptions };
    return new engine.DraftSequenceTokenPredictor(draft, options);
  }
  const lookup = new engine.InputLookupTokenPredictor({ predictionLength: { min: 1, max: k } });
  lookup.updateInputTokens(prompt);
  return lookup;
}

function bias(model, biases) {
  const entries = Object.entries(biases);
  if (entries.length === 0) return undefined;
  const all = engine.TokenBias.for(model);
  for (const [token, logit] of entries) all.set([Number(token)], { logit });
  return all;
}

/** The engine counts over one list of tokens, the contract over two: not both at once. */
function penalties(s, prompt, output) {
  const repeated = s.repetition_penalty !== 1;
  const counted = s.presence_penalty !== 0 || s.frequency_penalty !== 0;
  if (!repeated && !counted) return undefined;
  if (repeated && counted) throw new Error("one list of tokens for all penalties");
  return {
    punishTokens: () => (repeated ? [...prompt, ...output] : output),
    maxPunishTokens: 4096,
    penalty: s.repetition_penalty,
    presencePenalty: s.presence_penalty,
    frequencyPenalty: s.frequency_penalty,
  };
}

function finished(output, { eos, stop, max_new_tokens }) {
  if (eos.includes(output.at(-1))) return "eos";
  if (stop.some((ids) => ids.join() === output.slice(-ids.length).join())) return "stop";
  return output.length === max_new_tokens ? "length" : null;
}

function counts(sequence, output) {
  const { validated, refuted } = sequence.tokenPredictions;
  const drafted = validated + refuted;
  return {
    tokens: output.length,
    drafted,
    accepted: validated,
    acceptance_rate: drafted && validated / drafted,
  };
}

await serve(async (pair, options) => {
  const llama = await engine.getLlama({
    gpu: false,
    build: "never",
    maxThreads: 1,
    logLevel: engine.LlamaLogLevel.error,
  });
  // It tokenizes a text as it loads, which with the vocabulary of a pair that has no text would
  // give token -1, and end the process.
  const metadataOverrides = { tokenizer: { ggml: { unknown_token_id: 0 } } };
  const load = async (modelPath) => {
    const model = await llama.loadModel({ modelPath, metadataOverrides });
    return model.createContext({
      sequences: options.rows,
      contextSize: pair.context_length + options.spare,
      flashAttention: false,
      experimentalKvCacheKeyType: "F32",
      experimentalKvCacheValueType: "F32",
    });
  };
  const decoder = new Decoder(await load(pair.target.gguf), await load(pair.draft.gguf), options);
  decoder.versions = {
    "node-llama-cpp": await engine.getModuleVersion(),
    "llama.cpp": llama.llamaCppRelease.release,
    node: process.versions.node,
  };
  return decoder;
});
