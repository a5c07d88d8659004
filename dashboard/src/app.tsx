// The page: who is looking, which part of it is shown, and what the keys do.
import { QueryClientProvider } from "@tanstack/react-query";
import { useCallback, useEffect, useState } from "react";
import { Route, Router, Switch, useLocation } from "wouter";
import { live } from "./api/live";
import { newClient, useLiveUpdates } from "./api/queries";
import { base } from "./base";
import { LanguageProvider, useWords } from "./i18n";
import { listenToKeys } from "./keys";
import { Activity } from "./pages/activity";
import { Dead } from "./pages/dead";
import { Destinations } from "./pages/destinations";
import { Errors } from "./pages/errors";
import { Execution } from "./pages/execution";
import { Executions } from "./pages/executions";
import { Job } from "./pages/job";
import { Jobs } from "./pages/jobs";
import { Overview } from "./pages/overview";
import { Policies } from "./pages/policies";
import { Queues } from "./pages/queues";
import { SignIn } from "./pages/sign-in";
import { Empty, PageTitle, Trouble } from "./parts/basics";
import { Boundary } from "./parts/boundary";
import { Help } from "./parts/help";
import { PAGES } from "./parts/pages";
import { Palette } from "./parts/palette";
import { RetryQueuePanel } from "./parts/retry-queue";
import { Shell } from "./parts/shell";
import { SessionProvider, useWho } from "./session";
import { Toaster } from "./toasts";

const client = newClient();

export function App() {
  return (
    <QueryClientProvider client={client}>
      <LanguageProvider>
        <Router base={base}>
          <Entrance />
        </Router>
      </LanguageProvider>
    </QueryClientProvider>
  );
}

/** Nothing is asked for before it is known who asks. */
export function Entrance() {
  const who = useWho();
  if (who.error) return <Trouble error={who.error} again={who.refetch} />;
  if (!who.data) return null;
  if (who.data === "sign-in") return <SignIn />;
  return (
    <SessionProvider value={who.data}>
      <Inside />
      <Toaster />
    </SessionProvider>
  );
}

function Inside() {
  const [path, go] = useLocation();
  const [opened, setOpened] = useState<"palette" | "help">();
  useLiveUpdates();
  useTitle();
  const palette = useCallback(() => setOpened("palette"), []);
  useEffect(() => {
    return listenToKeys({ palette, help: () => setOpened("help"), pause: () => live.toggle(), go });
  }, [go, palette]);
  return (
    <Shell palette={palette}>
      <Boundary key={path}>
        <Pages />
      </Boundary>
      {opened === "palette" && <Palette onClose={() => setOpened(undefined)} go={go} />}
      {opened === "help" && <Help onClose={() => setOpened(undefined)} />}
    </Shell>
  );
}

function Pages() {
  const { t } = useWords();
  return (
    <Switch>
      <Route path="/" component={Overview} />
      <Route path="/sign-in" component={Overview} />
      <Route path="/retries">
        <PageTitle title={t("nav.retries")} />
        <RetryQueuePanel empty={<Empty>{t("retry.empty")}</Empty>} />
      </Route>
      <Route path="/jobs" component={Jobs} />
      <Route path="/jobs/:id">{({ id }) => <Job key={id} id={id} />}</Route>
      <Route path="/errors" component={Errors} />
      <Route path="/dead" component={Dead} />
      <Route path="/executions" component={Executions} />
      <Route path="/executions/:id">{({ id }) => <Execution key={id} id={id} />}</Route>
      <Route path="/queues" component={Queues} />
      <Route path="/destinations" component={Destinations} />
      <Route path="/policies" component={Policies} />
      <Route path="/activity" component={Activity} />
      <Route>
        <Empty>{t("nav.nowhere")}</Empty>
      </Route>
    </Switch>
  );
}

function useTitle(): void {
  const { t } = useWords();
  const [path] = useLocation();
  useEffect(() => {
    const page = PAGES.find((one) => one.to !== "/" && path.startsWith(one.to)) ?? PAGES[0];
    document.title = page ? `${t(page.name)} · Redrive` : "Redrive";
  }, [path, t]);
}
