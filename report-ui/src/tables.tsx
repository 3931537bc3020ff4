// The unique modules and the unique op configurations of a model, with their counts and shares.
import { useEffect, useState } from "preact/hooks";
import { loadBlock, sameModel, type Analysis, type Data } from "./data";
import { bytes, count, flops, percent, shown } from "./format";
import { Choice, Name, Section } from "./parts";
import { linkTo, type Route } from "./route";
import { Table, type Column } from "./table";

/** Loads the analysis of the model that the route names, or of the first; and lets one choose. */
export function useAnalysis(data: Data, route: Route, section: string) {
  const found = data.analyses.findIndex((each) => sameModel(each.model, route.model ?? ""));
  const place = Math.max(found, 0);
  const [loaded, setLoaded] = useState<{ place: number; analysis: Analysis } | null>(null);
  useEffect(() => {
    void loadBlock<Analysis>(data.analyses[place]!.block).then((analysis) => setLoaded({ place, analysis }));
  }, [place]);
  const choice = data.analyses.length > 1 && (
    <Choice
      label="Model"
      value={String(place)}
      options={data.analyses.map((each, number) => [String(number), each.model])}
      onChange={(value) => (location.hash = linkTo(section, { model: data.analyses[Number(value)]!.model }))}
    />
  );
  return { model: data.analyses[place]!.model, analysis: loaded?.place === place ? loaded.analysis : null, choice };
}

const pairs = (items: [string, string][]) => items.map(([name, value]) => `${name}=${value}`).join(", ");

function Long({ text, shapes = false }: { text: string; shapes?: boolean }) {
  if (!text) return <>-</>;
  return <code class={shapes ? "long shapes" : "long"}>{shown(text, 300)}</code>;
}

export function TablesSection({ data, route }: { data: Data; route: Route }) {
  const { model, analysis, choice } = useAnalysis(data, route, "tables");
  if (!analysis) return <p class="empty">Reading…</p>;
  const graph = data.graphs.some((each) => sameModel(each.model, model) && each.view === "written" && each.ops);
  const cost = new Map(analysis.modules.map((module) => [module.path, module]));
  const place = (path: string, name = "") =>
    graph ? (
      <a href={linkTo("graph", { model, view: "written", module: path === "(root)" ? "" : path, op: name })}>
        <Name text={path} />
      </a>
    ) : (
      <Name text={path} />
    );
  const modules: Column<Analysis["uniqueModules"][number]>[] = [
    { title: "Class", value: (row) => row.class, cell: (row) => <b>{shown(row.class, 80)}</b> },
    { title: "Count", value: (row) => row.count, numeric: true, explanation: "modules that are alike" },
    { title: "Calls", value: (row) => row.calls, numeric: true, explanation: "how often they are called in one run" },
    { title: "Inputs", value: (row) => row.inputs, cell: (row) => <Long text={row.inputs} shapes /> },
    { title: "Outputs", value: (row) => row.outputs, cell: (row) => <Long text={row.outputs} shapes /> },
    {
      title: "FLOPs each",
      value: (row) => cost.get(row.path)?.flops,
      cell: (row) => flops(cost.get(row.path)?.flops ?? 0),
      numeric: true,
    },
    {
      title: "Parameters each",
      value: (row) => cost.get(row.path)?.parameters,
      cell: (row) => count(cost.get(row.path)?.parameters ?? 0),
      numeric: true,
    },
    { title: "Constructed with", value: (row) => pairs(row.parameters), cell: (row) => <Long text={pairs(row.parameters)} />, wide: true },
    { title: "First at", value: (row) => row.path, cell: (row) => place(row.path), wide: true },
  ];
  const [allFlops, allBytes] = [analysis.flops + analysis.vector, analysis.bytes];
  const ops: Column<Analysis["uniqueOps"][number]>[] = [
    { title: "Op", value: (row) => row.op, cell: (row) => <code title={row.overload}>{shown(row.op, 120)}</code> },
    ...(analysis.backward ? [{ title: "Pass", value: (row: { phase: string }) => row.phase }] : []),
    { title: "Count", value: (row) => row.count, numeric: true },
    { title: "FLOPs", value: (row) => row.flops, cell: (row) => flops(row.flops), numeric: true },
    { title: "of all", value: (row) => row.flops / (allFlops || 1), cell: (row) => percent(row.flops, allFlops), numeric: true },
    { title: "Bytes", value: (row) => row.bytes, cell: (row) => bytes(row.bytes), numeric: true },
    { title: "of all bytes", value: (row) => row.bytes / (allBytes || 1), cell: (row) => percent(row.bytes, allBytes), numeric: true },
    { title: "Tensors", value: (row) => pairs(row.tensors), cell: (row) => <Long text={pairs(row.tensors)} />, wide: true },
    { title: "Arguments", value: (row) => pairs(row.attributes), cell: (row) => <Long text={pairs(row.attributes)} />, wide: true },
    { title: "First at", value: (row) => row.path, cell: (row) => place(row.path, row.name), wide: true },
  ];
  return (
    <>
      {choice && <div class="tools">{choice}</div>}
      <Section title={`Unique modules of ${shown(model, 100)}`} id="modules-title">
        <Table id="modules" label="unique modules" columns={modules} rows={analysis.uniqueModules} />
      </Section>
      <Section title="Unique ops, by what they are called with" id="ops-title">
        <Table id="ops" label="unique ops" columns={ops} rows={analysis.uniqueOps} />
      </Section>
    </>
  );
}
