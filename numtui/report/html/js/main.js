/* The page: actions of keys and controls. The keys are those of the explorer, from its registry. */

const PAUSE = 500; // milliseconds after which a digit stands alone

class Page {
  constructor(comparison) {
    this.c = comparison;
    this.listing = new Listing(comparison);
    this.go = (row) => { this.listing.go(row); this.show(); };
    this.table = new Table(this.listing, (row) => { this.choose(row); });
    this.plot = new Plot(comparison, (row) => { this.go(row); this.openTab("inspector"); });
    this.digits = "";
    this.sequence = "";
    this.bind();
    this.restore(comparison.state);
  }

  /** The explorer's view when it wrote the page. */
  restore(state) {
    for (const group of state.hidden) this.listing.shown.delete(group);
    this.listing.folded = state.folded;
    this.listing.order = document.getElementById("order").value = state.order;
    this.listing.find(state.search);
    document.getElementById("search").value = state.search;
    document.getElementById("filter").value = state.query;
    this.filter(state.query);
    document.getElementById("fold").checked = state.folded;
    if (state.cursor >= 0) this.listing.show(state.cursor);
    this.refresh();
    this.table.reveal(0.4);
  }

  // -- drawing

  choose(row) {
    const line = this.listing.lineOf(row);
    this.listing.cursor = row;
    if (this.listing.folds[line]) this.listing.unfold();
    this.refresh();
    this.openTab("inspector");
    // On a phone the list and the row share the screen, the summary is above.
    if (this.table.narrow.matches) document.querySelector("main").scrollIntoView();
  }

  /** After the cursor has moved. */
  show(message = "") {
    this.say(message);
    this.table.reveal();
    this.plot.point(this.listing.cursor);
    this.inspect();
    const { cursor } = this.listing;
    const where = cursor < 0 ? "" : `row ${(cursor + 1).toLocaleString("en")} of ${this.c.length.toLocaleString("en")} · ${this.c.phase(cursor)}`;
    document.getElementById("place").textContent = where;
  }

  /** Only when visible. */
  inspect() {
    if (!document.getElementById("inspector").hidden) inspect(this.c, this.listing.cursor, this.go);
  }

  groups(field) { return grouped(this.c, this.listing.passing, field); }

  /** Only when visible. */
  group() {
    const panel = document.getElementById("groups");
    if (!panel.hidden) showGroups(this.c, this.listing.passing, panel, { keep: (word) => this.keep(word), go: (row) => { this.go(row); this.openTab("inspector"); } });
  }

  /** Adds a word to the filter; the same word again takes it away. */
  keep(word) {
    const field = document.getElementById("filter"), words = field.value.match(WORD) ?? [];
    field.value = (words.includes(word) ? words.filter((each) => each !== word) : [...words, word]).join(" ");
    this.filter(field.value);
  }

  /** After a change of the list. */
  refresh() {
    for (const chip of document.getElementById("chips").children) {
      chip.setAttribute("aria-pressed", String(this.listing.shown.has(Number(chip.dataset.group))));
    }
    document.getElementById("hits").textContent = this.listing.search ? `${this.listing.hitCount.toLocaleString("en")} found` : "";
    this.show();
    this.group();
  }

  say(message) { document.getElementById("message").textContent = message; }

  openTab(name) {
    for (const tab of document.querySelectorAll("[data-tab]")) tab.setAttribute("aria-selected", String(tab.dataset.tab === name));
    for (const panel of document.querySelectorAll("[data-panel]")) panel.hidden = panel.dataset.panel !== name;
    this.inspect();
    this.group();
  }

  // -- controls

  bind() {
    const by = (id) => document.getElementById(id);
    this.c.groupNames.forEach((name, group) => {
      const n = this.c.arrays.status.reduce((sum, code) => sum + (this.c.statuses[code].group === group), 0);
      const chip = element("button", { type: "button", onclick: () => this.toggle(group) }, `${name} ${n.toLocaleString("en")}`);
      chip.dataset.group = group;
      chip.title = `show or hide (${group + 1})`;
      chip.hidden = n === 0 && group > 0;
      by("chips").append(chip);
    });
    for (const tab of document.querySelectorAll("[data-tab]")) tab.addEventListener("click", () => this.openTab(tab.dataset.tab));
    for (const link of document.querySelectorAll("[data-go]")) link.addEventListener("click", () => { this.go(Number(link.dataset.go)); this.openTab("inspector"); });
    by("help").addEventListener("click", () => this.openTab("keys"));
    by("theme").addEventListener("click", () => this.turnTheme());
    by("order").addEventListener("change", (event) => { this.listing.setOrder(event.target.value); this.refresh(); this.table.reveal(0); });
    by("fold").addEventListener("change", (event) => { this.listing.setFolded(event.target.checked); this.refresh(); });
    for (const id of ["low", "high"]) by(id).addEventListener("input", () => this.table.setScale(Number(by("low").value), Number(by("high").value)));
    by("search").addEventListener("input", (event) => this.search(event.target.value));
    by("filter").addEventListener("input", (event) => this.filter(event.target.value));
    for (const id of ["search", "filter"]) {
      by(id).addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === "Escape") { by("rows").focus(); event.preventDefault(); }
        event.stopPropagation();
      });
    }
    document.addEventListener("keydown", (event) => this.key(event));
    addEventListener("beforeprint", () => this.print());
    this.actions = this.makeActions();
    // The page has no actions that change rules or need a terminal.
    const known = this.c.keys.filter(({ id }) => this.actions[id]);
    this.keys = new Map(known.flatMap(({ id, keys }) => keys.map((key) => [key, id])));
    const rows = known.map(({ label, help }) => element("tr", {}, element("td", {}, element("code", {}, label)), element("td", {}, help)));
    by("keys").append(element("h2", {}, "Keys"), element("table", {}, ...rows), element("h2", {}, "Signs"), this.signs());
  }

  signs() {
    const signs = [
      ["●", "first cause: no upstream row explains it"],
      ["○", "first difference, however small"],
      ["✎", "a note on the row"],
      [DITTO, "the same name in b"],
      ...this.c.statuses.filter(({ glyph }) => glyph.trim()).map(({ glyph, word, meaning }) => [glyph, `${word}: ${meaning}`]),
      ["≥", "before an error: a lower bound from norms; the tensors may differ by more"],
      ["≈", "before an error: estimated from sketches"],
      ["ε", "error in units of the machine epsilon of the coarser dtype"],
    ];
    return element("table", {}, ...signs.map((texts) => element("tr", {}, ...texts.map((text) => element("td", {}, text)))));
  }

  /** By the next of the orders. */
  sort() {
    const field = document.getElementById("order");
    field.selectedIndex = (field.selectedIndex + 1) % field.options.length;
    this.listing.setOrder(field.value);
    this.refresh();
    return `sorted by ${field.value}`;
  }

  toggle(group) {
    this.listing.toggle(group);
    this.refresh();
    this.say(`${this.c.groupNames[group]} rows are ${this.listing.shown.has(group) ? "shown" : "hidden"} (${this.listing.lines.length.toLocaleString("en")} lines)`);
  }

  search(text) {
    this.listing.find(text);
    const { hits, cursor } = this.listing;
    if (hits && !hits(cursor)) this.listing.step((row) => hits(row), 1);
    this.refresh();
  }

  filter(text) {
    const field = document.getElementById("filter");
    try {
      this.listing.setQuery(text);
      field.setCustomValidity("");
      this.refresh();
    } catch (error) {
      field.setCustomValidity(error.message);
      this.say(error.message);
    }
  }

  /** What a page on paper has besides: the groups and a table of the listed rows. */
  print() {
    const shown = document.querySelector("[data-tab][aria-selected=true]").dataset.tab;
    document.getElementById("overview").open = true;
    this.openTab("groups");
    this.openTab(shown);
    printRows(this.c, this.listing, document.getElementById("paper"));
  }

  turnTheme() {
    const { dataset } = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const now = dataset.theme ?? (dark ? "dark" : "light");
    dataset.theme = now === "dark" ? "light" : "dark";
    this.plot.draw();
  }

  // -- keys

  key(event) {
    if (event.altKey || event.metaKey || event.target.matches("input, select")) return;
    const name = keyName(event);
    if (event.target.matches("button") && (name === "enter" || name === "space")) return;
    const sequence = this.sequence ? `${this.sequence} ${name}` : name;
    const id = this.keys.get(sequence);
    clearTimeout(this.timer);
    if (!event.ctrlKey && /^[0-9]$/.test(name) && (this.digits || name !== "0")) {
      this.digits += name;
      this.timer = setTimeout(() => this.settle(), PAUSE);
    } else if (id) {
      const count = this.digits ? Number(this.digits) : null;
      this.digits = this.sequence = "";
      const message = this.actions[id](count);
      if (message) this.say(message);
    } else if ([...this.keys.keys()].some((known) => known.startsWith(`${sequence} `))) {
      this.sequence = sequence;
    } else {
      this.digits = this.sequence = "";
      return;
    }
    event.preventDefault();
  }

  /** After a pause, a digit is the key of a status. */
  settle() {
    const id = this.keys.get(this.digits);
    this.digits = "";
    if (id) this.actions[id](null);
  }

  makeActions() {
    const { listing, c } = this, page = () => this.table.room;
    const moved = (change) => (count) => { change(count ?? 1); this.show(); };
    const stepped = (wanted, by, noun) => (count) => {
      const found = listing.step(wanted, by * (count ?? 1));
      this.show();
      return found ? "" : `there is no ${noun} in the list`;
    };
    const errors = (by) => (count) => { const message = listing.stepError(by * (count ?? 1)); this.show(); return message; };
    const line = (first) => (count) => {
      if (count === null) {
        const target = first ? 0 : listing.lines.length - 1;
        listing.leave(listing.lines[target]);
        listing.goLine(target);
      } else listing.go(Math.min(count, c.length) - 1);
      this.show();
    };
    const focus = (id) => () => { const field = document.getElementById(id); field.focus(); field.select(); };
    const red = (row) => c.isRed(row) || c.isCause(row) || c.isFirst(row), cause = (row) => c.isCause(row) || c.isFirst(row), hit = (row) => Boolean(listing.hits?.(row));
    const place = (where) => () => this.table.reveal(where);
    return {
      down: moved((n) => listing.move(n)), up: moved((n) => listing.move(-n)),
      half_page_down: moved((n) => listing.move(n * Math.ceil(page() / 2))), half_page_up: moved((n) => listing.move(-n * Math.ceil(page() / 2))),
      page_down: moved((n) => listing.move(n * page())), page_up: moved((n) => listing.move(-n * page())),
      top: line(true), bottom: line(false),
      center: place(0.5), line_to_top: place(0), line_to_bottom: place(1),
      next_red: stepped(red, 1, "red row"), previous_red: stepped(red, -1, "red row"),
      next_cause: stepped(cause, 1, "first cause"), previous_cause: stepped(cause, -1, "first cause"),
      first_difference: () => { if (c.firstDifference < 0) return "no compared row differs"; this.go(c.firstDifference); return ""; },
      larger_error: errors(1), smaller_error: errors(-1),
      search: focus("search"), next_hit: stepped(hit, 1, "hit"), previous_hit: stepped(hit, -1, "hit"),
      inspect: () => { if (listing.unfold()) this.refresh(); this.openTab("inspector"); },
      producer: (count) => this.toProducer(count), consumer: (count) => this.toConsumer(count),
      back: () => this.jump(listing.back, listing.forward, "began"), forward: () => this.jump(listing.forward, listing.back, "ended"),
      filter: focus("filter"), keep: focus("filter"),
      toggle_red: () => this.toggle(0), toggle_close: () => this.toggle(1), toggle_equal: () => this.toggle(2),
      toggle_only_a: () => this.toggle(3), toggle_only_b: () => this.toggle(4), toggle_other: () => this.toggle(5),
      sort: () => this.sort(), group: () => this.openTab("groups"),
      fold: () => document.getElementById("fold").click(),
      reset: () => this.reset(),
      copy: () => this.copy((row) => c.name(row), "the key"), copy_row: () => this.copy((row) => c.markdown(row), "the row as Markdown"),
      info: () => this.openTab("logs"), rules: () => this.openTab("rules"), help: () => this.openTab("keys"),
    };
  }

  jump(source, target, end) {
    const found = this.listing.jump(source, target);
    this.show();
    return found ? "" : `this is where the jumps ${end}`;
  }

  /** To the producer of an input: the one that explains the row, or the one of a position (from 1). */
  toProducer(count) {
    const { c } = this, row = this.listing.cursor;
    if (row < 0) return "there is no row";
    const known = c.inputs(row).flatMap(({ position, a, b, agrees }) => [a, b].map(({ maker }) => ({ position, agrees, maker })))
      .filter(({ position, maker }) => maker >= 0 && (count === null || position === count - 1));
    const chosen = (c.isRed(row) && known.find(({ maker }) => c.isRed(maker) || c.isCause(maker)))
      || known.find(({ agrees }) => agrees === false) || known[0];
    if (!chosen) return "no captured operation is known to have made an input";
    this.go(chosen.maker);
    return `the producer of input ${chosen.position}`;
  }

  toConsumer(count) {
    if (this.listing.cursor < 0) return "there is no row";
    const readers = this.c.consumers(this.listing.cursor), number = count ?? 1;
    if (!readers.length) return "no captured operation is known to read the output";
    if (number > readers.length) return `the output has ${readers.length} readers`;
    this.go(readers[number - 1]);
    return `reader ${number} of ${readers.length}`;
  }

  reset() {
    const { listing } = this;
    if (listing.search) { listing.find(""); document.getElementById("search").value = ""; }
    else if (listing.query || listing.shown.size < this.c.groupNames.length) {
      listing.shown = new Set(this.c.groupNames.keys());
      document.getElementById("filter").value = "";
      this.filter("");
    } else if (listing.folded) document.getElementById("fold").click();
    this.refresh();
  }

  copy(of, what) {
    if (this.listing.cursor < 0) return "there is no row";
    const text = of(this.listing.cursor);
    // A browser may deny the clipboard to pages opened from a file: then the text can be selected by hand.
    const copied = navigator.clipboard?.writeText(text) ?? Promise.reject(new Error("no clipboard"));
    copied.then(() => this.say(`copied ${what}`), () => this.say(text));
    return "";
  }
}

const KEY_NAMES = { ArrowDown: "down", ArrowUp: "up", PageDown: "pagedown", PageUp: "pageup", " ": "space", Escape: "escape" };

/** A key as the registry of the explorer writes it. */
function keyName(event) {
  const name = KEY_NAMES[event.key] ?? (event.key.length === 1 ? event.key : event.key.toLowerCase());
  return event.ctrlKey ? `ctrl+${name}` : name;
}

async function start() {
  const note = document.getElementById("note");
  try {
    const holder = document.getElementById("block");
    const comparison = new Comparison(await readBlock(holder.textContent));
    holder.remove();
    document.documentElement.classList.remove("static");
    window.numtui = new Page(comparison);
    window.numtui.openTab(comparison.state.cursor >= 0 ? "inspector" : "summary");
    document.getElementById("rows").focus({ preventScroll: true });
  } catch (error) {
    document.documentElement.classList.add("static");
    note.textContent = `The rows cannot be shown in this browser (${error.message}); one of 2023 or newer can. This summary is complete.`;
    throw error;
  }
}

start();
