// What a box's colour says, with a sign or a bar that says the same.
import type { GraphData } from "../data";
import { bytes, flops, percent, plural, shown } from "../format";
import type { Box } from "./tree";

export interface Paint {
  style: string; // a CSS class
  heat: number; // from 0 to 1, for costs
  sign: string; // the second cue
  text: string; // the same in words
}
export interface Colouring {
  id: string;
  title: string;
  paint: (box: Box) => Paint;
  legend: { style: string; sign: string; text: string }[];
}

const PLAIN: Paint = { style: "", heat: 0, sign: "", text: "" };

/** Returns the ways to colour a graph that it has data for. */
export function colourings(graph: GraphData, target: string, other: GraphData | null): Colouring[] {
  const found: Colouring[] = [];
  if (other) found.push(byDifference(graph, other));
  if (graph.islands.length || graph.verdicts.length) found.push(byPlace(graph, target));
  const cost = (id: string, title: string, of: (op: number) => number, write: (value: number) => string) => {
    const values = graph.names.map((_, op) => of(op));
    const whole = values.reduce((sum, value) => sum + value, 0);
    if (whole > 0) found.push(byCost(id, title, values, whole, write));
  };
  cost("flops", "FLOPs", (op) => graph.kinds[graph.kind[op]!]![4], flops);
  cost("bytes", "Bytes moved", (op) => graph.kinds[graph.kind[op]!]![5], bytes);
  for (const [name, values] of Object.entries(graph.measures)) {
    const memory = name === "memory";
    cost(name, memory ? "Memory allocated" : shown(name, 40), (op) => values[op] ?? 0, memory ? bytes : (value) => value.toPrecision(3));
  }
  found.push(byPrecision(graph));
  return found;
}

function byPlace(graph: GraphData, target: string): Colouring {
  const name = shown(target, 40);
  return {
    id: "place",
    title: "Target or host",
    paint: (box) => {
      const stays = box.ops.filter((op) => graph.island[op]! < 0).length;
      if (!stays) return { style: "taken", heat: 0, sign: "", text: `on ${name}` };
      if (stays === box.ops.length) return { style: "stays", heat: 0, sign: "⌂", text: "on the host" };
      return { style: "mixed", heat: 0, sign: `⌂ ${stays}`, text: `${plural(stays, "op")} of ${box.ops.length} on the host` };
    },
    legend: [
      { style: "taken", sign: "", text: `on ${name}` },
      { style: "mixed", sign: "⌂ 2", text: "some on the host" },
      { style: "stays", sign: "⌂", text: "on the host" },
    ],
  };
}

function byCost(id: string, title: string, values: number[], whole: number, write: (value: number) => string): Colouring {
  return {
    id,
    title,
    paint: (box) => {
      const sum = box.ops.reduce((all, op) => all + values[op]!, 0);
      const text = `${write(sum)}, ${percent(sum, whole)}`;
      return { style: "cost", heat: Math.sqrt(sum / whole), sign: sum ? percent(sum, whole) : "", text };
    },
    legend: [{ style: "cost", sign: "%", text: `share of ${title}: the darker, the more` }],
  };
}

const PRECISIONS: [string, RegExp][] = [
  ["f64", /^(float64|complex128)/],
  ["f32", /^(float32|complex64)/],
  ["f16", /^(float16|bfloat16|complex32)/],
  ["f8", /^float8/],
  ["int", /^(u?int|bool|q)/],
];

function byPrecision(graph: GraphData): Colouring {
  const dtypes = graph.kinds.map((kind) => (kind[3][0] ?? "").split("[")[0]!);
  return {
    id: "precision",
    title: "Precision",
    paint: (box) => {
      const names = new Set(box.ops.map((op) => dtypes[graph.kind[op]!]!));
      const name = names.size === 1 ? [...names][0]! : "mixed";
      const style = PRECISIONS.find(([, pattern]) => pattern.test(name))?.[0] ?? "mixed";
      return { style: `precision-${style}`, heat: 0, sign: name.replace("float", "f").replace("bfloat", "bf").slice(0, 8), text: name };
    },
    legend: [
      ...PRECISIONS.map(([name]) => ({ style: `precision-${name}`, sign: name, text: "" })),
      { style: "precision-mixed", sign: "", text: "several" },
    ],
  };
}

/** Returns what an op is found again by in another run of the model. */
export function opKey(graph: GraphData, op: number): string {
  return `${graph.modules[graph.module[op]!]![0]}#${graph.names[op]}`;
}

const SIGNS = { same: "", taken: "▲ taken", stays: "▼ stays", changed: "≠ changed", only: "＋ only here" };
type Difference = keyof typeof SIGNS;

function byDifference(graph: GraphData, other: GraphData): Colouring {
  const theirs = new Map(other.names.map((_, op) => [opKey(other, op), op]));
  const differences = graph.names.map((_, op): Difference => {
    const match = theirs.get(opKey(graph, op));
    if (match === undefined) return "only";
    if (graph.island[op]! >= 0 !== other.island[match]! >= 0) return graph.island[op]! >= 0 ? "taken" : "stays";
    const [mine, its] = [graph.kinds[graph.kind[op]!]!, other.kinds[other.kind[match]!]!];
    return JSON.stringify(mine) === JSON.stringify(its) ? "same" : "changed";
  });
  return {
    id: "difference",
    title: "Difference",
    paint: (box) => {
      const counts = new Map<Difference, number>();
      for (const op of box.ops) counts.set(differences[op]!, (counts.get(differences[op]!) ?? 0) + 1);
      counts.delete("same");
      if (!counts.size) return { ...PLAIN, text: "the same in both" };
      const [[most]] = [...counts].sort((one, two) => two[1] - one[1]) as [[Difference, number]];
      const sign = box.kind === "op" ? SIGNS[most] : [...counts].map(([name, times]) => `${SIGNS[name].split(" ")[0]}${times}`).join(" ");
      return { style: `difference-${most}`, heat: 0, sign, text: [...counts].map(([name, times]) => `${times} ${SIGNS[name].slice(2)}`).join(", ") };
    },
    legend: (Object.keys(SIGNS) as Difference[]).slice(1).map((name) => ({ style: `difference-${name}`, sign: SIGNS[name], text: "" })),
  };
}
