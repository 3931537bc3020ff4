"""The style of the HTML report: follows the reader's light or dark setting, prints well."""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --text: #1b2330; --faint: #5d6878; --line: #dde2ea;
  --head: #eef1f5; --hover: #f3f6fb; --accent: #2f62d8; --good: #1a7f4b; --good-bar: #63c495;
  --bad: #c0362c; --warn: #9a6200; --warn-bar: #e2a94b;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #10141b; --card: #181e28; --text: #e4e9f1; --faint: #96a2b4; --line: #2b3443;
    --head: #202836; --hover: #1e2634; --accent: #85a9ff; --good: #58cf93; --good-bar: #2c8a5a;
    --bad: #ff8176; --warn: #e9b45c; --warn-bar: #97691c;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; padding: 2rem clamp(1rem, 3vw, 3rem) 3rem; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}
main { max-width: 1600px; margin: 0 auto; }
h1 { font-size: 1.55rem; margin: 0; letter-spacing: -0.01em; }
h2 { font-size: 1.1rem; margin: 2.4rem 0 0.7rem; }
p.lead { margin: 0.25rem 0 1.4rem; color: var(--faint); }
code, .mono { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: 0.88em; }
a { color: var(--accent); text-decoration: none; }
a:hover { text-decoration: underline; }
.tiles { display: flex; flex-wrap: wrap; gap: 0.75rem; margin-bottom: 1.4rem; }
.tile {
  background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 0.7rem 1.1rem; min-width: 8.5rem;
}
.tile b { display: block; font-size: 1.5rem; line-height: 1.25; font-variant-numeric: tabular-nums; }
.tile span { color: var(--faint); font-size: 0.84rem; }
.good { color: var(--good); } .bad { color: var(--bad); } .warn { color: var(--warn); }
.tools { margin-bottom: 0.6rem; }
input[type=search] {
  font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; padding: 0.4rem 0.7rem; width: min(22rem, 100%);
}
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 0.5rem 0.8rem; text-align: left; border-bottom: 1px solid var(--line); }
tbody tr:last-child td { border-bottom: 0; }
tbody tr:hover td { background: var(--hover); }
th { background: var(--head); font-size: 0.8rem; font-weight: 600; vertical-align: bottom; }
td.number, th.number { text-align: right; }
td.number, td.status { white-space: nowrap; }
td.model { min-width: 13rem; overflow-wrap: anywhere; font-weight: 550; }
td.status { text-align: center; }
th button {
  all: unset; cursor: pointer; display: inline-block; color: var(--faint); line-height: 1.3;
}
th button:hover, th[aria-sort] button { color: var(--text); }
th button:focus-visible { outline: 2px solid var(--accent); outline-offset: 3px; border-radius: 3px; }
th[aria-sort=ascending] button::after { content: " ▲"; }
th[aria-sort=descending] button::after { content: " ▼"; }
.bar { position: relative; display: flex; align-items: center; gap: 0.6rem; justify-content: flex-end; }
.bar i { position: relative; width: 90px; height: 9px; border-radius: 5px; background: var(--head); }
.bar i::before {
  content: ""; position: absolute; inset: 0 auto 0 0; width: var(--part); border-radius: 5px;
  background: var(--good-bar);
}
.bar.slower i::before { background: var(--warn-bar); }
.bar i::after {
  content: ""; position: absolute; top: -3px; bottom: -3px; left: var(--one);
  border-left: 1px solid var(--faint);
}
.bar span { min-width: 3.6rem; }
details.card { margin-bottom: 0.7rem; }
details.card > summary { cursor: pointer; padding: 0.65rem 0.9rem; overflow-wrap: anywhere; }
details.card[open] > summary { border-bottom: 1px solid var(--line); }
details details summary { cursor: pointer; color: var(--faint); }
td.place { overflow-wrap: anywhere; min-width: 16rem; }
td { vertical-align: top; }
.tag {
  display: inline-block; padding: 0 0.5em; border-radius: 6px; background: var(--head); color: var(--faint);
  font-size: 0.84em;
}
ul.plain { list-style: none; padding: 0; margin: 0.3rem 0 0; }
ul.complaints { list-style: none; margin: 0; padding: 0.4rem 0.9rem; }
ul.complaints li { padding: 0.35rem 0; overflow-wrap: anywhere; }
footer { margin-top: 2.4rem; color: var(--faint); font-size: 0.86rem; }
@media print { .tools { display: none; } body { padding: 0; } .card { overflow: visible; } }
"""
