// One request, or a load test, from the view for operators.

import { $, addOptions, announce, make, scroller, showError, table } from "./dom.js";
import { LoadTest } from "./load_test.js";
import { Reply } from "./reply.js";
import { ask, reasonOf, stream } from "./server.js";

let models = [];

const modelAsked = () => models.find((model) => model.id === $("asked-model").value);

function offerSpeculations() {
  const select = $("asked-speculation");
  while (select.options.length > 1) select.lastChild.remove();
  addOptions(select, (modelAsked()?.aerie?.speculations ?? []).filter((name) => name !== "none"));
}

export async function refreshModels() {
  try {
    models = (await (await ask("v1/models")).json()).data;
  } catch {
    return;  // said of the figures above
  }
  const select = $("asked-model");
  const before = select.value;
  const method = $("asked-speculation").value;
  select.replaceChildren();
  addOptions(select, models.map((model) => model.id));
  if (models.some((model) => model.id === before)) select.value = before;
  offerSpeculations();
  const isOffered = [...$("asked-speculation").options].some((option) => option.value === method);
  if (isOffered) $("asked-speculation").value = method;
  // A request names its model.
  $("trial-send").disabled = $("load-start").disabled = !models.length;
}

function settings() {
  return {
    model: $("asked-model").value,
    speculation: $("asked-speculation").value,
    temperature: $("asked-temperature").valueAsNumber,
    maxTokens: $("asked-tokens").valueAsNumber,
  };
}

const isValid = (...forms) => forms.every((name) => $(name).reportValidity());

// ---- One request ----

let trial = null;

async function tryOne() {
  const { model, speculation, temperature, maxTokens } = settings();
  const isTraced = modelAsked()?.aerie?.trace ?? false;
  const reply = new Reply("", $("tried"), false);
  try {
    for await (const event of stream("v1/chat/completions", {
      model, temperature, max_tokens: maxTokens, stream: true, stream_options: { include_usage: true },
      messages: [{ role: "user", content: $("trial-prompt").value }],
      ...(speculation && { speculation: { method: speculation } }),
      ...(isTraced && { trace: true }),
    }, trial.signal)) reply.add(event);
    reply.finish();
  } catch (error) {
    reply.stopped = trial.signal.aborted;
    if (reply.stopped) reply.finish();
    else reply.fail(reasonOf(error));
  }
  reply.showLast();
  if (isTraced) return;
  const hint = make("p", "hint", "No drafts are shown: the server was started without ");
  hint.append(make("code", "", "--allow-trace"), ", or the model was not in memory.");
  $("tried").append(hint);
}

function setTrying(busy) {
  $("trial-send").hidden = busy;
  $("trial-stop").hidden = !busy;
}

$("trial").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (trial || !isValid("asking")) return;
  trial = new AbortController();
  setTrying(true);
  $("tried").replaceChildren();
  await tryOne();
  trial = null;
  setTrying(false);
  refreshModels();
});
$("trial-stop").addEventListener("click", () => trial?.abort());

// ---- A load test ----

const ROWS = ["", "With speculation", "Without", "Ratio"];

let test = null;

function showRows() {
  const frame = $("load-rows").firstChild ?? $("load-rows").appendChild(scroller("Figures of the load test"));
  const rows = test.rows();
  frame.hidden = !rows.length;
  frame.replaceChildren(table("Figures of the load test", ROWS, rows));
  const ratio = test.ratio();
  if (!ratio) return;
  const range = ratio.pairs > 1 ? `, from ${ratio.low.toFixed(2)} to ${ratio.high.toFixed(2)} by pair of blocks` : "";
  $("load-ratio").textContent = `With speculation ${ratio.all.toFixed(2)} times the tokens per second${range} ` +
    `(${ratio.pairs} ${ratio.pairs > 1 ? "pairs" : "pair"}).`;
}

function setLoading(busy) {
  $("load-start").hidden = busy;
  $("load-stop").hidden = !busy;
}

async function runTest() {
  let wasStopped = false;
  $("load-stop").onclick = () => {
    wasStopped = true;
    test.stop();
  };
  try {
    await test.run((text) => {
      $("load-note").textContent = text;
      showRows();
    });
  } catch (error) {
    showError($("load-error"), `The test ended: ${reasonOf(error)}`);
  }
  showRows();
  const ended = wasStopped ? "Stopped." : "Ended.";
  const isNothing = !test.pairs.length;
  $("load-note").textContent = isNothing ? `${ended} No pair of blocks was complete.` : ended;
  announce($("load-ratio").textContent);
}

$("load").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (test || !isValid("asking")) return;
  showError($("load-error"), "");
  $("load-ratio").textContent = "";
  test = new LoadTest({
    ...settings(), clients: $("load-clients").valueAsNumber, seconds: $("load-seconds").valueAsNumber,
  });
  setLoading(true);
  await runTest();
  test = null;
  setLoading(false);
});

$("asking").addEventListener("submit", (event) => event.preventDefault());
$("asked-model").addEventListener("change", offerSpeculations);
