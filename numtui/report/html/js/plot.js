/* Error over depth: every row from left to right, its error upwards on a logarithmic scale. */

const LOWEST = -9, HIGHEST = 0, MARGIN = 34, REACH = 4;

class Plot {
  constructor(comparison, go) {
    this.c = comparison;
    this.canvas = document.getElementById("plot");
    this.canvas.addEventListener("click", (event) => {
      const row = this.nearest(event.offsetX);
      if (row >= 0) go(row);
    });
    this.cursor = -1;
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  x(row) { return MARGIN + ((row + 0.5) / this.c.length) * (this.width - MARGIN); }

  y(error) {
    const exponent = error === Infinity ? HIGHEST : Math.min(Math.max(Math.log10(error), LOWEST), HIGHEST);
    return 8 + ((HIGHEST - exponent) / (HIGHEST - LOWEST)) * (this.height - 16);
  }

  /** The row with the largest error near a place; without any, the row at the place. */
  nearest(x) {
    if (!this.c.length) return -1;
    const at = (place) => Math.floor(((place - MARGIN) / (this.width - MARGIN)) * this.c.length);
    const clamp = (row) => Math.min(Math.max(row, 0), this.c.length - 1);
    let best = clamp(at(x)), size = 0;
    for (let row = clamp(at(x - REACH)); row <= clamp(at(x + REACH)); row++) {
      if (this.c.isCause(row)) return row;
      if (this.c.error(row) > size) { size = this.c.error(row); best = row; }
    }
    return best;
  }

  draw() {
    const { canvas, c } = this, ratio = devicePixelRatio || 1;
    [this.width, this.height] = [canvas.clientWidth, canvas.clientHeight];
    if (!this.width) return;
    canvas.width = this.width * ratio;
    canvas.height = this.height * ratio;
    const pen = canvas.getContext("2d"), styles = getComputedStyle(document.documentElement);
    const colour = (name) => styles.getPropertyValue(`--${name}`).trim();
    pen.scale(ratio, ratio);
    this.axes(pen, colour);
    // One dot for all rows that fall on the same place: a million rows are as quick as a thousand.
    const taken = new Uint8Array(this.width * this.height);
    for (const style of ["close", "red"]) {
      pen.fillStyle = colour(style);
      for (let row = 0; row < c.length; row++) {
        const error = c.arrays.error[row];
        if (!(error > 0) || c.status(row).style !== style) continue;
        const x = Math.floor(this.x(row)), y = Math.floor(this.y(error)), place = y * this.width + x;
        if (taken[place] === 1) continue;
        taken[place] = 1;
        pen.fillRect(x, y, 2, 2);
      }
    }
    pen.fillStyle = colour("cause");
    for (let row = 0; row < c.length; row++) {
      if (!c.isCause(row)) continue;
      pen.beginPath();
      pen.arc(this.x(row), c.error(row) > 0 ? this.y(c.error(row)) : this.height - 7, 3.5, 0, 7);
      pen.fill();
    }
    if (this.cursor >= 0) {
      pen.fillStyle = colour("alone");
      pen.fillRect(this.x(this.cursor), 0, 1, this.height);
    }
  }

  axes(pen, colour) {
    pen.font = "10px system-ui, sans-serif";
    pen.textBaseline = "middle";
    this.phases(pen, colour);
    for (let exponent = HIGHEST; exponent >= LOWEST; exponent -= 3) {
      const y = this.y(10 ** exponent);
      pen.fillStyle = colour("line");
      pen.fillRect(MARGIN, y, this.width, 1);
      pen.fillStyle = colour("dim");
      pen.fillText(exponent ? `1e${exponent}` : "1", 4, y);
    }
  }

  /** Every stretch of one phase has a ground of its own, and its name where there is room. */
  phases(pen, colour) {
    const { c } = this;
    for (let start = 0, end = 0; start < c.length; start = end) {
      const phase = c.phase(start);
      for (end = start + 1; end < c.length && c.phase(end) === phase; end++);
      const left = this.x(start), width = this.x(end) - left;
      if (phase !== "forward") { pen.fillStyle = colour("panel"); pen.fillRect(left, 0, width, this.height); }
      if (width > 60) { pen.fillStyle = colour("dim"); pen.fillText(phase, left + 4, 8); }
    }
  }

  point(row) {
    this.cursor = row;
    this.draw();
  }
}
