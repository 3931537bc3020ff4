// A table that is sorted by its headings, filtered by a text, and copied as CSV.
import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import { count } from "./format";

type Value = string | number | boolean | null | undefined;
export interface Column<T> {
  title: string;
  value: (row: T) => Value;
  cell?: (row: T) => ComponentChildren;
  explanation?: string;
  numeric?: boolean;
  wide?: boolean;
}

const PAGE = 40;

function compare(one: Value, other: Value): number {
  if (typeof one === "number" && typeof other === "number") return one - other;
  return String(one).localeCompare(String(other), "en", { numeric: true });
}

const isAbsent = (value: Value) => value === null || value === undefined || value === "";

/** Returns a CSV field; a text that a spreadsheet would take for a formula is quoted as text. */
function csvField(value: Value): string {
  const text = isAbsent(value) ? "" : String(value);
  const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
}

export function Table<T>(props: {
  id: string;
  label: string;
  columns: Column<T>[];
  rows: T[];
  onChoose?: (row: T) => void;
}) {
  const { columns, rows } = props;
  const [order, setOrder] = useState<{ column: number; down: boolean } | null>(null);
  const [filter, setFilter] = useState("");
  const [most, setMost] = useState(PAGE);
  const [copied, setCopied] = useState("");

  const texts = useMemo(
    () => rows.map((row) => columns.map((column) => String(column.value(row) ?? "")).join("\n").toLowerCase()),
    [rows, columns],
  );
  const visible = useMemo(() => {
    const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
    const found = rows.filter((_, place) => words.every((word) => texts[place]!.includes(word)));
    if (order) {
      const { value } = columns[order.column]!;
      found.sort((one, other) => {
        const [left, right] = [value(one), value(other)];
        if (isAbsent(left) || isAbsent(right)) return Number(isAbsent(left)) - Number(isAbsent(right));
        return order.down ? compare(right, left) : compare(left, right);
      });
    }
    return found;
  }, [rows, columns, texts, filter, order]);

  const sortBy = (column: number) => {
    const first = columns[column]!.numeric ?? false;
    setOrder(order?.column === column ? { column, down: !order.down } : { column, down: first });
  };
  const copy = async () => {
    const lines = [columns.map((column) => csvField(column.title))];
    for (const row of visible) lines.push(columns.map((column) => csvField(column.value(row))));
    const text = lines.map((line) => line.join(",")).join("\n") + "\n";
    setCopied((await copyText(text)) ? "copied" : "the browser does not allow it");
    setTimeout(() => setCopied(""), 2000);
  };

  return (
    <div class="table" id={props.id}>
      <div class="tools">
        <input
          type="search"
          placeholder={`Filter ${props.label}`}
          aria-label={`Filter ${props.label}`}
          value={filter}
          onInput={(event) => setFilter(event.currentTarget.value)}
        />
        <span class="faint" role="status">
          {visible.length === rows.length ? count(rows.length) : `${count(visible.length)} of ${count(rows.length)}`}{" "}
          {props.label}
        </span>
        <span class="gap" />
        <span role="status" class="faint">
          {copied}
        </span>
        <button type="button" onClick={copy}>
          Copy as CSV
        </button>
      </div>
      <div class="card scroll" tabIndex={0} role="region" aria-label={props.label}>
        <table>
          <thead>
            <tr>
              {columns.map((column, place) => (
                <th
                  scope="col"
                  title={column.explanation}
                  class={column.numeric ? "number" : ""}
                  aria-sort={order?.column === place ? (order.down ? "descending" : "ascending") : undefined}
                >
                  <button type="button" onClick={() => sortBy(place)}>
                    {column.title}
                  </button>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {visible.slice(0, most).map((row) => (
              <tr>
                {columns.map((column) => (
                  <td class={column.numeric ? "number" : column.wide ? "wide" : ""}>
                    {column.cell ? column.cell(row) : isAbsent(column.value(row)) ? "-" : String(column.value(row))}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
        {visible.length === 0 && <p class="empty">Nothing matches.</p>}
      </div>
      {visible.length > most && (
        <button type="button" class="more" onClick={() => setMost(most + 10 * PAGE)}>
          Show more of the {count(visible.length)} {props.label}
        </button>
      )}
    </div>
  );
}

/** Copies a text; a page that was opened from disk may not use the clipboard's own interface. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}
