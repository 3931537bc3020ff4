// Where FLOPs, bytes and memory go: a treemap by module, memory over time, a roofline.
import * as Plot from "@observablehq/plot";
import { hierarchy, treemap, treemapSquarify, type HierarchyRectangularNode } from "d3-hierarchy";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Chart } from "./chart";
import type { Analysis, Data } from "./data";
import { bytes, count, flops, percent, quantity, shown } from "./format";
import { Choice, Section, Tile } from "./parts";
import { linkTo, type Route } from "./route";
import { useAnalysis } from "./tables";

export function CostSection({ data, route }: { data: Data; route: Route }) {
  const { model, analysis, choice } = useAnalysis(data, route, "cost");
  if (!analysis) return <p class="empty">Reading…</p>;
  const graph = data.graphs.some((each) => each.view === "written" && each.ops && each.model === model);
  return (
    <>
      {choice && <div class="tools">{choice}</div>}
      <div class="tiles">
        <Tile figure={count(analysis.parameters)} caption={`parameters, ${bytes(analysis.parameterBytes)}`} />
        <Tile figure={quantity(analysis.flops)} caption="FLOPs in products" />
        <Tile figure={quantity(analysis.vector)} caption="other FLOPs" />
        <Tile figure={bytes(analysis.bytes)} caption="read and written" />
        {analysis.peak && (
          <Tile figure={bytes(analysis.peak.bytes)} caption={`peak memory${analysis.peak.estimated_because ? ", estimated" : ""}`} />
        )}
        <Tile figure={bytes(analysis.totalBytes)} caption="with weights and inputs" />
      </div>
      {analysis.note && <p class="note">{shown(analysis.note, 1000)}</p>}
      <Section title="By module" id="treemap-title">
        <Treemap analysis={analysis} model={model} linked={graph} />
      </Section>
      {analysis.timeline.length > 1 && (
        <Section title="Memory over time" id="memory-title">
          <Memory analysis={analysis} />
        </Section>
      )}
      {analysis.uniqueOps.some((op) => op.flops > 0) && (
        <Section title="Roofline" id="roofline-title">
          <Roofline analysis={analysis} />
        </Section>
      )}
      {Object.keys(analysis.uncounted).length > 0 && (
        <p class="note">
          Not counted, since what they compute is not known:{" "}
          {Object.entries(analysis.uncounted).map(([op, times]) => `${times} × ${shown(op, 100)}`).join(", ")}
        </p>
      )}
    </>
  );
}

interface Area {
  path: string;
  name: string;
  cls: string;
  own: number;
  total: number;
  children: Area[];
}
const MOST_TILES = 220;
const MEASURES = {
  flops: ["FLOPs", flops],
  bytes: ["bytes moved", bytes],
  parameters: ["parameters", (value: number) => count(value)],
} as const;
type Measure = keyof typeof MEASURES;

/** Returns the modules as a tree; what a module has beyond its children is its own. */
function areas(analysis: Analysis, measure: Measure): Area {
  const root: Area = { path: "(root)", name: analysis.class, cls: analysis.class, own: 0, total: 0, children: [] };
  const known = new Map<string, Area>([["", root]]);
  for (const module of analysis.modules) {
    if (module.path === "(root)") {
      root.total = module[measure];
      continue;
    }
    const cut = module.path.lastIndexOf(".");
    const parent = known.get(cut < 0 ? "" : module.path.slice(0, cut)) ?? root;
    const area = { path: module.path, name: module.path.slice(cut + 1), cls: module.class, own: 0, total: module[measure], children: [] };
    known.set(module.path, area);
    parent.children.push(area);
  }
  for (const area of known.values()) {
    area.own = Math.max(0, area.total - area.children.reduce((sum, child) => sum + child.total, 0));
  }
  return root;
}

function Treemap({ analysis, model, linked }: { analysis: Analysis; model: string; linked: boolean }) {
  const [measure, setMeasure] = useState<Measure>("flops");
  const [focus, setFocus] = useState("(root)");
  const [width, setWidth] = useState(0);
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry!.contentRect.width)));
    observer.observe(place.current!);
    return () => observer.disconnect();
  }, []);
  const tree = useMemo(() => areas(analysis, measure), [analysis, measure]);
  const opened = useMemo(() => {
    const find = (area: Area): Area | undefined =>
      area.path === focus ? area : area.children.map(find).find((each) => each !== undefined);
    return find(tree) ?? tree;
  }, [tree, focus]);
  const height = Math.max(280, Math.min(460, width * 0.5));
  const tiles = useMemo(() => {
    if (!width) return [];
    const root = hierarchy(opened, (area) => (area.total > 0 ? area.children : []))
      .sum((area) => (area.children.length ? area.own : area.total))
      .sort((one, other) => (other.value ?? 0) - (one.value ?? 0));
    const laid = treemap<Area>().size([width, height]).paddingTop(18).paddingInner(2).paddingRight(2).paddingBottom(2).tile(treemapSquarify)(root);
    const large = laid.descendants().filter((node) => node.x1 - node.x0 > 4 && node.y1 - node.y0 > 4 && (node.value ?? 0) > 0);
    let deepest = 2;
    while (deepest < 8 && large.filter((node) => node.depth <= deepest + 1).length <= MOST_TILES) deepest += 1;
    return large.filter((node) => node.depth <= deepest);
  }, [opened, width, height]);
  const [title, write] = MEASURES[measure];
  const trail = opened.path === "(root)" ? [] : opened.path.split(".");
  return (
    <>
      <div class="tools">
        <Choice
          label="Area is"
          value={measure}
          options={Object.entries(MEASURES).map(([value, [text]]) => [value, text])}
          onChange={(value) => setMeasure(value as Measure)}
        />
        <nav class="trail" aria-label="Module">
          <button type="button" class="link" onClick={() => setFocus("(root)")}>
            {shown(analysis.class, 60)}
          </button>
          {trail.map((part, number) => (
            <>
              <span aria-hidden="true">›</span>
              <button type="button" class="link" onClick={() => setFocus(trail.slice(0, number + 1).join("."))}>
                {shown(part, 60)}
              </button>
            </>
          ))}
        </nav>
        {linked && opened.path !== "(root)" && (
          <a href={linkTo("graph", { model, view: "written", module: opened.path })}>Show in the graph</a>
        )}
      </div>
      <div class="treemap" ref={place} style={{ height: `${height}px` }} role="group" aria-label={`${title} by module`}>
        {tiles.map((node) => (
          <TreemapTile key={node.data.path} node={node} whole={tree.total} write={write} onOpen={() => setFocus(node.data.path)} />
        ))}
      </div>
      {tree.total === 0 && <p class="empty">No module has any {title}.</p>}
    </>
  );
}

function TreemapTile(props: {
  node: HierarchyRectangularNode<Area>;
  whole: number;
  write: (value: number) => string;
  onOpen: () => void;
}) {
  const { node } = props;
  const area = node.data;
  const [width, height] = [node.x1 - node.x0, node.y1 - node.y0];
  const text = `${shown(area.name, 60)} (${shown(area.cls, 60)}): ${props.write(area.total)}, ${percent(area.total, props.whole)}`;
  return (
    <button
      type="button"
      class="area"
      title={`${shown(area.path)} · ${text}`}
      aria-label={text}
      style={{ left: `${node.x0}px`, top: `${node.y0}px`, width: `${width}px`, height: `${height}px`, zIndex: node.depth, "--depth": node.depth }}
      onClick={props.onOpen}
    >
      {width > 36 && height > 15 && (
        <span>
          {shown(area.name, 40)} {width > 120 && <small>{percent(area.total, props.whole)}</small>}
        </span>
      )}
    </button>
  );
}

function Memory({ analysis }: { analysis: Analysis }) {
  const points = analysis.timeline.map(([step, live]) => ({ step, live }));
  const { peak } = analysis;
  return (
    <>
      <Chart
        label="Bytes that live after each kernel, beside weights and inputs"
        deps={[analysis]}
        options={() => ({
          height: 260,
          marginLeft: 70,
          marginTop: 30,
          x: { label: "kernel" },
          y: { label: null, tickFormat: bytes, grid: true, zero: true },
          marks: [
            Plot.areaY(points, { x: "step", y: "live", fill: "var(--accent)", fillOpacity: 0.2, curve: "step" }),
            Plot.lineY(points, { x: "step", y: "live", stroke: "var(--accent)", curve: "step" }),
            ...(peak
              ? [
                  Plot.dot([peak], { x: "step", y: "bytes", fill: "var(--bad)", r: 4, symbol: "diamond" }),
                  Plot.text([peak], {
                    x: "step",
                    y: "bytes",
                    text: () => `peak ${bytes(peak.bytes)}`,
                    dy: -12,
                    textAnchor: peak.step > points.at(-1)!.step / 2 ? "end" : "start",
                    fill: "currentColor",
                  }),
                ]
              : []),
            Plot.ruleY([0]),
          ],
        })}
      />
      {peak && (
        <p class="faint">
          The peak is at <code>{shown(peak.op, 100)}</code> in <code>{shown(peak.module_path, 200)}</code>, {peak.phase}.
          {peak.estimated_because && ` It is an estimate: ${shown(peak.estimated_because)}.`}
        </p>
      )}
    </>
  );
}

function Roofline({ analysis }: { analysis: Analysis }) {
  const [peak, setPeak] = useState("1e12");
  const [bandwidth, setBandwidth] = useState("1e11");
  const [most, moved] = [Number(peak), Number(bandwidth)];
  const valid = most > 0 && moved > 0 && Number.isFinite(most) && Number.isFinite(moved);
  const points = useMemo(() => {
    const byOp = analysis.uniqueOps
      .filter((op) => op.flops > 0 && op.bytes > 0)
      .map((op) => {
        const intensity = op.flops / op.bytes;
        const reached = Math.min(most, intensity * moved);
        return { op: op.op, path: op.path, count: op.count, flops: op.flops, intensity, reached, seconds: op.flops / reached };
      });
    return byOp.sort((one, other) => other.seconds - one.seconds).slice(0, 500);
  }, [analysis, most, moved]);
  const whole = points.reduce((sum, point) => sum + point.seconds, 0);
  const bound = points.filter((point) => point.intensity < most / moved).reduce((sum, point) => sum + point.seconds, 0);
  const left = Math.min(0.05, ...points.map((point) => point.intensity)) / 2;
  const right = Math.max((most / moved) * 10, ...points.map((point) => point.intensity)) * 2;
  return (
    <>
      <div class="tools">
        <label class="choice">
          <span>FLOP/s of the device</span>
          <input value={peak} size={8} inputMode="decimal" onInput={(event) => setPeak(event.currentTarget.value)} />
        </label>
        <label class="choice">
          <span>bytes a second</span>
          <input value={bandwidth} size={8} inputMode="decimal" onInput={(event) => setBandwidth(event.currentTarget.value)} />
        </label>
        {valid && (
          <span class="faint" role="status">
            at best {(1000 * whole).toPrecision(3)} ms a run, {percent(bound, whole)} of it bound by memory
          </span>
        )}
      </div>
      {valid ? (
        <Chart
          label="What each op could reach on such a device; the larger a dot, the more of the time"
          deps={[points]}
          options={() => ({
            height: 340,
            marginLeft: 80,
            x: { type: "log", label: "FLOPs for each byte moved", domain: [left, right], tickFormat: "~g" },
            y: { type: "log", label: null, tickFormat: (value: number) => quantity(value, "FLOP/s"), grid: true },
            r: { range: [2, 18] },
            symbol: { legend: true, domain: ["bound by memory", "bound by arithmetic"], range: ["square", "circle"] },
            marks: [
              Plot.line(
                [left, most / moved, right].map((intensity) => ({ intensity, reached: Math.min(most, intensity * moved) })),
                { x: "intensity", y: "reached", stroke: "currentColor", strokeOpacity: 0.5 },
              ),
              Plot.dot(points, {
                x: "intensity",
                y: "reached",
                r: "seconds",
                symbol: (point: { intensity: number }) => (point.intensity < most / moved ? "bound by memory" : "bound by arithmetic"),
                stroke: (point: { intensity: number }) => (point.intensity < most / moved ? "var(--warn)" : "var(--accent)"),
                fill: (point: { intensity: number }) => (point.intensity < most / moved ? "var(--warn)" : "var(--accent)"),
                fillOpacity: 0.35,
                tip: { fill: "var(--card)" },
                channels: {
                  op: { value: (point: { op: string }) => shown(point.op, 60), label: "op" },
                  first: { value: (point: { path: string }) => shown(point.path, 60), label: "first at" },
                  share: { value: (point: { seconds: number }) => percent(point.seconds, whole), label: "of the time" },
                },
              }),
            ],
          })}
        />
      ) : (
        <p class="empty">Give two positive numbers, such as 1e12 and 1e11.</p>
      )}
    </>
  );
}
