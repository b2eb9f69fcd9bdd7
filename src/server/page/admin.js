// What an admin sees and orders. The key is in this tab's memory alone.

import { $, announce, make, percent, scroller, showError, table } from "./dom.js";
import { ask, reasonOf } from "./server.js";

const GROUPS = ["", "Replies", "ms per token", "99 %", "Drafted", "Accepted"];

let key = "";

const askAsAdmin = (path, body) => ask(`admin/${path}`, { body, key, hint: "This is no admin’s key." });

function groupRow(name, group) {
  return [
    name,
    group.replies,
    group.token_ms.toFixed(2),
    group.token_ms_p99.toFixed(2),
    group.drafted,
    group.drafted ? `${group.accepted} (${percent(group.accepted / group.drafted)})` : group.accepted,
  ].map(String);
}

function canaryText({ speculate, share, step, steps, speedup }) {
  const gain = speedup
    ? `speed-up ${speedup.ratio.toFixed(2)}, interval ${speedup.low.toFixed(2)} to ${speedup.high.toFixed(2)}`
    : "too few replies for a speed-up";
  return `On trial: ${speculate}, for ${percent(share)} of the requests that name no setting, step ${step} of ` +
    `${steps.length}; ${gain}.`;
}

function summaryOf(status) {
  const parts = [status.status];
  if (status.memory_mib !== undefined) parts.push(`${status.memory_mib} MiB`);
  if (status.present !== undefined) parts.push(`present setting: ${status.present || "none"}`);
  if (status.failure) parts.push(status.failure);
  return parts.join(" · ");
}

function field(label, name, placeholder) {
  const element = make("label", "", label);
  const input = make("input");
  input.name = name;
  input.placeholder = placeholder;
  input.spellcheck = false;
  element.append(input);
  return element;
}

class Orders {
  constructor(name) {
    this.name = name;
    this.element = make("article", "card");
    this.element.setAttribute("aria-label", `Orders for ${name}`);
    this.summary = make("p", "summary");
    this.last = make("p", "hint last");
    this.canary = make("p", "canary");
    this.groups = scroller("Both groups of the trial");
    this.answer = make("p", "answer");
    this.answer.setAttribute("role", "status");
    const buttons = make("div", "buttons");
    this.promote = this.#button(buttons, "Promote", "canary/promote", true);
    this.#button(buttons, "Roll back", "canary/rollback");
    this.#button(buttons, "Load", "models/load");
    this.#button(buttons, "Unload", "models/unload", true);
    this.element.append(make("h3", "", name), this.summary, this.last, this.canary, this.groups, this.#form(), buttons,
      this.answer);
  }

  #button(parent, text, path, asks = false) {
    const button = make("button", "quiet", text);
    button.type = "button";
    button.setAttribute("aria-label", `${text}: ${this.name}`);
    button.addEventListener("click", () => {
      if (!asks || confirm(`${text} ${this.name}?`)) this.#order(text, path, {});
    });
    parent.append(button);
    return button;
  }

  #form() {
    const form = make("form", "canary-form");
    form.autocomplete = "off";
    const begin = make("button", "", "Begin a canary");
    form.append(field("Setting on trial", "speculate", "as --speculate has it"),
      field("Steps, shares of the requests", "steps", "0.1, 0.5"), begin);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const steps = form.elements.steps.value.split(",").map((step) => step.trim()).filter(Boolean);
      this.#order("Begin a canary", "canary", {
        speculate: form.elements.speculate.value.trim(),
        ...(steps.length && { steps: steps.map(Number) }),
      });
    });
    return form;
  }

  async #order(what, path, body) {
    this.#say(`${what}: asked …`);
    try {
      this.update(await (await askAsAdmin(path, { model: this.name, ...body })).json());
      this.#say(`${what}: done. ${this.last.textContent || this.canary.textContent || this.summary.textContent}`);
    } catch (error) {
      this.#say(`${what}: ${reasonOf(error)}`, true);
    }
    document.dispatchEvent(new Event("models-changed"));
  }

  #say(text, isError = false) {
    this.answer.classList.toggle("error", isError);
    this.answer.textContent = text;
  }

  update(status) {
    this.summary.textContent = summaryOf(status);
    this.last.textContent = status.last ?? "";
    this.promote.disabled = !status.canary;
    this.canary.hidden = this.groups.hidden = !status.canary;
    this.canary.textContent = status.canary ? canaryText(status.canary) : "";
    this.groups.replaceChildren();
    if (!status.canary) return;
    this.groups.append(table("Both groups of the trial", GROUPS,
      [groupRow("on trial", status.canary.candidate), groupRow("present", status.canary.present)]));
  }
}

const cards = new Map();

function forget(message) {
  key = "";
  cards.clear();
  $("admin-models").replaceChildren();
  $("admin-forget").hidden = true;
  showError($("admin-error"), message);
}

export async function refreshAdmin() {
  if (!key) return;
  const asked = key;
  let models;
  try {
    models = (await (await askAsAdmin("status")).json()).models;
  } catch (error) {
    if (key === asked) forget(reasonOf(error));
    return;
  }
  if (key !== asked) return;
  for (const status of models) {
    if (!cards.has(status.model)) {
      cards.set(status.model, new Orders(status.model));
      $("admin-models").append(cards.get(status.model).element);
    }
    cards.get(status.model).update(status);
  }
}

$("admin-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  forget("");
  key = $("admin-key").value.trim();
  $("admin-key").value = "";
  if (!key) return forget("Give an admin’s key.");
  await refreshAdmin();
  $("admin-forget").hidden = !key;
  if (key) announce("The key is taken.");
});
$("admin-forget").addEventListener("click", () => {
  forget("");
  $("admin-key").focus();
});
