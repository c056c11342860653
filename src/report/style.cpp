// SPDX-License-Identifier: Apache-2.0
#include "report/style.hpp"

#include <fmt/format.h>

#include <array>

#include "report/chart.hpp"

namespace trireme::report {
namespace {

// Distinguishable with any color vision (Okabe and Ito 2008); the dark ones are lighter, for a dark page.
constexpr std::array on_white = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00",
                                 "#56b4e9", "#a0522d", "#8a8a8a", "#7b61ff", "#b5a000"};
constexpr std::array on_black = {"#3d9fe0", "#f07a28", "#14b88a", "#d98cb7", "#e6a817",
                                 "#7cc4f0", "#c4764f", "#9a9a9a", "#9d8aff", "#c9b52a"};
static_assert(on_white.size() == palette_size && on_black.size() == palette_size);

constexpr const char* rules = R"(
@media print{@page{margin:12mm}section,tr{break-inside:avoid}.charts>div{break-inside:avoid}details{display:none}}
body{background:var(--back);color:var(--text);font:14px/1.45 system-ui,sans-serif;max-width:1480px;margin:0 auto;padding:16px 24px}
h1{font-size:22px;margin:14px 0 10px}h2{font-size:17px;margin:26px 0 6px}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(520px,100%),1fr));gap:14px;margin-top:22px}
table{border-collapse:collapse}td,th{padding:2px 14px 2px 0;text-align:left;vertical-align:top}th{font-weight:600}
.n{text-align:right;font-variant-numeric:tabular-nums}tr{border-bottom:1px solid var(--grid)}tr.sum td{font-weight:600}
#facts.one{display:block;columns:2 420px;column-gap:60px}#facts.one th{width:250px}
.warning{border-left:4px solid #d55e00;padding:2px 10px;margin:4px 0}pre{overflow-x:auto;font-size:12px}
.wide,.along{margin-top:22px}.origin{margin:-4px 0 10px;opacity:.75}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(220px,45%),1fr));gap:12px;margin:14px 0}
.figures div{border:1px solid var(--grid);border-radius:6px;padding:8px 14px;display:flex;flex-direction:column}
.figures strong{font-size:30px;line-height:1.25;font-weight:600;font-variant-numeric:tabular-nums}.figures small{opacity:.75}
.along>div{display:none}#steps:checked~.steps,#tokens:checked~.tokens,#time:checked~.time{display:block}
.along label{margin-right:12px}.along input{margin:0 4px 0 0}
.small{display:none}.scroll{overflow-x:auto}.equal{opacity:.5}
#runs th,#runs td,#facts:not(.one) th{white-space:nowrap}.swatch{width:10px;height:10px;margin-right:6px}
svg{width:100%;height:auto;background:var(--back)}svg text{fill:var(--text);font:11px system-ui,sans-serif}
svg .title{font-weight:600;font-size:13px}svg .end{text-anchor:end}svg .mid{text-anchor:middle}svg .faint{opacity:.6}
.number{fill:transparent}.number:hover{fill:var(--faint)}
.raw{opacity:.3}.skipped{stroke:#d55e00;stroke-width:1.5;fill:none}svg .inside{fill:var(--back);font-size:10px;pointer-events:none}
.grid{stroke:var(--grid);fill:none}.axis{stroke:var(--faint);fill:none}.start{stroke:#d55e00;stroke-dasharray:3 3;fill:none}
@media screen and (max-width:600px){body{padding:8px 10px}h1{font-size:19px;overflow-wrap:anywhere}.large{display:none}.small{display:block}
.figures strong{font-size:22px}.figures div{padding:6px 9px}.wide svg{min-width:860px}#facts.one th{width:auto}td,th{padding-right:9px}}
)";

std::string colors(const std::array<const char*, palette_size>& palette) {
  std::string text;
  for (std::size_t i = 0; i < palette.size(); ++i) text += fmt::format(";--c{}:{}", i, palette.at(i));
  return text;
}

}  // namespace

std::string style_sheet() {
  std::string text = fmt::format(
      "\n:root{{color-scheme:light dark;--back:#fff;--text:#1c1c1c;--faint:#8888;--grid:#8883{}}}\n"
      "@media screen and (prefers-color-scheme:dark){{:root{{--back:#14161a;--text:#e4e4e4{}}}}}",
      colors(on_white), colors(on_black));
  text += rules;
  for (int i = 0; i < palette_size; ++i)
    text += fmt::format(
        ".l{0}{{stroke:var(--c{0});fill:none;stroke-width:1.5;stroke-linejoin:round}}.f{0}{{fill:var(--c{0})}}\n", i);
  return text;
}

}  // namespace trireme::report
