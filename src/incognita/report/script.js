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
  const collator = new Intl.Collator(undefined, { numeric: true });
  const compare = (a, b, isNumber, sign) => {
    if (!isNumber) return sign * collator.compare(a, b);
    if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
    return sign * (a - b);
  };

  // A long table holds its first rows in the page; `rows` are all of them, in their order.
  const FIRST = 100;
  const states = new Map();

  const show = (table) => {
    const state = states.get(table);
    const found = state.rows.filter(state.isFound);
    table.tBodies[0].replaceChildren(...found.slice(0, state.limit));
    const n = found.length.toLocaleString("en");
    state.shown.textContent = found.length < state.rows.length ? `${n} of ${state.rows.length.toLocaleString("en")} rows` : "";
    state.more.hidden = found.length <= state.limit;
    state.more.textContent = `Show all ${n} rows`;
  };

  const follow = (table) => {
    const rows = [...table.tBodies[0].rows];
    const more = make("button", { type: "button", className: "tool", hidden: true });
    const shown = make("span", { className: "shown" });
    shown.setAttribute("role", "status");
    for (const row of rows) row.classList.remove("more");
    const limit = rows.length > 3 * FIRST ? FIRST : Infinity;
    const state = { rows, limit, more, shown, isFound: () => true };
    states.set(table, state);
    more.addEventListener("click", () => {
      state.limit = Infinity;
      show(table);
    });
    if (rows.length > limit) show(table);
    return state;
  };

  const sortBy = (table, index) => {
    const heads = [...table.tHead.rows[0].cells];
    const head = heads[index];
    const isNumber = head.classList.contains("number");
    const first = head.querySelector(".arrow")?.textContent === "↓" || !isNumber ? "ascending" : "descending";
    const other = first === "ascending" ? "descending" : "ascending";
    const order = head.getAttribute("aria-sort") === first ? other : first;
    const sign = order === "ascending" ? 1 : -1;
    const state = states.get(table);
    const rows = state.rows.map((row) => [valueOf(row.cells[index], isNumber), row]);
    rows.sort((a, b) => compare(a[0], b[0], isNumber, sign));
    state.rows = rows.map(([, row]) => row);
    show(table);
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

  // a list of the texts of a column, where there are several
  const choiceOf = (rows, head, index) => {
    const texts = [...new Set(rows.map((row) => textOf(row.cells[index])))].sort(collator.compare);
    if (texts.length < 2) return null;
    const list = make("select", {}, make("option", { value: "", textContent: "any" }));
    list.append(...texts.map((text) => make("option", { value: `=${text}`, textContent: text })));
    list.dataset.column = index;
    return make("label", { className: "choice" }, `${head.querySelector(".label").textContent} `, list);
  };

  const filters = (table, state) => {
    const box = make("input", { type: "search", placeholder: "Filter rows" });
    box.setAttribute("aria-label", "Filter rows");
    const heads = [...table.tHead.rows[0].cells];
    const labels = heads.map((head, index) => ("choice" in head.dataset ? choiceOf(state.rows, head, index) : null)).filter(Boolean);
    const lists = labels.map((label) => label.querySelector("select"));
    const apply = () => {
      const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
      const chosen = lists.filter((list) => list.value);
      state.isFound = (row) => {
        const text = words.length ? row.textContent.toLowerCase() : "";
        return words.every((word) => text.includes(word)) &&
          chosen.every((list) => `=${textOf(row.cells[list.dataset.column])}` === list.value);
      };
      show(table);
    };
    for (const control of [box, ...lists]) control.addEventListener("input", apply);
    return [box, ...labels];
  };

  // one rule hides a column, however many rows there are
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  const hidden = new Set();
  const showColumns = () => sheet.replaceSync([...hidden].map((cells) => `${cells} { display: none; }`).join(""));

  const columnChooser = (part, table) => {
    const choices = make("div", { className: "choices" });
    [...table.tHead.rows[0].cells].forEach((head, index) => {
      if (index === 0) return;
      const cells = `#${CSS.escape(part.id)} tr > :nth-child(${index + 1})`;
      const box = make("input", { type: "checkbox", checked: !("hidden" in head.dataset) });
      if (!box.checked) hidden.add(cells);
      box.addEventListener("change", () => {
        if (box.checked) hidden.delete(cells);
        else hidden.add(cells);
        showColumns();
      });
      choices.append(make("label", {}, box, " ", head.querySelector(".label").textContent));
    });
    return make("details", {}, make("summary", {}, "Columns"), choices);
  };

  const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

  const asCsv = (table) => {
    const heads = [...table.tHead.rows[0].cells].map((head) => head.querySelector(".label").textContent);
    const rows = states.get(table).rows.map((row) =>
      [...row.cells].map((cell) => cell.dataset.value ?? textOf(cell)),
    );
    return [heads, ...rows].map((row) => row.map(quoted).join(",")).join("\n") + "\n";
  };

  for (const part of document.querySelectorAll("div.table")) {
    const table = part.querySelector("table");
    const tools = make("div", { className: "tools" });
    const state = follow(table);
    if (state.rows.length > 5) tools.append(...filters(table, state));
    if (table.tHead.rows[0].cells.length > 4) tools.append(columnChooser(part, table));
    const button = make("button", { type: "button", className: "tool" }, "CSV");
    button.setAttribute("aria-label", "Download this table as CSV");
    button.addEventListener("click", () => save(`${part.dataset.name}.csv`, asCsv(table), "text/csv"));
    tools.append(button, state.shown);
    makeSortable(table);
    part.prepend(tools);
    part.querySelector(".scroll").after(state.more);
  }
  showColumns();

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

  const placeIn = (hash) => {
    try {
      return decodeURIComponent(hash.slice(1));
    } catch { // a link that was cut off, such as #%
      return "";
    }
  };

  const open = () => {
    const name = placeIn(location.hash);
    for (const [table, state] of states) {
      const place = name ? state.rows.findIndex((row) => row.id === name) : -1;
      if (place >= state.limit || (place >= 0 && !state.isFound(state.rows[place]))) {
        state.isFound = () => true;
        state.limit = Infinity;
        show(table);
      }
    }
    const target = name && document.getElementById(name);
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
