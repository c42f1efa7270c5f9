#include "integration/cli/page/report_style.h"

namespace spillway::integration {

// The colors are Okabe and Ito's, which people of all kinds of color vision tell apart; they are lighter on a
// dark page.
const char kReportStyle[] = R"CSS(
:root {
  color-scheme: light dark;
  --ink: #1b1f24; --soft: #5b6570; --rule: #dfe3e8; --page: #ffffff; --tile: #f5f7f9; --quiet: #aab4bf;
  --gpu: #0072b2; --host: #e69f00; --disk: #009e73; --in: #56b4e9; --out: #d55e00; --limit: #b3261e;
  --c1: #d55e00; --c2: #56b4e9; --c3: #cc79a7; --c4: #8a939d;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --ink: #e8ebee; --soft: #a3adb8; --rule: #333b44; --page: #15181c; --tile: #1e2329; --quiet: #56616c;
    --gpu: #3d9fdc; --host: #f0b43c; --disk: #2dbd92; --in: #86cdf3; --out: #f0803c; --limit: #ff8a80;
    --c1: #f0803c; --c2: #86cdf3; --c3: #e2a0c4; --c4: #a3adb8;
  }
}
* { box-sizing: border-box; print-color-adjust: exact; }
body { margin: 0 auto; max-width: 72rem; padding: 2rem 1.25rem 4rem; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: .25rem 0 .75rem; max-width: 56rem; }
h2 { font-size: 1.2rem; margin: 2.75rem 0 .5rem; padding-top: .75rem; border-top: 1px solid var(--rule); }
p { max-width: 46rem; margin: .4rem 0; } .soft, figcaption span, .missing { color: var(--soft); }
.command { color: var(--soft); font: 13px/1.4 ui-monospace, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; max-width: none; }
.verdict { font-size: 1.05rem; max-width: 56rem; } .missing { font-size: .9rem; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(10.2rem, 1fr)); gap: .75rem; margin: 1rem 0; }
dl > div { background: var(--tile); border-radius: .5rem; padding: .6rem .8rem; }
dt { color: var(--soft); font-size: .85rem; } dd { margin: 0; font-size: 1.3rem; font-weight: 600; font-variant-numeric: tabular-nums; }
dd + small { color: var(--soft); display: block; line-height: 1.35; }
.charts { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 1.25rem 1.5rem; }
figure { margin: 0; grid-column: 1 / -1; min-width: 0; } figure.half { grid-column: auto; }
figcaption { font-weight: 600; margin-top: .75rem; } figcaption span { display: block; font-weight: 400; font-size: .9rem; max-width: 46rem; }
.plot { width: 100%; overflow: clip; } .plot > *, .plot svg { display: block; max-width: 100%; } .plot svg { height: auto; }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; list-style: none; margin: .35rem 0 .1rem; padding: 0; font-size: .85rem; }
.legend li { display: flex; align-items: center; gap: .4rem; } .legend i { display: block; width: .8rem; }
i.area { height: .8rem; background: currentColor; border-radius: 2px; } .legend i.line, .legend i.dashes { border-top: 2px solid; width: 1.2rem; } .legend i.dashes { border-top-style: dashed; }
.problem { color: var(--limit); }
.tables { display: flex; flex-wrap: wrap; gap: .5rem 3.5rem; } .wide { overflow-x: auto; margin-top: 1rem; max-width: 100%; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; }
caption { text-align: left; font-weight: 600; padding-bottom: .25rem; white-space: nowrap; }
th, td { padding: .28rem .8rem; border-bottom: 1px solid var(--rule); text-align: right; vertical-align: top; }
th { color: var(--soft); font-weight: 600; vertical-align: bottom; } .words { text-align: left; overflow-wrap: anywhere; }
td.words { min-width: 4rem; } @media screen { [data-table^=changes_] td:first-child { min-width: 9rem; } } [data-table=blocks] td:last-child { min-width: 11rem; } th:first-child, td:first-child { padding-left: 0; } td:not(.words) { white-space: nowrap; }
[data-table^=changes_] :is(td, th):not(:first-child, :last-child) { text-align: right; white-space: nowrap; }
[data-table=job] td:first-child, [data-table^=sweep] td:first-child, [data-table=settings] td:not(:nth-child(2)) { white-space: nowrap; }
@media (max-width: 44rem) {
  body { padding: 1rem .75rem 3rem; } h1 { font-size: 1.3rem; } figure.half { grid-column: 1 / -1; }
  th, td { padding: .28rem .45rem; } dl { grid-template-columns: repeat(2, minmax(0, 1fr)); }
}
@page { size: A4; margin: 14mm; }
@media print {
  body { max-width: none; padding: 0; font-size: 10pt; } h1 { font-size: 15pt; max-width: none; } h2 { margin-top: 1.2rem; }
  h2, figcaption, caption { break-after: avoid; } figure, dl > div, tr, .head { break-inside: avoid; }
  thead { display: table-header-group; } .wide { overflow: visible; } .tables { display: block; } [data-table=blocks] td:last-child { min-width: 0; } table { font-size: 8.5pt; max-width: 100%; }
  dl > div { border: 1px solid var(--rule); }
  .charts { display: block; } figure.half { width: 70%; }
}
)CSS";

// Charts are drawn one after another; the error of a chart takes its place. data-drawn on the root shows that
// all have been tried: tests wait for it. No part of Vega makes code at run time (ast), so the page's policy
// may forbid it.
const char kReportScript[] = R"JS(
"use strict";
const theme = {
  background: null, font: getComputedStyle(document.body).fontFamily, padding: {left: 2, right: 12, top: 4, bottom: 2},
  view: {stroke: null}, text: {fill: "var(--ink)"},
  axis: {labelColor: "var(--soft)", titleColor: "var(--soft)", titleFontWeight: 400, titleFontSize: 12, labelFontSize: 11,
         gridColor: "var(--rule)", domainColor: "var(--quiet)", tickColor: "var(--quiet)", tickCount: 5, titlePadding: 6},
  axisX: {tickCount: 8, labelFlush: true, labelOverlap: true},
  axisBand: {labelFontSize: 12},
};
// Of A4 less the margins of @page, in px; a half figure has 70 % of it. Text then has its own size on paper,
// too: a picture that was drawn for a window is made narrower there with all its letters.
const paper = 687;
const views = [];
function resize(width) {
  for (const [figure, view] of views) view.width(width(figure)).run();
}
addEventListener("beforeprint", () => resize(figure => Math.floor(paper * (figure.classList.contains("half") ? 0.7 : 1))));
addEventListener("afterprint", () => resize(figure => figure.querySelector(".plot").clientWidth));
async function draw(figure) {
  const plot = figure.querySelector(".plot");
  try {
    const spec = JSON.parse(figure.querySelector("script").textContent);
    spec.width = "container";
    spec.height = Number(plot.dataset.height);
    spec.autosize = {type: "fit-x", contains: "padding"};
    spec.config = theme;
    const {view} = await vegaEmbed(plot, spec, {renderer: "svg", actions: false, ast: true, defaultStyle: false, mode: "vega-lite"});
    views.push([figure, view]);
    const svg = plot.querySelector("svg");
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", figure.querySelector("figcaption").textContent);
  } catch (error) {
    plot.textContent = "This chart could not be drawn: " + error;
    plot.classList.add("problem");
    console.error(figure.dataset.chart, error);
  }
}
async function drawAll() {
  for (const figure of document.querySelectorAll("figure[data-chart]")) await draw(figure);
  document.documentElement.dataset.drawn = "yes";
}
drawAll();
)JS";

}  // namespace spillway::integration
