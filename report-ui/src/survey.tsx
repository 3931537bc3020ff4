// What ops the models of a survey use: how often, how large, with which arguments; and what failed.
import * as Plot from "@observablehq/plot";
import { useState } from "preact/hooks";
import { Chart } from "./chart";
import type { Survey, SurveyModel } from "./data";
import { bytes, count, fixed, percent, quantity, shortOp, shown } from "./format";
import { Choice, Name, Section, Tile } from "./parts";
import { Table, type Column } from "./table";

type Op = Survey["ops"][number];


export function SurveySection({ survey }: { survey: Survey }) {
  const failed = survey.models.filter((model) => model.status !== "ok");
  const ok = survey.models.length - failed.length;
  const sum = (side: "forward" | "backward") => survey.ops.reduce((all, op) => all + (op[side]?.[0] ?? 0), 0);
  const [chosen, setChosen] = useState(survey.ops.find((op) => survey.sizes[op.op])?.op ?? "");
  return (
    <>
      <div class="tiles">
        <Tile figure={`${count(ok)} / ${count(survey.models.length)}`} caption="models ok" kind={ok ? "good" : "bad"} />
        {failed.length > 0 && <Tile figure={count(failed.length)} caption="failed" kind="bad" />}
        {(["forward", "backward"] as const).map(
          (side) =>
            sum(side) > 0 && (
              <>
                <Tile figure={count(sum(side))} caption={`ops ${side}`} />
                <Tile figure={count(survey.ops.filter((op) => op[side]).length)} caption={`different ops ${side}`} />
              </>
            ),
        )}
      </div>
      {survey.ops.length > 0 && (
        <>
          <Section title="Ops by how often they appear" id="frequency-title">
            <Frequency survey={survey} />
            <Ops survey={survey} onChoose={setChosen} />
          </Section>
          {chosen && (
            <Section title="One op: sizes and arguments" id="op-title">
              <Choice
                label="Op"
                value={chosen}
                options={survey.ops.filter((op) => survey.sizes[op.op]).map((op) => [op.op, op.op])}
                onChange={setChosen}
              />
              <Sizes survey={survey} op={chosen} />
              <Arguments survey={survey} op={chosen} />
            </Section>
          )}
          {survey.usage.length > 0 && (
            <Section title="Models by ops" id="heat-title">
              <HeatMap survey={survey} />
            </Section>
          )}
        </>
      )}
      <Section title="Models" id="models-title">
        <Models survey={survey} />
      </Section>
      {failed.length > 0 && (
        <Section title="What failed, and why" id="failed-title">
          <ul class="card complaints">
            {failed.map((model) => (
              <li>
                <span class="status failed">✕ {shown(model.status, 40)}</span> <b>{shown(model.model)}</b>: {shown(model.error, 1000)}
              </li>
            ))}
          </ul>
        </Section>
      )}
    </>
  );
}

function Frequency({ survey }: { survey: Survey }) {
  const rows = survey.ops.slice(0, 25).flatMap((op) => [
    { op: shown(op.op, 36), pass: "forward", times: op.forward?.[0] ?? 0 },
    { op: shown(op.op, 36), pass: "backward", times: op.backward?.[0] ?? 0 },
  ]);
  return (
    <Chart
      label="How often the most frequent ops appear"
      deps={[survey]}
      options={(width) => ({
        marginLeft: Math.min(270, width * 0.45),
        height: 60 + 20 * Math.min(25, survey.ops.length),
        x: { label: null, grid: true },
        y: { label: null, domain: survey.ops.slice(0, 25).map((op) => shown(op.op, 36)) },
        color: { domain: ["forward", "backward"], range: ["var(--accent)", "var(--warn)"], legend: true },
        marks: [
          Plot.barX(rows, { x: "times", y: "op", fill: "pass", tip: { fill: "var(--card)" } }),
          Plot.ruleX([0]),
        ],
      })}
    />
  );
}

function Ops({ survey, onChoose }: { survey: Survey; onChoose: (op: string) => void }) {
  const whole = survey.ops.reduce((sum, op) => sum + op.flops, 0);
  const columns: Column<Op>[] = [
    {
      title: "Op",
      value: (op) => op.op,
      cell: (op) => (
        <button type="button" class="link" onClick={() => onChoose(op.op)}>
          <code>
            <Name text={op.op} longest={120} />
          </code>
        </button>
      ),
    },
    { title: "Forward", value: (op) => op.forward?.[0], numeric: true, explanation: "how often it appears in forward graphs" },
    { title: "In Models", value: (op) => op.forward?.[1], numeric: true, explanation: "in how many models' forward graphs" },
    { title: "Backward", value: (op) => op.backward?.[0], numeric: true, explanation: "how often it appears in backward graphs" },
    { title: "In Models (Backward)", value: (op) => op.backward?.[1], numeric: true, explanation: "in how many models' backward graphs" },
    { title: "FLOPs", value: (op) => op.flops, cell: (op) => percent(op.flops, whole), numeric: true, explanation: "its part of all FLOPs that are known" },
  ];
  return <Table id="survey-ops" label="ops" columns={columns} rows={survey.ops} />;
}

function Sizes({ survey, op }: { survey: Survey; op: string }) {
  const sides = survey.sizes[op];
  if (!sides) return <p class="empty">No sizes are known.</p>;
  const rows = (["input", "output"] as const).flatMap((side) =>
    sides[side].map(([power, times]) => ({ side, power, low: power ? 2 ** (power - 1) : 0, times })),
  );
  const powers = [...new Set(rows.map((row) => row.power))];
  const range = Array.from({ length: Math.max(...powers) - Math.min(...powers) + 1 }, (_, place) => Math.min(...powers) + place);
  const label = (power: number) => (power ? bytes(2 ** (power - 1)) : "0");
  return (
    <Chart
      label={`Calls of ${shown(op, 80)} by the bytes of all inputs, and of all outputs`}
      deps={[survey, op]}
      options={(width) => ({
        height: 240,
        marginLeft: 60,
        marginBottom: width < 600 ? 70 : 40,
        fx: { label: null },
        x: { domain: range, tickFormat: label, label: "at least", tickRotate: width < 900 ? -50 : 0, ticks: range.filter((_, place) => place % Math.ceil(range.length / (width / 160)) === 0) },
        y: { label: "calls", grid: true },
        marks: [Plot.barY(rows, { x: "power", y: "times", fx: "side", fill: "var(--accent)", tip: { fill: "var(--card)" } }), Plot.ruleY([0])],
      })}
    />
  );
}

function Arguments({ survey, op }: { survey: Survey; op: string }) {
  const found = Object.entries(survey.arguments[op] ?? {});
  const rows = found.flatMap(([name, values]) => values.map(([value, times]) => ({ name, value, times })));
  if (!rows.length) return <p class="empty">It takes no arguments.</p>;
  const columns: Column<(typeof rows)[number]>[] = [
    { title: "Argument", value: (row) => row.name },
    { title: "Value", value: (row) => row.value, cell: (row) => <code>{row.value === "not_jsonable" ? "(a tensor)" : shown(row.value)}</code>, wide: true },
    { title: "Calls", value: (row) => row.times, numeric: true },
  ];
  return <Table id="survey-arguments" label="values of arguments" columns={columns} rows={rows} />;
}

function HeatMap({ survey }: { survey: Survey }) {
  const cells = survey.usage.map(([model, op, times]) => ({
    model: shown(survey.models[model]!.model, 34),
    op: shown(shortOp(survey.ops[op]!.op), 24),
    times,
  }));
  const models = [...new Set(cells.map((cell) => cell.model))];
  const ops = [...new Set(survey.ops.slice(0, 40).map((op) => shown(shortOp(op.op), 24)))];
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Models by ops">
      <Chart
        label="How often each model calls the most frequent ops; empty where it does not"
        deps={[survey]}
        options={(width) => ({
          width: Math.max(width, 160 + 18 * ops.length),
          height: 190 + 18 * models.length,
          marginLeft: 210,
          marginTop: 20,
          marginBottom: 150,
          padding: 0.06,
          x: { domain: ops, label: null, tickRotate: -60 },
          y: { domain: models, label: null },
          color: { type: "log", scheme: "blues", legend: true, label: "calls", range: [0.25, 1] },
          marks: [Plot.cell(cells, { x: "op", y: "model", fill: "times", tip: { fill: "var(--card)" } })],
        })}
      />
    </div>
  );
}

function Models({ survey }: { survey: Survey }) {
  const ops = ([all, unique]: [number | null, number | null]) =>
    all === null ? "-" : unique === null ? count(all) : `${count(all)} (${count(unique)})`;
  const columns: Column<SurveyModel>[] = [
    { title: "Model", value: (row) => row.model, cell: (row) => <Name text={row.model} />, wide: true },
    {
      title: "Status",
      value: (row) => row.status,
      cell: (row) => (
        <span class={`status ${row.status === "ok" ? "ok" : "failed"}`} title={shown(row.error)}>
          {row.status === "ok" ? "✓" : "✕"} {shown(row.status, 40)}
        </span>
      ),
    },
    { title: "Forward Ops (Unique)", value: (row) => row.forward[0], cell: (row) => ops(row.forward), numeric: true },
    { title: "Backward Ops (Unique)", value: (row) => row.backward[0], cell: (row) => ops(row.backward), numeric: true },
    { title: "Graphs", value: (row) => row.graphs, numeric: true, explanation: "of both directions; breaks make several" },
    { title: "FLOPs", value: (row) => row.flops, cell: (row) => quantity(row.flops), numeric: true, explanation: "of its ops whose FLOPs are known" },
    { title: "Seconds", value: (row) => row.seconds, cell: (row) => (row.seconds === null ? "-" : fixed(row.seconds, 1)), numeric: true },
    { title: "Memory", value: (row) => row.memory, cell: (row) => (row.memory === null ? "-" : bytes(row.memory)), numeric: true },
  ];
  return <Table id="survey-models" label="models" columns={columns} rows={survey.models} />;
}
