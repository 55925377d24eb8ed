"""The style of the page: light and dark by what the reader's system prefers."""

from lpr_ros.report.theme import DARK, LIGHT, css_variables

STYLE = f"""
:root {{ color-scheme: light dark; {css_variables(LIGHT)} --card: #f6f8fa; }}
@media (prefers-color-scheme: dark) {{ :root {{ {css_variables(DARK)} --card: #1a202a; }} }}
""" + """
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  font-variant-numeric: tabular-nums; -webkit-font-smoothing: antialiased; }
main { max-width: 1120px; margin: 0 auto; padding: 56px 28px 80px; }
header { margin-bottom: 28px; }
.eyebrow { color: var(--muted); font-size: 13px; letter-spacing: .08em; text-transform: uppercase;
  margin: 0 0 6px; }
h1 { font-size: 44px; line-height: 1.1; letter-spacing: -.02em; margin: 0 0 14px; font-weight: 680;
  overflow-wrap: anywhere; }
h2 { font-size: 23px; letter-spacing: -.01em; margin: 0 0 4px; font-weight: 640; }
.lead { font-size: 20px; line-height: 1.45; max-width: 46em; margin: 0; }
.tiles { display: grid; gap: 12px; margin: 28px 0 8px;
  grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); }
.tile { background: var(--card); border-radius: 12px; padding: 14px 16px 12px; }
.tile b { display: block; font-size: 25px; line-height: 1.2; font-weight: 660;
  letter-spacing: -.015em; white-space: nowrap; }
.tile.long { grid-column: span 2; }
.tile span { display: block; font-size: 14px; }
.tile i { display: block; font-style: normal; font-size: 13px; line-height: 1.35;
  color: var(--muted); margin-top: 3px; }
.hint { border-left: 4px solid var(--warn); background: var(--card); border-radius: 0 12px 12px 0;
  padding: 12px 18px; margin: 14px 0 0; max-width: 62em; }
section { margin-top: 52px; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 44px; align-items: start; }
.pair section { min-width: 0; }
figure { margin: 0; }
figure svg { display: block; width: 100%; height: auto; margin: 10px 0 8px; overflow: visible; }
figcaption, .note { color: var(--muted); font-size: 15px; max-width: 58em; }
table { border-collapse: collapse; width: 100%; font-size: 15px; margin-top: 8px; }
th, td { text-align: left; padding: 7px 14px 7px 0; border-bottom: 1px solid var(--grid);
  vertical-align: top; overflow-wrap: anywhere; }
th { font-weight: 600; white-space: nowrap; width: 1%; padding-right: 26px; }
code, pre { font: 13.5px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
pre { background: var(--card); border-radius: 12px; padding: 16px 18px; overflow-x: auto; }
details { margin-top: 14px; }
summary { cursor: pointer; color: var(--path); }
footer { margin-top: 60px; color: var(--muted); font-size: 14px; border-top: 1px solid var(--grid);
  padding-top: 16px; }
@media (max-width: 860px) { .pair { grid-template-columns: 1fr; gap: 0; } h1 { font-size: 34px; }
  .tile.long { grid-column: span 1; } .tile b { white-space: normal; } }
@media print { main { padding: 0; } section, .tile { break-inside: avoid; } }
"""
