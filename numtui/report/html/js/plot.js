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
    this.ground = document.createElement("canvas");
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

  /** The static part, drawn once per size and theme. */
  draw() {
    const { canvas, ground } = this, ratio = devicePixelRatio || 1;
    [this.width, this.height] = [canvas.clientWidth, canvas.clientHeight];
    if (!this.width) return;
    for (const each of [canvas, ground]) [each.width, each.height] = [this.width * ratio, this.height * ratio];
    const pen = ground.getContext("2d"), styles = getComputedStyle(document.documentElement);
    const colour = (name) => styles.getPropertyValue(`--${name}`).trim();
    pen.scale(ratio, ratio);
    this.axes(pen, colour);
    this.dots(pen, colour);
    this.causes(pen, colour);
    this.mark = colour("alone");
    this.point(this.cursor);
  }

  /** One dot for all rows at the same place: a million rows are as quick as a thousand. */
  dots(pen, colour) {
    const { c } = this, taken = new Uint8Array(this.width * this.height);
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
  }

  causes(pen, colour) {
    const { c } = this;
    pen.fillStyle = colour("cause");
    for (let row = 0; row < c.length; row++) {
      if (!c.isCause(row)) continue;
      pen.beginPath();
      pen.arc(this.x(row), c.error(row) > 0 ? this.y(c.error(row)) : this.height - 7, 3.5, 0, 7);
      pen.fill();
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

  /** Each phase has its own background, and its name where there is room. */
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

  /** Shows where the cursor is. */
  point(row) {
    this.cursor = row;
    if (!this.width) return;
    const pen = this.canvas.getContext("2d"), ratio = this.canvas.width / this.width;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    pen.drawImage(this.ground, 0, 0);
    if (row < 0) return;
    pen.fillStyle = this.mark;
    pen.fillRect(this.x(row) * ratio, 0, ratio, this.canvas.height);
  }
}
