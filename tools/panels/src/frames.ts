// From Prometheus's answers to Grafana's data frames, as its data source makes them: names by the
// legend, values by the panel's own settings. Must never invent a point.

import {
  createDataFrame,
  DataFrame,
  FieldType,
  getDisplayProcessor,
  getFieldDisplayName,
  GrafanaTheme2,
  standardTransformers,
  standardTransformersRegistry,
  transformDataFrame,
} from "@grafana/data";
import { firstValueFrom } from "rxjs";

export type Series = { metric: Record<string, string>; values?: [number, string][]; value?: [number, string] };
export type Target = { refId: string; expr: string; legendFormat?: string; instant?: boolean };
export type Panel = any;

const named = (legend: string, labels: Record<string, string>): string =>
  legend.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, name) => labels[name] ?? "");

// A gap where nothing was scraped: Prometheus leaves the points out, Grafana shows them as null.
const whole = (series: Series, times: number[]): (number | null)[] => {
  const known = new Map((series.values ?? []).map(([at, value]) => [Math.round(at * 1000), Number(value)]));
  return times.map((at) => known.get(at) ?? null);
};

const ranged = (target: Target, answer: Series[]): DataFrame[] => {
  const times = [...new Set(answer.flatMap((series) => (series.values ?? []).map(([at]) => Math.round(at * 1000))))].sort((a, b) => a - b);
  return answer.map((series) => {
    const name = named(target.legendFormat ?? "", series.metric);
    return createDataFrame({
      refId: target.refId,
      name,
      fields: [
        { name: "Time", type: FieldType.time, values: times },
        { name, type: FieldType.number, labels: series.metric, values: whole(series, times), config: { displayNameFromDS: name } },
      ],
    });
  });
};

const tabled = (target: Target, answer: Series[]): DataFrame => {
  const labels = [...new Set(answer.flatMap((series) => Object.keys(series.metric)))].sort();
  return createDataFrame({
    refId: target.refId,
    fields: [
      { name: "Time", type: FieldType.time, values: answer.map((series) => (series.value?.[0] ?? 0) * 1000) },
      ...labels.map((label) => ({ name: label, type: FieldType.string, values: answer.map((series) => series.metric[label] ?? "") })),
      { name: `Value #${target.refId}`, type: FieldType.number, values: answer.map((series) => Number(series.value?.[1])) },
    ],
  });
};

export const learnTransformations = (): void => {
  standardTransformersRegistry.setInit(() =>
    [standardTransformers.mergeTransformer, standardTransformers.organizeFieldsTransformer, standardTransformers.sortByTransformer,
     standardTransformers.orderFieldsTransformer, standardTransformers.filterFieldsByNameTransformer, standardTransformers.renameFieldsTransformer].map(
      (transformation) => ({ id: transformation.id, name: transformation.name, transformation, editor: (() => null) as any }),
    ),
  );
};

const configured = (frame: DataFrame, panel: Panel, theme: GrafanaTheme2, from: number): DataFrame => {
  const { defaults = {}, overrides = [] } = panel.fieldConfig ?? {};
  let index = from;
  const fields = frame.fields.map((field) => {
    if (field.type === FieldType.time) return { ...field, display: getDisplayProcessor({ field, theme, timeZone: "utc" }) };
    let config: any = { ...structuredClone(defaults), ...field.config, custom: { ...(defaults.custom ?? {}) } };
    for (const override of overrides) {
      if (override.matcher.id !== "byName" || override.matcher.options !== getFieldDisplayName(field, frame)) continue;
      for (const { id, value } of override.properties) {
        if (id.startsWith("custom.")) config.custom[id.slice(7)] = value;
        else config[id] = value;
      }
    }
    if (field.type === FieldType.string) delete config.unit;
    const made: any = { ...field, config, state: { ...field.state, seriesIndex: index } };
    if (field.type === FieldType.number) index += 1;
    made.display = getDisplayProcessor({ field: made, theme, timeZone: "utc" });
    return made;
  });
  return { ...frame, fields };
};

export const framesOf = async (panel: Panel, answers: Record<string, Series[]>, theme: GrafanaTheme2): Promise<DataFrame[]> => {
  let frames = (panel.targets as Target[]).flatMap((target) => {
    const answer = answers[target.refId] ?? [];
    if (target.instant) return answer.length ? [tabled(target, answer)] : [];
    return ranged(target, answer);
  });
  if (panel.transformations?.length)
    frames = await firstValueFrom(transformDataFrame(panel.transformations, frames, { interpolate: (text: string) => text }));
  let count = 0;
  return frames.map((frame) => {
    const made = configured(frame, panel, theme, count);
    count += frame.fields.filter((field) => field.type === FieldType.number).length;
    return made;
  });
};
