// How numbers and names are written for a person.

export function quantity(value: number, unit = "", base = 1000): string {
  const infix = base === 1024 ? "i" : "";
  const prefixes = ["", "K", "M", "G", "T", "P"];
  let place = 0;
  while (Math.abs(value) >= base && place < prefixes.length - 1) {
    value /= base;
    place += 1;
  }
  const number = place ? value.toFixed(1) : Number.isInteger(value) ? String(value) : value.toPrecision(3);
  const suffix = `${prefixes[place]}${place ? infix : ""}${unit}`;
  return suffix ? `${number} ${suffix}` : number;
}

export const bytes = (value: number): string => quantity(value, "B", 1024);
export const flops = (value: number): string => quantity(value, "FLOPs");
export const count = (value: number): string => value.toLocaleString("en");
export const plural = (number: number, noun: string): string => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

export function percent(part: number, whole: number): string {
  if (!whole) return "-";
  const share = (100 * part) / whole;
  return `${share >= 99.95 || share === 0 ? share.toFixed(0) : share.toFixed(1)}%`;
}

/** Returns a number of a record, in which those that JSON has no form for are texts. */
export function scientific(value: number | string): string {
  if (typeof value === "string") return value;
  return value === 0 ? "0" : Math.abs(value) < 1e-3 || Math.abs(value) >= 1e5 ? value.toExponential(2) : value.toPrecision(4);
}

/** Returns a number with so many digits behind the point; one that JSON has no form for is a text. */
export function fixed(value: number | string, digits: number): string {
  return typeof value === "number" ? value.toFixed(digits) : shown(String(value), 40);
}

/** Returns a text without signs that would turn or hide what stands around it, and not too long. */
export function shown(text: string, longest = 400): string {
  const visible = text.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g, "\ufffd");
  return visible.length > longest ? `${visible.slice(0, longest - 20)}…${visible.slice(-19)}` : visible;
}

/** Returns an op without its namespace and overload: `convolution` of `aten.convolution.default`. */
export function shortOp(op: string): string {
  const parts = op.split(".");
  const name = parts.length >= 3 ? parts.slice(1, -1).join(".") : op;
  return parts[0] === "aten" ? name : op;
}
