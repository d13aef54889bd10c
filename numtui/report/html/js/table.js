/* The list: only visible lines are in the page. */

const LINE_HEIGHT = 20;
const TALLEST = 8_000_000; // pixels; browsers lay out little more, and a million rows need more

class Table {
  constructor(listing, onChoose) {
    this.listing = listing;
    this.c = listing.c;
    this.onChoose = onChoose;
    this.frame = document.getElementById("rows");
    this.space = document.getElementById("space");
    this.pool = [];
    this.low = -8;
    this.high = 0;
    this.waiting = false;
    this.frame.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.frame);
    this.narrow = matchMedia("(max-width: 40rem)");
    this.narrow.addEventListener("change", () => this.reveal(0.4));
    const [a, b] = this.c.names;
    const heads = { cause: "", number: "row", glyph: "", "a key": `a: ${a}`, "b key": `b: ${b}`, merged: `a: ${a} ⇄ b: ${b}, where it differs`, via: "via", error: "error", bar: "", eps: "ε", shape: "shape" };
    document.getElementById("heads").append(...Object.entries(heads).map(([name, text]) => element("span", { className: name, title: text }, text)));
  }

  /** Of a row: on a phone the names have a line of their own. */
  get rowHeight() { return this.narrow.matches ? 2 * LINE_HEIGHT + 4 : LINE_HEIGHT; }
  get height() { return this.listing.lines.length * this.rowHeight; }
  get room() { return Math.max(Math.floor(this.frame.clientHeight / this.rowHeight), 1); }

  /** Lines map to pixels, scaled down for lists too long for the scroll bar. */
  get scale() { return Math.max(this.height / TALLEST, 1); }
  get top() { return this.frame.scrollTop * this.scale; }

  /** Scrolls as little as is needed for the cursor to be seen; with `where` (0 to 1) to that part of the frame. */
  reveal(where = null) {
    this.space.style.height = `${this.height / this.scale}px`;
    const { rowHeight } = this, y = this.listing.lineOf(this.listing.cursor) * rowHeight, seen = this.frame.clientHeight - rowHeight;
    if (where === null && y >= this.top && y <= this.top + seen) { this.draw(); return; }
    // A step scrolls by as little as it takes; after a jump the row has others before and behind it.
    const near = y > this.top - 2 * rowHeight && y < this.top + seen + 2 * rowHeight;
    const at = where ?? (!near ? 0.4 : y < this.top ? 0 : 1);
    this.frame.scrollTop = (y - at * seen) / this.scale;
    this.draw();
  }

  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.drawNow(); });
  }

  drawNow() {
    const { lines } = this.listing, { rowHeight } = this;
    this.space.style.height = `${this.height / this.scale}px`;
    const first = Math.max(Math.floor(this.top / rowHeight) - 2, 0);
    const last = Math.min(first + this.room + 5, lines.length);
    while (this.pool.length < last - first) this.pool.push(this.makeRow());
    this.measure();
    const offset = this.frame.scrollTop - this.top;
    this.pool.forEach((row, i) => {
      const line = first + i;
      row.element.hidden = line >= last;
      if (line >= last) return;
      row.element.style.transform = `translateY(${line * rowHeight + offset}px)`;
      this.fill(row, line);
    });
    this.frame.setAttribute("aria-rowcount", String(lines.length));
  }

  makeRow() {
    const cell = (className, ...children) => element("span", { className }, ...children);
    const a = element("bdi"), b = element("bdi"), bar = element("i");
    const cells = {
      cause: cell("cause"), number: cell("number"), glyph: cell("glyph"), names: cell("names"), via: cell("via dim"),
      error: cell("error"), bar: cell("bar", bar), eps: cell("eps"), shape: cell("shape"),
    };
    const row = { element: element("div", { className: "row" }, ...Object.values(cells)), cells, a, b, bar, row: -1 };
    Object.assign(cells, { a: cell("a key", a), between: cell("between", "⇄"), b: cell("b key", b) });
    cells.names.append(cells.a, cells.between, cells.b);
    row.element.style.top = "0";
    row.element.setAttribute("role", "row");
    row.element.id = `line-${this.pool.length}`;
    for (const each of Object.values(cells)) each.setAttribute("role", "gridcell");
    row.element.addEventListener("click", () => this.onChoose(row.row));
    this.frame.append(row.element);
    return row;
  }

  fill(target, line) {
    const { c, listing } = this, row = listing.lines[line], folded = listing.folds[line], { cells } = target;
    const status = c.status(row), names = c.rowNames(row);
    target.row = row;
    target.element.className = `row ${folded ? "plain" : status.style}`;
    target.element.classList.toggle("chosen", row === listing.cursor);
    target.element.classList.toggle("hit", Boolean(listing.hits?.(row)));
    target.element.setAttribute("aria-rowindex", String(line + 1));
    target.element.setAttribute("aria-selected", String(row === listing.cursor));
    target.element.dataset.row = row;
    if (row === listing.cursor) this.frame.setAttribute("aria-activedescendant", target.element.id);
    cells.cause.textContent = c.sign(row);
    cells.number.textContent = String(row + 1);
    cells.glyph.textContent = folded ? "" : status.glyph;
    cells.glyph.title = `${status.word}: ${status.meaning}`;
    const [left, right] = folded ? [[[listing.foldText(row, folded), false]], []] : this.narrow.matches ? names.merged : [names.a, names.b];
    this.write(cells.a, target.a, left, c.key("A", row));
    this.write(cells.b, target.b, right, c.key("B", row));
    cells.between.hidden = !this.narrow.matches || right.length === 0;
    cells.via.textContent = folded ? "" : c.via(row);
    cells.error.textContent = folded ? "" : c.errorText(row);
    cells.eps.textContent = folded ? "" : c.units(row);
    cells.shape.textContent = folded ? "" : `${c.shared("shapes", "shape", row)} ${c.shared("dtypes", "dtype", row)}`;
    target.bar.style.setProperty("--heat", status.red || status.label === "close" ? this.heat(c.error(row)) : 0);
  }

  /** A name into its cell, which shows its end, or its beginning where else no part that differs would be seen. */
  write(cell, holder, pieces, title) {
    holder.replaceChildren(...marked(pieces));
    cell.title = title;
    let after = 0, last = 0;
    for (const [text, differs] of pieces) { after += text.length; if (differs) last = after; }
    cell.classList.toggle("start", last > 0 && after - last >= this.characters);
    cell.classList.toggle("ditto", holder.textContent === DITTO);
  }

  /** Characters that a name has room for. */
  measure() {
    const { a, names } = this.pool[0]?.cells ?? {}, size = a ? parseFloat(getComputedStyle(a).fontSize) : 0;
    const width = this.narrow.matches ? names?.clientWidth / 2 : a?.clientWidth;
    this.characters = size ? Math.floor(width / (0.61 * size)) : Infinity;
  }

  /** The place of an error on the colour scale, 0 to 1. */
  heat(error) {
    if (!(error > 0)) return 0;
    const exponent = error === Infinity ? this.high : Math.log10(error);
    return Math.min(Math.max((exponent - this.low) / Math.max(this.high - this.low, 1e-9), 0), 1);
  }

  setScale(low, high) {
    this.low = low;
    this.high = high;
    this.draw();
  }
}
