"use strict";
// The page is whole without this. With it, a click on the head of a table sorts its rows: up, down,
// and back to the order of the report. Heads become buttons, which the keyboard reaches.

const NEXT = { none: "ascending", ascending: "descending", descending: "none" };
const NUMBER = /^-?\d+(\.\d+)?(?![\d.-])/;

function keyOf(row, column) {
  const cell = row.cells[column];
  const text = (cell.dataset.sort ?? cell.textContent).trim();
  return text === "-" ? "" : text;
}

function asNumber(text) {
  const share = text.match(/^(\d+)\/(\d+)$/);
  return share ? share[1] / share[2] : parseFloat(text);
}

function sorted(rows, column, order) {
  if (order === "none") return rows;
  const keyed = rows.map((row) => [keyOf(row, column), row]);
  const told = keyed.filter(([key]) => key !== "");
  const numeric = told.every(([key]) => NUMBER.test(key));
  const sign = order === "ascending" ? 1 : -1;
  told.sort(([a], [b]) =>
    sign * (numeric ? asNumber(a) - asNumber(b) : a.localeCompare(b, "en", { numeric: true })));
  return [...told, ...keyed.filter(([key]) => key === "")].map(([, row]) => row);
}

for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const order = NEXT[head.getAttribute("aria-sort")];
      for (const other of heads) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", order);
      body.append(...sorted(rows, column, order));
    });
  });
}

// Paper cannot be unfolded.
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open])")];
  for (const part of folded) part.open = true;
});
addEventListener("afterprint", () => {
  for (const part of folded) part.open = false;
});
