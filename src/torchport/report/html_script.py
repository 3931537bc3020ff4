"""The script of the HTML report: sorts the table by a column, and filters its rows."""

SCRIPT = """
const body = document.querySelector("#results tbody");
const value = (row, i) => {
  const text = row.cells[i].dataset.value;
  return text === "" ? null : isNaN(text) ? text.toLowerCase() : Number(text);
};
document.querySelectorAll("#results th").forEach((head, i, heads) => {
  head.firstElementChild.addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") !== "ascending";
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const rows = [...body.rows].sort((one, two) => {
      const a = value(one, i), b = value(two, i);
      if (a === null || b === null) return (a === null) - (b === null);  // what is not there comes last
      return (a < b ? -1 : a > b ? 1 : 0) * (up ? 1 : -1);
    });
    body.append(...rows);
  });
});
document.querySelector("#filter").addEventListener("input", event => {
  const wanted = event.target.value.toLowerCase();
  for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
});
document.querySelectorAll("a[href^='#']").forEach(link => link.addEventListener("click", () => {
  document.querySelector(link.getAttribute("href")).open = true;
}));
"""
