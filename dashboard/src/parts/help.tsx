// The keys there are.
import { type Key, useWords } from "../i18n";
import { Dialog } from "./dialog";
import { PAGES } from "./pages";

const KEYS: readonly [string, Key][] = [
  ["/", "keys.search"],
  ["⌘K", "keys.palette"],
  ["j k", "keys.walk"],
  ["Enter", "keys.open"],
  ["r", "keys.retry"],
  ["c", "keys.cancel"],
  ["x", "keys.select"],
  ["e", "keys.edit"],
  ["p", "keys.pause"],
  ["?", "keys.help"],
];

export function Help({ onClose }: { onClose: () => void }) {
  const { t } = useWords();
  return (
    <Dialog title={t("keys.title")} onClose={onClose}>
      <dl className="grid grid-cols-[auto_1fr] gap-x-5 gap-y-1.5 p-4 sm:grid-cols-[auto_1fr_auto_1fr]">
        {KEYS.map(([key, name]) => (
          <Line key={key} keys={key} name={t(name)} />
        ))}
        {PAGES.map((page) => (
          <Line key={page.to} keys={`g ${page.key}`} name={t(page.name)} />
        ))}
      </dl>
    </Dialog>
  );
}

function Line({ keys, name }: { keys: string; name: string }) {
  return (
    <>
      <dt>
        <kbd className="rounded border border-line-strong px-1.5 font-mono text-2xs">{keys}</kbd>
      </dt>
      <dd className="text-soft">{name}</dd>
    </>
  );
}
