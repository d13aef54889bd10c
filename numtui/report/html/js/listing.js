/* The listed rows and the cursor: filters, order, folds, search, jumps. No DOM here. */

const FOLD_MIN = 3, JUMPS = 100;

class Listing {
  constructor(comparison) {
    this.c = comparison;
    this.shown = new Set(comparison.groupNames.keys());
    this.query = "";
    this.test = () => true;
    this.order = "dispatch";
    this.folded = false;
    this.opened = new Set();
    this.search = "";
    this.hits = null;
    this.back = [];
    this.forward = [];
    this.cursor = comparison.length ? 0 : -1;
    this.build();
  }

  /** Finds the lines anew: `lines` are rows, `folds` how many rows a line stands for (0: itself). */
  build(keepFolded = -1) {
    const { c, opened } = this, passing = [];
    const group = c.statuses.map((status) => status.group);
    for (let row = 0; row < c.length; row++) {
      if (opened.has(row) || (this.shown.has(group[c.arrays.status[row]]) && this.test(row))) passing.push(row);
    }
    this.passing = passing;
    if (this.order !== "dispatch") passing.sort(this.comparer());
    this.lines = Int32Array.from(passing);
    this.folds = new Int32Array(passing.length);
    if (this.folded && this.order === "dispatch") this.fold(keepFolded);
    this.lineOfRow = new Int32Array(c.length).fill(-1);
    for (let line = 0; line < this.lines.length; line++) this.lineOfRow[this.lines[line]] = line;
    this.ranked = null;
    this.find(this.search);
  }

  comparer() {
    const { error, confidence } = this.c.arrays;
    if (this.order === "confidence") {
      const doubt = (row) => (Number.isNaN(confidence[row]) ? 2 : confidence[row]);
      return (x, y) => doubt(x) - doubt(y) || x - y;
    }
    // Zero errors sort with the unknown ones: neither needs a look.
    const size = (row) => (this.tells(row) ? Math.min(error[row], Number.MAX_VALUE) : 0);
    return (x, y) => size(y) - size(x) || x - y;
  }

  /** One line for each long stretch; causes, opened rows and the cursor's are never folded away. */
  fold(keepFolded) {
    const lines = [], folds = [], { c } = this, open = this.cursor === keepFolded ? -1 : this.cursor;
    const stretch = (row) => (this.opened.has(row) || row === open ? -1 : c.arrays.stretch[row]);
    for (let at = 0; at < this.lines.length;) {
      const of = stretch(this.lines[at]);
      let end = at + 1;
      while (end < this.lines.length && stretch(this.lines[end]) === of) end++;
      if (of >= 0 && end - at >= FOLD_MIN) { lines.push(this.lines[at]); folds.push(end - at); at = end; continue; }
      for (; at < end; at++) { lines.push(this.lines[at]); folds.push(0); }
    }
    this.lines = Int32Array.from(lines);
    this.folds = Int32Array.from(folds);
  }

  /** What the `folded` rows are that stand in one line with `row`. */
  foldText(row, folded) {
    const { c } = this, of = c.arrays.stretch[row];
    if (!of) return `… ${folded.toLocaleString("en")} equal …`;
    const at = this.passing.indexOf(row), rows = this.passing.slice(at, at + folded);
    const [a, b] = ["A", "B"].map((side) => rows.filter((each) => c.arrays[`key${side}`][each] >= 0).length.toLocaleString("en"));
    return `… ${a} in a, ${b} in b: ${c.regions[of]} …`;
  }

  /** The line of a row; of a hidden row the last line before it, in order of dispatch. */
  lineOf(row) {
    const line = this.lineOfRow[row] ?? -1;
    if (line >= 0 || this.order !== "dispatch") return Math.max(line, 0);
    let low = 0, high = this.lines.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.lines[middle] <= row) low = middle + 1; else high = middle;
    }
    return Math.max(low - 1, 0);
  }

  /** After a change of the list the cursor stays on its row, or goes to the nearest line. */
  rebuild() {
    this.build(this.folds[this.lineOf(this.cursor)] ? this.cursor : -1);
    this.cursor = this.lines.length ? this.lines[this.lineOf(this.cursor)] : -1;
  }

  toggle(group) {
    if (!this.shown.delete(group)) this.shown.add(group);
    this.opened.clear();
    this.rebuild();
  }

  /** Throws an Error with a sentence for an invalid word. */
  setQuery(text) {
    this.test = parseQuery(text, this.c);
    this.query = text;
    this.opened.clear();
    this.rebuild();
  }

  setOrder(order) { this.order = order; this.rebuild(); }
  setFolded(folded) { this.folded = folded; this.opened.clear(); this.rebuild(); }

  move(by) { this.goLine(this.lineOf(this.cursor) + by); }

  /** To a line, folded or not. */
  goLine(line) {
    if (this.lines.length) this.cursor = this.lines[Math.min(Math.max(line, 0), this.lines.length - 1)];
  }

  /** To a row, which is revealed when it is hidden; remembered as a jump. */
  go(row) {
    if (row < 0 || row >= this.c.length) return;
    this.leave(row);
    this.show(row);
  }

  /** Remembers where a jump starts. */
  leave(row) {
    if (this.cursor < 0 || this.cursor === row) return;
    this.back.push(this.cursor);
    this.back.splice(0, this.back.length - JUMPS);
    this.forward = [];
  }

  show(row) {
    const line = this.lineOfRow[row];
    this.cursor = row;
    if (line < 0 || this.folds[line]) { this.opened.add(row); this.build(); }
  }

  jump(source, target) {
    const row = source.pop();
    if (row === undefined) return false;
    target.push(this.cursor);
    this.show(row);
    return true;
  }

  /** To the next (or previous) line whose row is wanted, around the end; false when there is none. */
  step(wanted, by) {
    const n = this.lines.length, start = n ? this.lineOf(this.cursor) : 0;
    let left = Math.abs(by), found = -1;
    for (let i = 1; i <= n && left; i++) {
      const line = (((start + Math.sign(by) * i) % n) + n) % n;
      if (wanted(this.lines[line])) { found = line; left--; }
    }
    if (found < 0) return false;
    this.go(this.lines[found]);
    return true;
  }

  /** Whether the row has an error that says something: memory read before a collective filled it has any. */
  tells(row) {
    const { error, status } = this.c.arrays;
    return error[row] > 0 && !this.c.statuses[status[row]].without_error;
  }

  /** To the next larger or smaller error; from a row without one, to the largest. */
  stepError(by) {
    const { error } = this.c.arrays;
    this.ranked ??= Array.from(this.lines).filter((row) => this.tells(row))
      .sort((x, y) => (error[x] === error[y] ? y - x : error[x] - error[y]));
    if (!this.ranked.length) return "no row has an error";
    const place = this.ranked.indexOf(this.cursor);
    const target = place < 0 ? this.ranked.length - 1 : place + by;
    if (target < 0 || target >= this.ranked.length) return `this is the ${by > 0 ? "largest" : "smallest"} error`;
    const { ranked } = this;
    this.go(ranked[target]);
    this.ranked = ranked;
    return "";
  }

  /** Searches the keys of the listed rows. */
  find(text) {
    this.search = text;
    this.hits = text ? keyContains(text, this.c) : null;
    this.hitCount = this.hits ? this.lines.reduce((n, row) => n + (this.hits(row) ? 1 : 0), 0) : 0;
  }

  /** Opens the fold under the cursor; false when there is none. */
  unfold() {
    const line = this.lineOf(this.cursor), count = this.folds[line];
    if (!count) return false;
    const start = this.cursor;
    for (let row = start, left = count; left && row < this.c.length; row++) {
      if (this.shown.has(this.c.status(row).group) && this.test(row)) { this.opened.add(row); left--; }
    }
    this.build();
    return true;
  }
}
