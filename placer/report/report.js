"use strict";
// Draws the figures of the page, filters and sorts its tables; its graph: graph.js.

function read(id) {
  const element = document.getElementById(id);
  return element ? JSON.parse(element.textContent) : {};
}

// What figures are drawn in, and what stands for it on a dark page.
const DARK = {
  "#ffffff": "#182029", "#1c2733": "#e4e9ee", "#e4e8ec": "#303a45", "#c3cad1": "#465361",
  "#b9c0c7": "#5d6a77", "#a9b2bb": "#77848f", "#d8dce1": "#4b5763", "#0072b2": "#56b4e9",
  "#00795c": "#3fbf97", "#7a5c00": "#d9b84a", "#b3261e": "#ff8a80", "#9aa3ad": "#8894a0",
};
const NARROW = 620;
const PHONE_HEIGHT = 560;
const darkPage = window.matchMedia("screen and (prefers-color-scheme: dark)");

function themed(value, dark) {
  if (!dark) return value;
  if (typeof value === "string") return DARK[value] || value;
  if (Array.isArray(value)) return value.map((item) => themed(item, dark));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, themed(item, dark)]));
}

// On a phone the plot gets the room: no title beside it, no buttons, shorter names of layers.
function fitted(layout, width) {
  if (width > NARROW) return layout;
  const changed = structuredClone(layout);
  changed.margin = { ...changed.margin, l: 8, r: 8 };
  changed.font.size = 11;
  if (changed.yaxis.title) delete changed.yaxis.title;
  if (changed.yaxis.ticktext) changed.yaxis.ticktext = changed.yaxis.ticktext.map(shorter);
  if (changed.dragmode === "zoom") changed.dragmode = false;
  // Beside the graph there has to be room to scroll on by.
  else changed.height = Math.min(changed.height, PHONE_HEIGHT);
  return changed;
}

function shorter(text) {
  return text.length <= 18 || text.startsWith("<b>") ? text : `…${text.slice(-17)}`;
}

function drawn(figure, place, dark) {
  const narrow = place.clientWidth <= NARROW;
  const config = narrow ? { ...figure.config, displayModeBar: false } : figure.config;
  return [place, themed(figure.data, dark), themed(fitted(figure.layout, place.clientWidth), dark), config];
}

function drawFigures() {
  const figures = Object.entries(read("figures"));
  for (const [name, figure] of figures) {
    const place = document.getElementById("figure-" + name);
    Plotly.newPlot(...drawn(figure, place, darkPage.matches)).then(() => {
      if (name === "graph") startGraph(place);
      place.dataset.ready = "true";
    });
  }
  // Paper is white, and a page may change while it is open.
  const draw = (dark) => {
    for (const [name, figure] of figures) {
      const place = document.getElementById("figure-" + name);
      const [, data, layout] = drawn(figure, place, dark);
      if (name === "graph") recolour(place, data, layout);
      else Plotly.react(place, data, layout);
    }
  };
  window.addEventListener("beforeprint", () => draw(false));
  window.addEventListener("afterprint", () => draw(darkPage.matches));
  darkPage.addEventListener("change", () => draw(darkPage.matches));
}

// The graph keeps its view, its labels and its search.
function recolour(plot, data, layout) {
  data.forEach((trace, index) => {
    const colours = {};
    if (trace.line) colours["line.color"] = trace.line.color;
    if (trace.marker) colours["marker.color"] = trace.marker.color;
    if (trace.marker && trace.marker.line) colours["marker.line.color"] = trace.marker.line.color;
    Plotly.restyle(plot, colours, [index]);
  });
  const { paper_bgcolor, plot_bgcolor, font } = layout;
  Plotly.relayout(plot, { paper_bgcolor, plot_bgcolor, "font.color": font.color });
}

// --- tables -----------------------------------------------------------------------------------

function startFilters(table) {
  const inputs = [...document.querySelectorAll(`[data-filters="${table.id}"]`)];
  const count = document.getElementById(`${table.id}-count`);
  const rows = [...table.tBodies[0].rows];

  function apply() {
    let shown = 0;
    for (const row of rows) {
      row.hidden = !inputs.every((input) => matches(row, input));
      shown += row.hidden ? 0 : 1;
    }
    count.textContent = `${shown} of ${rows.length}`;
  }

  for (const input of inputs) {
    input.addEventListener(input.tagName === "SELECT" ? "change" : "input", apply);
  }
  apply();
}

function matches(row, input) {
  const wanted = input.value.trim().toLowerCase();
  if (!wanted) return true;
  if (!input.dataset.key) return row.textContent.toLowerCase().includes(wanted);
  return row.dataset[input.dataset.key].split("|").includes(wanted);
}

function startSorting(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    if (!head.dataset.sort) return;
    head.tabIndex = 0;
    head.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") head.click();
      if (event.key === " ") event.preventDefault();
    });
    head.addEventListener("click", () => {
      const sign = head.getAttribute("aria-sort") === "descending" ? 1 : -1;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      const body = table.tBodies[0];
      const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
      const compare = (a, b) =>
        head.dataset.sort === "number" ? Number(a || -1) - Number(b || -1) : a.localeCompare(b);
      [...body.rows].sort((a, b) => sign * compare(value(a), value(b))).forEach((row) => body.append(row));
    });
  });
}

// Names of columns, for narrow pages, on which each cell stands in a line of its own.
function labelCells(table) {
  const names = [...table.tHead.rows[0].cells].map((cell) => cell.dataset.name || cell.textContent.trim());
  for (const row of table.tBodies[0].rows) {
    [...row.cells].forEach((cell, column) => {
      if (names[column] && cell.colSpan === 1) cell.dataset.label = names[column];
    });
  }
}

document.querySelectorAll("table.rows").forEach(labelCells);
document.querySelectorAll("table.filtered").forEach(startFilters);
document.querySelectorAll("table.sorted").forEach(startSorting);
drawFigures();
