"""The style and the script of the HTML pages: light, dark and print; tables that are sorted by a click.

Both are part of every page, which needs nothing beside it. Without scripts a page shows the same.
"""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --line: #8884; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1080px; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
nav { font-size: .87rem; } nav a { margin-right: .9rem; white-space: nowrap; } a { color: inherit; }
.verdict { display: inline-block; padding: .2rem .7rem; border-radius: .3rem; color: #fff; font-weight: 600;
print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.clean { background: #2f7d3b; } .found { background: #b23434; } .unexamined { background: #a8690b; }
.said { font-size: 1.1rem; font-weight: 600; }
.faint, td.null { color: #888; } svg .faint { fill: #888; } svg text { font: 12px system-ui, sans-serif;
fill: currentColor; }
svg { max-width: 100%; height: auto; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .87rem; }
th, td { text-align: left; padding: .22rem .9rem .22rem 0; border-bottom: 1px solid var(--line);
vertical-align: top; }
td { white-space: nowrap; } td.long, .facts td { white-space: normal; } td.long { min-width: 16rem; }
th { font-weight: 600; white-space: nowrap; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
table.sorted th { cursor: pointer; } th[aria-sort=ascending]::after { content: " \\2191"; }
th[aria-sort=descending]::after { content: " \\2193"; }
code { font-size: .92em; overflow-wrap: anywhere; }
@media print {
body { font-size: 10pt; margin: 0; max-width: none; padding: 0; } nav { display: none; }
h2 { break-after: avoid; } tr, svg, li { break-inside: avoid; } .scroll { overflow: visible; }
table { font-size: 7.5pt; } td, td.long { white-space: normal; min-width: 0; overflow-wrap: break-word; }
th { white-space: normal; } td.long { overflow-wrap: anywhere; }
th, td { padding-right: .5rem; }
}
"""

#: A click on a title sorts a table by its column, one more the other way round; empty cells stay last.
SCRIPT = """
for (const table of document.querySelectorAll("table.sorted")) {
  const body = table.tBodies[0];
  const value = (row, at) => row.cells[at].dataset.sort ?? row.cells[at].textContent;
  [...table.tHead.rows[0].cells].forEach((title, at) => title.addEventListener("click", () => {
    const down = title.getAttribute("aria-sort") === "ascending";
    const numeric = title.classList.contains("number");
    const rows = [...body.rows].sort((one, other) => {
      const [a, b] = [value(one, at), value(other, at)];
      if (a === "-" || b === "-") return (a === "-") - (b === "-");
      const order = numeric ? Number(a) - Number(b) : a.localeCompare(b);
      return down ? -order : order;
    });
    for (const each of table.tHead.rows[0].cells) each.removeAttribute("aria-sort");
    title.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...rows);
  }));
}
"""
