// Sorting, filtering, choosing columns, downloads, the switch of colors. The page can be read
// without this script: whatever needs it is built by it.
"use strict";
(() => {
  const make = (tag, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };

  const save = (name, text, type) => {
    const link = make("a", { download: name, href: URL.createObjectURL(new Blob([text], { type })) });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };

  // --- tables

  const valueOf = (cell, isNumber) => {
    const exact = cell.dataset.value;
    if (isNumber) return exact === undefined || exact === "" ? NaN : Number(exact);
    return textOf(cell).toLowerCase();
  };

  // the text without the note that a click opens
  const textOf = (cell) => {
    const note = cell.querySelector(".note > span");
    const text = cell.textContent;
    return (note ? text.slice(0, text.length - note.textContent.length) : text).trim();
  };

  // undefined values are last in both directions
  const compare = (a, b, isNumber, sign) => {
    if (!isNumber) return sign * a.localeCompare(b, undefined, { numeric: true });
    if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
    return sign * (a - b);
  };

  const sortBy = (table, index) => {
    const heads = [...table.tHead.rows[0].cells];
    const head = heads[index];
    const isNumber = head.classList.contains("number");
    const first = head.querySelector(".arrow")?.textContent === "↓" || !isNumber ? "ascending" : "descending";
    const other = first === "ascending" ? "descending" : "ascending";
    const order = head.getAttribute("aria-sort") === first ? other : first;
    const sign = order === "ascending" ? 1 : -1;
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => [valueOf(row.cells[index], isNumber), row]);
    rows.sort((a, b) => compare(a[0], b[0], isNumber, sign));
    body.replaceChildren(...rows.map(([, row]) => row));
    for (const cell of heads) cell.setAttribute("aria-sort", cell === head ? order : "none");
  };

  const makeSortable = (table) => {
    [...table.tHead.rows[0].cells].forEach((head, index) => {
      const label = head.querySelector(".label");
      const button = make("button", { type: "button", className: "sort" }, label.textContent);
      button.addEventListener("click", () => sortBy(table, index));
      label.replaceChildren(button);
      head.setAttribute("aria-sort", "none");
    });
  };

  const filterBox = (table) => {
    const box = make("input", { type: "search", placeholder: "Filter rows" });
    box.setAttribute("aria-label", "Filter rows");
    const shown = make("span", { className: "shown" });
    shown.setAttribute("role", "status");
    box.addEventListener("input", () => {
      const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
      let n = 0;
      for (const row of table.tBodies[0].rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        n += !row.hidden;
      }
      shown.textContent = words.length ? `${n} of ${table.tBodies[0].rows.length} rows` : "";
    });
    return [box, shown];
  };

  const showColumn = (table, index, isShown) => {
    for (const row of table.rows) row.cells[index].hidden = !isShown;
  };

  const columnChooser = (table) => {
    const choices = make("div", { className: "choices" });
    [...table.tHead.rows[0].cells].forEach((head, index) => {
      if (index === 0) return;
      const box = make("input", { type: "checkbox", checked: !("hidden" in head.dataset) });
      box.addEventListener("change", () => showColumn(table, index, box.checked));
      if (!box.checked) showColumn(table, index, false);
      choices.append(make("label", {}, box, " ", head.querySelector(".label").textContent));
    });
    return make("details", {}, make("summary", {}, "Columns"), choices);
  };

  const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

  const asCsv = (table) => {
    const heads = [...table.tHead.rows[0].cells].map((head) => head.querySelector(".label").textContent);
    const rows = [...table.tBodies[0].rows].map((row) =>
      [...row.cells].map((cell) => cell.dataset.value ?? textOf(cell)),
    );
    return [heads, ...rows].map((row) => row.map(quoted).join(",")).join("\n") + "\n";
  };

  for (const part of document.querySelectorAll("div.table")) {
    const table = part.querySelector("table");
    const tools = make("div", { className: "tools" });
    if (table.tBodies[0].rows.length > 5) tools.append(...filterBox(table));
    if (table.tHead.rows[0].cells.length > 4) tools.append(columnChooser(table));
    const button = make("button", { type: "button", className: "tool" }, "CSV");
    button.setAttribute("aria-label", "Download this table as CSV");
    button.addEventListener("click", () => save(`${part.dataset.name}.csv`, asCsv(table), "text/csv"));
    tools.append(button);
    makeSortable(table);
    part.prepend(tools);
  }

  // --- figures

  for (const figure of document.querySelectorAll("figure[id]")) {
    const button = make("button", { type: "button" }, "SVG");
    button.addEventListener("click", () => {
      const text = new XMLSerializer().serializeToString(figure.querySelector("svg"));
      save(`${figure.id}.svg`, text, "image/svg+xml");
    });
    figure.querySelector(".links").append(button);
  }

  // --- links to a place inside something that is closed

  const open = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let part = target; part; part = part.parentElement) {
      if (part.tagName === "DETAILS") part.open = true;
    }
    target.scrollIntoView();
  };
  addEventListener("hashchange", open);
  open();

  // --- light and dark

  const root = document.documentElement;
  const isDark = () => (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const memory = { get: () => null, set: () => {} };
  try {
    memory.get = localStorage.getItem.bind(localStorage, "theme");
    memory.set = localStorage.setItem.bind(localStorage, "theme");
  } catch { /* a page in a frame or a file may have no storage */ }
  const before = memory.get();
  if (before === "dark" || before === "light") root.dataset.theme = before;
  const toggle = make("button", { type: "button", className: "tool theme" });
  const name = () => { toggle.textContent = isDark() ? "Light" : "Dark"; };
  toggle.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    memory.set(root.dataset.theme);
    name();
  });
  name();
  document.body.prepend(toggle);
})();
