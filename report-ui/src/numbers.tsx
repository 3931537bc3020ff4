// How far results are off: per output, and how the differences are distributed.
import * as Plot from "@observablehq/plot";
import { Chart } from "./chart";
import type { Accuracy, Data } from "./data";
import { count, fixed, scientific, shown } from "./format";
import { Name, Section } from "./parts";
import { Table, type Column } from "./table";

type Output = Accuracy["outputs"][number] & { model: string; target: string };
const LEAST = -12;

export function NumbersSection({ data }: { data: Data }) {
  const rows: Output[] = data.accuracies.flatMap((each) =>
    each.outputs.map((output) => ({ ...output, model: each.model, target: each.target })),
  );
  const columns: Column<Output>[] = [
    { title: "Model", value: (row) => row.model, cell: (row) => <Name text={row.model} />, wide: true },
    { title: "Target", value: (row) => row.target, cell: (row) => shown(row.target, 60) },
    { title: "Output", value: (row) => row.path, cell: (row) => <code>{shown(row.path, 200) || "result"}</code> },
    {
      title: "Within tolerance",
      value: (row) => (row.ok ? "yes" : "no"),
      cell: (row) => <span class={`status ${row.ok ? "ok" : "failed"}`}>{row.ok ? "✓ yes" : "✕ no"}</span>,
    },
    { title: "PCC", value: (row) => row.pcc, cell: (row) => fixed(row.pcc, 6), numeric: true },
    { title: "Largest difference", value: (row) => row.max_absolute, cell: (row) => scientific(row.max_absolute), numeric: true },
    { title: "Relative", value: (row) => row.max_relative, cell: (row) => scientific(row.max_relative), numeric: true },
    { title: "Why not", value: (row) => row.detail, cell: (row) => shown(row.detail) || "-", wide: true },
  ];
  const histograms = data.accuracies.flatMap((each) =>
    each.histograms.map((histogram) => ({ ...histogram, model: each.model, target: each.target })),
  );
  return (
    <>
      <Section title="Outputs compared with eager torch" id="outputs-title">
        <Table id="outputs" label="outputs" columns={columns} rows={rows} />
      </Section>
      {histograms.length > 0 && (
        <Section title="How large the differences are" id="histograms-title">
          <div class="charts">
            {histograms.slice(0, 24).map((each) => (
              <Differences histogram={each} title={`${shown(each.model, 60)} on ${shown(each.target, 40)}: ${shown(each.path, 60) || "result"}`} />
            ))}
          </div>
          {histograms.length > 24 && <p class="faint">and {count(histograms.length - 24)} more outputs: the table has them</p>}
        </Section>
      )}
    </>
  );
}

function Differences({ histogram, title }: { histogram: Accuracy["histograms"][number]; title: string }) {
  const decades = histogram.decades.map((times, place) => ({ decade: LEAST + place, times }));
  const first = decades.findIndex((each) => each.times > 0);
  const rows = [
    ...(histogram.zero ? [{ name: "0", times: histogram.zero }] : []),
    ...(first < 0 ? [] : decades.slice(first)).map((each) => ({ name: `≤1e${each.decade}`, times: each.times })),
    ...(histogram.not_finite ? [{ name: "not finite", times: histogram.not_finite }] : []),
  ];
  return (
    <Chart
      label={title}
      deps={[histogram]}
      options={(width) => ({
        height: 210,
        marginLeft: 56,
        marginBottom: 44,
        x: { domain: rows.map((row) => row.name), label: null, tickRotate: rows.length > width / 50 ? -45 : 0 },
        y: { label: "elements", grid: true, tickFormat: "~s" },
        marks: [
          Plot.barY(rows, { x: "name", y: "times", fill: (row) => (row.name === "0" ? "var(--good)" : "var(--accent)"), tip: { fill: "var(--card)" } }),
          Plot.ruleY([0]),
        ],
      })}
    />
  );
}
