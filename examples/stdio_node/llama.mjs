// A Llama, or a Mistral with a sliding window, from a Hugging Face directory. No batch, a cache.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Unsupported } from "./stdio.mjs";

export class Llama {
  #cached = []; // the tokens whose keys and values the layers hold

  constructor(directory) {
    const config = JSON.parse(readFileSync(join(directory, "config.json"), "utf8"));
    if (!["llama", "mistral"].includes(config.model_type)) {
      throw new Unsupported(`this decoder takes llama and mistral, not ${config.model_type}`);
    }
    const weights = readSafetensors(join(directory, "model.safetensors"));
    const matrix = (name) => weights[`${name}.weight`];
    this.heads = config.num_attention_heads;
    this.groups = config.num_key_value_heads;
    this.size = config.head_dim ?? config.hidden_size / this.heads;
    this.theta = config.rope_parameters?.rope_theta ?? config.rope_theta ?? 10000;
    this.window = config.sliding_window ?? Infinity;
    this.epsilon = config.rms_norm_eps;
    this.embedding = matrix("model.embed_tokens");
    this.norm = matrix("model.norm");
    this.head = config.tie_word_embeddings ? this.embedding : matrix("lm_head");
    this.layers = Array.from({ length: config.num_hidden_layers }, (_, number) => {
      const of = (name) => matrix(`model.layers.${number}.${name}`);
      const [q, k, v, o] = ["q", "k", "v", "o"].map((name) => of(`self_attn.${name}_proj`));
      const [gate, up, down] = ["gate", "up", "down"].map((name) => of(`mlp.${name}_proj`));
      const [before, after] = [of("input_layernorm"), of("post_attention_layernorm")];
      return { q, k, v, o, gate, up, down, before, after, keys: [], values: [] };
    });
  }

  /** The logits that follow the last `count` prefixes of `tokens`, the longest one last. */
  logits(tokens, count) {
    const first = tokens.length - count;
    let at = 0; // what is cached of these very tokens need not be computed again
    while (at < first && tokens[at] === this.#cached[at]) at++;
    this.#cached = [...tokens];
    const rows = [];
    for (; at < tokens.length; at++) {
      const state = this.#forward(tokens[at], at);
      if (at >= first) rows.push(multiply(this.head, normalise(state, this.norm, this.epsilon)));
    }
    return rows;
  }

  #forward(token, position) {
    let x = this.embedding.rows[token];
    for (const layer of this.layers) {
      let h = normalise(x, layer.before, this.epsilon);
      layer.keys[position] = this.#rotate(multiply(layer.k, h), position);
      layer.values[position] = multiply(layer.v, h);
      const query = this.#rotate(multiply(layer.q, h), position);
      x = add(x, multiply(layer.o, this.#attend(query, layer, position)));
      h = normalise(x, layer.after, this.epsilon);
      const up = multiply(layer.up, h);
      const gated = multiply(layer.gate, h).map((g, i) => (g / (1 + Math.exp(-g))) * up[i]);
      x = add(x, multiply(layer.down, gated));
    }
    return x;
  }

  #attend(query, { keys, values }, position) {
    const mixed = new Float64Array(query.length);
    const first = Math.max(0, position - this.window + 1);
    for (let head = 0; head < this.heads; head++) {
      const own = head * this.size;
      const shared = Math.floor((head * this.groups) / this.heads) * this.size;
      const scores = [];
      for (let t = first; t <= position; t++) {
        let score = 0;
        for (let i = 0; i < this.size; i++) score += query[own + i] * keys[t][shared + i];
        scores.push(score / Math.sqrt(this.size));
      }
      softmax(scores).forEach((weight, t) => {
        const value = values[first + t];
        for (let i = 0; i < this.size; i++) mixed[own + i] += weight * value[shared + i];
      });
    }
    return mixed;
  }

  /** Rotary position embedding (Su et al. 2021): the halves of every head are its pairs. */
  #rotate(vector, position) {
    const half = this.size / 2;
    for (let start = 0; start < vector.length; start += this.size) {
      for (let i = start; i < start + half; i++) {
        const angle = position / this.theta ** ((i - start) / half);
        const [a, b, cos, sin] = [vector[i], vector[i + half], Math.cos(angle), Math.sin(angle)];
        vector[i] = a * cos - b * sin;
        vector[i + half] = b * cos + a * sin;
      }
    }
    return vector;
  }
}

/** Probabilities of any scores; minus infinity is zero. */
export function softmax(scores) {
  const highest = scores.reduce((a, b) => Math.max(a, b));
  const weights = scores.map((score) => Math.exp(score - highest));
  const total = weights.reduce((a, b) => a + b);
  return weights.map((weight) => weight / total);
}

function multiply({ rows }, x) {
  return Float64Array.from(rows, (row) => {
    let sum = 0;
    for (let i = 0; i < x.length; i++) sum += row[i] * x[i];
    return sum;
  });
}

function normalise(x, { rows: [weight] }, epsilon) {
  let squares = 0;
  for (const value of x) squares += value * value;
  const scale = 1 / Math.sqrt(squares / x.length + epsilon);
  return Float64Array.from(weight, (w, i) => w * x[i] * scale);
}

function add(a, b) {
  return Float64Array.from(a, (value, i) => value + b[i]);
}

/** Float32 tensors by name, as rows: a header of JSON after its length, then the numbers. */
function readSafetensors(path) {
  const { buffer, byteOffset } = readFileSync(path);
  const start = 8 + Number(new DataView(buffer, byteOffset).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, byteOffset + 8, start - 8)));
  delete header.__metadata__;
  return Object.fromEntries(
    Object.entries(header).map(([name, { dtype, shape, data_offsets: [from, to] }]) => {
      if (dtype !== "F32") throw new Unsupported(`this decoder takes float32, ${name} is ${dtype}`);
      const bytes = buffer.slice(byteOffset + start + from, byteOffset + start + to);
      const [values, width] = [new Float32Array(bytes), shape.at(-1)];
      const rows = Array.from({ length: values.length / width }, (_, row) =>
        values.subarray(row * width, (row + 1) * width),
      );
      return [name, { rows }];
    }),
  );
}
