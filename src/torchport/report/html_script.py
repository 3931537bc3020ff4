"""The script of the HTML report: sorts tables by a column, and filters their rows."""

SCRIPT = """
const value = (row, i) => {
  const text = row.cells[i].dataset.value;
  return text === "" ? null : isNaN(text) ? text.toLowerCase() : Number(text);
};
document.querySelectorAll("table.sortable").forEach(table => {
  const body = table.tBodies[0];
  table.querySelectorAll("th").forEach((head, i, heads) => {
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
});
document.querySelectorAll("input[data-filters]").forEach(input => {
  const body = document.getElementById(input.dataset.filters).tBodies[0];
  input.addEventListener("input", () => {
    const wanted = input.value.toLowerCase();
    for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });
});
document.querySelectorAll("a[href^='#']").forEach(link => link.addEventListener("click", () => {
  document.querySelector(link.getAttribute("href")).open = true;
}));
"""
