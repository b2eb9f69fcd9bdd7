// Asks the server for text from many clients, with and without speculation in turn, and compares.

import { PROMPTS } from "./prompts.js";
import { ask, stream } from "./server.js";

// A browser opens six connections to a server; two are left for the rest of the page. More clients share
// these: their prompts go as one request.
const kConnections = 4;
const kMostSeconds = 300;
const kPairSeconds = 20;

const now = () => performance.now() / 1000;
const sum = (numbers) => numbers.reduce((all, one) => all + one, 0);

export function quantile(values, part) {
  if (!values.length) return null;
  const sorted = Float64Array.from(values).sort();
  return sorted[Math.max(0, Math.ceil(part * sorted.length) - 1)];
}

class Block {
  first = [];    // seconds to a reply's first token
  between = [];  // between its tokens
  tokens = 0;
  replies = 0;
  seconds = 0;
}

// Blocks as one.
function joined(blocks) {
  const all = new Block();
  all.first = blocks.flatMap((block) => block.first);
  all.between = blocks.flatMap((block) => block.between);
  for (const field of ["tokens", "replies", "seconds"]) all[field] = sum(blocks.map((block) => block[field]));
  return all;
}

export class LoadTest {
  #settings;
  #abort = new AbortController();
  #number = 0;  // of the next prompt
  #salts;
  #prompts = [];  // as the server takes them
  pairs = [];   // {off, on}, whole ones

  // settings: model, speculation (null: the server's default), temperature, maxTokens, clients, seconds.
  constructor(settings) {
    this.#settings = settings;
    // What is kept of the one side's prompts must not serve the other's.
    const id = crypto.getRandomValues(new Uint32Array(2)).join("-");
    this.#salts = { on: `load test ${id} on`, off: `load test ${id} off` };
  }

  stop() {
    this.#abort.abort();
  }

  // say(text) as it goes on; resolves when it is over or stopped, and throws what the server refused.
  async run(say) {
    const { signal } = this.#abort;
    const limit = setTimeout(() => this.stop(), kMostSeconds * 1000);
    // An even number, so that each side begins as often as the other.
    const count = 2 * Math.max(1, Math.round(this.#settings.seconds / kPairSeconds / 2));
    try {
      say("Warming up …");
      this.#prompts = await this.#prepare();
      for (const side of ["off", "on"]) await this.#ask(side, [0], 8, new Block());
      const end = now() + this.#settings.seconds;
      for (let i = 0; i < count && (i % 2 || i === 0 || now() < end) && !signal.aborted; ++i) {
        // What changes slowly meets both alike.
        const order = i % 2 ? ["on", "off"] : ["off", "on"];
        this.pairs.push(await this.#pair(order, this.#settings.seconds / count / 2, (side) =>
          say(`Pair ${i + 1} of ${count}: ${side === "on" ? "with" : "without"} speculation …`)));
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      clearTimeout(limit);
      this.stop();
    }
  }

  async #pair(order, seconds, say) {
    const begin = this.#number;
    const pair = {};
    let next = begin;
    for (const side of order) {
      say(side);
      this.#number = begin;
      pair[side] = await this.#block(side, seconds);
      next = Math.max(next, this.#number);
    }
    this.#number = next;
    return pair;
  }

  // What was begun within the seconds is awaited.
  async #block(side, seconds) {
    const { clients } = this.#settings;
    const connections = Math.min(kConnections, clients);
    const block = new Block();
    const begun = now();
    await Promise.all(Array.from({ length: connections }, async (_, i) => {
      const share = Math.floor((clients + i) / connections);
      do {
        const numbers = Array.from({ length: share }, () => this.#number++);
        await this.#ask(side, numbers, this.#settings.maxTokens, block);
      } while (now() < begun + seconds);
    }));
    block.seconds = now() - begun;
    return block;
  }

  async #ask(side, numbers, maxTokens, block) {
    const { model, speculation, temperature } = this.#settings;
    const prompt = numbers.map((number) => this.#prompts[number % this.#prompts.length]);
    const begun = now();
    const last = new Map();
    const request = {
      model, prompt, temperature, max_tokens: maxTokens, seed: numbers[0], ignore_eos: true, stream: true,
      return_token_ids: true, cache_salt: this.#salts[side],
      ...(side === "off" ? { speculation: "off" } : speculation && { speculation: { method: speculation } }),
    };
    for await (const event of stream("v1/completions", request, this.#abort.signal)) {
      for (const choice of event.choices ?? []) this.#count(choice, begun, last, block);
    }
    block.replies += numbers.length;
  }

  #count({ index, token_ids: ids }, begun, last, block) {
    const count = ids?.length ?? 0;
    if (!count) return;
    const time = now();
    block.tokens += count;
    // A round's tokens come together: each took its part of the time, as in /metrics.
    if (last.has(index)) block.between.push(...Array(count).fill((time - last.get(index)) / count));
    else block.first.push(time - begun);
    last.set(index, time);
  }

  // As ids under the model's chat template, or as text if it has none. No block's time goes into this.
  async #prepare() {
    const { model } = this.#settings;
    try {
      return await Promise.all(PROMPTS.map(async (content) => {
        const body = { model, messages: [{ role: "user", content }] };
        return (await (await ask("tokenize", { body, signal: this.#abort.signal })).json()).tokens;
      }));
    } catch (error) {
      if (error.status === 400) return PROMPTS;
      throw error;
    }
  }

  // A row for each figure: name, with speculation, without, how they compare. None before the first pair.
  rows() {
    if (!this.pairs.length) return [];
    const [on, off] = ["on", "off"].map((side) => joined(this.pairs.map((pair) => pair[side])));
    const row = (name, value, show) => {
      const [one, other] = [value(on), value(off)];
      const ratio = one && other ? (one / other).toFixed(2) : "–";
      return [name, ...[one, other].map((each) => (each === null ? "–" : show(each))), ratio];
    };
    const perSecond = (each) => each.toFixed(each < 10 ? 2 : 1);
    const ms = (each) => `${(1000 * each).toFixed(1)} ms`;
    return [
      row("Requests per second", (side) => side.replies / side.seconds, perSecond),
      row("Tokens per second", (side) => side.tokens / side.seconds, perSecond),
      row("To the first token, median", (side) => quantile(side.first, 0.5), ms),
      row("To the first token, 99 %", (side) => quantile(side.first, 0.99), ms),
      row("Between tokens, median", (side) => quantile(side.between, 0.5), ms),
      row("Between tokens, 99 %", (side) => quantile(side.between, 0.99), ms),
    ];
  }

  // Tokens per second with speculation over those without.
  ratio() {
    const ratios = this.pairs.map(({ on, off }) => (on.tokens / on.seconds) / (off.tokens / off.seconds));
    if (!ratios.length) return null;
    const [on, off] = ["on", "off"].map((side) => joined(this.pairs.map((pair) => pair[side])));
    return {
      all: (on.tokens / on.seconds) / (off.tokens / off.seconds),
      low: Math.min(...ratios), high: Math.max(...ratios), pairs: ratios.length,
    };
  }
}
