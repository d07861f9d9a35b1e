// What is drawn on a canvas, kept as SVG beside the pixels, so that a picture stays text.
// Covers what uPlot does; must never change what is drawn. An ink that it does not know (a
// gradient) stops the drawing, for a wrong colour would be worse than no picture.

type Point = [number, number];
const round = (value: number): string => String(Math.round(value * 10) / 10);
const points = (...given: Point[]): string => given.map(([x, y]) => `${round(x)} ${round(y)}`).join(" ");

class Trace {
  d = "";
  private at = "";
  constructor(from?: Trace) {
    if (from) this.d = from.d;
  }
  moveTo(x: number, y: number): void {
    this.at = points([x, y]);
    this.d += `M${this.at}`;
  }
  lineTo(x: number, y: number): void {
    const next = points([x, y]);
    if (!this.d) this.d = `M${next}`;
    else if (next !== this.at) this.d += `L${next}`;
    this.at = next;
  }
  rect(x: number, y: number, w: number, h: number): void {
    this.d += `M${points([x, y])}h${round(w)}v${round(h)}h${round(-w)}z`;
  }
  arc(x: number, y: number, r: number): void {
    this.d += `M${points([x - r, y])}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`;
  }
  bezierCurveTo(a: number, b: number, c: number, d: number, e: number, f: number): void {
    this.d += `C${points([a, b], [c, d], [e, f])}`;
  }
  closePath(): void {
    this.d += "z";
  }
}

const STEPS = ["moveTo", "lineTo", "rect", "arc", "bezierCurveTo", "closePath"] as const;
type Sheet = { parts: string[]; clips: string[]; saved: string[][]; path: Trace };
const sheets = new WeakMap<HTMLCanvasElement, Sheet>();
let clipCount = 0;

const sheetOf = (canvas: HTMLCanvasElement): Sheet => {
  const found = sheets.get(canvas) ?? { parts: [], clips: [], saved: [], path: new Trace() };
  sheets.set(canvas, found);
  return found;
};

const escaped = (text: string): string =>
  text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");

const ink = (style: string | CanvasGradient | CanvasPattern): string => {
  if (typeof style !== "string") throw new Error("a gradient or pattern has no place in the picture");
  return style;
};

const placed = (context: CanvasRenderingContext2D): string => {
  const m = context.getTransform();
  if (m.isIdentity) return "";
  const parts = [m.a, m.b, m.c, m.d, m.e, m.f].map((part) => Math.round(part * 1000) / 1000);
  return ` transform="matrix(${parts.join(" ")})"`;
};

const put = (context: CanvasRenderingContext2D, element: string): void => {
  const sheet = sheetOf(context.canvas);
  const open = sheet.clips.map((id) => `<g clip-path="url(#${id})">`).join("");
  sheet.parts.push(`${open}${element}${"</g>".repeat(sheet.clips.length)}`);
};

export const keepInk = (): void => {
  const traces = new WeakMap<Path2D, Trace>();
  const Native = window.Path2D;
  const traceOf = (path: Path2D): Trace => traces.get(path) as Trace;
  window.Path2D = function (from?: Path2D): Path2D {
    const path = from ? new Native(from) : new Native();
    traces.set(path, new Trace(from ? traceOf(from) : undefined));
    return path;
  } as unknown as typeof Path2D;
  window.Path2D.prototype = Native.prototype;
  const proto = CanvasRenderingContext2D.prototype as any;
  for (const step of STEPS) {
    const onPath = (Native.prototype as any)[step];
    (Native.prototype as any)[step] = function (...given: number[]) {
      (traceOf(this) as any)?.[step](...given);
      return onPath.apply(this, given);
    };
    const onCanvas = proto[step];
    proto[step] = function (...given: number[]) {
      (sheetOf(this.canvas).path as any)[step](...given);
      return onCanvas.apply(this, given);
    };
  }
  const before = (name: string, keep: (context: CanvasRenderingContext2D, given: any[]) => void): void => {
    const native = proto[name];
    proto[name] = function (...given: any[]) {
      keep(this, given);
      return native.apply(this, given);
    };
  };
  const drawn = (context: CanvasRenderingContext2D, given: any[]): Trace =>
    given[0] instanceof Native ? traceOf(given[0]) : sheetOf(context.canvas).path;
  before("beginPath", (context) => (sheetOf(context.canvas).path = new Trace()));
  before("save", (context) => sheetOf(context.canvas).saved.push([...sheetOf(context.canvas).clips]));
  before("restore", (context) => (sheetOf(context.canvas).clips = sheetOf(context.canvas).saved.pop() ?? []));
  before("clearRect", (context) => (sheetOf(context.canvas).parts = []));
  before("clip", (context, given) => {
    const id = `clip${++clipCount}`;
    const sheet = sheetOf(context.canvas);
    sheet.parts.push(
      `<clipPath id="${id}"><path d="${drawn(context, given).d}"${placed(context)}/></clipPath>`,
    );
    sheet.clips.push(id);
  });
  before("fill", (context, given) => {
    const { d } = drawn(context, given);
    if (d) put(context, `<path d="${d}" fill="${ink(context.fillStyle)}"${faint(context)}${placed(context)}/>`);
  });
  before("stroke", (context, given) => {
    const { d } = drawn(context, given);
    if (!d || context.lineWidth === 0) return;
    const dash = context.getLineDash();
    const dashed = dash.length ? ` stroke-dasharray="${dash.join(" ")}"` : "";
    const pen = `stroke="${ink(context.strokeStyle)}" stroke-width="${round(context.lineWidth)}"${dashed}`;
    put(context, `<path d="${d}" fill="none" ${pen}${faint(context)}${placed(context)}/>`);
  });
  before("fillRect", (context, [x, y, w, h]) => {
    const trace = new Trace();
    trace.rect(x, y, w, h);
    put(context, `<path d="${trace.d}" fill="${ink(context.fillStyle)}"${faint(context)}${placed(context)}/>`);
  });
  before("fillText", (context, [text, x, y]) => {
    const size = /([\d.]+)px/.exec(context.font)?.[1] ?? "12";
    const anchor = { center: "middle", right: "end", end: "end" }[context.textAlign as string] ?? "start";
    const down = { top: 0.8, hanging: 0.8, middle: 0.35 }[context.textBaseline as string] ?? 0;
    const where = `x="${round(x)}" y="${round(y + down * Number(size))}"`;
    put(
      context,
      `<text ${where} font-size="${size}" text-anchor="${anchor}" fill="${ink(context.fillStyle)}"${placed(context)}>${escaped(text)}</text>`,
    );
  });
};

const faint = (context: CanvasRenderingContext2D): string =>
  context.globalAlpha < 1 ? ` opacity="${round(context.globalAlpha)}"` : "";

export const inkOf = (canvas: HTMLCanvasElement): string => sheetOf(canvas).parts.join("");
