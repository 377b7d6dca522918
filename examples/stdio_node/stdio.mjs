// The protocol: every JSON line on stdin is answered by one on stdout, with the same id.

import { createInterface } from "node:readline";

/** A request that makes no sense. */
export class Invalid extends Error {
  reason = "invalid";
}

/** Models of a kind that the decoder does not take. */
export class Unsupported extends Error {
  reason = "unsupported";
}

/**
 * Answer until stdin ends or the harness says stop.
 *
 * `start(pair, options)` gives the decoder: `capabilities`, `versions`, `generate(requests)`, and
 * `stream(request)`, a generator of arrays of ids, where it declares `stream`.
 */
export async function serve(start) {
  console.log = console.error; // stdout is for the protocol alone
  let decoder, pieces;

  async function answer(message) {
    if (message.type === "start") {
      decoder = await start(message.pair, message.options);
      const { capabilities, versions } = decoder;
      return { type: "ready", protocol: 1, capabilities, versions };
    }
    if (message.type === "generate") {
      return { type: "completions", completions: await decoder.generate(message.requests) };
    }
    if (message.type === "stream") pieces = decoder.stream(message.request);
    if (message.type === "cancel") await pieces?.return();
    const { value, done } = (await pieces?.next()) ?? { done: true };
    return { type: "piece", tokens: value ?? [], done };
  }

  for await (const line of createInterface({ input: process.stdin })) {
    const message = JSON.parse(line);
    if (message.type === "stop") break;
    let reply;
    try {
      reply = await answer(message);
    } catch (error) {
      reply = { type: "error", message: error.message, reason: error.reason ?? "failed" };
    }
    process.stdout.write(JSON.stringify({ ...reply, id: message.id }) + "\n");
  }
  process.exit();
}
