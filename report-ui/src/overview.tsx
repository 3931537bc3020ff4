// Models by targets: what runs, how well, what changed, and what to do next.
import type { Cell, Coverage, Data, Group, Row, Tries } from "./data";
import { bytes, count, flops, percent, plural, shown } from "./format";
import { Meter, Name, Section, Tile } from "./parts";
import { linkTo } from "./route";
import { Table, type Column } from "./table";

export function Overview({ data }: { data: Data }) {
  return (
    <>
      <Tiles data={data} />
      {data.actions.length > 0 && <Actions data={data} />}
      {data.changes && <Changes data={data} />}
      {data.rows.length > 0 && (
        <Section title="Results" id="results-title">
          <Results data={data} />
        </Section>
      )}
      {data.tries.length > 0 && <AllTries data={data} />}
      {data.coverages.length > 0 && <Coverages data={data} />}
      <Complaints data={data} />
    </>
  );
}

function median(values: number[]): number {
  const sorted = [...values].sort((one, other) => one - other);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

function Tiles({ data }: { data: Data }) {
  const { rows, coverages } = data;
  const number = (status: string) => rows.filter((row) => row.status === status).length;
  const speedups = rows.filter((row) => row.status === "ok" && typeof row.speedup === "number").map((row) => row.speedup as number);
  const sum = (field: "ops" | "flops", place: 0 | 1) =>
    coverages.reduce((total, coverage) => total + coverage[field][place], 0);
  return (
    <div class="tiles">
      {rows.length > 0 && (
        <Tile figure={`${number("ok")} / ${rows.length}`} caption="ran and are accurate" kind={number("ok") ? "good" : "bad"} />
      )}
      {number("inaccurate") > 0 && <Tile figure={String(number("inaccurate"))} caption="inaccurate" kind="bad" />}
      {number("failed") > 0 && <Tile figure={String(number("failed"))} caption="failed" kind="bad" />}
      {speedups.length > 0 && <Tile figure={`${median(speedups).toFixed(2)}x`} caption="median speed-up" />}
      {speedups.length > 1 && <Tile figure={`${Math.max(...speedups).toFixed(2)}x`} caption="best speed-up" />}
      {coverages.length > 0 && (
        <>
          <Tile figure={percent(sum("ops", 0), sum("ops", 1))} caption="of all ops on the target" />
          {sum("flops", 1) > 0 && (
            <Tile figure={percent(sum("flops", 0), sum("flops", 1))} caption="of all FLOPs on the target" />
          )}
        </>
      )}
    </div>
  );
}

/** Returns a link to an op in the graph, if the page holds the graph. */
function graphLink(data: Data, model: string, target: string, node: string): string {
  const held = data.graphs.some((graph) => !graph.run && graph.model === model && graph.target === target && graph.ops);
  return held ? linkTo("graph", { model, target, op: node }) : "";
}

function Actions({ data }: { data: Data }) {
  return (
    <Section title="What to do next" id="actions-title">
      <ol class="actions">
        {data.actions.map((action) => {
          const link = action.node ? graphLink(data, action.model, action.target, action.node) : "";
          return (
            <li class="card">
              <b>
                <Name text={action.text} />
              </b>
              <span>{shown(action.detail)}</span>
              {link && <a href={link}>Show the first in the graph</a>}
            </li>
          );
        })}
      </ol>
    </Section>
  );
}

const KINDS = { better: "▲ better", worse: "▼ worse", new: "＋ new", gone: "－ gone" };

function Changes({ data }: { data: Data }) {
  const changes = data.changes!;
  const columns: Column<(typeof changes)[number]>[] = [
    { title: "Model", value: (row) => row.model, cell: (row) => <Name text={row.model} />, wide: true },
    { title: "Target", value: (row) => row.target, cell: (row) => shown(row.target, 60) },
    { title: "What", value: (row) => row.what },
    { title: "Before", value: (row) => row.before, numeric: true },
    { title: "Now", value: (row) => row.now, numeric: true },
    { title: "Change", value: (row) => row.kind, cell: (row) => <span class={`change ${row.kind}`}>{KINDS[row.kind]}</span> },
  ];
  return (
    <Section title="Since the baseline" id="changes-title">
      {changes.length ? (
        <Table id="changes" label="changes" columns={columns} rows={changes} />
      ) : (
        <p class="card empty">Nothing changed: the same statuses, ops, accuracy, and speed within 10%.</p>
      )}
    </Section>
  );
}

function Results({ data }: { data: Data }) {
  const fastest = Math.max(1, ...data.rows.map((row) => (typeof row.speedup === "number" ? row.speedup : 0))) * 1.02;
  const columns: Column<Row>[] = data.columns.map((column, place) => ({
    title: column.title,
    explanation: column.explanation,
    numeric: column.numeric,
    wide: column.title === "Model",
    value: (row) => row.cells[place]![1],
    cell: (row) => {
      const text = row.cells[place]![0];
      if (column.title === "Model") return <Name text={text} />;
      if (column.title === "Status") return <Status row={row} />;
      if (column.title === "Speed-up" && typeof row.speedup === "number") return <SpeedUp value={row.speedup} longest={fastest} />;
      const stays = column.title.startsWith("Torch Ops Remain") && Number(row.cells[place]![1]) > 0;
      if (stays && data.coverages.some((each) => each.model === row.model && each.target === row.target)) {
        return (
          <button type="button" class="link" onClick={() => openCoverage(row.model, row.target)}>
            {text}
          </button>
        );
      }
      return shown(text);
    },
  }));
  return <Table id="results" label="rows" columns={columns} rows={data.rows} />;
}

const MARKS = { ok: "✓ ok", inaccurate: "≉ inaccurate", failed: "✕ failed" };

function Status({ row }: { row: Row }) {
  return (
    <span class={`status ${row.status}`} title={row.complaint}>
      {MARKS[row.status]}
    </span>
  );
}

function SpeedUp({ value, longest }: { value: number; longest: number }) {
  const style = { "--part": `${((100 * value) / longest).toFixed(1)}%`, "--one": `${(100 / longest).toFixed(1)}%` };
  return (
    <span class={value < 1 ? "bar slower" : "bar"}>
      <i style={style} />
      <span>{value.toFixed(2)}x</span>
    </span>
  );
}

function AllTries({ data }: { data: Data }) {
  return (
    <Section title="What auto tried" id="tries-title">
      {data.tries.map((tries, place) => (
        <details class="card coverage" open={data.tries.length === 1}>
          <summary>
            <b>
              <Name text={tries.model} />
            </b>
            : {shown(tries.chosen, 60)} by {shown(tries.objective, 60)}
          </summary>
          {typeof tries.seconds === "number" && <p class="faint">all trials took {tries.seconds.toFixed(0)} s</p>}
          <Table id={`tries-${place}`} label="engines" columns={triesColumns(tries)} rows={tries.rows} />
        </details>
      ))}
    </Section>
  );
}

function triesColumns(tries: Tries): Column<Cell[]>[] {
  return tries.columns.map((column, place) => ({
    title: column.title,
    numeric: column.numeric,
    wide: column.title === "Reason",
    value: (row) => row[place]![1],
    cell: (row) => shown(row[place]![0], 1000),
  }));
}

const coverageId = (model: string, target: string) => `stays-${encodeURIComponent(`${model} ${target}`)}`;

function openCoverage(model: string, target: string): void {
  const found = document.getElementById(coverageId(model, target)) as HTMLDetailsElement | null;
  if (!found) return;
  found.open = true;
  found.scrollIntoView({ block: "start" });
  found.querySelector("summary")!.focus();
}

function Coverages({ data }: { data: Data }) {
  return (
    <Section title="What the target takes, and why the rest stays" id="coverage-title">
      {data.coverages.map((coverage) => (
        <details class="card coverage" id={coverageId(coverage.model, coverage.target)} open={data.coverages.length === 1}>
          <summary>
            <b>
              <Name text={coverage.model} />
            </b>{" "}
            on {shown(coverage.target, 60)}
            <span class="shares">
              ops <Meter part={coverage.ops[0]} whole={coverage.ops[1]} />
              {coverage.flops[1] > 0 && (
                <>
                  FLOPs <Meter part={coverage.flops[0]} whole={coverage.flops[1]} />
                </>
              )}
              bytes <Meter part={coverage.bytes[0]} whole={coverage.bytes[1]} />
            </span>
          </summary>
          <p class="faint">
            {plural(coverage.islands, "island")}, {plural(coverage.transfers, "tensor")} to and from the device;{" "}
            {coverage.groups.length ? `${plural(coverage.ops[1] - coverage.ops[0], "op")} not on the target` : "nothing stays"}
          </p>
          {coverage.groups.length > 0 && <Stayed data={data} coverage={coverage} />}
        </details>
      ))}
    </Section>
  );
}

function Stayed({ data, coverage }: { data: Data; coverage: Coverage }) {
  const link = (group: Group) => graphLink(data, coverage.model, coverage.target, group.node);
  const columns: Column<Group>[] = [
    {
      title: "Op",
      value: (group) => group.op,
      cell: (group) =>
        link(group) ? (
          <a href={link(group)} title="Show the first in the graph">
            <code>
              <Name text={group.op} />
            </code>
          </a>
        ) : (
          <code>
            <Name text={group.op} />
          </code>
        ),
    },
    { title: "Count", value: (group) => group.count, numeric: true },
    { title: "Reason", value: (group) => group.reason, cell: (group) => <span class="tag">{group.reason}</span> },
    {
      title: "Why, and what to do",
      value: (group) => `${group.detail} ${group.remedy}`,
      cell: (group) => (
        <>
          {shown(group.detail)}
          <div class="faint">{shown(group.remedy)}</div>
        </>
      ),
      wide: true,
    },
    { title: "FLOPs", value: (group) => group.flops, cell: (group) => flops(group.flops), numeric: true },
    { title: "Bytes", value: (group) => group.bytes, cell: (group) => bytes(group.bytes), numeric: true },
    { title: "Where", value: (group) => group.places.map((each) => each.join(" ")).join(" "), cell: Places, wide: true },
  ];
  return <Table id={`ops-${coverageId(coverage.model, coverage.target)}`} label="groups of ops" columns={columns} rows={coverage.groups} />;
}

function Places(group: Group) {
  const place = ([module, source]: [string, string]) => (
    <li>
      <Name text={[module, source].filter(Boolean).join(" · ") || "-"} />
    </li>
  );
  const rest = group.places.slice(1);
  return (
    <>
      <ul class="plain">{group.places.slice(0, 1).map(place)}</ul>
      {rest.length > 0 && (
        <details>
          <summary>and {count(rest.length + group.more)} more places</summary>
          <ul class="plain">{rest.map(place)}</ul>
        </details>
      )}
    </>
  );
}

function Complaints({ data }: { data: Data }) {
  const wrong = data.rows.filter((row) => row.status !== "ok");
  if (!wrong.length && !data.problems.length) return null;
  return (
    <Section title="What is not ok" id="complaints-title">
      <ul class="card complaints">
        {wrong.map((row) => (
          <li>
            <Status row={row} /> <b>{shown(row.model)}</b> on {shown(row.target, 60)}: {shown(row.complaint, 1000)}
          </li>
        ))}
        {data.problems.map(([path, detail]) => (
          <li>
            <span class="status failed">! not read</span> <code>{shown(path)}</code>: {shown(detail, 1000)}
          </li>
        ))}
      </ul>
    </Section>
  );
}
