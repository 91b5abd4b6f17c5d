"use strict";
const $ = (query, from = document) => from.querySelector(query);
const $$ = (query, from = document) => [...from.querySelectorAll(query)];
const shown = (value) => value.toLocaleString("en-US");

// Tables: sort by a column, keep groups together.
const key = (row, column) => {
  const text = row.cells[column].textContent.trim();
  const value = Number(text.replaceAll(",", ""));
  return text === "" ? -Infinity : Number.isNaN(value) ? text : value;
};
const compared = (a, b) => (typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1);
const arrange = (table) => {
  const { column = "0", order = "1", grouped } = table.dataset;
  const rows = [...table.tBodies[0].rows].map((row) => [grouped ? key(row, 1) : 0, key(row, column), row]);
  rows.sort((a, b) => compared(a[0], b[0]) || order * compared(a[1], b[1]));
  table.tBodies[0].append(...rows.map((row) => row[2]));
};
for (const table of $$("table.sortable")) {
  $$("thead th", table).forEach((head, column) => {
    if (head.classList.contains("nosort")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const first = column === 0 ? "ascending" : "descending";
      const next = head.ariaSort === first ? (first === "ascending" ? "descending" : "ascending") : first;
      $$("thead th", table).forEach((other) => other.removeAttribute("aria-sort"));
      head.ariaSort = next;
      Object.assign(table.dataset, { column, order: next === "ascending" ? 1 : -1 });
      arrange(table);
    });
  });
}
for (const box of $$("[data-group]")) {
  const table = document.getElementById(box.dataset.group);
  box.addEventListener("change", () => {
    if (box.checked) table.dataset.grouped = "1";
    else delete table.dataset.grouped;
    arrange(table);
  });
}

// What if: the stops of the sliders are points that were computed before.
const stored = $("#grid");
if (stored) {
  const grid = JSON.parse(stored.textContent);
  const [budget, floor] = [$("#i-budget"), $("#i-floor")];
  const point = (b, f) => grid.points[b * grid.floors.length + f];
  const asked = point(...grid.asked).quotas;
  const most = Math.max(1, ...grid.points.flatMap((one) => one.quotas || []));
  const body = $("#whatif-table tbody");
  const rows = grid.labels.map((label) => {
    const row = body.insertRow();
    const head = document.createElement("th");
    head.scope = "row";
    head.textContent = label;
    row.append(head);
    row.dataset.source = label;
    const [bar, quota, change] = [row.insertCell(), row.insertCell(), row.insertCell()];
    bar.className = asked ? "bar range" : "bar";
    quota.className = "main";
    return { bar, quota, change };
  });
  const show = () => {
    const now = point(Number(budget.value), Number(floor.value));
    const [b, f] = [grid.budgets[budget.value], grid.floors[floor.value]];
    $("#o-budget").textContent = budget.ariaValueText = shown(b);
    $("#o-floor").textContent = floor.ariaValueText = shown(f);
    $("#said").textContent = now.refusal
      ? `This can't be met: ${now.refusal}`
      : `The floors leave ${shown(now.residual)} of ${shown(b)}.`;
    rows.forEach(({ bar, quota, change }, place) => {
      const value = now.quotas ? now.quotas[place] : null;
      const more = value === null || !asked ? 0 : value - asked[place];
      const mark = asked ? (100 * asked[place]) / most : 0;
      bar.style.cssText = `--a:0;--q:${(100 * (value || 0)) / most};--l:${mark};--h:${mark}`;
      quota.textContent = value === null ? "" : shown(value);
      change.textContent = value === null ? "" : more > 0 ? `+${shown(more)}` : shown(more);
    });
  };
  budget.addEventListener("input", show);
  floor.addEventListener("input", show);
  $("#asked").addEventListener("click", () => {
    [budget.value, floor.value] = grid.asked;
    show();
  });
  show();
  $("#whatif").hidden = false;
}

// Long tables scroll in a frame of their own, under their heads.
for (const frame of $$(".scroll")) if (frame.querySelectorAll("tbody tr").length > 30) frame.classList.add("tall");

// One filter for all that is said of a source.
const filter = $("#filter");
if (filter) {
  const all = $$("[data-source]").map((one) => [one, one.dataset.source.toLowerCase()]);
  const rows = $$("#quota-table tbody tr");
  filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase();
    for (const [one, label] of all) one.hidden = !label.includes(words);
    const left = rows.filter((row) => !row.hidden).length;
    $("#left").textContent = words ? `${shown(left)} of ${shown(rows.length)} sources` : "";
  });
}

// A link to a source opens it, and paper shows them all.
const reveal = () => {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target && target.tagName === "DETAILS") target.open = true;
};
addEventListener("hashchange", reveal);
reveal();
for (const list of $$("nav details")) list.addEventListener("click", (event) => { if (event.target.tagName === "A") list.open = false; });
let closed = [];
addEventListener("beforeprint", () => {
  closed = $$("details.source:not([open])");
  for (const one of closed) one.open = true;
});
addEventListener("afterprint", () => {
  for (const one of closed) one.open = false;
});
