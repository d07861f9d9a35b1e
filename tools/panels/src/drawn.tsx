// Those panels whose drawing is Grafana's own and in none of its packages: state timeline, bar chart,
// heat map. Units, words and colours come from Grafana's packages all the same. Must never smooth or
// sort what was asked for.

import { DataFrame, FieldType, formattedValueToString, getFieldDisplayName, getValueFormat, GrafanaTheme2 } from "@grafana/data";
import { LegendDisplayMode, VizLegend } from "@grafana/ui";
import * as React from "react";

type Props = { frames: DataFrame[]; panel: any; theme: GrafanaTheme2; width: number; height: number; from: number; to: number };
const AXIS = 22;

const clock = (at: number): string => new Date(at).toISOString().slice(11, 16);

export const timeTicks = (from: number, to: number): number[] => {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120].map((minutes) => minutes * 60_000);
  const step = steps.find((each) => (to - from) / each <= 8) ?? steps[steps.length - 1];
  const first = Math.ceil(from / step) * step;
  return Array.from({ length: Math.floor((to - first) / step) + 1 }, (_, i) => first + i * step);
};

const TimeAxis = ({ from, to, left, width, top, theme }: any) => (
  <>
    {timeTicks(from, to).map((at) => {
      const x = left + ((at - from) / (to - from)) * (width - left);
      return (
        <text key={at} x={Math.min(x, width - 18)} y={top + 15} fontSize={12} textAnchor="middle" fill={theme.colors.text.secondary}>
          {clock(at)}
        </text>
      );
    })}
  </>
);

export const StateTimeline = ({ frames, panel, theme, width, height, from, to }: Props) => {
  const rows = frames.map((frame) => ({ time: frame.fields[0].values as number[], field: frame.fields[1] }));
  const names = rows.map(({ field }) => field.config.displayNameFromDS ?? field.name);
  const left = Math.min(180, 14 + 7.2 * Math.max(4, ...names.map((name) => name.length)));
  const mapping = panel.fieldConfig.defaults.mappings?.[0]?.options ?? {};
  const entries: any[] = panel.options.legend?.showLegend ? Object.values(mapping) : [];
  const legend = entries.length ? 34 : 0;
  const rowHeight = (height - AXIS - legend) / Math.max(1, rows.length);
  const bar = rowHeight * (panel.options.rowHeight ?? 0.9);
  const at = (time: number): number => left + ((time - from) / (to - from)) * (width - left);
  return (
    <>
      <svg width={width} height={height - legend}>
        {rows.map(({ time, field }, row) => {
          const spans: { begin: number; end: number; value: number }[] = [];
          time.forEach((begin, i) => {
            const value = field.values[i];
            const end = time[i + 1] ?? Math.min(to, begin + (begin - (time[i - 1] ?? begin)));
            if (value === null || Number.isNaN(value)) return;
            const last = spans[spans.length - 1];
            if (last && last.value === value && last.end === begin) last.end = end;
            else spans.push({ begin, end, value });
          });
          const y = row * rowHeight + (rowHeight - bar) / 2;
          return (
            <React.Fragment key={row}>
              <text x={left - 8} y={y + bar / 2 + 4} fontSize={12} textAnchor="end" fill={theme.colors.text.primary}>{names[row].length > 23 ? `…${names[row].slice(-22)}` : names[row]}</text>
              {spans.map(({ begin, end, value }) => {
                const shown = field.display!(value);
                const text = formattedValueToString(shown);
                const room = at(end) - at(begin);
                return (
                  <React.Fragment key={begin}>
                    <rect x={at(begin)} y={y} width={Math.max(1, room)} height={bar} fill={shown.color} fillOpacity={0.8} />
                    {room > 8 * text.length + 6 && bar > 13 ? (
                      <text x={at(begin) + 5} y={y + bar / 2 + 4} fontSize={12} fill={theme.colors.getContrastText(shown.color ?? "#000")}>{text}</text>
                    ) : null}
                  </React.Fragment>
                );
              })}
            </React.Fragment>
          );
        })}
        <TimeAxis from={from} to={to} left={left} width={width} top={height - legend - AXIS} theme={theme} />
      </svg>
      {legend ? (
        <VizLegend
          placement="bottom"
          displayMode={LegendDisplayMode.List}
          items={entries.map((each) => ({ label: each.text, color: theme.visualization.getColorByName(each.color), yAxis: 1 }))}
        />
      ) : null}
    </>
  );
};

export const BarChart = ({ frames, panel, theme, width, height }: Props) => {
  const frame = frames[0];
  const x = frame.fields.find((field) => field.name === panel.options.xField)!;
  const stacks = frame.fields.filter((field) => field.type === FieldType.number);
  const left = 80;
  const low = 92;
  const legend = 34;
  const tall = height - legend - low;
  const most = Math.max(...x.values.map((_, i) => stacks.reduce((sum, field) => sum + (field.values[i] ?? 0), 0)));
  const { length } = x.values;
  const step = (width - left) / length;
  const wide = step * panel.options.barWidth;
  const shown = stacks.filter((field) => !(field.config.custom as any)?.hideFrom?.legend);
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((part) => part * most);
  return (
    <>
      <svg width={width} height={height - legend}>
        {ticks.map((tick) => {
          const y = 8 + (tall - 8) * (1 - tick / most);
          return (
            <React.Fragment key={tick}>
              <path d={`M${left} ${y}H${width}`} stroke={theme.colors.border.weak} />
              <text x={left - 6} y={y + 4} fontSize={12} textAnchor="end" fill={theme.colors.text.secondary}>
                {formattedValueToString(stacks[0].display!(tick))}
              </text>
            </React.Fragment>
          );
        })}
        {Array.from({ length }, (_, i) => {
          let under = 0;
          const middle = left + i * step + step / 2;
          return (
            <React.Fragment key={i}>
              {stacks.map((field) => {
                const value = field.values[i];
                if (value === null || value === undefined || Number.isNaN(value)) return null;
                const y = 8 + (tall - 8) * (1 - (under + value) / most);
                under += value;
                const color = theme.visualization.getColorByName((field.config.color as any)?.fixedColor ?? "gray");
                if ((field.config.color as any)?.fixedColor === "transparent") return null;
                return <rect key={field.name} x={middle - wide / 2} y={y} width={wide} height={Math.max(0.5, ((tall - 8) * value) / most)} fill={color} fillOpacity={0.8} />;
              })}
              <text x={middle + 4} y={tall + 14} fontSize={12} textAnchor="end" fill={theme.colors.text.secondary} transform={`rotate(${panel.options.xTickLabelRotation} ${middle + 4} ${tall + 14})`}>
                {formattedValueToString(x.display!(x.values[i]))}
              </text>
            </React.Fragment>
          );
        })}
      </svg>
      <VizLegend
        placement="bottom"
        displayMode={LegendDisplayMode.List}
        items={shown.map((field) => ({ label: getFieldDisplayName(field, frame), color: theme.visualization.getColorByName((field.config.color as any).fixedColor), yAxis: 1 }))}
      />
    </>
  );
};

// Each frame is one upper bound, cumulative as Prometheus has them.
export const HeatMap = ({ frames, panel, theme, width, height, from, to }: Props) => {
  const boundOf = (frame: DataFrame): number => Number(frame.fields[1].labels!.le.replace("+Inf", "Infinity"));
  const sorted = [...frames].sort((a, b) => (boundOf(a) < boundOf(b) ? -1 : 1));
  const bounds = sorted.map(boundOf);
  const format = getValueFormat(panel.options.yAxis.unit);
  const left = 62;
  const tall = (height - AXIS) / Math.max(1, sorted.length);
  const counts = sorted.map((frame, row) => frame.fields[1].values.map((value: number | null, i: number) => Math.max(0, (value ?? 0) - (row ? sorted[row - 1].fields[1].values[i] ?? 0 : 0))));
  const most = Math.max(...counts.flat(), 1e-9);
  const times = sorted[0]?.fields[0].values ?? [];
  const at = (time: number): number => left + ((time - from) / (to - from)) * (width - left);
  return (
    <svg width={width} height={height}>
      {sorted.map((_, row) => {
        const y = height - AXIS - (row + 1) * tall;
        const text = bounds[row] === Infinity ? "more" : formattedValueToString(format(bounds[row]));
        return (
          <React.Fragment key={row}>
            <text x={left - 6} y={y + tall / 2 + 4} fontSize={Math.min(12, tall)} textAnchor="end" fill={theme.colors.text.secondary}>{text}</text>
            {counts[row].map((count: number, i: number) =>
              count > 1e-6 ? (
                <rect key={i} x={at(times[i])} y={y + 0.5} width={Math.max(1, at(times[i + 1] ?? times[i]) - at(times[i]))} height={tall - 1} fill={theme.visualization.getColorByName("orange")} fillOpacity={Math.round((0.15 + (0.85 * count) / most) * 100) / 100} />
              ) : null,
            )}
          </React.Fragment>
        );
      })}
      <TimeAxis from={from} to={to} left={left} width={width} top={height - AXIS} theme={theme} />
    </svg>
  );
};
