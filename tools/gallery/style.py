"""style.py - the style sheet of the gallery. Its colours are colours.css, which the page of
`attnrun report` has, too; those of weights are the ramps of picture.py."""
from pathlib import Path

COLOURS = (Path(__file__).parent / "colours.css").read_text("utf-8")
STYLE = f"\n{COLOURS}" + """\
* { box-sizing: border-box }
html { scroll-behavior: smooth; -webkit-text-size-adjust: 100% }
body { margin: 0 auto; padding: 32px 24px 48px; max-width: 1200px; background: var(--page);
  color: var(--text); font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto,
  "Helvetica Neue", Arial, sans-serif }
h1 { font-size: 32px; line-height: 1.2; margin: 0 0 8px; letter-spacing: -.01em }
h2 { font-size: 20px; line-height: 1.3; margin: 48px 0 14px }
h3 { font-size: 17px; line-height: 1.35; margin: 0 0 4px }
p { margin: 0 0 10px; max-width: 75ch }
a { color: var(--link); text-decoration: none }
a:hover { text-decoration: underline }
a:focus-visible { outline: 2px solid var(--link); outline-offset: 2px }
code { font: 12.5px/1.4 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono",
  monospace }
.name { color: var(--faint); font-weight: 600; margin: 0 0 4px }
.lead { font-size: 17px }
.columns { display: grid; grid-template-columns: 1fr 1fr; gap: 8px 40px }
.columns h2 { font-size: 16px; margin: 16px 0 6px }
.legend { list-style: none; margin: 12px 0 0; padding: 0; display: flex; flex-wrap: wrap;
  gap: 6px 20px; font-size: 13px; color: var(--faint) }
.legend li { display: flex; align-items: center; gap: 8px }
.legend i { width: 72px; height: 8px; border-radius: 4px }
.legend b { width: 14px; height: 14px; background: var(--unseen);
  border: 1px solid var(--line) }
i.linear, i.log { background: linear-gradient(90deg, var(--hot0), var(--hot1),
  var(--hot2)) }
i.signed { background: linear-gradient(90deg, var(--cold2), var(--cold1), var(--cold0),
  var(--unseen), var(--hot0), var(--hot1), var(--hot2)) }
nav { margin-top: 28px; padding-top: 4px; border-top: 1px solid var(--line) }
nav h3 { font-size: 13px; font-weight: 600; margin: 20px 0 8px }
nav h3 a { color: var(--faint) }
nav ul { list-style: none; margin: 0; padding: 0; display: grid; gap: 10px 16px;
  align-items: start; grid-template-columns: repeat(auto-fill, minmax(216px, 1fr)) }
nav li a { display: flex; gap: 10px; align-items: center; color: var(--text);
  font-size: 14px; line-height: 1.3 }
nav li picture { flex: none; width: 64px; height: 64px; display: grid; align-items: center;
  background: var(--unseen); outline: 1px solid var(--line) }
nav li small { display: block; font-size: 12px; color: var(--faint) }
img { display: block; image-rendering: pixelated }
article { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 20px 24px 22px; margin-bottom: 18px; scroll-margin-top: 12px }
.halves { display: flex; flex-wrap: wrap; gap: 16px 32px; margin-top: 14px }
.pictures { display: flex; flex-wrap: wrap; gap: 18px 20px; align-content: flex-start }
.details { flex: 1 1 440px; min-width: 0; display: grid; gap: 4px 40px;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr));
  align-content: start }
figure { margin: 0; max-width: 256px }
.frame { position: relative; width: fit-content; background: var(--unseen);
  outline: 1px solid var(--line) }
.frame img { max-width: 100%; height: auto }
.mark { position: absolute; outline: 2px solid var(--mark) }
.scale { display: flex; align-items: center; gap: 8px; margin-top: 7px; font-size: 12px;
  color: var(--faint); white-space: nowrap; line-height: 1.2;
  font-variant-numeric: tabular-nums }
.scale i { flex: 1; min-width: 24px; height: 6px; border-radius: 3px }
sup, sub { font-size: .75em; line-height: 0 }
figcaption { font-size: 13px; line-height: 1.4; margin-top: 5px }
.share { display: block; color: var(--faint) }
.formula { background: var(--well); border: 1px solid var(--line); border-radius: 8px;
  padding: 10px 14px; overflow-x: auto; font-size: 17px }
.formula div { padding: 3px 0; width: max-content }
math { font-family: "Latin Modern Math", "STIX Two Math", "Cambria Math",
  "TeX Gyre DejaVu Math", "DejaVu Math TeX Gyre", math }
dl { margin: 12px 0 0; font-size: 13.5px }
dt { color: var(--faint); font-size: 12.5px }
dd { margin: 0 0 7px; overflow-wrap: anywhere }
.table { overflow-x: auto }
table { border-collapse: collapse; width: 100%; font-size: 13.5px }
th, td { text-align: right; padding: 5px 0 5px 14px; font-weight: 400; vertical-align: top;
  font-variant-numeric: tabular-nums; white-space: nowrap }
tbody th, tbody td { border-top: 1px solid var(--line) }
thead th { color: var(--faint); font-size: 12.5px }
th:first-child { text-align: left; padding-left: 0; white-space: normal }
td.by { color: var(--faint) }
.dense th, .dense td { color: var(--faint) }
.bar { display: block; height: 4px; border-radius: 2px; background: var(--bar);
  margin: 3px 0 0 auto }
.dense .bar { background: var(--dense) }
.note { color: var(--faint); font-size: 13px; margin: 8px 0 0 }
footer { color: var(--faint); font-size: 13px; margin-top: 40px }
@media (max-width: 760px) {
  body { padding: 20px 14px 32px }
  h1 { font-size: 26px }
  .columns { grid-template-columns: 1fr }
  nav ul { grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)) }
  nav li picture, nav li img { width: 48px }
  nav li picture { height: 48px }
  nav li img { height: auto; max-height: 48px }
  article { padding: 16px 14px }
  .pictures { display: grid; grid-template-columns: 1fr 1fr; width: 100%; gap: 16px 12px }
  .pictures:has(> figure:only-child) { grid-template-columns: 1fr }
  .details { flex-basis: 100% }
  th, td { padding-left: 8px; font-size: 12.5px }
  .wide { display: none }
}
"""
