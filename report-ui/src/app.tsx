// The page: a heading, the sections that there is data for, and the one that is open.
import { useEffect, useState } from "preact/hooks";
import { CostSection } from "./cost";
import type { Data } from "./data";
import { shown } from "./format";
import { GraphSection } from "./graph/section";
import { NumbersSection } from "./numbers";
import { Overview } from "./overview";
import { QuantizationSection } from "./quantization";
import { linkTo, useRoute } from "./route";
import { SurveySection } from "./survey";
import { TablesSection } from "./tables";

const THEMES = ["auto", "light", "dark"] as const;

export function App({ data }: { data: Data }) {
  const route = useRoute();
  const [theme, setTheme] = useState(0);
  useEffect(() => {
    document.documentElement.dataset.theme = THEMES[theme];
  }, [theme]);
  const sections: [id: string, title: string, there: boolean][] = [
    ["overview", "Overview", data.rows.length > 0 || data.coverages.length > 0 || data.problems.length > 0],
    ["graph", "Model graph", data.graphs.some((graph) => graph.ops > 0)],
    ["tables", "Modules and ops", data.analyses.length > 0],
    ["cost", "Cost", data.analyses.length > 0],
    ["survey", "Survey", data.survey !== null],
    ["numbers", "Numbers", data.accuracies.length > 0],
    ["quantization", "Quantization", data.quantizations.length > 0],
  ];
  const there = sections.filter(([, , shownHere]) => shownHere);
  const open = there.find(([id]) => id === route.section)?.[0] ?? there[0]?.[0] ?? "overview";
  useEffect(() => scrollTo(0, 0), [open]);
  return (
    <>
      <header>
        <h1>{shown(data.title)}</h1>
        <p class="lead">{lead(data)}</p>
        <button type="button" class="theme" onClick={() => setTheme((theme + 1) % THEMES.length)}>
          Theme: {THEMES[theme]}
        </button>
      </header>
      {there.length > 1 && (
        <nav aria-label="Sections">
          {there.map(([id, title]) => (
            <a href={linkTo(id)} aria-current={id === open ? "page" : undefined}>
              {title}
            </a>
          ))}
        </nav>
      )}
      <main>
        {open === "overview" && <Overview data={data} />}
        {open === "graph" && <GraphSection data={data} route={route} />}
        {open === "tables" && <TablesSection data={data} route={route} />}
        {open === "cost" && <CostSection data={data} route={route} />}
        {open === "survey" && <SurveySection survey={data.survey!} />}
        {open === "numbers" && <NumbersSection data={data} />}
        {open === "quantization" && <QuantizationSection data={data} />}
      </main>
      <footer>
        {data.rows.length > 0 && (
          <p>Times are medians of interleaved runs; loading a model is in none of them.</p>
        )}
        {data.grounds.map((line) => (
          <p>{shown(line)}</p>
        ))}
      </footer>
    </>
  );
}

function lead(data: Data): string {
  const parts: string[] = [];
  if (data.rows.length) {
    const models = new Set(data.rows.map((row) => row.model)).size;
    const targets = [...new Set(data.rows.map((row) => row.target))].sort();
    parts.push(`${models} model${models === 1 ? "" : "s"} on ${targets.map((name) => shown(name, 60)).join(", ")}`);
  } else if (data.coverages.length) {
    parts.push(data.coverages.map((each) => `${shown(each.model, 80)} on ${shown(each.target, 60)}`).join(", "));
  } else if (data.analyses.length) {
    parts.push(data.analyses.map((each) => shown(each.model, 80)).join(", "));
  }
  for (const each of data.quantizations) parts.push(`${shown(each.model, 80)}, quantized for ${shown(each.target, 60)}`);
  if (data.survey) {
    const ok = data.survey.models.filter((model) => model.status === "ok").length;
    parts.push(`survey: ${ok} of ${data.survey.models.length} models ok`);
  }
  return parts.join(" · ");
}
