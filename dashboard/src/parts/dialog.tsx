// Windows over the page, on the browser's own dialog: it keeps the focus, closes with Escape, and gives the focus back.
import { X } from "lucide-react";
import { type ReactNode, useEffect, useId, useRef, useState } from "react";
import { useWords } from "../i18n";

export function Dialog(props: {
  title: string;
  onClose: () => void;
  children: ReactNode;
  wide?: boolean;
  bare?: boolean;
}) {
  const { t } = useWords();
  const id = useId();
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = element.current;
    if (dialog && !dialog.open) dialog.showModal();
    // The browser would choose the first button, which closes it.
    dialog?.querySelector<HTMLElement>("[data-focus]")?.focus();
  }, []);
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape closes it, by the browser itself
    <dialog
      ref={element}
      aria-labelledby={id}
      onClose={props.onClose}
      onClick={(event) => event.target === element.current && element.current?.close()}
      className={`m-auto max-h-[85dvh] w-[calc(100vw-1.5rem)] rounded-xl border border-line-strong bg-raised p-0 text-ink shadow-[var(--shadow)] ${props.wide ? "max-w-3xl" : "max-w-lg"} ${props.bare ? "mt-[12vh]" : ""}`}
    >
      <header className={props.bare ? "sr-only" : "flex items-center gap-2 border-b px-4 py-2.5"}>
        <h2 id={id} className="heading">
          {props.title}
        </h2>
        <button
          type="button"
          aria-label={t("close")}
          className={props.bare ? "sr-only" : "ml-auto text-faint hover:text-ink"}
          onClick={() => element.current?.close()}
        >
          <X aria-hidden className="size-4" />
        </button>
      </header>
      {props.children}
    </dialog>
  );
}

/** A button that opens a small window beside itself. */
export function Popover(props: { label: string; button: ReactNode; children: () => ReactNode }) {
  const id = useId();
  const element = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    if (!isOpen) return;
    const outside = (event: PointerEvent) => {
      const at = event.target as Node;
      if (!element.current?.contains(at) && !button.current?.contains(at)) setOpen(false);
    };
    const onEscape = (event: KeyboardEvent) => {
      if (event.key !== "Escape") return;
      setOpen(false);
      button.current?.focus();
    };
    document.addEventListener("pointerdown", outside);
    document.addEventListener("keydown", onEscape);
    return () => {
      document.removeEventListener("pointerdown", outside);
      document.removeEventListener("keydown", onEscape);
    };
  }, [isOpen]);
  return (
    <span className="relative inline-flex">
      <button
        ref={button}
        type="button"
        aria-expanded={isOpen}
        aria-controls={id}
        aria-label={props.label}
        title={props.label}
        className="inline-flex text-faint hover:text-ink"
        onClick={() => setOpen(!isOpen)}
      >
        {props.button}
      </button>
      {isOpen && (
        <div
          ref={element}
          id={id}
          role="dialog"
          aria-label={props.label}
          className="absolute top-6 right-0 z-30 w-72 rounded-lg border border-line-strong bg-raised p-3 text-left text-xs whitespace-normal text-ink shadow-[var(--shadow)]"
        >
          {props.children()}
        </div>
      )}
    </span>
  );
}
