// What an outage would cost under a policy, beside what others do: the picture of `redrive simulate`, on one scale for all.
import { useState } from "react";
import { useOutage } from "../api/queries";
import type { CourseView, SimulationView } from "../api/schema";
import { count, duration } from "../format";
import { type Key, useWords } from "../i18n";
import { Panel, Trouble } from "./basics";

const ARRIVALS = [5, 10, 20, 40];
const ROOM = [1.5, 2, 4];
const OUTAGES = ["30s", "1m", "2m", "5m"];

/** Under `policy`; if it `waits`, somebody is still writing it and says when it is to be tried. */
export function OutagePanel({ policy, name, waits }: { policy: unknown; name: string; waits: boolean }) {
  const { t } = useWords();
  const [arrivals, setArrivals] = useState(20);
  const [room, setRoom] = useState(2);
  const [outage, setOutage] = useState("1m");
  const [tried, setTried] = useState<string>();
  const key = JSON.stringify(policy);
  const asked = { arrivalsPerSecond: arrivals, capacityPerSecond: Math.ceil(arrivals * room), outage };
  const isWanted = policy !== undefined && (!waits || tried === key);
  const { data, error, isFetching } = useOutage(isWanted ? policy : undefined, asked);
  return (
    <Panel
      title={t("outage.title")}
      tools={
        <div className="flex flex-wrap justify-end gap-x-3 gap-y-1 py-1.5">
          <Choice
            label={t("outage.arrivals")}
            value={arrivals}
            all={ARRIVALS}
            set={setArrivals}
            show={(n) => `${n}/s`}
          />
          <Choice label={t("outage.bears")} value={room} all={ROOM} set={setRoom} show={(n) => `× ${n}`} />
          <Choice label={t("outage.length")} value={outage} all={OUTAGES} set={setOutage} show={(text) => text} />
        </div>
      }
    >
      {!isWanted && (
        <p className="px-3.5 py-6 text-center">
          <button type="button" className="button" disabled={policy === undefined} onClick={() => setTried(key)}>
            {t("outage.try")}
          </button>
        </p>
      )}
      {isWanted && error && <Trouble error={error} />}
      {isWanted && !data && !error && (
        <p role="status" className="px-3.5 py-12 text-center text-faint">
          {t("outage.working")}
        </p>
      )}
      {isWanted && data && !error && (
        <div data-testid="outage" aria-busy={isFetching} className={isFetching ? "opacity-50" : ""}>
          <Picture simulation={data} name={name} />
        </div>
      )}
    </Panel>
  );
}

interface ChoiceProps<T> {
  label: string;
  value: T;
  all: readonly T[];
  set: (value: T) => void;
  show: (value: T) => string;
}

function Choice<T extends string | number>({ label, value, all, set, show }: ChoiceProps<T>) {
  return (
    <label className="label flex items-center gap-1.5">
      {label}
      <select
        className="field h-6 py-0 text-2xs"
        value={String(value)}
        onChange={(event) => set(all.find((one) => String(one) === event.target.value) ?? value)}
      >
        {all.map((one) => (
          <option key={one} value={String(one)}>
            {show(one)}
          </option>
        ))}
      </select>
    </label>
  );
}

/** What the server calls the rules of others. */
const names: Record<string, Key> = {
  "exponential, full jitter": "outage.jitter",
  "Sidekiq's formula": "outage.sidekiq",
  "River's formula": "outage.river",
  "breaker without ramp": "outage.breaker",
};

function Picture({ simulation, name }: { simulation: SimulationView; name: string }) {
  const { t, language } = useWords();
  const { courses, collapsePerSecond, capacityPerSecond, downFrom, downUntil } = simulation;
  const [ours] = courses;
  const called = (course: CourseView) =>
    course === ours ? t("outage.ours", { name }) : t(names[course.name] ?? "outage.other", { name: course.name });
  return (
    <div className="space-y-3 p-3.5">
      {ours && (
        <p className="max-w-3xl text-soft">
          {t("outage.says", {
            down: duration((downUntil - downFrom) * 1_000),
            calls: ours.callsWhileDown,
            dead: ours.dead,
            drained: seconds(ours.drainedAfter, t("outage.never")),
            ideal: seconds(ours.ideal, "–"),
          })}
        </p>
      )}
      <p className="label flex flex-wrap gap-x-4">
        <span>{t("outage.calls")}</span>
        <span className="inline-flex items-center gap-1.5">
          <span aria-hidden="true" className="size-2 bg-bad opacity-30" />
          {t("outage.down")}
        </span>
        <span>{t("outage.line", { bears: capacityPerSecond, top: collapsePerSecond })}</span>
      </p>
      {courses.map((course) => (
        <figure key={course.name}>
          <figcaption className={`mb-0.5 text-xs ${course === ours ? "font-medium" : "text-soft"}`}>
            {called(course)}
          </figcaption>
          <Curve
            simulation={simulation}
            course={course}
            isOurs={course === ours}
            label={t("outage.curve", {
              name: called(course),
              calls: course.calls,
              wasted: course.wasted,
              peak: course.peakPerSecond,
            })}
          />
        </figure>
      ))}
      <div className="overflow-x-auto border-t pt-2">
        <table className="w-full text-xs whitespace-nowrap">
          <thead className="label text-right">
            <tr>
              <th className="py-1 pr-4 text-left font-normal">{t("outage.rule")}</th>
              {(["calls", "wasted", "whiledown", "failures", "dead", "peak", "drained", "ideal"] as const).map(
                (one) => (
                  <th key={one} className="py-1 pl-4 font-normal">
                    {t(`outage.column.${one}`)}
                  </th>
                ),
              )}
            </tr>
          </thead>
          <tbody className="text-right font-mono">
            {courses.map((course) => (
              <tr key={course.name} className={course === ours ? "font-medium text-ink" : "text-soft"}>
                <td className="py-1 pr-4 text-left font-sans">{called(course)}</td>
                {[course.calls, course.wasted, course.callsWhileDown, course.failures, course.dead].map((value, at) => (
                  <td key={at} className="py-1 pl-4">
                    {count(value, language)}
                  </td>
                ))}
                <td className="py-1 pl-4">{count(course.peakPerSecond, language)}</td>
                <td className="py-1 pl-4">{seconds(course.drainedAfter, t("outage.never"))}</td>
                <td className="py-1 pl-4">{seconds(course.ideal, "–")}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </div>
  );
}

const seconds = (value: number | null | undefined, none: string) =>
  value == null ? none : duration(Math.round(value) * 1_000);

const HEIGHT = 40;

/** Calls per second. What is above the load at which everything fails is cut off there. */
function Curve(props: { simulation: SimulationView; course: CourseView; isOurs: boolean; label: string }) {
  const { simulation, course, isOurs, label } = props;
  const { seconds: whole, downFrom, downUntil, capacityPerSecond, collapsePerSecond } = simulation;
  const [from, until] = [downFrom, downUntil].map((at) => (at / whole) * 1_000) as [number, number];
  const y = (calls: number) => HEIGHT - Math.min(1, calls / collapsePerSecond) * HEIGHT;
  return (
    <svg
      role="img"
      aria-label={label}
      viewBox={`0 0 1000 ${HEIGHT}`}
      preserveAspectRatio="none"
      className={`w-full ${isOurs ? "h-20" : "h-10"}`}
    >
      <path d={area(course.callsPerSecond, y)} fill={isOurs ? "var(--soft)" : "var(--faint)"} />
      <rect x={from} y="0" width={until - from} height={HEIGHT} fill="var(--bad)" fillOpacity="0.28" />
      <path
        d={`M0 ${y(capacityPerSecond)}H1000`}
        stroke="var(--ink)"
        strokeWidth="1"
        strokeDasharray="3 4"
        vectorEffect="non-scaling-stroke"
      />
      <path d={`M0 ${HEIGHT}H1000`} stroke="var(--line-strong)" strokeWidth="1" vectorEffect="non-scaling-stroke" />
    </svg>
  );
}

/** Steps, one for each point, closed along the ground. */
export function area(values: readonly number[], y: (value: number) => number): string {
  const width = 1_000 / Math.max(1, values.length);
  const steps = values.map((value) => `V${y(value).toFixed(1)}h${width.toFixed(3)}`).join("");
  return `M0 ${HEIGHT}${steps}V${HEIGHT}Z`;
}
