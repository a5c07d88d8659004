// JSON as a tree: numbers as they were written, secrets hidden until asked for, strings that cannot act.
import { ChevronRight } from "lucide-react";
import { useState } from "react";
import { type Exact, ExactNumber } from "../api/exact";
import { visible } from "../format";
import { useWords } from "../i18n";
import { isSecret } from "../secrets";

/** Entries of one object or list that are shown at once. */
const SHOWN = 200;

export function JsonTree({ value, name }: { value: Exact; name?: string }) {
  return (
    <div className="overflow-x-auto font-mono text-xs leading-5">
      <Node value={value} {...(name === undefined ? {} : { name })} depth={0} />
    </div>
  );
}

function Node({ value, name, depth }: { value: Exact; name?: string; depth: number }) {
  const isTree = value !== null && typeof value === "object" && !(value instanceof ExactNumber);
  if (isTree)
    return (
      <Branch
        value={value as Exact[] | { [key: string]: Exact }}
        {...(name === undefined ? {} : { name })}
        depth={depth}
      />
    );
  return (
    <div className="pl-4">
      {name !== undefined && <span className="text-soft">{visible(name)}: </span>}
      <Leaf
        value={value as null | boolean | number | string | ExactNumber}
        isHidden={name !== undefined && isSecret(name) && value !== null}
      />
    </div>
  );
}

function Branch({ value, name, depth }: { value: Exact[] | { [key: string]: Exact }; name?: string; depth: number }) {
  const { t } = useWords();
  const [isOpen, setOpen] = useState(depth < 3);
  const [shown, setShown] = useState(SHOWN);
  const entries = Object.entries(value);
  const [open, close] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  return (
    <div className={depth > 0 ? "pl-4" : ""}>
      <button
        type="button"
        aria-expanded={isOpen}
        className="-ml-4 inline-flex items-center text-left"
        onClick={() => setOpen(!isOpen)}
      >
        <ChevronRight aria-hidden className={`size-4 p-0.5 text-faint ${isOpen ? "rotate-90" : ""}`} />
        {name !== undefined && <span className="text-soft">{visible(name)}:&nbsp;</span>}
        <span className="text-faint">
          {isOpen
            ? open
            : `${open}${entries.length > 0 ? ` ${t("json.entries", { count: entries.length })} ` : ""}${close}`}
        </span>
      </button>
      {isOpen && (
        <>
          {entries.slice(0, shown).map(([key, item]) => (
            <Node key={key} value={item} {...(Array.isArray(value) ? {} : { name: key })} depth={depth + 1} />
          ))}
          {entries.length > shown && (
            <button type="button" className="link pl-4 text-soft" onClick={() => setShown(shown + SHOWN)}>
              {t("json.more", { count: entries.length - shown })}
            </button>
          )}
          <div className="text-faint">{close}</div>
        </>
      )}
    </div>
  );
}

function Leaf({ value, isHidden }: { value: null | boolean | number | string | ExactNumber; isHidden: boolean }) {
  const { t } = useWords();
  const [isShown, setShown] = useState(!isHidden);
  if (!isShown) {
    return (
      <button type="button" className="link text-faint" onClick={() => setShown(true)}>
        •••••• <span className="font-sans text-2xs">{t("json.reveal")}</span>
      </button>
    );
  }
  if (typeof value === "string")
    return <span className="break-all whitespace-pre-wrap text-ink">"{visible(value)}"</span>;
  return <span className={value === null ? "text-faint" : "text-ink"}>{String(value)}</span>;
}
