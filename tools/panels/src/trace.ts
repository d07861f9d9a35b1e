// A laid-out page as one SVG: grounds, borders, words and what was drawn on canvases.
// Must never draw what a reader of the page would not see: what is clipped away or empty is left out.

import { inkOf } from "./ink";

const round = (value: number): number => Math.round(value * 10) / 10;
const escaped = (text: string): string =>
  text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");
const isClear = (color: string): boolean => color === "transparent" || /^rgba\(.*,\s*0\)$/.test(color);

type Box = { left: number; top: number; right: number; bottom: number };

const within = (rect: DOMRect, clip: Box): boolean =>
  rect.left >= clip.left - 1 && rect.right <= clip.right + 1 && rect.top >= clip.top - 2 && rect.bottom <= clip.bottom + 2;

const cut = (rect: DOMRect, clip: Box): Box => ({
  left: Math.max(rect.left, clip.left),
  top: Math.max(rect.top, clip.top),
  right: Math.min(rect.right, clip.right),
  bottom: Math.min(rect.bottom, clip.bottom),
});

const ground = (style: CSSStyleDeclaration, rect: DOMRect): string => {
  const filled = !isClear(style.backgroundColor);
  const width = parseFloat(style.borderTopWidth);
  const edged = width > 0 && style.borderTopStyle === "solid" && !isClear(style.borderTopColor);
  const under = parseFloat(style.borderBottomWidth);
  const radius = Math.min(parseFloat(style.borderTopLeftRadius) || 0, rect.height / 2, 8);
  let found = "";
  if (filled || (edged && under > 0)) {
    const inset = edged && under > 0 ? width / 2 : 0;
    const edge = inset ? ` stroke="${style.borderTopColor}" stroke-width="${width}"` : "";
    found += `<rect x="${round(rect.left + inset)}" y="${round(rect.top + inset)}" width="${round(rect.width - 2 * inset)}" height="${round(rect.height - 2 * inset)}"${radius ? ` rx="${radius}"` : ""} fill="${filled ? style.backgroundColor : "none"}"${edge}/>`;
  }
  if (under > 0 && width === 0 && style.borderBottomStyle === "solid" && !isClear(style.borderBottomColor)) {
    const y = round(rect.bottom - under / 2);
    found += `<path d="M${round(rect.left)} ${y}H${round(rect.right)}" stroke="${style.borderBottomColor}" stroke-width="${under}"/>`;
  }
  return found;
};

// One element for each line of a text that is broken.
const words = (node: Text, style: CSSStyleDeclaration, clip: Box): string => {
  const range = document.createRange();
  const text = node.data;
  const lines: { text: string; rect: DOMRect }[] = [];
  for (let i = 0; i < text.length; i++) {
    range.setStart(node, i);
    range.setEnd(node, i + 1);
    const rect = range.getClientRects()[0];
    if (!rect || rect.width === 0) continue;
    const last = lines[lines.length - 1];
    const isSpace = !text[i].trim();
    if (last && Math.abs(last.rect.top - rect.top) < 2) {
      last.text += text[i];
      if (!isSpace) last.rect = new DOMRect(last.rect.x, last.rect.y, rect.right - last.rect.x, last.rect.height);
    } else if (!isSpace) lines.push({ text: text[i], rect });
  }
  const size = parseFloat(style.fontSize);
  return lines
    .map(({ text, rect }) => {
      if (!text.trim() || rect.bottom < clip.top || rect.top > clip.bottom || rect.left > clip.right) return "";
      let said = text;
      if (rect.right > clip.right + 1) {
        const fits = Math.floor((text.length * (clip.right - rect.left)) / rect.width) - 1;
        said = `${text.slice(0, Math.max(0, fits))}…`;
      } else if (!within(rect, clip)) return "";
      const y = round(rect.top + rect.height / 2 + size * 0.35);
      const weight = Number(style.fontWeight) >= 500 ? ` font-weight="${style.fontWeight}"` : "";
      const family = /mono/i.test(style.fontFamily) ? ' font-family="monospace"' : "";
      return `<text x="${round(rect.left)}" y="${y}" font-size="${round(size)}" textLength="${round(said === text ? rect.width : clip.right - rect.left)}" lengthAdjust="spacingAndGlyphs" fill="${style.color}"${weight}${family}>${escaped(said.trimEnd())}</text>`;
    })
    .join("");
};

const traced = (element: Element, clip: Box): string => {
  const style = getComputedStyle(element);
  const rect = element.getBoundingClientRect();
  if (style.display === "none" || style.visibility === "hidden" || Number(style.opacity) === 0) return "";
  if (element instanceof HTMLCanvasElement)
    return `<svg x="${round(rect.left)}" y="${round(rect.top)}" width="${round(rect.width)}" height="${round(rect.height)}">${inkOf(element)}</svg>`;
  if (element instanceof SVGSVGElement) {
    const copy = element.cloneNode(true) as SVGSVGElement;
    copy.removeAttribute("class");
    copy.setAttribute("x", String(round(rect.left)));
    copy.setAttribute("y", String(round(rect.top)));
    copy.setAttribute("width", String(round(rect.width)));
    copy.setAttribute("height", String(round(rect.height)));
    if (!copy.getAttribute("fill")) copy.setAttribute("fill", style.color);
    return new XMLSerializer().serializeToString(copy);
  }
  let inner = clip;
  if (style.overflowX !== "visible" || style.overflowY !== "visible") inner = cut(rect, clip);
  let found = rect.width > 0 && rect.height > 0 && rect.top < clip.bottom && rect.left < clip.right ? ground(style, rect) : "";
  for (const child of element.childNodes) {
    if (child instanceof Element) found += traced(child, inner);
    else if (child instanceof Text) found += words(child, style, inner);
  }
  return found;
};

export const pictureOf = (element: Element, title: string): string => {
  const { width, height } = element.getBoundingClientRect();
  const box = { left: 0, top: 0, right: width, bottom: height };
  const head = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${round(width)} ${round(height)}" font-family="Inter, Helvetica, Arial, sans-serif" role="img">`;
  return `${head}<title>${escaped(title)}</title>${traced(element, box)}</svg>\n`;
};
