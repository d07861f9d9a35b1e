// One dashboard with the answers of a Prometheus, laid out as Grafana would; then as one SVG, which
// the page hands over in its element #picture. Nothing is fetched.

import { createTheme, DataFrame, dateTime, EventBusSrv, FieldType, reduceField, renderMarkdown, ThemeContext } from "@grafana/data";
import { BigValue, BigValueColorMode, BigValueGraphMode, BigValueJustifyMode, PanelContextProvider, Table, TimeSeries } from "@grafana/ui";
import * as React from "react";
import { createRoot } from "react-dom/client";

import { BarChart, HeatMap, StateTimeline } from "./drawn";
import { framesOf, learnTransformations, Panel, Series } from "./frames";
import { inkOf, keepInk } from "./ink";
import { pictureOf } from "./trace";

type Given = {
  dashboard: { title: string; panels: Panel[]; annotations: { list: { name: string; iconColor: string; useValueForTime: boolean }[] } };
  start: number;
  end: number;
  variables: Record<string, string>;
  answers: Record<string, Record<string, Series[]>>;
  marks: Record<string, Series[]>;
};
type Mark = { at: number; color: string };

const CELL = 38;
const GAP = 8;
const WIDTH = 1400;
const HEAD = 32;
const theme = createTheme({ colors: { mode: "light" } });

const marksOf = (given: Given): Mark[] =>
  given.dashboard.annotations.list.flatMap((mark) =>
    (given.marks[mark.name] ?? []).flatMap((series) =>
      [...new Set((series.values ?? []).map(([at, value]) => (mark.useValueForTime ? Number(value) : at * 1000)))].map((at) => ({
        at,
        color: theme.visualization.getColorByName(mark.iconColor),
      })),
    ),
  );

// Before the plot's own lines, as Grafana has them.
const withMarks = (marks: Mark[]) => (config: any) => {
  config.addHook("draw", (plot: any) => {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.lineWidth = 1;
    ctx.setLineDash([4, 3]);
    for (const { at, color } of marks) {
      const x = Math.round(plot.valToPos(at, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.strokeStyle = color;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  });
  return null;
};

const Stat = ({ frames, panel, width, height }: any) => {
  const field = frames[0]?.fields.find((each: any) => each.type === FieldType.number);
  const said = panel.fieldConfig.defaults.noValue ?? "No data";
  const value = field ? field.display(reduceField({ field, reducers: ["lastNotNull"] }).lastNotNull) : { text: said, numeric: NaN, color: theme.colors.text.primary };
  return (
    <BigValue
      value={{ ...value, title: "" }}
      theme={theme}
      width={width}
      height={height}
      colorMode={BigValueColorMode.Value}
      graphMode={BigValueGraphMode.None}
      justifyMode={BigValueJustifyMode.Center}
    />
  );
};

const Body = ({ frames, panel, given, width, height }: { frames: DataFrame[]; panel: Panel; given: Given; width: number; height: number }) => {
  const [from, to] = [given.start * 1000, given.end * 1000];
  if (panel.type === "text") {
    const text = panel.options.content.replace(/\$(\w+)/g, (_: string, name: string) => given.variables[name]);
    return <div className="words" dangerouslySetInnerHTML={{ __html: renderMarkdown(text) }} />;
  }
  if (panel.type === "stat") return <Stat frames={frames} panel={panel} width={width} height={height} />;
  if (!frames.length) return <div className="none">No data</div>;
  const shared = { frames, panel, theme, width, height, from, to };
  if (panel.type === "state-timeline") return <StateTimeline {...shared} />;
  if (panel.type === "barchart") return <BarChart {...shared} />;
  if (panel.type === "heatmap") return <HeatMap {...shared} />;
  if (panel.type === "table") {
    const sort = panel.options.sortBy?.map((each: any) => ({ displayName: each.displayName, desc: each.desc }));
    return <Table data={frames[0]} width={width} height={height} initialSortBy={sort} timeRange={undefined as any} />;
  }
  const range = { from: dateTime(from), to: dateTime(to), raw: { from: dateTime(from), to: dateTime(to) } };
  return (
    <TimeSeries frames={frames} timeRange={range} timeZone="utc" width={width} height={height} legend={panel.options.legend} options={panel.options}>
      {withMarks(marksOf(given)) as any}
    </TimeSeries>
  );
};

const Framed = ({ frames, panel, given }: { frames: DataFrame[]; panel: Panel; given: Given }) => {
  const { x, y, w, h } = panel.gridPos;
  const column = (WIDTH + GAP) / 24;
  const [width, height] = [Math.round(w * column - GAP), h * CELL - GAP];
  return (
    <div className="panel" data-plot={panel.type === "timeseries" && frames.length > 0} style={{ left: Math.round(x * column), top: y * CELL, width, height }}>
      <div className="title">{panel.title}</div>
      <div className="inside" style={{ width: width - 16, height: height - HEAD - 8 }}>
        <Body frames={frames} panel={panel} given={given} width={width - 16} height={height - HEAD - 8} />
      </div>
    </div>
  );
};

// A plot is there some frames after its panel; a picture taken before would show an empty one.
const allDrawn = async (): Promise<void> => {
  const missing = (): string[] =>
    [...document.querySelectorAll<HTMLElement>(".panel[data-plot=true]")]
      .filter((panel) => ![...panel.querySelectorAll("canvas")].some((canvas) => inkOf(canvas)))
      .map((panel) => panel.innerText.split("\n")[0]);
  for (let look = 0; look < 1000; look++) {
    // The clock of the page is played and runs ahead; only work gives the real one time for a frame.
    for (let turn = 0, sum = 0; turn < 3e7; turn++) sum += turn % 7;
    await new Promise((done) => setTimeout(done, 20));
    if (look > 20 && document.querySelector(".panel") && !missing().length) return;
  }
  throw new Error(`never drawn: ${missing().join(", ")}`);
};

const draw = async (given: Given): Promise<void> => {
  // Ages are told as they were at the end of the data.
  const ahead = given.end * 1000 - Date.now();
  const now = Date.now;
  Date.now = () => now() + ahead;
  keepInk();
  learnTransformations();
  const { panels } = given.dashboard;
  const frames = await Promise.all(panels.map((panel) => (panel.type === "text" ? [] : framesOf(panel, given.answers[panel.id], theme))));
  const tall = Math.max(...panels.map(({ gridPos }) => (gridPos.y + gridPos.h) * CELL));
  const board = document.getElementById("board")!;
  board.style.width = `${WIDTH}px`;
  board.style.height = `${tall}px`;
  const context: any = { eventsScope: "panel", eventBus: new EventBusSrv() };
  createRoot(board).render(
    <ThemeContext.Provider value={theme}>
      <PanelContextProvider value={context}>
        {panels.map((panel, i) => (
          <Framed key={panel.id} panel={panel} frames={frames[i]} given={given} />
        ))}
      </PanelContextProvider>
    </ThemeContext.Provider>,
  );
  await allDrawn();
  const picture = document.createElement("pre");
  picture.id = "picture";
  picture.textContent = pictureOf(board, given.dashboard.title);
  document.body.appendChild(picture);
};

const failed = (error: unknown): void => {
  const said = document.createElement("pre");
  said.id = "failed";
  said.textContent = String((error as Error)?.stack ?? error);
  document.body.appendChild(said);
};
window.addEventListener("error", (event) => failed(event.error ?? event.message));
draw((window as any).given).catch(failed);
