// A reply, token by token, with how each came about.

import { $, announceText, make, percent, showDepths } from "./dom.js";

// ---- Text, token by token ----

// Parts of the text by the tokens that they are of. The text is the server's own; tokens only
// divide it, for a token may be part of a character, or be held back for a stop string.
class Divider {
  #waiting = [];

  add(tokens) {
    this.#waiting.push(...tokens);
  }

  *take(text) {
    while (text && this.#waiting.length) {
      const token = this.#waiting[0];
      const part = this.#partOf(token, text);
      if (part === null) break;
      this.#waiting.shift();
      text = text.slice(part.length);
      if (part) yield [token, part];
    }
    if (text) yield [this.#waiting.shift() ?? null, text];
  }

  #partOf(token, text) {
    if (text.startsWith(token.text)) return token.text;
    // Up to the next token that can be found.
    for (const next of this.#waiting.slice(1)) {
      const at = next.text && !next.text.includes("\ufffd") ? text.indexOf(next.text) : -1;
      if (at >= 0) return text.slice(0, at);
    }
    return null;
  }
}

// ---- Figures ----

class Figures {
  rounds = 0;  // after the prompt's pass
  emitted = 0;
  drafted = 0;
  accepted = 0;
  acceptedAt = [];
  tokens = 0;
  ids = [];
  first = 0;
  last = 0;

  add(trace) {
    this.last = performance.now();
    if (!this.tokens) this.first = this.last;
    else this.#addRound(trace);
    this.tokens += trace.tokens.length;
    this.ids.push(...trace.tokens.map((token) => token.id));
  }

  #addRound(trace) {
    this.rounds += 1;
    this.emitted += trace.tokens.length;
    const depths = [];
    for (const node of trace.tree ?? []) {
      const depth = node.parent < 0 ? 0 : depths[node.parent] + 1;
      depths.push(depth);
      this.acceptedAt[depth] ??= 0;
      this.drafted += 1;
      if (!node.accepted) continue;
      this.accepted += 1;
      this.acceptedAt[depth] += 1;
    }
  }

  get tau() {
    return this.rounds ? this.emitted / this.rounds : 0;
  }
  get speed() {
    return this.last > this.first ? (1000 * (this.tokens - 1)) / (this.last - this.first) : 0;
  }

  // What the server counted itself is better than what was seen from here.
  finish({ usage, aerie }) {
    const seconds = (aerie?.generation_ms ?? 0) / 1000;
    const tokens = usage?.completion_tokens ?? this.tokens;
    return {
      tokens,
      tau: aerie?.accepted_length || this.tau,
      rounds: aerie?.rounds ?? this.rounds,
      speed: seconds > 0 ? (tokens - 1) / seconds : this.speed,
    };
  }

  show() {
    $("tau").textContent = this.rounds ? this.tau.toFixed(2) : "–";
    $("speed").textContent = this.speed ? this.speed.toFixed(1) : "–";
    $("drafted").textContent = this.drafted;
    $("accepted").textContent = this.drafted
      ? `${this.accepted} (${percent(this.accepted / this.drafted)})`
      : "0";
    showDepths($("depths"), this.acceptedAt.map((count) => count / this.rounds));
  }
}

// ---- A round's draft ----

function chip(kind, text, note) {
  const shown = text.replaceAll("\n", "⏎").replaceAll(" ", "␣") || "∅";
  const element = make("span", `chip ${kind}`, shown);
  element.append(make("small", "", note));
  return element;
}

function treeOf(trace) {
  const root = make("ul");
  const lists = new Map([[-1, root]]);
  let end = -1;  // the last accepted node
  trace.tree.forEach((node, index) => {
    const item = make("li");
    const verdict = node.accepted ? " ✓" : "";
    item.append(chip(node.accepted ? "accepted" : "", node.text,
      `${percent(node.probability)}${verdict}`));
    const children = make("ul");
    item.append(children);
    lists.get(node.parent).append(item);
    lists.set(index, children);
    if (node.accepted) end = index;
  });
  for (const token of trace.tokens) {
    if (token.origin === "accepted") continue;
    const item = make("li");
    item.append(chip(token.origin, token.text, token.origin));
    lists.get(end).prepend(item);
  }
  for (const list of lists.values()) if (!list.children.length) list.remove();
  return root;
}

function describe(trace) {
  const nodes = trace.tree ?? [];
  if (!nodes.length) return "Nothing was drafted here: the model wrote this itself.";
  const accepted = nodes.filter((node) => node.accepted).length;
  return `${nodes.length} drafted, ${accepted} accepted, ${trace.tokens.length} written.`;
}

// ---- A reply ----

export class Reply {
  figures = new Figures();
  text = "";
  #divider = new Divider();
  #finish = null;
  #last = {};
  #thinks = false;  // what was said last was not the answer
  #open = null;   // the round whose draft is shown
  #draft = null;  // which is shown here

  constructor(title, parent, live) {
    this.live = live;
    this.element = make("article", "reply writing");
    this.element.setAttribute("aria-label", title || "Reply");
    if (title) this.element.append(make("h2", "", title));
    this.body = make("div", "text");
    this.meta = make("p", "meta");
    this.element.append(this.body, this.meta);
    this.body.addEventListener("keydown", (event) => this.#onKey(event));
    this.body.addEventListener("click", (event) => {
      const round = event.target.closest(".round");
      if (round && getSelection().isCollapsed) this.#toggle(round);
    });
    parent.append(this.element);
  }

  add(event) {
    this.#last = { usage: event.usage ?? this.#last.usage, aerie: event.aerie ?? this.#last.aerie };
    const choice = event.choices?.[0];
    this.#finish = choice?.finish_reason ?? this.#finish;
    const thought = choice?.delta?.reasoning_content ?? "";
    const text = choice?.delta?.content ?? choice?.text ?? "";
    if (event.trace?.tokens?.length) {
      const trace = { tree: [], ...event.trace };
      const round = this.#makeRound(trace);
      this.#divider.add(trace.tokens.map((token) => ({ ...token, round })));
      this.figures.add(trace);
    } else {
      this.figures.ids.push(...(choice?.token_ids ?? []));
    }
    this.text += text;
    for (const [token, part] of this.#divider.take(thought)) this.#append(token, part, "thought");
    for (const [token, part] of this.#divider.take(text)) this.#append(token, part);
    if (this.live) announceText(text);
    this.#showFigures();
  }

  #makeRound(trace) {
    const round = make("span", "round");
    round.trace = trace;
    round.tabIndex = this.body.querySelector(".round") ? -1 : 0;
    round.setAttribute("role", "button");
    round.setAttribute("aria-expanded", "false");
    this.body.append(round);
    return round;
  }

  #append(token, part, kind = "") {
    const parent = token?.round ?? this.body;
    if (this.#thinks && !kind) parent.append("\n\n");
    this.#thinks = kind === "thought";
    if (!token) {
      parent.append(kind ? make("span", kind, part) : part);
      return;
    }
    parent.append(make("span", `token ${token.origin} ${kind}`.trim(), part));
    token.round.setAttribute("aria-label", `${token.round.textContent}: ${describe(token.round.trace)}`);
  }

  #showFigures() {
    const { tokens, tau, speed } = this.figures;
    if (this.live) this.figures.show();
    this.meta.textContent =
      `${tokens} tokens` + (tau ? `, τ ${tau.toFixed(2)}, ${speed.toFixed(1)} tokens/s` : "");
  }

  finish() {
    this.element.classList.remove("writing");
    const { tokens, tau, rounds, speed } = this.figures.finish(this.#last);
    const { aerie, usage } = this.#last;
    const parts = [`${tokens} tokens`];
    if (rounds) parts.push(`${rounds} rounds, τ ${tau.toFixed(2)}`);
    if (speed) parts.push(`${speed.toFixed(1)} tokens/s`);
    if (aerie) {
      const cached = aerie.cached_tokens ? `, ${aerie.cached_tokens} cached` : "";
      parts.push(`prompt ${usage?.prompt_tokens ?? "?"} tokens${cached}, ${Math.round(aerie.prompt_ms)} ms`);
      if (aerie.queue_ms >= 1) parts.push(`queued ${Math.round(aerie.queue_ms)} ms`);
    }
    if (this.#finish === "length") parts.push("cut at the most tokens");
    if (this.stopped) parts.push("stopped");
    this.meta.textContent = parts.join(" · ");
    this.speed = speed;
    if (!this.body.textContent) this.body.append(make("span", "hint", "(nothing)"));
  }

  fail(message) {
    this.finish();
    this.meta.hidden = !this.figures.tokens;
    if (!this.figures.tokens && !this.text) this.body.hidden = true;
    const error = make("p", "error", message);
    error.setAttribute("role", "alert");
    this.element.append(error);
  }

  // Shows the draft of the last round that has one.
  showLast() {
    const last = [...this.body.querySelectorAll(".round")].findLast((round) => round.trace.tree.length);
    if (last) this.#show(last);
  }

  #onKey(event) {
    const rounds = [...this.body.querySelectorAll(".round")].filter((round) => round.textContent);
    const at = rounds.indexOf(event.target);
    if (at < 0) return;
    const to = {
      ArrowRight: Math.min(at + 1, rounds.length - 1),
      ArrowLeft: Math.max(at - 1, 0),
      Home: 0,
      End: rounds.length - 1,
    }[event.key];
    if (to !== undefined) {
      event.target.tabIndex = -1;
      rounds[to].tabIndex = 0;
      rounds[to].focus();
      if (this.#open) this.#show(rounds[to]);
    } else if (event.key === "Enter" || event.key === " ") {
      this.#toggle(event.target);
    } else if (event.key === "Escape" && this.#open) {
      this.#close();
      event.stopPropagation();
    } else {
      return;
    }
    event.preventDefault();
  }

  #toggle(round) {
    if (this.#open === round) this.#close();
    else this.#show(round);
  }

  #close() {
    this.#draft?.remove();
    this.#open?.setAttribute("aria-expanded", "false");
    this.#open = null;
  }

  #show(round) {
    this.#close();
    this.#open = round;
    round.setAttribute("aria-expanded", "true");
    const draft = make("section", "draft");
    draft.setAttribute("aria-label", "The draft of this round");
    const head = make("div", "head");
    const close = make("button", "quiet", "Close");
    close.type = "button";
    close.addEventListener("click", () => {
      this.#close();
      round.focus();
    });
    head.append(make("span", "", describe(round.trace)), close);
    draft.append(head);
    if (round.trace.tree.length) {
      const tree = make("div", "tree");
      tree.tabIndex = 0;  // so that it can be scrolled
      tree.setAttribute("role", "group");
      tree.setAttribute("aria-label", "Draft tree");
      tree.append(treeOf(round.trace));
      draft.append(tree);
    }
    this.#draft = draft;
    this.element.after(draft);
    draft.scrollIntoView({ block: "nearest" });
  }
}
