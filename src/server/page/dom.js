// What all parts of the page are made with.

export const $ = (id) => document.getElementById(id);

export function make(tag, className = "", text = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text) element.textContent = text;
  return element;
}

// In the place of the one before; "" is none.
export function showError(parent, message) {
  parent.replaceChildren(...(message ? [make("p", "error", message)] : []));
}

// Those that are not there yet.
export function addOptions(select, names) {
  for (const name of names) {
    if ([...select.options].some((option) => option.value === name)) continue;
    const option = make("option", "", name);
    option.value = name;
    select.append(option);
  }
}

export const percent = (part) => `${Math.round(100 * part)} %`;

// Of texts; the first of a row names it.
export function table(caption, columns, rows) {
  const head = make("tr");
  for (const column of columns) {
    const cell = make("th", "", column);
    cell.scope = "col";
    head.append(cell);
  }
  const whole = make("table");
  whole.append(make("caption", "unseen", caption), make("thead"), make("tbody"));
  whole.tHead.append(head);
  for (const row of rows) {
    const line = make("tr");
    row.forEach((text, i) => line.append(make(i ? "td" : "th", "", text)));
    line.firstChild.scope = "row";
    whole.tBodies[0].append(line);
  }
  return whole;
}

// What a wide table scrolls in, by keyboard, too.
export function scroller(label) {
  const frame = make("div", "scroll");
  frame.tabIndex = 0;
  frame.setAttribute("role", "group");
  frame.setAttribute("aria-label", label);
  return frame;
}

// A bar for each depth, of parts of 1.
export function showDepths(list, parts) {
  while (list.children.length > parts.length) list.lastChild.remove();
  while (list.children.length < parts.length) {
    const item = make("li");
    const well = make("div", "well");
    well.append(make("div", "bar"));
    item.append(make("div", "value"), well, make("div", "", `${list.children.length + 1}`));
    list.append(item);
  }
  parts.forEach((part, depth) => {
    const item = list.children[depth];
    item.querySelector(".value").textContent = percent(part);
    item.querySelector(".bar").style.height = `${100 * part}%`;
  });
}

// ---- What screen readers hear: whole sentences, not tokens ----

let unspoken = "";

export function announce(text) {
  $("announce").textContent = text;
}

export function announceText(text, all = false) {
  unspoken += text;
  const end = all ? unspoken.length : unspoken.search(/[.!?:]\s+[^]*$|\n[^]*$/) + 1;
  if (end < 60 && !all) return;
  if (unspoken.trim()) announce(unspoken.slice(0, end).trim());
  unspoken = unspoken.slice(end);
}
