// A conversation with the server that sent this page.

import { $, addOptions, announce, announceText, make } from "./dom.js";
import { Reply } from "./reply.js";
import { ask, reasonOf, stream } from "./server.js";

const state = {
  model: null,
  trace: true,   // whether the server shows drafts
  messages: [],  // of the conversation so far, without the system prompt
  abort: null,   // while replies are written
};

// ---- The model ----

async function readModel() {
  try {
    const model = (await (await ask("v1/models")).json()).data[0];
    state.model = model.id;
    state.trace = model.aerie?.trace ?? true;
    $("no-trace").hidden = state.trace;
    $("model").textContent = model.id;
    addOptions($("speculation"), (model.aerie?.speculations ?? []).filter((name) => name !== "none"));
  } catch (error) {
    $("model").textContent = error.message;
  }
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
    else reply.fail(reasonOf(error));
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

async function converse(prompt) {
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
  const answered = await converse(prompt);
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
