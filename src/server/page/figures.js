// What /metrics says of each model, and how that changed in the last two minutes.

const kSeconds = 120;

const LINE = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)$/;
const LABEL = /(\w+)="((?:\\.|[^"\\])*)"/g;

function labelsOf(text) {
  const labels = {};
  for (const [, name, value] of text.matchAll(LABEL)) {
    labels[name] = value.replace(/\\(.)/g, (_, letter) => (letter === "n" ? "\n" : letter));
  }
  return labels;
}

// Model -> family -> [{labels, value}], of a page in Prometheus' format. What is of no model is left out.
export function readMetrics(text) {
  const models = new Map();
  for (const line of text.split("\n")) {
    const match = LINE.exec(line);
    if (!match) continue;
    const labels = labelsOf(match[2] ?? "");
    const name = labels.model_name;
    if (name === undefined) continue;
    if (!models.has(name)) models.set(name, new Map());
    const families = models.get(name);
    if (!families.has(match[1])) families.set(match[1], []);
    families.get(match[1]).push({ labels, value: Number(match[3]) });
  }
  return models;
}

const first = (families, name) => families.get(name)?.[0]?.value ?? 0;

function sampleOf(families, time) {
  const positions = [];
  for (const { labels, value } of families.get("vllm:spec_decode_num_accepted_tokens_per_pos_total") ?? []) {
    positions[Number(labels.position)] = value;
  }
  return {
    time,
    loaded: first(families, "aerie:model_loaded") === 1,
    running: first(families, "vllm:num_requests_running"),
    waiting: first(families, "vllm:num_requests_waiting"),
    cache: first(families, "vllm:kv_cache_usage_perc"),
    tokens: first(families, "vllm:generation_tokens_total"),
    preemptions: first(families, "vllm:num_preemptions_total"),
    drafts: first(families, "vllm:spec_decode_num_drafts_total"),
    drafted: first(families, "vllm:spec_decode_num_draft_tokens_total"),
    accepted: first(families, "vllm:spec_decode_num_accepted_tokens_total"),
    positions,
  };
}

export class History {
  #samples = [];

  // `time` in seconds.
  add(families, time) {
    const sample = sampleOf(families, time);
    // A server that was started anew counts from nothing.
    if (this.#samples.length && sample.tokens < this.last.tokens) this.#samples = [];
    this.#samples.push(sample);
    // One that is older stays: the first difference begins there.
    while (this.#samples.length > 1 && this.#samples[1].time <= time - kSeconds) this.#samples.shift();
  }

  get last() {
    return this.#samples.at(-1);
  }

  // [part of the two minutes, value] of what value(sample, the one before) gives; null is a gap.
  points(value) {
    const begin = this.last.time - kSeconds;
    const points = [];
    this.#samples.forEach((sample, i) => {
      if (i) points.push([Math.max(0, (sample.time - begin) / kSeconds), value(sample, this.#samples[i - 1])]);
    });
    return points;
  }

  // Of what was drafted in the last two minutes or, if nothing was, since the server's start.
  acceptance() {
    const { last } = this;
    const oldest = this.#samples[0];
    const isNew = last.drafts > oldest.drafts;
    const since = (name) => last[name] - (isNew ? oldest[name] : 0);
    const drafts = since("drafts");
    if (!drafts) return null;
    const positions = last.positions.map((count, i) => count - (isNew ? (oldest.positions[i] ?? 0) : 0));
    return {
      when: isNew ? `in the last ${Math.max(1, Math.round(last.time - oldest.time))} s` : "since the start",
      perDraft: since("accepted") / drafts,
      part: since("drafted") ? since("accepted") / since("drafted") : 0,
      positions: positions.slice(0, positions.findLastIndex((count) => count > 0) + 1).map((count) => count / drafts),
    };
  }
}

export const tokenRate = (sample, before) => (sample.tokens - before.tokens) / (sample.time - before.time);

export function acceptedPart(sample, before) {
  const drafted = sample.drafted - before.drafted;
  return drafted > 0 ? (sample.accepted - before.accepted) / drafted : null;
}

// What --holdback shows, a row for each setting and class.
export function gainsOf(families) {
  const rows = new Map();
  const fill = (family, field) => {
    for (const { labels, value } of families.get(`aerie:speculation_${family}`) ?? []) {
      const id = JSON.stringify([labels.method, labels.traffic_class]);
      if (!rows.has(id)) rows.set(id, { method: labels.method, traffic: labels.traffic_class });
      rows.get(id)[field ?? labels.group] = value;
    }
  };
  fill("speedup", "ratio");
  fill("speedup_low", "low");
  fill("speedup_high", "high");
  fill("gated", "gated");
  fill("replies_total", null);
  fill("drafted_tokens_total", "drafted");
  fill("accepted_tokens_total", "accepted");
  return [...rows.values()];
}
