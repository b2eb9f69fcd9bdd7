// What the server does, model by model, out of /metrics.

import { Chart } from "./charts.js";
import { $, make, percent, scroller, showDepths, table } from "./dom.js";
import { History, acceptedPart, gainsOf, readMetrics, tokenRate } from "./figures.js";
import { ask, reasonOf } from "./server.js";

const FIGURES = {
  running: "Running",
  waiting: "Waiting",
  cache: "Cache in use",
  rate: "Tokens per second",
  perDraft: "Accepted per draft",
  part: "Accepted of drafted",
  preemptions: "Preemptions",
};
const GAINS = ["Setting", "Class", "Speed-up", "Interval, 95 %", "Replies with / without", "Accepted", "Now"];

function gainRow(gain) {
  return [
    gain.method,
    gain.traffic || "–",
    gain.ratio ? gain.ratio.toFixed(2) : "too few replies",
    gain.ratio ? `${gain.low.toFixed(2)} to ${gain.high.toFixed(2)}` : "–",
    `${gain.speculated ?? 0} / ${gain.held_back ?? 0}`,
    gain.drafted ? percent(gain.accepted / gain.drafted) : "–",
    gain.gated ? "plainly" : "speculates",
  ];
}

class ModelCard {
  #history = new History();
  #figures = {};
  #rate = new Chart("Tokens per second", [""], { show: (value) => value.toFixed(value < 10 ? 1 : 0) });
  #queue = new Chart("Requests", ["waiting", "running"]);
  #acceptance = new Chart("Accepted of drafted", [""], { show: percent, most: 1 });

  constructor(name) {
    this.element = make("article", "card");
    this.element.setAttribute("aria-label", name);
    const title = make("h3", "", name);
    this.presence = make("span", "presence");
    title.append(" ", this.presence);
    const list = make("dl", "figures");
    for (const [field, label] of Object.entries(FIGURES)) {
      const value = make("dd", field, "–");
      const pair = make("div");
      pair.append(make("dt", "", label), value);
      list.append(pair);
      this.#figures[field] = value;
    }
    const charts = make("div", "charts");
    charts.append(this.#rate.element, this.#queue.element, this.#acceptance.element);
    this.when = make("h4", "", "Accepted by depth");
    this.depths = make("ol", "depths");
    this.depths.setAttribute("aria-label", "Accepted by depth");
    this.none = make("p", "hint", "Nothing was drafted yet.");
    this.gains = scroller("What speculation gains");
    this.hint = make("p", "hint", "No reply was held back to compare with. Started with ");
    this.hint.append(make("code", "", "--holdback 0.02"), ", the server answers one request in fifty plainly; a speed-up " +
      "comes with the fifth reply of each group.");
    this.element.append(title, list, charts, this.when, this.depths, this.none,
      make("h4", "", "What speculation gains"), this.gains, this.hint);
  }

  update(families, time) {
    this.#history.add(families, time);
    const { last } = this.#history;
    this.presence.textContent = last.loaded ? "in memory" : "not in memory";
    const rates = this.#history.points(tokenRate);
    this.#rate.draw(rates);
    this.#queue.draw(this.#history.points((sample) => sample.waiting), this.#history.points((sample) => sample.running));
    this.#acceptance.draw(this.#history.points(acceptedPart));
    const accepted = this.#history.acceptance();
    this.#show({
      running: last.running,
      waiting: last.waiting,
      cache: percent(last.cache),
      rate: rates.length ? rates.at(-1)[1].toFixed(1) : "–",
      perDraft: accepted ? accepted.perDraft.toFixed(2) : "–",
      part: accepted ? percent(accepted.part) : "–",
      preemptions: last.preemptions,
    });
    this.none.hidden = accepted !== null;
    this.when.textContent = `Accepted by depth${accepted ? `, ${accepted.when}` : ""}`;
    showDepths(this.depths, accepted?.positions ?? []);
    this.#showGains(gainsOf(families));
  }

  #show(texts) {
    for (const [field, text] of Object.entries(texts)) this.#figures[field].textContent = text;
  }

  #showGains(gains) {
    this.hint.hidden = gains.some((gain) => gain.held_back > 0);
    this.gains.hidden = !gains.length;
    this.gains.replaceChildren(table("Speed-up by setting and class", GAINS, gains.map(gainRow)));
  }
}

const cards = new Map();

export async function refreshLive() {
  try {
    const text = await (await ask("metrics", { hint: "Give the key under Keys." })).text();
    const models = readMetrics(text);
    for (const [name, families] of models) {
      if (!families.has("aerie:model_loaded")) continue;
      if (!cards.has(name)) {
        cards.set(name, new ModelCard(name));
        $("live-models").append(cards.get(name).element);
      }
      cards.get(name).update(families, performance.now() / 1000);
    }
    $("live-note").textContent = "";
  } catch (error) {
    $("live-note").textContent = `No new figures: ${reasonOf(error)}`;
  }
}
