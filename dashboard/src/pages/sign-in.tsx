// Off loopback: a token is exchanged for a session. The token itself is kept nowhere in the browser.
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { useWords } from "../i18n";
import { signIn } from "../session";

export function SignIn() {
  const { t } = useWords();
  const client = useQueryClient();
  const [token, setToken] = useState("");
  const [problem, setProblem] = useState("");
  const [isBusy, setBusy] = useState(false);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    try {
      await signIn(token.trim());
      await client.resetQueries();
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
      setBusy(false);
    }
  };
  return (
    <main className="grid min-h-dvh place-items-center p-4">
      <form className="w-full max-w-sm space-y-4" onSubmit={submit}>
        <h1 className="text-xl font-semibold tracking-tight">Redrive</h1>
        <p className="text-soft">{t("session.why")}</p>
        <label className="block">
          <span className="label mb-1 block">{t("session.token")}</span>
          <input
            // biome-ignore lint/a11y/noAutofocus: there is nothing else on the page
            autoFocus
            className="field h-9 w-full font-mono"
            type="password"
            autoComplete="off"
            placeholder="rdv_…"
            value={token}
            onChange={(event) => setToken(event.target.value)}
          />
        </label>
        <p role="alert" className="min-h-5 text-bad">
          {problem}
        </p>
        <button type="submit" className="button button-strong h-9 w-full" disabled={isBusy || token.trim() === ""}>
          {t("session.in")}
        </button>
        <p className="text-xs text-faint">{t("session.how")}</p>
      </form>
    </main>
  );
}
