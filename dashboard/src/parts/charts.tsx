// Small pictures of numbers, drawn as SVG: no library, nothing that a strict content security policy would mind.
import { useState } from "react";
import type { SeriesView as Series } from "../api/schema";
import { serverClock } from "../clock";
import { shortCount } from "../format";
import { useWords } from "../i18n";

/** A curve the size of a word; with a `label` it speaks for itself, without one the number beside it does. */
export function Sparkline(props: { values: readonly number[]; colour?: string; label?: string }) {
  const { values, colour = "var(--faint)", label } = props;
  const top = Math.max(1, ...values);
  const width = 100 / Math.max(1, values.length);
  return (
    <svg
      role="img"
      aria-label={label ?? ""}
      aria-hidden={label === undefined}
      viewBox="0 0 100 24"
      preserveAspectRatio="none"
      className="h-6 w-full"
    >
      <path d="M0 23.5H100" stroke="var(--line)" strokeWidth="1" vectorEffect="non-scaling-stroke" />
      {values.map((value, index) => {
        const height = value === 0 ? 0 : Math.max(1.5, (value / top) * 23);
        return (
          <rect key={index} x={index * width} y={24 - height} width={width * 0.72} height={height} fill={colour} />
        );
      })}
    </svg>
  );
}

/** A round number that is not below the highest bar. */
export function roundTop(value: number): number {
  const steps = [1, 2, 3, 4, 5, 6, 8, 10];
  const power = 10 ** Math.floor(Math.log10(Math.max(1, value)));
  const step = steps.find((one) => one * power >= value) ?? 10;
  return Math.max(4, step * power);
}

const HEIGHT = 132;

/** What has happened, left of now; what will come due, right of it, in the colour of running time. */
export function Throughput({ series: whole }: { series: Series }) {
  // What is near in the future is worth more room than what is far: a third of what the past has.
  const ahead = Math.ceil(whole.points.length / 3);
  const series = { ...whole, forecast: whole.forecast.slice(0, ahead) };
  const { t, language } = useWords();
  const [hovered, setHovered] = useState<number>();
  const past = series.points;
  const bars = [
    ...past.map((point) => ({ at: point.at, point, due: 0 })),
    ...series.forecast.map((one) => ({ at: one.at, point: undefined, due: one.due })),
  ];
  const top = roundTop(Math.max(1, ...past.map((point) => point.succeeded + point.failed + point.dead)));
  // What is to come has a scale of its own: beside a busy past it would not be seen.
  const topDue = roundTop(Math.max(1, ...series.forecast.map((one) => one.due)));
  const width = 1000 / Math.max(1, bars.length);
  const y = (value: number) => (value / top) * HEIGHT;
  const time = new Intl.DateTimeFormat(language, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  const shown = hovered === undefined ? undefined : bars[hovered];
  const now = past.length * width;
  const totals = past.reduce(
    (sum, point) => ({
      good: sum.good + point.succeeded,
      failed: sum.failed + point.failed,
      dead: sum.dead + point.dead,
    }),
    { good: 0, failed: 0, dead: 0 },
  );
  const due = series.forecast.reduce((sum, one) => sum + one.due, 0);
  return (
    <figure className="px-3.5 pt-2.5 pb-2">
      <figcaption className="mb-1.5 flex min-h-5 flex-wrap items-center gap-x-4 gap-y-1 text-xs">
        <Legend colour="var(--good)" name={t("chart.succeeded")} value={shown ? shown.point?.succeeded : totals.good} />
        <Legend colour="var(--mute)" name={t("chart.failed")} value={shown ? shown.point?.failed : totals.failed} />
        <Legend colour="var(--bad)" name={t("chart.dead")} value={shown ? shown.point?.dead : totals.dead} />
        <Legend
          colour="var(--time)"
          name={t("chart.due")}
          value={shown ? (shown.point ? undefined : shown.due) : due}
        />
        <span className="label ml-auto font-mono">{shown ? time.format(Date.parse(shown.at)) : ""}</span>
      </figcaption>
      <div className="relative">
        <svg
          role="img"
          aria-label={t("chart.summary", { good: totals.good, failed: totals.failed, dead: totals.dead, due })}
          viewBox={`0 0 1000 ${HEIGHT}`}
          preserveAspectRatio="none"
          className="h-36 w-full"
          onPointerMove={(event) => {
            const box = event.currentTarget.getBoundingClientRect();
            const index = Math.floor(((event.clientX - box.left) / box.width) * bars.length);
            setHovered(index >= 0 && index < bars.length ? index : undefined);
          }}
          onPointerLeave={() => setHovered(undefined)}
        >
          {[0.5, 1].map((part) => (
            <path
              key={part}
              d={`M0 ${HEIGHT - HEIGHT * part + 0.5}H1000`}
              stroke="var(--line)"
              strokeWidth="1"
              vectorEffect="non-scaling-stroke"
            />
          ))}
          {hovered !== undefined && <rect x={hovered * width} y="0" width={width} height={HEIGHT} fill="var(--line)" />}
          {bars.map((bar, index) => {
            const x = index * width + width * 0.12;
            const w = width * 0.76;
            if (!bar.point) {
              const height = bar.due === 0 ? 0 : Math.max(2, (bar.due / topDue) * HEIGHT);
              return (
                <rect
                  key={bar.at}
                  x={x}
                  y={HEIGHT - height}
                  width={w}
                  height={height}
                  fill="var(--time)"
                  fillOpacity="0.65"
                />
              );
            }
            const parts = [
              { key: "good", value: bar.point.succeeded, fill: "var(--good)" },
              { key: "failed", value: bar.point.failed, fill: "var(--mute)" },
              { key: "dead", value: bar.point.dead, fill: "var(--bad)" },
            ];
            let foot = HEIGHT;
            return (
              <g key={bar.at}>
                {parts.map(({ key, value, fill }) => {
                  if (value === 0) return null;
                  const height = Math.max(1.5, y(value));
                  foot -= height;
                  return <rect key={key} x={x} y={foot} width={w} height={height} fill={fill} />;
                })}
              </g>
            );
          })}
          <path
            d={`M0 ${HEIGHT - 0.5}H1000`}
            stroke="var(--line-strong)"
            strokeWidth="1"
            vectorEffect="non-scaling-stroke"
          />
          <path
            d={`M${now} 0V${HEIGHT}`}
            stroke="var(--time)"
            strokeWidth="1"
            strokeDasharray="2 3"
            vectorEffect="non-scaling-stroke"
          />
        </svg>
        <span aria-hidden="true" className="label pointer-events-none absolute top-0.5 left-0 font-mono">
          {shortCount(top)}
        </span>
        {due > 0 && (
          <span
            aria-hidden="true"
            className="pointer-events-none absolute top-0.5 right-0 font-mono text-2xs text-time"
          >
            {shortCount(topDue)}
          </span>
        )}
      </div>
      <Axis series={series} share={past.length / Math.max(1, bars.length)} format={(at) => time.format(at)} />
    </figure>
  );
}

function Axis({ series, share, format }: { series: Series; share: number; format: (at: number) => string }) {
  const { t } = useWords();
  const end = series.forecast.at(-1);
  return (
    <div aria-hidden="true" className="label relative mt-1 h-4 font-mono">
      <span className="absolute left-0">{format(Date.parse(series.from))}</span>
      {share > 0.3 && (
        <span className="absolute -translate-x-1/2" style={{ left: `${share * 50}%` }}>
          {format((Date.parse(series.from) + Math.min(serverClock.now(), Date.parse(series.until))) / 2)}
        </span>
      )}
      <span className="absolute -translate-x-1/2 font-sans text-time" style={{ left: `${share * 100}%` }}>
        {t("chart.now")}
      </span>
      {end && share < 0.93 && <span className="absolute right-0">{format(Date.parse(end.at) + series.stepMs)}</span>}
    </div>
  );
}

function Legend({ colour, name, value }: { colour: string; name: string; value: number | undefined }) {
  const { language } = useWords();
  return (
    <span className="inline-flex items-center gap-1.5">
      <span aria-hidden="true" className="size-2 rounded-[2px]" style={{ background: colour }} />
      <span className="text-soft">{name}</span>
      <span className="min-w-4 font-mono text-ink">
        {value === undefined ? "–" : new Intl.NumberFormat(language).format(value)}
      </span>
    </span>
  );
}

/** Bars for a list of delays, the longest one as wide as the place. */
export function Delays({
  delays,
}: {
  delays: readonly { retry: number; delay: string; delayMs: number; after: string }[];
}) {
  const { t } = useWords();
  const longest = Math.max(1, ...delays.map((one) => one.delayMs));
  return (
    <table className="w-full text-xs">
      <thead className="label text-left">
        <tr>
          <th className="w-16 py-1 font-normal">{t("policy.retry")}</th>
          <th className="py-1 font-normal">{t("policy.delay")}</th>
          <th className="w-24 py-1 text-right font-normal">{t("policy.after")}</th>
        </tr>
      </thead>
      <tbody>
        {delays.map((one) => (
          <tr key={one.retry}>
            <td className="py-0.5 font-mono text-faint">{one.retry}</td>
            <td className="py-0.5">
              <div className="flex items-center gap-2">
                <div className="h-2.5 min-w-px bg-soft" style={{ width: `${(one.delayMs / longest) * 78}%` }} />
                <span className="whitespace-nowrap font-mono">{one.delay}</span>
              </div>
            </td>
            <td className="py-0.5 text-right font-mono text-faint">{one.after}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
