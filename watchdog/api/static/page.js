// Keeps the page up to date: asks for the same rows and cells as JSON and puts them in place.
// Text is only ever set as text. The token is held by this script alone, and never stored.
"use strict";

(() => {
  const EVERY = 5000; // milliseconds between two looks
  const PLOTS_EVERY = 15000;
  const PATIENCE = 10000; // milliseconds that a look may take
  const SVG = "http://www.w3.org/2000/svg";
  const lang = document.documentElement.lang;
  const by = (id) => document.getElementById(id);
  const spoken = document.body.dataset;
  let token = "";

  const fetched = async (path, options = {}) => {
    const ended = new AbortController();
    const timer = setTimeout(() => ended.abort(), PATIENCE);
    try {
      return await fetch(path, {cache: "no-store", signal: ended.signal, ...options});
    } finally {
      clearTimeout(timer);
    }
  };

  const put = (element, text) => {
    if (element.textContent !== text) element.textContent = text;
  };

  const tone = (element, name) => {
    if (element.className !== name) element.className = name;
  };

  const made = (tag, text = "", className = "") => {
    const element = document.createElement(tag);
    element.textContent = text;
    if (className) element.className = className;
    return element;
  };

  // ---- tables

  const known = new WeakMap(); // cell -> what it shows

  const bar = (share) => {
    const svg = document.createElementNS(SVG, "svg");
    const rect = document.createElementNS(SVG, "rect");
    const set = (element, pairs) => Object.entries(pairs).forEach((p) => element.setAttribute(...p));
    set(svg, {class: "bar", viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true"});
    set(rect, {width: share, height: 6});
    svg.append(rect);
    return svg;
  };

  const listed = (items) => {
    const list = document.createElement("ol");
    list.append(...items.map(([text, name]) => made("li", text, name)));
    return list;
  };

  const approval = (id) => {
    const place = made("span", "", "approve");
    place.dataset.id = id;
    answerable(place);
    return place;
  };

  const fill = (element, cell) => {
    const shown = JSON.stringify(cell);
    if (known.get(element) === shown) return;
    known.set(element, shown);
    tone(element, cell.style || "");
    let text = document.createTextNode(cell.text);
    if (cell.told && cell.text) {
      text = made("span", cell.text);
      text.lang = "en";
    }
    if (cell.href) {
      const link = document.createElement("a");
      link.href = cell.href;
      link.append(text);
      text = link;
    }
    element.replaceChildren(text);
    if (cell.bar !== undefined) element.append(bar(cell.bar));
    if (cell.items) element.append(listed(cell.items));
    if (cell.approve) element.append(approval(cell.approve));
  };

  const newRow = (key, heads) => {
    const row = document.createElement("tr");
    row.dataset.key = key;
    heads.forEach((head, number) => {
      const cell = document.createElement(number ? "td" : "th");
      if (!number) cell.scope = "row";
      cell.dataset.head = head;
      row.append(cell);
    });
    return row;
  };

  const renew = ({name, rows}) => {
    const table = by(name);
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
    const old = new Map([...body.rows].map((row) => [row.dataset.key, row]));
    rows.forEach(({key, cells}, place) => {
      const row = old.get(key) || newRow(key, heads);
      old.delete(key);
      cells.forEach((cell, number) => fill(row.cells[number], cell));
      if (body.rows[place] !== row) body.insertBefore(row, body.rows[place] || null);
    });
    old.forEach((row) => row.remove());
    table.hidden = !rows.length;
    table.previousElementSibling.hidden = Boolean(rows.length);
  };

  const show = (doc) => {
    put(by("at"), doc.at);
    put(by("about"), doc.about);
    put(by("headline"), doc.headline);
    tone(by("headline"), doc.tone);
    const notes = JSON.stringify(doc.notes);
    if (known.get(by("notes")) !== notes) {
      known.set(by("notes"), notes);
      by("notes").replaceChildren(...doc.notes.map(([text, name]) => made("li", text, name)));
    }
    doc.tiles.forEach(([name, text, style]) => {
      const tile = document.querySelector(`[data-tile="${name}"]`);
      if (!tile) return;
      put(tile, text);
      tone(tile, style);
    });
    doc.tables.forEach(renew);
  };

  const lost = (is) => {
    put(by("lost"), is ? spoken.lost : "");
    by("lost").hidden = !is;
    document.body.classList.toggle("stale", is);
  };

  const look = async () => {
    try {
      const answer = await fetched(`api/v1/page?lang=${lang}`);
      if (!answer.ok) throw new Error(String(answer.status));
      show(await answer.json());
      lost(false);
    } catch {
      lost(true);
    }
  };

  // ---- plots

  const drawn = new Map(); // name -> {plot, key of its lines}
  const COLOURS = 8;
  const DASHES = [[], [8, 3], [2, 3], [], [8, 3], [2, 3], [], [8, 3]];

  const colour = (name) => getComputedStyle(document.body).getPropertyValue(name).trim();

  const amount = (unit, value) => {
    if (value === null || value === undefined) return "–";
    if (unit === "ratio") return `${+(value * 100).toFixed(value && value < 0.1 ? 1 : 0)} %`;
    if (unit === "celsius") return `${Math.round(value)} °C`;
    if (unit === "seconds") return value < 1 ? `${Math.round(value * 1000)} ms` : `${+value.toFixed(1)} s`;
    if (unit === "per second") return `${Math.round(value)}/s`;
    return String(+value.toFixed(1));
  };

  const clock = (seconds) => new Date(seconds * 1000).toISOString().slice(11, 16);

  const range = (unit) => (_, low, high) => {
    const top = high === null || high === undefined ? 1 : high;
    if (unit === "ratio") return [0, top <= 0.1 ? 0.1 : 1];
    return [0, top > 0 ? top * 1.1 : 1];
  };

  const options = (figure, lines, width) => {
    const unit = figure.dataset.unit;
    const axis = {stroke: colour("--quiet"), grid: {stroke: colour("--rule"), width: 1},
                  ticks: {show: false}, font: "12px system-ui, sans-serif"};
    return {
      width, height: 150, legend: {show: false}, padding: [8, 8, 0, 0],
      cursor: {y: false, drag: {x: false, y: false}, points: {size: 6}},
      scales: {y: {range: range(unit)}},
      axes: [
        {...axis, space: 70, size: 28, values: (_, at) => at.map(clock)},
        {...axis, size: 58, space: 30, values: (_, at) => at.map((value) => amount(unit, value))},
      ],
      series: [{}, ...lines.map((_, number) => ({
        stroke: colour(`--c${number % COLOURS}`), width: 1.8, dash: DASHES[number % COLOURS],
        points: {show: false},
      }))],
      hooks: {setCursor: [(plot) => values(figure, plot.data, plot.cursor.idx)]},
    };
  };

  const values = (figure, data, place) => {
    const cells = figure.querySelectorAll(".key b");
    cells.forEach((cell, number) => {
      const line = data[number + 1];
      put(cell, amount(figure.dataset.unit, line[place ?? line.length - 1]));
    });
  };

  const key = (figure, lines) => {
    figure.querySelector(".key").replaceChildren(...lines.map(({name}, number) => {
      const item = document.createElement("li");
      const mark = bar(100);
      mark.setAttribute("class", `mark c${number % COLOURS}`);
      item.append(mark, `${name} `, document.createElement("b"));
      return item;
    }));
  };

  const draw = (figure, times, lines) => {
    const name = figure.dataset.plot;
    const place = figure.querySelector(".plot");
    const same = JSON.stringify(lines.map((line) => line.name));
    const data = [times, ...lines.map((line) => line.values)];
    let found = drawn.get(name);
    if (found && found.same === same) {
      found.plot.setData(data);
    } else {
      if (found) found.plot.destroy();
      key(figure, lines);
      const plot = new uPlot(options(figure, lines, place.clientWidth), data, place);
      plot.root.setAttribute("aria-hidden", "true"); // the list below says it in words
      drawn.set(name, {plot, same});
      found = drawn.get(name);
    }
    values(figure, data, null);
  };

  let figures = null;

  const drawAll = () => {
    if (!figures) return;
    const lines = new Map(figures.plots.map((plot) => [plot.name, plot.lines]));
    const shown = [...document.querySelectorAll("figure[data-plot]")].filter((figure) => {
      figure.hidden = !(lines.get(figure.dataset.plot) || []).length;
      return !figure.hidden;
    });
    by("plots").hidden = !shown.length;
    shown.forEach((figure) => draw(figure, figures.times, lines.get(figure.dataset.plot)));
  };

  const redraw = () => {
    drawn.forEach(({plot}) => plot.destroy());
    drawn.clear();
    drawAll();
  };

  const lookAtFigures = async () => {
    try {
      const answer = await fetched("api/v1/figures");
      if (answer.ok) {
        figures = await answer.json();
        drawAll();
      }
    } catch { /* the other look tells that nobody answers */ }
  };

  const fit = () => drawn.forEach(({plot}) => {
    const width = plot.root.parentElement.clientWidth;
    if (width && width !== plot.width) plot.setSize({width, height: 150});
  });

  // ---- pause and approve

  const said = (text, style = "") => {
    put(by("told"), text);
    tone(by("told"), style);
  };

  const asked = async (body) => {
    said(spoken.working);
    const headers = {Authorization: `Bearer ${token}`};
    const options = body ? {method: "POST", body: JSON.stringify(body),
                            headers: {...headers, "Content-Type": "application/json"}} : {headers};
    try {
      const answer = await fetched("api/v1/commands", options);
      const doc = await answer.json();
      if (!answer.ok) said(doc.error || String(answer.status), "bad");
      return answer.ok ? doc : null;
    } catch {
      said(spoken.unreachable, "bad");
      return null;
    }
  };

  const command = async (verb, args) => {
    const doc = await asked({verb, args});
    if (doc) said(doc.done.join("; "), "good");
    await look();
  };

  const answerable = (place) => {
    if (!token) {
      const link = made("a", spoken.locked);
      link.href = "#control";
      place.replaceChildren(link);
      return;
    }
    const button = made("button", spoken.approve);
    button.type = "button";
    button.addEventListener("click", () => command("approve", {id: place.dataset.id}));
    place.replaceChildren(button);
  };

  const unlocked = (is) => {
    by("unlock").hidden = is;
    by("pause").hidden = !is;
    document.querySelectorAll(".approve").forEach(answerable);
  };

  const control = () => {
    by("control").hidden = false;
    by("open").hidden = window.isSecureContext;
    by("unlock").addEventListener("submit", async (event) => {
      event.preventDefault();
      token = by("token").value.trim();
      by("token").value = "";
      if (!(await asked())) {
        token = "";
        by("token").focus();
        return;
      }
      unlocked(true);
      said(spoken.unlocked, "good");
      by("whom").focus();
    });
    by("pause").addEventListener("submit", (event) => {
      event.preventDefault();
      const verb = event.submitter ? event.submitter.dataset.verb : "pause";
      const args = by("whom").value ? {service: by("whom").value} : {};
      if (verb === "pause") {
        args.reason = by("reason").value;
        if (by("long").value) args.for = by("long").value;
      }
      command(verb, args);
    });
    by("forget").addEventListener("click", () => {
      token = "";
      unlocked(false);
      said("");
      by("token").focus();
    });
  };

  // ---- begin

  const again = (each, every) => {
    const turn = async () => {
      if (!document.hidden) await each();
      setTimeout(turn, every);
    };
    turn();
  };

  control();
  document.querySelectorAll(".approve").forEach(answerable);
  again(look, EVERY);
  again(lookAtFigures, PLOTS_EVERY);
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) Promise.all([look(), lookAtFigures()]);
  });
  window.addEventListener("resize", fit);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
})();
