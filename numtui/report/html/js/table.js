/* The list: only visible lines are in the page. */

const ROW_HEIGHT = 20;
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
    const heads = ["", "row", "", `a: ${this.c.names[0]}`, `b: ${this.c.names[1]}, where it differs`, "via", "error", "", "ε", "shape"];
    document.getElementById("heads").append(...heads.map((text) => element("span", {}, text)));
  }

  get height() { return this.listing.lines.length * ROW_HEIGHT; }
  get room() { return Math.max(Math.floor(this.frame.clientHeight / ROW_HEIGHT), 1); }

  /** Lines map to pixels, scaled down for lists too long for the scroll bar. */
  get scale() { return Math.max(this.height / TALLEST, 1); }
  get top() { return this.frame.scrollTop * this.scale; }

  /** Scrolls as little as is needed for the cursor to be seen; with `where` (0 to 1) to that part of the frame. */
  reveal(where = null) {
    this.space.style.height = `${this.height / this.scale}px`;
    const y = this.listing.lineOf(this.listing.cursor) * ROW_HEIGHT, seen = this.frame.clientHeight - ROW_HEIGHT;
    if (where === null && y >= this.top && y <= this.top + seen) { this.draw(); return; }
    // A step scrolls by as little as it takes; after a jump the row has others before and behind it.
    const near = y > this.top - 2 * ROW_HEIGHT && y < this.top + seen + 2 * ROW_HEIGHT;
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
    const { lines } = this.listing;
    this.space.style.height = `${this.height / this.scale}px`;
    const first = Math.max(Math.floor(this.top / ROW_HEIGHT) - 2, 0);
    const last = Math.min(first + this.room + 5, lines.length);
    while (this.pool.length < last - first) this.pool.push(this.makeRow());
    const offset = this.frame.scrollTop - this.top;
    this.pool.forEach((row, i) => {
      const line = first + i;
      row.element.hidden = line >= last;
      if (line >= last) return;
      row.element.style.transform = `translateY(${line * ROW_HEIGHT + offset}px)`;
      this.fill(row, line);
    });
    this.frame.setAttribute("aria-rowcount", String(lines.length));
  }

  makeRow() {
    const cell = (className, ...children) => element("span", { className }, ...children);
    const a = element("bdi"), b = element("bdi"), bar = element("i");
    const cells = {
      cause: cell("cause"), number: cell("number"), glyph: cell("glyph"), a: cell("key", a), b: cell("key", b), via: cell("via dim"),
      error: cell("error"), bar: cell("bar", bar), eps: cell("eps"), shape: cell("shape"),
    };
    const row = { element: element("div", { className: "row" }, ...Object.values(cells)), cells, a, b, bar, row: -1 };
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
    const status = c.status(row), a = c.key("A", row), b = c.key("B", row);
    target.row = row;
    target.element.className = `row ${folded ? "plain" : status.style}`;
    target.element.classList.toggle("chosen", row === listing.cursor);
    target.element.classList.toggle("hit", Boolean(listing.hits?.(row)));
    target.element.setAttribute("aria-rowindex", String(line + 1));
    target.element.setAttribute("aria-selected", String(row === listing.cursor));
    target.element.dataset.row = row;
    if (row === listing.cursor) this.frame.setAttribute("aria-activedescendant", target.element.id);
    cells.cause.textContent = c.isCause(row) ? "●" : c.isFirst(row) ? "○" : c.notes[row] ? "✎" : "";
    cells.number.textContent = String(row + 1);
    cells.glyph.textContent = folded ? "" : status.glyph;
    cells.glyph.title = `${status.label}: ${status.meaning}`;
    target.a.textContent = folded ? `… ${folded.toLocaleString("en")} equal …` : a || "—";
    // One key for both sides has the room of both.
    cells.b.hidden = a === b || folded > 0;
    cells.a.classList.toggle("both", cells.b.hidden);
    target.b.textContent = b || (status.label === "recompute" ? "(recompute)" : "—");
    cells.a.title = a;
    cells.b.title = b;
    cells.via.textContent = folded ? "" : c.via(row);
    cells.error.textContent = folded ? "" : c.errorText(row);
    cells.eps.textContent = folded ? "" : c.units(row);
    cells.shape.textContent = folded ? "" : `${c.shared("shapes", "shape", row)} ${c.shared("dtypes", "dtype", row)}`;
    target.bar.style.setProperty("--heat", status.red || status.label === "close" ? this.heat(c.error(row)) : 0);
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
