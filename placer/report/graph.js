"use strict";
// The graph of a report: names where there is room, a node's details, a map of the whole, search.

const SVG = "http://www.w3.org/2000/svg";
const FEW = 200; // Nodes in view that are drawn large, as by graph_figure.py.
const LETTER = 6.4; // Pixels that a letter of a label takes, and those of a line.
const LINE = 13;
const LONGEST = 26; // Letters of a node's name beside its operator.
const MAP = { width: 168, least: 56, most: 150 };

function withIds(plot) {
  return plot.data.map((trace, index) => ({ trace, index })).filter((found) => found.trace.ids);
}

function shownPoints(plot) {
  return withIds(plot)
    .filter(({ trace }) => trace.visible !== false)
    .flatMap(({ trace, index }) =>
      trace.ids.map((name, i) => ({ name, trace, index, i, x: trace.x[i], y: trace.y[i] })));
}

// --- names ------------------------------------------------------------------------------------

// What of a name says where the node is: without its operator, the end if it is long.
function placeOf(name, operator) {
  const parts = name.split("/").filter(Boolean);
  if (parts.length > 1 && parts[parts.length - 1] === operator) parts.pop();
  const place = parts.join("/");
  if (place === operator) return "";
  return place.length <= LONGEST ? place : `…${place.slice(1 - LONGEST)}`;
}

// Which pixels are taken, in rows of a line's height.
class Room {
  constructor() {
    this.rows = new Map();
  }

  row(y) {
    if (!this.rows.has(y)) this.rows.set(y, []);
    return this.rows.get(y);
  }

  rowsAt(y, height) {
    const first = Math.floor((y - height / 2) / LINE);
    const last = Math.floor((y + height / 2 - 1) / LINE);
    return first === last ? [this.row(first)] : [this.row(first), this.row(last)];
  }

  takeMarker(x, y) {
    this.rowsAt(y, 4).forEach((row) => row.push([x - 5, x + 5]));
  }

  takeText(from, to, y) {
    const rows = this.rowsAt(y, LINE);
    if (rows.some((row) => row.some(([a, b]) => from < b && a < to))) return false;
    rows.forEach((row) => row.push([from, to]));
    return true;
  }
}

// Operators wherever they fit, then names beside them wherever these fit, too. A graph output may
// have the name of the node that writes it, so texts are told by trace and position.
function labels(plot, operatorOf) {
  const [left, right] = plot.layout.xaxis.range;
  const [bottom, top] = plot.layout.yaxis.range;
  const { w, h } = plot._fullLayout._size;
  const across = w / (right - left);
  const down = h / (bottom - top);
  const room = new Room();
  const inView = shownPoints(plot)
    .filter(({ x, y }) => x >= left && x <= right && y >= top && y <= bottom)
    .map((point) => ({ ...point, x: (point.x - left) * across, y: (point.y - top) * down }));
  inView.forEach(({ x, y }) => room.takeMarker(x, y));
  const after = (x, text) => x + 9 + LETTER * text.length;
  const found = inView.filter((point) => {
    point.text = operatorOf(point);
    return point.text !== undefined && room.takeText(point.x + 6, after(point.x, point.text), point.y);
  });
  for (const point of found) {
    const place = placeOf(point.name, point.text);
    const whole = `${point.text} ${place}`;
    const [from, to] = [after(point.x, point.text), after(point.x, whole)];
    if (place && to < w && room.takeText(from, to, point.y)) point.text = whole;
  }
  return { found, count: inView.length };
}

// Over plotly's drawing, since plotly would draw all nodes again for each change of a label.
function startLabels(plot, operatorOf) {
  const layer = document.createElementNS(SVG, "svg");
  layer.setAttribute("class", "labels");
  layer.setAttribute("aria-hidden", "true");
  plot.parentElement.append(layer);

  return () => {
    const { found, count } = labels(plot, operatorOf);
    const { l, t, w, h } = plot._fullLayout._size;
    Object.assign(layer.style, { left: `${l}px`, top: `${t}px`, width: `${w}px`, height: `${h}px` });
    layer.replaceChildren(...found.map(({ text, x, y }) => {
      const shown = document.createElementNS(SVG, "text");
      shown.setAttribute("x", x + 7);
      shown.setAttribute("y", y + 4);
      shown.textContent = text;
      return shown;
    }));
    const size = count < FEW ? 9 : 6;
    const all = withIds(plot).map(({ index }) => index);
    if (plot.data[all[0]].marker.size !== size) Plotly.restyle(plot, { "marker.size": size }, all);
  };
}

function unescaped(text) {
  return new DOMParser().parseFromString(text, "text/html").body.textContent;
}

// --- details of a node ------------------------------------------------------------------------

function startDetails(plot) {
  const panel = document.getElementById("graph-node");
  const known = new Map(read("nodes").map((entry) => [entry[0], entry]));

  function add(list, term, ...texts) {
    const head = document.createElement("dt");
    head.textContent = term;
    const body = document.createElement("dd");
    texts.filter(Boolean).forEach((text, i) => {
      const part = document.createElement(i ? "small" : "span");
      part.textContent = text;
      body.append(part);
    });
    list.append(head, body);
  }

  function show(point) {
    if (!point) return;
    const { name } = point;
    const title = document.createElement("h3");
    title.textContent = name;
    const close = document.createElement("button");
    close.type = "button";
    close.textContent = "×";
    close.setAttribute("aria-label", "close");
    close.addEventListener("click", () => { panel.hidden = true; });
    const list = document.createElement("dl");
    // What pointing at it tells, its name left out.
    point.trace.customdata[point.i].split("<br>").slice(1).forEach((line, i) => {
      const [term, ...rest] = unescaped(line).split(": ");
      if (rest.length) add(list, term, rest.join(": "));
      else add(list, i ? "" : "operator", term);
    });
    // Inputs and outputs of the graph belong to no plan, and are no nodes.
    const [, attributes, inputs, outputs] =
      (point.trace.meta && known.get(name)) || ["", "", [], []];
    inputs.forEach(([tensor, type, range]) =>
      add(list, "input", tensor, type, range && `quantized: ${range}`));
    outputs.forEach(([tensor, type]) => add(list, "output", tensor, type));
    if (attributes) add(list, "attributes", ...attributes.split("; "));
    panel.replaceChildren(title, close, list);
    panel.hidden = false;
    panel.scrollTop = 0;
  }

  plot.on("plotly_click", ({ points }) => {
    const { data, pointNumber } = points[0];
    show(shownPoints(plot).find((point) => point.trace === data && point.i === pointNumber));
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") panel.hidden = true;
  });
  return show;
}

// --- map --------------------------------------------------------------------------------------

function startMap(plot, home) {
  const canvas = document.getElementById("graph-map");
  const width = home.x[1] - home.x[0];
  const height = home.y[0] - home.y[1];
  const size = Math.min(MAP.width, plot.clientWidth / 3);
  const tall = Math.min(MAP.most, Math.max(MAP.least, (size * height * plot.clientWidth) / (width * plot.clientHeight) / 2));
  const scale = window.devicePixelRatio || 1;
  canvas.width = size * scale;
  canvas.height = tall * scale;
  canvas.style.width = `${size}px`;
  canvas.style.height = `${tall}px`;
  const pen = canvas.getContext("2d");
  const place = ([x, y]) => [((x - home.x[0]) / width) * canvas.width, ((y - home.y[1]) / height) * canvas.height];

  function draw() {
    const [left, right] = plot.layout.xaxis.range;
    const [bottom, top] = plot.layout.yaxis.range;
    canvas.hidden = right - left > 0.97 * width && bottom - top > 0.97 * height;
    if (canvas.hidden) return;
    pen.clearRect(0, 0, canvas.width, canvas.height);
    for (const { trace, x, y } of shownPoints(plot)) {
      const [across, down] = place([x, y]);
      pen.fillStyle = trace.marker.color;
      pen.fillRect(across - scale, down - scale, 2 * scale, 2 * scale);
    }
    const [from, start] = place([left, top]);
    const [to, end] = place([right, bottom]);
    pen.strokeStyle = getComputedStyle(canvas).getPropertyValue("--bad");
    pen.lineWidth = 1.5 * scale;
    pen.strokeRect(from, start, to - from, end - start);
  }

  function go(event) {
    const [left, right] = plot.layout.xaxis.range;
    const [bottom, top] = plot.layout.yaxis.range;
    const box = canvas.getBoundingClientRect();
    const x = home.x[0] + ((event.clientX - box.left) / box.width) * width;
    const y = home.y[1] + ((event.clientY - box.top) / box.height) * height;
    const across = (right - left) / 2;
    const down = (bottom - top) / 2;
    Plotly.relayout(plot, { "xaxis.range": [x - across, x + across], "yaxis.range": [y + down, y - down] });
  }

  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    go(event);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (event.buttons) go(event);
  });
  return draw;
}

// --- the whole --------------------------------------------------------------------------------

function startGraph(plot) {
  const home = { x: [...plot.layout.xaxis.range], y: [...plot.layout.yaxis.range] };
  const box = document.getElementById("graph-search");
  const count = document.getElementById("graph-count");
  const operators = new Map(withIds(plot)
    .filter(({ trace }) => trace.text)
    .map(({ trace, index }) => [index, trace.text.map(unescaped)]));
  const operatorOf = ({ index, i }) => (operators.get(index) || [])[i];
  let found = [];
  let next = 0;
  const last = plot.data.length - 1;
  const show = startDetails(plot);
  const parts = [startMap(plot, home), startLabels(plot, operatorOf)];
  const draw = () => parts.forEach((part) => part());
  draw();
  plot.on("plotly_afterplot", draw);
  plot.on("plotly_relayouting", draw);

  function search() {
    const words = box.value.trim().toLowerCase();
    next = 0;
    found = !words ? [] : shownPoints(plot).filter((point) =>
      point.name.toLowerCase().includes(words) || (operatorOf(point) || "").toLowerCase() === words);
    found.sort((a, b) => a.x - b.x || a.y - b.y);
    Plotly.restyle(plot, { x: [found.map((p) => p.x)], y: [found.map((p) => p.y)] }, [last]);
    count.textContent = words ? `${found.length} found` : "";
  }

  function zoomTo(point) {
    const width = Math.min(6, home.x[1] - home.x[0]) / 2;
    const height = Math.min(16, home.y[0] - home.y[1]) / 2;
    Plotly.relayout(plot, {
      "xaxis.range": [point.x - width, point.x + width],
      "yaxis.range": [point.y + height, point.y - height],
    });
  }

  box.addEventListener("input", search);
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !found.length) return;
    const point = found[next % found.length];
    zoomTo(point);
    show(point);
    count.textContent = `${(next % found.length) + 1} of ${found.length}`;
    next += 1;
  });
  document.getElementById("graph-home").addEventListener("click", () => {
    Plotly.relayout(plot, { "xaxis.range": [...home.x], "yaxis.range": [...home.y] });
  });
  const buttons = [...document.querySelectorAll("button[data-plan]")];
  for (const button of buttons) {
    button.addEventListener("click", () => {
      const visible = [];
      const indices = [];
      plot.data.forEach((trace, index) => {
        if (trace.meta) {
          indices.push(index);
          visible.push(trace.meta === button.dataset.plan);
        }
      });
      Plotly.restyle(plot, { visible }, indices).then(search);
      buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
    });
  }
}
