// What the page shows, as src/torchport/report/page_data.py writes it.

export type Cell = [text: string, value: string | number | boolean | null];
export interface Row {
  model: string;
  target: string;
  status: "ok" | "inaccurate" | "failed";
  speedup: number | string | null;
  complaint: string;
  cells: Cell[];
}
export interface Group {
  op: string;
  reason: string;
  detail: string;
  remedy: string;
  count: number;
  flops: number;
  bytes: number;
  node: string;
  places: [string, string][];
  more: number;
}
export interface Coverage {
  model: string;
  target: string;
  ops: [number, number];
  flops: [number, number];
  bytes: [number, number];
  islands: number;
  transfers: number;
  groups: Group[];
}
export interface Tries {
  model: string;
  chosen: string;
  objective: string;
  seconds: number | string | null;
  columns: { title: string; numeric: boolean }[];
  rows: Cell[][];
}
export interface Accuracy {
  model: string;
  target: string;
  outputs: {
    path: string;
    ok: boolean;
    pcc: number | string;
    max_absolute: number | string;
    max_relative: number | string;
    detail: string;
  }[];
  histograms: { path: string; zero: number; decades: number[]; not_finite: number }[];
}
export interface QuantizedLayer {
  name: string;
  op: string;
  precision: string;
  reason: string;
  sqnr_isolated: number | string | null;
  sqnr: number | string | null;
  pcc: number | string | null;
  clipped: number | string | null;
  seconds_float: number | string | null;
  seconds: number | string | null;
}
export interface Quantization {
  model: string;
  method: string;
  target: string;
  layers: QuantizedLayer[];
  judged_on: number;
  pcc: number | string | null;
  score_float: number | string | null;
  score: number | string | null;
  bytes_float: number;
  bytes: number;
  seconds_float: number | string | null;
  seconds: number | string | null;
  note: string;
}
export interface SurveyModel {
  model: string;
  status: string;
  error: string;
  forward: [number | null, number | null];
  backward: [number | null, number | null];
  graphs: number;
  flops: number;
  seconds: number | string | null;
  memory: number | null;
}
export interface Survey {
  models: SurveyModel[];
  ops: { op: string; forward: [number, number] | null; backward: [number, number] | null; flops: number }[];
  sizes: Record<string, Record<"input" | "output", [number, number][]>>;
  arguments: Record<string, Record<string, [string, number | null][]>>;
  usage: [number, number, number][];
}
export interface GraphEntry {
  block: number;
  run: string;
  model: string;
  target: string;
  view: "written" | "aten";
  ops: number;
}
export interface Action {
  text: string;
  detail: string;
  models: number;
  model: string;
  target: string;
  node: string;
}
export interface Change {
  model: string;
  target: string;
  what: string;
  before: string;
  now: string;
  kind: "better" | "worse" | "new" | "gone";
}
export interface Data {
  title: string;
  columns: { title: string; explanation: string; numeric: boolean }[];
  rows: Row[];
  tries: Tries[];
  coverages: Coverage[];
  accuracies: Accuracy[];
  quantizations: Quantization[];
  problems: [string, string][];
  survey: Survey | null;
  analyses: { block: number; model: string }[];
  graphs: GraphEntry[];
  actions: Action[];
  changes: Change[] | null;
  grounds: string[];
}

export interface Analysis {
  class: string;
  backward: boolean;
  flops: number;
  vector: number;
  bytes: number;
  parameters: number;
  parameterBytes: number;
  totalBytes: number;
  uncounted: Record<string, number>;
  note: string;
  peak: { bytes: number; step: number; op: string; module_path: string; phase: string; estimated_because: string } | null;
  timeline: [number, number][];
  modules: {
    path: string;
    class: string;
    calls: number;
    shapes: string;
    parameters: number;
    flops: number;
    bytes: number;
    peak: number;
  }[];
  uniqueModules: {
    class: string;
    inputs: string;
    outputs: string;
    parameters: [string, string][];
    count: number;
    calls: number;
    path: string;
  }[];
  uniqueOps: {
    op: string;
    overload: string;
    phase: string;
    tensors: [string, string][];
    attributes: [string, string][];
    count: number;
    flops: number;
    bytes: number;
    path: string;
    name: string;
  }[];
}

export type Kind = [
  op: string,
  attributes: [string, string][],
  inputs: [string, string][],
  outputs: string[],
  flops: number,
  bytes: number,
];
export interface GraphData {
  modules: [path: string, cls: string][];
  lines: string[];
  islands: string[];
  verdicts: [reason: string, detail: string, remedy: string][];
  kinds: Kind[];
  names: string[];
  kind: number[];
  module: number[];
  line: number[];
  island: number[];
  verdict: number[];
  sources: number[][];
  measures: Record<string, (number | null)[]>;
}

const blocks = new Map<number, Promise<unknown>>();

/** Returns a part of the data, which the page holds as compressed JSON. */
export function loadBlock<T>(number: number): Promise<T> {
  let found = blocks.get(number);
  if (!found) blocks.set(number, (found = unpack(number)));
  return found as Promise<T>;
}

async function unpack(number: number): Promise<unknown> {
  const text = document.getElementById(`data-${number}`)!.textContent!;
  const packed = Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}

/** Whether two names are of one model: the file's function is named with one colon or two. */
export function sameModel(one: string, other: string): boolean {
  return one.replace("::", ":") === other.replace("::", ":");
}
