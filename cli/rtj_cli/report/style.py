"""How the page looks: light, dark and on paper. Colours of both kinds keep a contrast of 4.5."""

from __future__ import annotations

_LIGHT = """
--ground:#fff;--ink:#1c2128;--dim:#57606a;--line:#d8dee4;--card:#f6f8fa;--good:#1a7f37;
--bad:#b42318;--warn:#8a5a00;--c0:#0b62c4;--c1:#8a3ffc;--c2:#9a5b00;--c3:#00706b;--c4:#b0126f;
--c5:#505a64;--work:#2f7d4f;--wait:#c3cad2;--lost:#c4432f;--stage:#6b8fc7;--stage2:#a98ad0;
--stage3:#d09a3a;"""
_DARK = """
--ground:#0f1419;--ink:#e3e8ed;--dim:#9aa5b1;--line:#2d3742;--card:#171e26;--good:#5bc27d;
--bad:#ff8a7a;--warn:#e5b455;--c0:#6cb0ff;--c1:#bfa0ff;--c2:#e5b455;--c3:#4fd0c7;--c4:#ff86c8;
--c5:#a8b3bf;--work:#4fae76;--wait:#46525f;--lost:#ef7d6a;--stage:#7ba3de;--stage2:#b99ce0;
--stage3:#d9ab55;"""

STYLE = (
    f":root{{color-scheme:light dark;{_LIGHT}}}"
    f"@media (prefers-color-scheme:dark){{:root{{{_DARK}}}}}"
    f"@media print{{:root{{{_LIGHT}}}}}"
    """
*{box-sizing:border-box}
body{margin:0 auto;max-width:1060px;padding:1.5rem 1rem 4rem;background:var(--ground);
color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;
overflow-wrap:anywhere}
h1{font-size:1.6rem;margin:0 0 .2rem}h2{font-size:1.15rem;margin:2.2rem 0 .6rem}
h3{font-size:1rem;margin:1.2rem 0 .3rem}p{margin:.3rem 0}.dim{color:var(--dim)}
code,pre{font:13px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
pre{background:var(--card);padding:.6rem .8rem;border-radius:6px;white-space:pre-wrap;
margin:.4rem 0}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));
gap:.7rem;margin:1rem 0}
.fact{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.55rem .8rem}
.fact b{display:block;font-size:1.25rem;line-height:1.3}
.fact span{color:var(--dim);font-size:.85rem}
.why{border-left:4px solid var(--c0);background:var(--card);padding:.7rem 1rem;
border-radius:0 8px 8px 0}
.why.bad{border-color:var(--bad)}.why.good{border-color:var(--good)}
.why ul{margin:.3rem 0;padding-left:1.2rem}
.missing{border:1px solid var(--warn);border-radius:8px;padding:.5rem .9rem;margin:1rem 0}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.88rem}
th,td{text-align:left;vertical-align:top;padding:.3rem .7rem .3rem 0;
border-bottom:1px solid var(--line)}
th{color:var(--dim);font-weight:600}td.number{font-variant-numeric:tabular-nums;white-space:nowrap}
td{min-width:4rem}
.scroll{overflow-x:auto}
svg{display:block;width:100%;min-width:640px;height:auto}
svg .t{fill:var(--ink);font:12px system-ui,sans-serif}.grid{stroke:var(--line);stroke-width:1}
.fault{fill:var(--bad)}.save{fill:var(--c0)}.work{stroke:var(--work);stroke-width:2.5}
.back{stroke:var(--lost);stroke-width:1.2;stroke-dasharray:4 3}.line{fill:none;stroke-width:1.8}
.key{display:flex;flex-wrap:wrap;gap:.2rem 1rem;font-size:.85rem;color:var(--dim);margin:.3rem 0}
.key i{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin-right:.35em}
.s-training,.b-productive{fill:var(--work);background:var(--work)}
.s-waiting,.b-queue,.b-suspended,.b-together{fill:var(--wait);background:var(--wait)}
.s-detect,.b-detect,.s-decide,.b-decide,.b-lost{fill:var(--lost);background:var(--lost)}
.s-back_off,.b-hold{fill:var(--c5);background:var(--c5)}
.s-schedule,.b-schedule{fill:var(--stage2);background:var(--stage2)}
.s-prepare,.s-restore,.b-restore{fill:var(--stage);background:var(--stage)}
.s-start,.s-warm_up,.b-start,.b-checkpointStall{fill:var(--stage3);background:var(--stage3)}
.attempt{border-top:1px solid var(--line);padding:.5rem 0}
details{margin:.2rem 0}summary{cursor:pointer;color:var(--dim)}
@media print{body{max-width:none;padding:0;font-size:11px}h2{break-after:avoid}
.attempt,.fact,svg,tr{break-inside:avoid}svg{min-width:0}.wide,.scroll{overflow:visible}}
"""
    + "".join(
        f".a{index}.line{{stroke:var(--c{index})}}"
        f".a{index}.dot,svg .a{index}.name{{fill:var(--c{index})}}"
        for index in range(6)
    )
)
