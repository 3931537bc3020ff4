// What quantizing a model cost: layer by layer, the worst first.
import * as Plot from "@observablehq/plot";
import { Chart } from "./chart";
import type { Data, Quantization, QuantizedLayer } from "./data";
import { bytes, fixed, plural, scientific, shown } from "./format";
import { Facts, Name, Section } from "./parts";
import { Table, type Column } from "./table";

const MOST = 40; // layers that a chart shows

export function QuantizationSection({ data }: { data: Data }) {
  return (
    <>
      {data.quantizations.map((each, place) => (
        <Section title={`${shown(each.model, 80)}, ${each.method} for ${shown(each.target, 40)}`} id={`quantized-${place}`}>
          <Facts facts={facts(each)} />
          <Losses quantization={each} />
          <Table id={`layers-${place}`} label="layers" columns={COLUMNS} rows={each.layers} />
        </Section>
      ))}
    </>
  );
}

function facts(each: Quantization): [string, string][] {
  const found: [string, string][] = [["Weights", `${bytes(each.bytes_float)} → ${bytes(each.bytes)}`]];
  if (each.pcc !== null) found.push(["PCC of the results", `${fixed(each.pcc, 6)}, on ${plural(each.judged_on, "item")} held back`]);
  if (each.score !== null && each.score_float !== null)
    found.push(["Score", `${scientific(each.score_float)} → ${scientific(each.score)}`]);
  if (typeof each.seconds === "number" && typeof each.seconds_float === "number")
    found.push(["A call", `${(1e3 * each.seconds_float).toPrecision(3)} → ${(1e3 * each.seconds).toPrecision(3)} ms`]);
  if (each.note) found.push(["Note", shown(each.note)]);
  return found;
}

const decibels = (value: number | string | null): string =>
  value === null ? "-" : typeof value === "number" ? `${value.toFixed(1)} dB` : "no error";
const milliseconds = (value: number | string | null): string => (typeof value === "number" ? (1e3 * value).toPrecision(3) : "-");
const COLUMNS: Column<QuantizedLayer>[] = [
  { title: "Layer", value: (row) => row.name, cell: (row) => <Name text={row.name} />, wide: true },
  { title: "Op", value: (row) => row.op, cell: (row) => shown(row.op, 60) },
  { title: "Precision", value: (row) => row.precision, cell: (row) => row.precision },
  { title: "Why", value: (row) => row.reason, cell: (row) => (row.reason === "default" ? "-" : row.reason) },
  { title: "SQNR alone", value: (row) => row.sqnr_isolated, cell: (row) => decibels(row.sqnr_isolated), numeric: true },
  { title: "SQNR", value: (row) => row.sqnr, cell: (row) => decibels(row.sqnr), numeric: true },
  { title: "PCC", value: (row) => row.pcc, cell: (row) => (row.pcc === null ? "-" : fixed(row.pcc, 5)), numeric: true },
  {
    title: "Clipped",
    value: (row) => row.clipped,
    cell: (row) => (typeof row.clipped === "number" ? `${(100 * row.clipped).toFixed(2)}%` : "-"),
    numeric: true,
  },
  { title: "ms before", value: (row) => row.seconds_float, cell: (row) => milliseconds(row.seconds_float), numeric: true },
  { title: "ms after", value: (row) => row.seconds, cell: (row) => milliseconds(row.seconds), numeric: true },
];

function Losses({ quantization }: { quantization: Quantization }) {
  const known = quantization.layers.filter((row) => typeof row.sqnr === "number" || typeof row.sqnr_isolated === "number");
  if (known.length < 2) return null;
  const worst = known.slice(0, MOST);
  const points = worst.flatMap((row) => [
    { layer: row.name, sqnr: row.sqnr_isolated, what: "alone" },
    { layer: row.name, sqnr: row.sqnr, what: "with all before it" },
  ]);
  return (
    <Chart
      label={`Signal to quantization noise, ${known.length > MOST ? `the worst ${MOST} of ${known.length} layers` : "by layer"}`}
      deps={[quantization]}
      options={(width) => ({
        height: 80 + 18 * worst.length,
        marginLeft: Math.min(220, width / 2.5),
        marginBottom: 44,
        x: { label: "SQNR in decibels: more is better", grid: true, zero: true },
        y: { domain: worst.map((row) => row.name), label: null, tickFormat: (name: string) => shown(name, 32) },
        symbol: { legend: true, domain: ["alone", "with all before it"] },
        color: { domain: ["alone", "with all before it"], range: ["var(--accent)", "var(--bad)"] },
        marks: [
          Plot.dot(
            points.filter((point) => typeof point.sqnr === "number"),
            { x: "sqnr", y: "layer", symbol: "what", stroke: "what", tip: { fill: "var(--card)" } },
          ),
        ],
      })}
    />
  );
}
