// What stands around every page: the rail, the bar with the live state, and on a phone the bar at the foot.
import { Command, Languages, LogOut, Moon, MoreHorizontal, Pause, Play, Sun, SunMoon } from "lucide-react";
import { type ReactNode, useState } from "react";
import { Link, useLocation } from "wouter";
import { useResumeAll } from "../api/actions";
import { live } from "../api/live";
import { useLive, useStats } from "../api/queries";
import { shortCount } from "../format";
import { useWords } from "../i18n";
import { signOut, useMay, useSession } from "../session";
import { choose, useSettings } from "../settings";
import { Dialog } from "./dialog";
import { PAGES, type PageEntry } from "./pages";

/** Pages that have a place of their own at the foot of a phone. */
const AT_FOOT = 4;

export function Shell({ children, palette }: { children: ReactNode; palette: () => void }) {
  const { t } = useWords();
  return (
    <div className="md:grid md:min-h-dvh md:grid-cols-[12.5rem_1fr]">
      <a href="#content" className="sr-only focus:not-sr-only focus:absolute focus:z-50 focus:bg-raised focus:p-2">
        {t("nav.skip")}
      </a>
      <aside className="sticky top-0 hidden h-dvh flex-col border-r px-2 py-3 md:flex">
        <Brand />
        <nav aria-label={t("nav.main")} className="mt-4 flex flex-col gap-px">
          {PAGES.map((page) => (
            <RailLink key={page.to} page={page} />
          ))}
        </nav>
        <div className="mt-auto">
          <Choices />
        </div>
      </aside>
      <div className="min-w-0">
        <header className="sticky top-0 z-20 flex h-12 items-center gap-3 border-b bg-paper px-4 md:px-6">
          <span className="md:hidden">
            <Brand />
          </span>
          <button type="button" className="button button-quiet max-md:hidden" onClick={palette}>
            <Command aria-hidden className="size-3" />
            {t("palette.open")}
            <kbd className="ml-2 font-mono text-2xs text-faint">⌘K</kbd>
          </button>
          <span className="ml-auto flex items-center gap-3">
            <ReadOnly />
            <LiveState />
          </span>
        </header>
        <Held />
        <main
          id="content"
          tabIndex={-1}
          className="mx-auto max-w-[92rem] px-4 pt-4 pb-24 outline-none md:px-6 md:pb-10"
        >
          {children}
        </main>
      </div>
      <FootBar />
    </div>
  );
}

function Brand() {
  return (
    <Link to="/" className="flex items-center gap-2 px-2 text-sm font-semibold tracking-tight">
      <svg aria-hidden="true" viewBox="0 0 20 20" className="size-4 text-time">
        <path d="M15.5 6.2A7 7 0 1 0 17 10" fill="none" stroke="currentColor" strokeWidth="2.4" strokeLinecap="round" />
        <path
          d="M17 2.2v4.6h-4.6"
          fill="none"
          stroke="currentColor"
          strokeWidth="2.4"
          strokeLinecap="round"
          strokeLinejoin="round"
        />
      </svg>
      Redrive
    </Link>
  );
}

function useIsHere(to: string): boolean {
  const [path] = useLocation();
  return to === "/" ? path === "/" : path === to || path.startsWith(`${to}/`);
}

function RailLink({ page }: { page: PageEntry }) {
  const { t } = useWords();
  const isHere = useIsHere(page.to);
  const { data } = useStats();
  const dead = page.to === "/dead" ? data?.dead : undefined;
  const Icon = page.icon;
  return (
    <Link
      to={page.to}
      aria-current={isHere ? "page" : undefined}
      className={`flex h-8 items-center gap-2.5 rounded-md px-2 ${isHere ? "bg-line text-ink" : "text-soft hover:bg-hover hover:text-ink"}`}
    >
      <Icon aria-hidden className="size-3.5" />
      {t(page.name)}
      {dead ? <span className="ml-auto font-mono text-2xs text-bad">{shortCount(dead)}</span> : null}
    </Link>
  );
}

const dots = {
  connecting: "bg-faint",
  live: "bg-good",
  paused: "bg-soft",
  reconnecting: "bg-time pulse",
  polling: "bg-time",
};

function LiveState() {
  const { t } = useWords();
  const state = useLive();
  const isPaused = state === "paused";
  const Icon = isPaused ? Play : Pause;
  return (
    <button
      type="button"
      className="button button-quiet gap-2 px-2"
      title={isPaused ? t("live.resume") : t("live.pause")}
      aria-label={`${t(`live.${state}`)}. ${isPaused ? t("live.resume") : t("live.pause")}`}
      onClick={() => live.toggle()}
    >
      <span aria-hidden="true" className={`size-1.5 rounded-full ${dots[state]}`} />
      <span data-testid="live">{t(`live.${state}`)}</span>
      <Icon aria-hidden className="size-3 text-faint" />
    </button>
  );
}

function ReadOnly() {
  const { t } = useWords();
  const may = useMay("operate");
  if (may) return null;
  return (
    <span className="rounded border border-line-strong px-1.5 text-2xs leading-5 text-soft">
      {t("session.readonly")}
    </span>
  );
}

/** A restored store starts nothing until somebody says so: that must not be overlooked on any page. */
function Held() {
  const { t } = useWords();
  const { data } = useStats();
  const may = useMay("admin");
  const resume = useResumeAll();
  if (!data?.held) return null;
  return (
    <div role="status" className="flex flex-wrap items-center gap-3 border-b bg-raised px-4 py-2 md:px-6">
      <Pause aria-hidden className="size-3.5 text-soft" />
      <p className="font-medium">{t("held.all")}</p>
      {may && (
        <button type="button" className="button" disabled={resume.isPending} onClick={() => resume.mutate(undefined)}>
          {t("held.resume")}
        </button>
      )}
    </div>
  );
}

/** Theme, language, and the way out. */
function Choices() {
  const { t, language } = useWords();
  const { theme } = useSettings();
  const session = useSession();
  const next = { system: "dark", dark: "light", light: "system" } as const;
  const Icon = { system: SunMoon, dark: Moon, light: Sun }[theme];
  const item = "flex h-8 w-full items-center gap-2.5 rounded-md px-2 text-soft hover:bg-hover hover:text-ink";
  return (
    <div className="flex flex-col gap-px">
      <button type="button" className={item} onClick={() => choose({ theme: next[theme] })}>
        <Icon aria-hidden className="size-3.5" />
        {t(`settings.${theme}`)}
      </button>
      <button type="button" className={item} onClick={() => choose({ language: language === "en" ? "zh-TW" : "en" })}>
        <Languages aria-hidden className="size-3.5" />
        <span lang={language === "en" ? "zh-TW" : "en"}>{language === "en" ? "繁體中文" : "English"}</span>
      </button>
      {session.isSigned && (
        <button type="button" className={item} onClick={signOut}>
          <LogOut aria-hidden className="size-3.5" />
          {t("session.out", { name: session.name })}
        </button>
      )}
    </div>
  );
}

function FootBar() {
  const { t } = useWords();
  const [isOpen, setOpen] = useState(false);
  return (
    <nav
      aria-label={t("nav.main")}
      className="fixed inset-x-0 bottom-0 z-30 grid grid-cols-5 border-t bg-paper pb-[env(safe-area-inset-bottom)] md:hidden"
    >
      {PAGES.slice(0, AT_FOOT).map((page) => (
        <FootLink key={page.to} page={page} />
      ))}
      <button
        type="button"
        className="flex h-14 flex-col items-center justify-center gap-1 text-2xs text-soft"
        onClick={() => setOpen(true)}
      >
        <MoreHorizontal aria-hidden className="size-4" />
        {t("nav.more")}
      </button>
      {isOpen && (
        <Dialog title={t("nav.more")} onClose={() => setOpen(false)}>
          {/* biome-ignore lint/a11y/useKeyWithClickEvents: a link that is followed closes the list, by whatever means */}
          {/* biome-ignore lint/a11y/noStaticElementInteractions: the links inside are what is clicked */}
          <div className="p-2" onClick={(event) => (event.target as Element).closest("a") && setOpen(false)}>
            {PAGES.slice(AT_FOOT).map((page) => (
              <RailLink key={page.to} page={page} />
            ))}
            <hr className="my-2" />
            <Choices />
          </div>
        </Dialog>
      )}
    </nav>
  );
}

function FootLink({ page }: { page: PageEntry }) {
  const { t } = useWords();
  const isHere = useIsHere(page.to);
  const Icon = page.icon;
  return (
    <Link
      to={page.to}
      aria-current={isHere ? "page" : undefined}
      className={`flex h-14 flex-col items-center justify-center gap-1 text-2xs ${isHere ? "text-ink" : "text-soft"}`}
    >
      <Icon aria-hidden className="size-4" />
      <span className="cut max-w-full px-1">{t(page.name)}</span>
    </Link>
  );
}
