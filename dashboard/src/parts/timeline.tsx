// A job's life from left to right: it waits, it runs, it waits again; what is planned stands there as a ghost, up to the
// end that its policy or its deadline sets.
import { useSyncExternalStore } from "react";
import type { DetailView, Ending, ExplainView } from "../api/schema";
import { onTick, serverClock } from "../clock";
import { clockTime, duration } from "../format";
import { reasonName, useWords } from "../i18n";

export interface Piece {
  kind: "wait" | "run" | "planned" | "end";
  from: number;
  until: number;
  outcome?: Ending | "running";
  label: string;
}

type Told = Pick<DetailView, "createdAt" | "state" | "dueAt" | "runningSince" | "finishedAt" | "attempts" | "attempt">;

/** The pieces, in order. */
export function pieces(job: Told, explained: Pick<ExplainView, "next"> | undefined, now: number): Piece[] {
  const made: Piece[] = [];
  let at = Date.parse(job.createdAt);
  const wait = (until: number) => {
    if (until > at) made.push({ kind: "wait", from: at, until, label: duration(until - at) });
  };
  for (const attempt of job.attempts) {
    const [from, until] = [Date.parse(attempt.startedAt), Date.parse(attempt.endedAt)];
    wait(from);
    made.push({ kind: "run", from, until, outcome: attempt.ending, label: String(attempt.attempt) });
    at = Math.max(at, until);
  }
  if (job.runningSince) {
    const from = Date.parse(job.runningSince);
    wait(from);
    made.push({ kind: "run", from, until: now, outcome: "running", label: String(job.attempt + 1) });
    at = now;
  }
  if (job.finishedAt) {
    const until = Date.parse(job.finishedAt);
    if (job.state === "succeeded") {
      wait(until);
      made.push({ kind: "run", from: until, until, outcome: "succeeded", label: String(job.attempt) });
    } else if (until > at) {
      wait(until);
    }
    at = until;
  }
  if (job.state === "waiting" && job.dueAt) wait(Math.max(now, at));
  const next = explained?.next ?? [];
  // What is due and does not start yet, because it is held or no place is free, starts now at the earliest: so do the rest.
  const late = job.state === "waiting" && next[0] ? Math.max(0, now - Date.parse(next[0].at)) : 0;
  for (const step of next) {
    const when = Date.parse(step.at) + late;
    if (step.step === "attempt") {
      if (when >= at)
        made.push({ kind: "planned", from: Math.max(at, now), until: when, label: String(step.run ?? "") });
      at = Math.max(at, when);
    } else {
      made.push({ kind: "end", from: when, until: when, label: step.why ?? step.step });
    }
  }
  return made;
}

const WIDTH = 1000;

export function Timeline({ job, explained }: { job: DetailView; explained?: ExplainView }) {
  const { t, language } = useWords();
  const second = useSyncExternalStore(onTick, () => (job.finishedAt ? 0 : Math.floor(serverClock.now() / 1000)));
  const now = job.finishedAt ? Date.parse(job.finishedAt) : Math.max(second * 1000, Date.parse(job.createdAt));
  const all = pieces(job, explained, now);
  const from = Math.min(Date.parse(job.createdAt), ...all.map((piece) => piece.from));
  const until = Math.max(now, ...all.map((piece) => piece.until)) + 1;
  const x = (at: number) => 6 + ((at - from) / (until - from)) * (WIDTH - 12);
  const isGhost = (piece: Piece) => piece.kind === "planned" || piece.kind === "end";
  return (
    <figure>
      <svg
        role="img"
        aria-label={t("timeline.summary", { count: job.attempts.length })}
        viewBox={`0 0 ${WIDTH} 44`}
        preserveAspectRatio="none"
        className="h-11 w-full"
      >
        {all.map((piece, index) => (
          <PieceShape key={index} piece={piece} x={x} />
        ))}
        {!job.finishedAt && (
          <path d={`M${x(now)} 2V42`} stroke="var(--time)" strokeWidth="1.5" vectorEffect="non-scaling-stroke" />
        )}
      </svg>
      <div aria-hidden="true" className="label flex justify-between font-mono">
        <span>{clockTime(from, serverClock.now(), language)}</span>
        <span>{clockTime(until, serverClock.now(), language)}</span>
      </div>
      <ol className="mt-2 flex flex-wrap gap-x-4 gap-y-1 text-xs">
        {all
          .filter((piece) => piece.kind !== "wait")
          .slice(-12)
          .map((piece, index) => (
            <li key={index} className={isGhost(piece) ? "text-faint" : outcomeColour(piece.outcome)}>
              {piece.kind === "end"
                ? t("timeline.end", { why: reasonName(t, piece.label) })
                : t("timeline.run", { run: piece.label })}{" "}
              <span className="font-mono text-2xs text-faint">
                {clockTime(piece.kind === "run" ? piece.from : piece.until, serverClock.now(), language)}
              </span>{" "}
              {piece.kind === "run" && piece.outcome && t(`ending.${piece.outcome}`)}
              {piece.kind === "planned" && t("timeline.planned")}
            </li>
          ))}
      </ol>
    </figure>
  );
}

export function outcomeColour(outcome: string | undefined): string {
  if (outcome === "succeeded") return "text-good";
  if (outcome === "running") return "text-time";
  if (["snoozed", "interrupted", "cancelled", "held"].includes(outcome ?? "")) return "text-soft";
  return "text-bad";
}

function PieceShape({ piece, x }: { piece: Piece; x: (at: number) => number }) {
  const [from, until] = [x(piece.from), x(piece.until)];
  if (piece.kind === "wait")
    return (
      <path d={`M${from} 22H${until}`} stroke="var(--line-strong)" strokeWidth="2" vectorEffect="non-scaling-stroke" />
    );
  if (piece.kind === "planned") {
    return (
      <>
        <path
          d={`M${from} 22H${until}`}
          stroke="var(--time)"
          strokeWidth="1.5"
          strokeDasharray="2 5"
          vectorEffect="non-scaling-stroke"
        />
        <rect
          x={until - 3}
          y="11"
          width="6"
          height="22"
          fill="none"
          stroke="var(--faint)"
          strokeWidth="1"
          vectorEffect="non-scaling-stroke"
        />
      </>
    );
  }
  if (piece.kind === "end")
    return (
      <path
        d={`M${until + 4} 6V38`}
        stroke="var(--bad)"
        strokeWidth="2"
        strokeDasharray="3 3"
        vectorEffect="non-scaling-stroke"
      />
    );
  const colour =
    piece.outcome === "succeeded" ? "var(--good)" : piece.outcome === "running" ? "var(--time)" : "var(--bad)";
  return <rect x={Math.min(from, until - 3)} y="8" width={Math.max(6, until - from)} height="28" fill={colour} />;
}
