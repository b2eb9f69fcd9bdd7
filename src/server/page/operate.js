// The view for operators, which stands behind #operate.

import { refreshAdmin } from "./admin.js";
import { refreshModels } from "./asking.js";
import { $ } from "./dom.js";
import { refreshLive } from "./live.js";

const kMilliseconds = 2000;

const isOpen = () => location.hash === "#operate";

function show() {
  const open = isOpen();
  document.body.classList.toggle("operating", open);
  $("operate-view").hidden = !open;
  $("ask-view").hidden = $("ask-aside").hidden = open;
  for (const element of document.querySelectorAll(".ask-only")) element.hidden = open;
  $(open ? "to-operate" : "to-ask").setAttribute("aria-current", "page");
  $(open ? "to-ask" : "to-operate").removeAttribute("aria-current");
  if (!open) return;
  refreshModels();
  refresh();
}

let isAsking = false;
let timer = 0;

// One look after the other, however slow the server is.
async function refresh() {
  if (isAsking) return;
  isAsking = true;
  clearTimeout(timer);
  await Promise.all([refreshLive(), refreshAdmin()]);
  isAsking = false;
  if (isOpen()) timer = setTimeout(refresh, kMilliseconds);
}

addEventListener("hashchange", show);
document.addEventListener("models-changed", refreshModels);
$("operate-key").addEventListener("change", () => {
  $("api-key").value = $("operate-key").value;
  $("api-key").dispatchEvent(new Event("change"));
});
$("api-key").addEventListener("change", () => {
  $("operate-key").value = $("api-key").value;
  if (isOpen()) {
    refreshModels();
    refresh();
  }
});
show();
