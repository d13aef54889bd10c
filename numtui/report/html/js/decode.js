/* Reads the block that columns.py writes: gzip of a head and of arrays of small integers. */

const TYPES = { int8: Int8Array, uint8: Uint8Array, int16: Int16Array, int32: Int32Array, float32: Float32Array, float64: Float64Array };
const ABSENT = 127, NAN = 126, INF = 125, NEGATIVE_INF = 124;

/** The head and the arrays by name, of base64. */
async function readBlock(text) {
  const characters = atob(text);
  const packed = new Uint8Array(characters.length);
  for (let i = 0; i < packed.length; i++) packed[i] = characters.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const size = new DataView(bytes.buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size)));
  const arrays = {};
  let offset = 4 + size;
  for (const entry of head.arrays) {
    arrays[entry.name] = readArray(entry, bytes, offset, arrays);
    offset += entry.length * arrays[entry.name].BYTES_PER_ELEMENT;
  }
  for (const side of "AB") restoreInputs(side, head.rows, arrays);
  return { head, arrays };
}

/** One array: its bytes put together, then the differences added up. */
function readArray({ type, length, base, rising }, bytes, offset, arrays) {
  const out = new TYPES[type](length), width = out.BYTES_PER_ELEMENT;
  const raw = new Uint8Array(out.buffer);
  for (let place = 0; place < width; place++) {
    const from = offset + place * length;
    for (let i = 0; i < length; i++) raw[i * width + place] = bytes[from + i];
  }
  // An overflowing sum wraps around, as the difference did.
  if (base) for (let i = 0, of = arrays[base]; i < length; i++) out[i] += of[i];
  if (rising) for (let i = 1; i < length; i++) out[i] += out[i - 1];
  return out;
}

/** The start of each row's inputs, their producers, and their numbers, stored relative to the producers' outputs. */
function restoreInputs(side, rows, arrays) {
  const count = arrays[`inputs${side}`], maker = arrays[`maker${side}`];
  const digits = arrays[`input${side}.digits`], exponent = arrays[`input${side}.exponent`];
  const madeDigits = arrays[`output${side}.digits`], madeExponent = arrays[`output${side}.exponent`];
  const start = startsOf(count);
  for (let row = 0; row < rows; row++) {
    for (let k = start[row]; k < start[row + 1]; k++) {
      maker[k] = maker[k] ? row - maker[k] : -1;
      if (maker[k] < 0) continue;
      digits[k] += madeDigits[maker[k]];
      exponent[k] += madeExponent[maker[k]];
    }
  }
  arrays[`start${side}`] = start;
}

/** The start of each row's items, of their counts. */
function startsOf(counts) {
  const start = new Int32Array(counts.length + 1);
  for (let row = 0; row < counts.length; row++) start[row + 1] = start[row] + counts[row];
  return start;
}

/** A number as in the log, to seven digits; empty for none. */
function numberText(digits, exponent) {
  if (exponent >= NEGATIVE_INF) return { [ABSENT]: "", [NAN]: "nan", [INF]: "inf", [NEGATIVE_INF]: "-inf" }[exponent];
  const all = String(Math.abs(digits)).padStart(7, "0");
  const power = String(Math.abs(exponent)).padStart(2, "0");
  return `${digits < 0 ? "-" : ""}${all[0]}.${all.slice(1)}e${exponent < 0 ? "-" : "+"}${power}`;
}

/** The same as a number; NaN for none. */
function numberValue(digits, exponent) {
  if (exponent >= NEGATIVE_INF) return { [INF]: Infinity, [NEGATIVE_INF]: -Infinity }[exponent] ?? NaN;
  return Number(`${digits}e${exponent - 6}`);
}

/** `1.2e-03`, as everywhere in numtui. */
function short(number, digits = 1) {
  return number.toExponential(digits).replace(/e([+-])(\d)$/, "e$10$2");
}

/** |x − y| over the scale, by default the larger magnitude, as text; empty where one side has none. */
function differenceText(x, y, scale = NaN) {
  if (x === "" || y === "") return "";
  if (x === y) return "0";
  const a = Number(x), b = Number(y), by = Number.isNaN(scale) ? Math.max(Math.abs(a), Math.abs(b)) : scale;
  const difference = Math.abs(a - b) / by;
  return Number.isFinite(difference) ? short(difference) : "≠";
}

/** `≥1.2e-3`, `≈1.2e-3`, `0`, `∞`; empty where nothing was compared. */
function errorText(error, isBound) {
  if (Number.isNaN(error)) return "";
  if (error === Infinity) return "∞";
  return error === 0 ? "0" : `${isBound ? "≥" : "≈"}${short(error)}`;
}

/** The same in units of ε: `9.5`, `147`, `2e6`; empty where meaningless. */
function unitsText(error, epsilon) {
  const n = error / epsilon;
  if (!Number.isFinite(n) || n === 0) return "";
  return n < 10 ? n.toFixed(1) : n < 1e5 ? Number(n.toFixed(0)).toLocaleString("en-US") : short(n, 0).replace("e+0", "e");
}
