// Lines over the last two minutes.

import { make } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 240;
const HEIGHT = 60;

function svg(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

function pathOf(points, most) {
  let path = "";
  let pen = false;
  for (const [x, value] of points) {
    if (value === null) {
      pen = false;
      continue;
    }
    const at = `${(x * WIDTH).toFixed(1)} ${((1 - value / most) * HEIGHT).toFixed(1)}`;
    // A point alone is a dot.
    path += pen ? `L${at}` : `M${at}h0`;
    pen = true;
  }
  return path;
}

// A number that is read easily, not below the value.
function above(value) {
  if (value <= 1) return 1;
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((step) => step * unit >= value) * unit;
}

export class Chart {
  #title;
  #show;
  #most;
  #lines;

  // show(value): as text. The lines by name, the first drawn in full, the second in dashes; without `most`
  // the scale fits what there is.
  constructor(title, lines, { show = (value) => String(Math.round(value)), most = null } = {}) {
    this.#title = title;
    this.#show = show;
    this.#most = most;
    this.element = make("figure", "chart");
    this.now = make("span", "now", "–");
    this.top = make("span", "top");
    const caption = make("figcaption", "", title);
    caption.append(" ", this.now);
    this.picture = svg("svg", {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": title,
    });
    this.#lines = lines.map((name, i) => [name, this.picture.appendChild(
      svg("path", { class: i ? "second" : "first", "vector-effect": "non-scaling-stroke" }))]);
    const axis = make("p", "axis");
    axis.append(make("span", "", "2 min ago"), make("span", "", "now"));
    this.element.append(caption, this.top, this.picture, axis);
  }

  // The points of each line, as History has them.
  draw(...lines) {
    const values = lines.flat().map((point) => point[1]).filter((value) => value !== null);
    const most = this.#most ?? above(Math.max(0, ...values));
    const said = this.#lines.map(([name, path], i) => {
      path.setAttribute("d", pathOf(lines[i], most));
      const value = lines[i].at(-1)?.[1] ?? null;
      const text = value === null ? "–" : this.#show(value);
      return name ? `${name} ${text}` : text;
    });
    this.now.textContent = said.join(", ");
    this.top.textContent = this.#show(most);
    const highest = values.length ? `, at most ${this.#show(Math.max(...values))}` : "";
    this.picture.setAttribute("aria-label",
      `${this.#title} in the last two minutes: now ${said.join(", ")}${highest}`);
  }
}
