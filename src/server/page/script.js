// A conversation with the server that sent this page, and how each token of it came about.

const $ = (id) => document.getElementById(id);

const state = {
  model: null,
  trace: true,   // whether the server shows drafts
  messages: [],  // of the conversation so far, without the system prompt
  abort: null,   // while replies are written
};

function make(tag, className = "", text = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text) element.textContent = text;
  return element;
}

const percent = (part) => `${Math.round(100 * part)} %`;

// ---- The server ----

function headers() {
  const key = $("api-key").value.trim();
  return {
    "Content-Type": "application/json",
    ...(key && { Authorization: `Bearer ${key}` }),
  };
}

async function refusal(response) {
  const text = await response.text();
  let message = text;
  try {
    message = JSON.parse(text).error.message;
  } catch {
    // Not OpenAI's form: what there is must do.
  }
  const hint = response.status === 401 ? " Give the key under Settings." : "";
  return new Error(`${message || response.statusText} (HTTP status ${response.status})${hint}`);
}

// The objects of a stream of server-sent events.
async function* stream(path, body, signal) {
  const response = await fetch(path, {
    method: "POST",
    headers: headers(),
    body: JSON.stringify(body),
    signal,
  });
  if (!response.ok) throw await refusal(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const lines = (rest + value).split(/\r?\n/);
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:")) continue;
      const data = line.slice(5).trim();
      if (data === "[DONE]") return;
      const event = JSON.parse(data);
      if (event.error) throw new Error(event.error.message ?? "The server gave up.");
      yield event;
    }
  }
  throw new Error("The connection ended before the reply did.");
}

async function readModel() {
  try {
    const response = await fetch("v1/models", { headers: headers() });
    if (!response.ok) throw await refusal(response);
    const model = (await response.json()).data[0];
    state.model = model.id;
    state.trace = model.aerie?.trace ?? true;
    $("no-trace").hidden = state.trace;
    $("model").textContent = model.id;
    offerSpeculations(model.aerie?.speculations ?? []);
  } catch (error) {
    $("model").textContent = error.message;
  }
}

function offerSpeculations(methods) {
  const select = $("speculation");
  for (const name of methods) {
    const known = [...select.options].some((option) => option.value === name);
    if (known || name === "none") continue;
    const option = make("option", "", name);
    option.value = name;
    select.append(option);
  }
}

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
    const list = $("depths");
    while (list.children.length > this.acceptedAt.length) list.lastChild.remove();
    while (list.children.length < this.acceptedAt.length) {
      const item = make("li");
      const well = make("div", "well");
      well.append(make("div", "bar"));
      item.append(make("div", "value"), well, make("div", "", `${list.children.length + 1}`));
      list.append(item);
    }
    this.acceptedAt.forEach((count, depth) => {
      const item = list.children[depth];
      item.querySelector(".value").textContent = percent(count / this.rounds);
      item.querySelector(".bar").style.height = `${(100 * count) / this.rounds}%`;
    });
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

class Reply {
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

// ---- What screen readers hear: whole sentences, not tokens ----

let unspoken = "";

function announce(text) {
  $("announce").textContent = text;
}

function announceText(text, all = false) {
  unspoken += text;
  const end = all ? unspoken.length : unspoken.search(/[.!?:]\s+[^]*$|\n[^]*$/) + 1;
  if (end < 60 && !all) return;
  if (unspoken.trim()) announce(unspoken.slice(0, end).trim());
  unspoken = unspoken.slice(end);
}

// ---- Asking ----

const mode = () => document.querySelector("input[name=mode]:checked").value;

function requestFor(prompt, seed, speculation) {
  const system = $("system").value.trim();
  const messages = [...state.messages, { role: "user", content: prompt }];
  if (system) messages.unshift({ role: "system", content: system });
  return {
    ...(state.model && { model: state.model }),
    ...(mode() === "chat" ? { messages } : { prompt }),
    ...(speculation && { speculation: speculation === "off" ? "off" : { method: speculation } }),
    max_tokens: $("max-tokens").valueAsNumber,
    temperature: $("temperature").valueAsNumber,
    seed,
    stream: true,
    stream_options: { include_usage: true },
    ...(state.trace ? { trace: true } : { return_token_ids: true }),
  };
}

// Whether the reply came whole.
async function write(reply, request, signal) {
  try {
    for await (const event of stream(`v1/${mode() === "chat" ? "chat/" : ""}completions`, request, signal)) {
      const follow = innerHeight + scrollY >= document.documentElement.scrollHeight - 40;
      reply.add(event);
      if (follow) scrollTo(0, document.documentElement.scrollHeight);
    }
    reply.finish();
    return true;
  } catch (error) {
    reply.stopped = signal.aborted;
    if (signal.aborted) reply.finish();
    else reply.fail(error instanceof TypeError ? "The server cannot be reached." : error.message);
    return false;
  }
}

function verdictOf(own, plain) {
  const times = own.speed && plain.speed ? `, at ${(own.speed / plain.speed).toFixed(2)} times the speed` : "";
  const ids = own.figures.ids;
  const other = plain.figures.ids;
  const length = Math.max(ids.length, other.length);
  let at = 0;
  while (at < length && ids[at] === other[at]) at += 1;
  if (own.text === plain.text && at === length) return [true, `Same text, token for token${times}.`];
  return [false, at < length ? `The texts differ from token ${at + 1} on.` : "The texts differ."];
}

async function ask(prompt) {
  const seed = $("seed").value === "" ? Math.floor(Math.random() * 2 ** 31) : $("seed").valueAsNumber;
  const chosen = $("speculation").value;
  const compare = $("compare").checked;
  $("welcome").hidden = true;
  $("conversation").append(make("p", "asked", prompt));
  const row = make("div", compare ? "pair" : "");
  $("conversation").append(row);
  const own = new Reply(compare ? "With speculation" : "", row, true);
  const plain = compare ? new Reply("Without", row, false) : null;
  scrollTo(0, document.documentElement.scrollHeight);
  const { signal } = state.abort;
  // One after the other: at once, each would slow the other down.
  const whole = await write(own, requestFor(prompt, seed, chosen), signal);
  announceText("", true);
  if (plain && !whole) plain.element.remove();
  if (plain && whole && (await write(plain, requestFor(prompt, seed, "off"), signal))) {
    const [same, text] = verdictOf(own, plain);
    row.after(make("p", same ? "verdict" : "verdict differs", text));
    announce(text);
  }
  if (mode() === "chat" && (whole || own.text)) {
    state.messages.push({ role: "user", content: prompt }, { role: "assistant", content: own.text });
  }
  return whole || own.stopped;
}

async function send() {
  const prompt = $("prompt").value;
  if (state.abort || !prompt.trim()) return;
  if (!$("settings-form").checkValidity()) {
    $("settings").open = true;
    $("settings-form").reportValidity();
    return;
  }
  state.abort = new AbortController();
  setBusy(true);
  $("prompt").value = "";
  const answered = await ask(prompt);
  // To be sent again, or changed.
  if (!answered && !$("prompt").value) $("prompt").value = prompt;
  state.abort = null;
  setBusy(false);
}

function setBusy(busy) {
  $("send").hidden = busy;
  $("stop").hidden = !busy;
  $("reset").disabled = busy;
  for (const radio of document.getElementsByName("mode")) radio.disabled = busy;
}

function startOver() {
  state.messages = [];
  for (const element of [...$("conversation").children]) {
    if (element !== $("welcome")) element.remove();
  }
  $("welcome").hidden = false;
  $("prompt").focus();
}

// ---- Start ----

function showMode() {
  const chat = mode() === "chat";
  $("prompt").placeholder = chat ? "Message" : "Text to go on with";
  for (const element of document.querySelectorAll(".chat-only")) element.hidden = !chat;
}

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
$("prompt").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") state.abort?.abort();
});
$("settings-form").addEventListener("submit", (event) => event.preventDefault());
$("stop").addEventListener("click", () => state.abort?.abort());
$("reset").addEventListener("click", startOver);
$("api-key").addEventListener("change", readModel);
for (const radio of document.getElementsByName("mode")) radio.addEventListener("change", showMode);

$("figures").open = $("settings").open = matchMedia("(min-width: 60rem)").matches;
showMode();
readModel();
