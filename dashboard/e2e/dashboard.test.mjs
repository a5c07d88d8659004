// The dashboard in a real browser against a real server.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, beforeEach, describe, test } from "node:test";
import { fixed, isPostgres, launch, openPage, startDestination, startServer, until, violations } from "./support.mjs";
import { corpus } from "./xss.mjs";

const PAGES = [
  "/",
  "/retries",
  "/jobs",
  "/errors",
  "/dead",
  "/executions",
  "/queues",
  "/destinations",
  "/policies",
  "/activity",
];
let browser;
let destination;
before(async () => {
  browser = await launch();
  destination = await startDestination();
});
after(async () => {
  await browser?.close();
  await destination?.end();
});

/** The row of a job in the retry queue. */
const row = (page, key) => page.locator("[data-phase]", { hasText: key });
const toast = (page, text) => page.locator("[data-tone]", { hasText: text });

describe("an execution", () => {
  let server;
  let page;
  before(async () => {
    server = await startServer();
    page = await openPage(browser);
  });
  after(async () => {
    await page?.context().close();
    await server?.end();
  });

  test("is drawn, stops at a dead step, and goes on when that is run again", async () => {
    destination.set("/first", 200, "paid");
    destination.set("/second", 404, "no such account");
    const call = (nodeId, path, after = []) => ({
      nodeId,
      type: "action",
      subType: "api-call",
      after,
      config: { method: "POST", url: destination.job(path, fixed("1s", 1)).payload.url },
    });
    const nodes = [call("charge", "/first"), call("ship", "/second", ["charge"]), call("thank", "/first", ["ship"])];
    const started = await server.call("POST", "/executions", { workflow: { nodes }, input: { order: 17 } });
    await page.goto(`${server.url}/executions`);
    await page.getByText("1 of 3").waitFor();
    await page.locator(`a[href$="/executions/${started.id}"]`).click();
    await page.getByTestId("graph").getByText("ship: dead").waitFor({ state: "attached" });
    await page
      .locator("#content")
      .getByText(/node "ship" is dead/)
      .waitFor();
    destination.set("/second", 200, "shipped");
    await page.getByRole("button", { name: "Retry now" }).click();
    // Live: nobody reloads the page.
    await page.getByTestId("graph").getByText("thank: succeeded").waitFor({ state: "attached" });
    await page.getByText("3 of 3").waitFor();
    assert.deepEqual(await violations(page), []);
  });
});

describe("the retry queue", () => {
  let server;
  let page;
  // A pointer that was left over the list would hold it.
  beforeEach(() => page.mouse.move(0, 0));
  before(async () => {
    server = await startServer();
    page = await openPage(browser);
    await page.goto(server.url);
    await page.getByTestId("live").filter({ hasText: "Live" }).waitFor();
  });
  after(async () => {
    await page?.context().close();
    await server?.end();
  });

  test("what fails is seen to wait, to count down, and to succeed", async () => {
    destination.set("/flaky", 503, "busy, try again");
    await server.call("POST", "/jobs", destination.job("/flaky", fixed("3s", 4), { key: "order-1" }));
    // Retries that were made: it waits for the first.
    await row(page, "order-1").getByText("retry 0 of 4").waitFor();
    await row(page, "order-1")
      .getByText(/Last error: .*503: busy, try again/)
      .waitFor();
    assert.match(await row(page, "order-1").locator("time").textContent(), /^[123]s$/);
    destination.set("/flaky", 200, "done");
    await row(page, "order-1").and(page.locator("[data-phase=succeeded]")).waitFor();
    await toast(page, "HTTP call order-1 succeeded after retry").waitFor();
    await row(page, "order-1").waitFor({ state: "detached" });
    await page.getByText("finished at run 2, after 1 failure").waitFor();
  });

  test("exhausted retries are told, logged, and kept for a person", async () => {
    destination.set("/never", 503, "never again");
    await server.call("POST", "/jobs", destination.job("/never", fixed("200ms", 2), { key: "order-2" }));
    await toast(page, "all retries are exhausted").waitFor();
    await page.getByText(/exhausted after run/).waitFor();
    await page.getByRole("link", { name: "Dead letters" }).first().click();
    await page.getByRole("link", { name: /order-2/ }).waitFor();
    await page.getByText("exhausted", { exact: true }).waitFor();
    await page.goBack();
  });

  test("retry now runs it now", async () => {
    destination.set("/later", 503, "later");
    const { id } = await server.call("POST", "/jobs", destination.job("/later", fixed("1h", 4), { key: "order-3" }));
    await row(page, "order-3")
      .getByText(/59:5\d|1:00:00/)
      .waitFor();
    destination.set("/later", 200);
    await row(page, "order-3").getByRole("button", { name: "Retry now" }).click();
    await toast(page, "Retry triggered").waitFor();
    await until("it has succeeded", async () => (await server.call("GET", `/jobs/${id}`)).state === "succeeded");
    await row(page, "order-3").waitFor({ state: "detached" });
  });

  test("cancel takes it back, and undo brings it back again", async () => {
    destination.set("/gone", 503);
    const { id } = await server.call("POST", "/jobs", destination.job("/gone", fixed("1h", 4), { key: "order-4" }));
    await row(page, "order-4").getByRole("button", { name: "Cancel" }).click();
    await toast(page, "Retry cancelled").waitFor();
    assert.equal((await server.call("GET", `/jobs/${id}`)).state, "cancelled");
    await toast(page, "Retry cancelled").getByRole("button", { name: "Undo" }).click();
    await until("it waits again", async () => (await server.call("GET", `/jobs/${id}`)).state === "waiting");
    await server.call("POST", `/jobs/${id}/cancel`);
  });

  test("why a job waits so long is a click away", async () => {
    destination.set("/why", 503);
    await server.call("POST", "/jobs", destination.job("/why", fixed("1h", 4), { key: "order-5" }));
    await row(page, "order-5").getByRole("button", { name: "Why this delay?" }).click();
    const popover = page.getByRole("dialog", { name: "Why this delay?" });
    await popover.getByText("fixed 1h").waitFor();
    await page.keyboard.press("Escape");
    await popover.waitFor({ state: "detached" });
  });

  test("what somebody else does shows up without a reload", async () => {
    const { id } = await server.call("POST", "/retry", {
      taskId: "movie-17",
      taskType: "parse",
      error: "TIMEOUT: no answer",
      policy: fixed("1h", 4),
    });
    await row(page, "movie-17").getByText("Parse task").waitFor();
    await server.call("DELETE", `/retry/${id}`);
    await row(page, "movie-17").waitFor({ state: "detached" });
  });

  test("a server that restarts is noticed, and everything goes on", async () => {
    await server.stop();
    await page
      .getByTestId("live")
      .filter({ hasText: /Reconnecting|Polling/ })
      .waitFor();
    await server.start();
    await page.getByTestId("live").filter({ hasText: "Live" }).waitFor();
    destination.set("/again", 503);
    await server.call("POST", "/jobs", destination.job("/again", fixed("1h", 4), { key: "order-6" }));
    await row(page, "order-6").waitFor();
  });

  test("paused, nothing moves until it is resumed", async () => {
    await page.getByRole("button", { name: /Pause live updates/ }).click();
    destination.set("/paused", 503);
    await server.call("POST", "/jobs", destination.job("/paused", fixed("1h", 4), { key: "order-7" }));
    await until(
      "it waits",
      async () => (await server.call("GET", "/jobs?key=order-7&state=waiting")).items[0]?.failures > 0,
    );
    // A second look would have come by now, were it not paused.
    await page.waitForTimeout(2_500);
    assert.equal(await row(page, "order-7").count(), 0);
    await page.getByRole("button", { name: /Resume live updates/ }).click();
    await row(page, "order-7").waitFor();
  });

  test("nothing was done that the content security policy forbids", () => assert.deepEqual(page.trouble, []));
});

describe("two servers of one store", {
  skip: !isPostgres && "SQLite has one; scripts/dashboard.sh e2e-postgres",
}, () => {
  test("a page of one shows what is done at the other", async () => {
    const one = await startServer();
    const other = await startServer({ store: one.store });
    const page = await openPage(browser);
    try {
      await page.goto(one.url);
      await page.getByTestId("live").filter({ hasText: "Live" }).waitFor();
      const form = { taskId: "movie-18", taskType: "parse", error: "TIMEOUT: no answer", policy: fixed("1h", 4) };
      const { id } = await other.call("POST", "/retry", form);
      await row(page, "movie-18").waitFor();
      await other.call("DELETE", `/retry/${id}`);
      await row(page, "movie-18").waitFor({ state: "detached" });
    } finally {
      await page.context().close();
      await other.end();
      await one.end();
    }
  });
});

describe("a browser whose clock is ten minutes off", () => {
  for (const minutes of [10, -10]) {
    test(`counts down within a second (${minutes} minutes)`, async () => {
      const server = await startServer();
      const script = `{
        globalThis.realNow = Date.now.bind(Date);
        Date.now = () => globalThis.realNow() + ${minutes * 60_000};
      }`;
      const page = await openPage(browser, { script });
      try {
        destination.set("/skew", 503);
        await server.call("POST", "/jobs", destination.job("/skew", fixed("45s", 4), { key: "skew" }));
        const due = await until("it waits", async () => {
          const [job] = (await server.call("GET", "/jobs?key=skew")).items;
          return job?.failures > 0 && Date.parse(job.dueAt);
        });
        await page.goto(server.url);
        const time = row(page, "skew").locator("time");
        await time.waitFor();
        const changes = await time.evaluate((element, realDue) => {
          // The furthest it is from the truth is the moment before a change, and the moment after one.
          const seen = [];
          return new Promise((resolve) => {
            new MutationObserver(() => {
              const shown = Number.parseInt(element.textContent ?? "", 10) * 1_000;
              const left = realDue - globalThis.realNow();
              seen.push([shown + 1_000 - left, shown - left]);
              if (seen.length === 7) resolve(seen);
            }).observe(element, { characterData: true, childList: true, subtree: true });
          });
        }, due);
        // Of the middle one: a browser that had to wait for a processor is late once, not always.
        const middle = (side) => changes.map((change) => change[side]).sort((one, other) => one - other)[3];
        const [before, afterwards] = [middle(0), middle(1)];
        console.log(`countdown, ${minutes} minutes off: ${before} ms too much at most, ${-afterwards} ms too little`);
        assert.ok(before <= 1_000 && afterwards >= -1_000, JSON.stringify(changes));
      } finally {
        await page.context().close();
        await server.end();
      }
    });
  }
});

describe("every page", () => {
  let server;
  let job;
  before(async () => {
    server = await startServer();
    const batch = corpus.map((text, index) => ({
      kind: "http",
      // What goes wrong is quoted: half of them are answered with the text itself, and die of it.
      payload: { method: "POST", url: `${destination.url}/xss/${index}`, body: { text, [text]: text } },
      policy: fixed("1h", index % 2 ? 0 : 4),
      key: text.replaceAll("\u0000", "") || "empty",
      destination: text.replaceAll("\u0000", ""),
      labels: { text },
    }));
    for (const [index, text] of corpus.entries()) destination.set(`/xss/${index}`, index % 2 ? 400 : 503, text);
    // Not everything is taken: control characters in keys are refused, and that is as well.
    const answers = await server.call("POST", "/jobs/bulk", batch);
    const taken = new Set(answers.map((answer) => answer.id).filter(Boolean));
    assert.ok(taken.size > 150, `${taken.size} were taken: ${JSON.stringify(answers.find((answer) => answer.error))}`);
    await until("all have run", async () => {
      const { waiting, dead } = await server.call("GET", "/stats");
      return waiting + dead >= taken.size && (await server.call("GET", "/retry/pending")).items.length > 50;
    });
    [job] = (await server.call("GET", "/dead?limit=1")).items;
  });
  after(() => server?.end());

  test("shows hostile texts as texts", async () => {
    const page = await openPage(browser);
    for (const path of [
      ...PAGES,
      `/jobs/${job.id}`,
      `/jobs?state=dead&label=${encodeURIComponent("text=<img src=x onerror=alert(1)>")}`,
      "/errors?group=%3Cscript%3E",
    ]) {
      await page.goto(server.url + path);
      await page.locator("main h1").first().waitFor();
      await page.waitForLoadState("domcontentloaded");
      if (path === "/jobs") await page.locator("[data-row]").nth(40).waitFor();
      assert.deepEqual(
        await page.evaluate(
          () =>
            [...document.querySelectorAll("main script, main iframe, main a[href^='javascript:'], main img")].length,
        ),
        0,
        path,
      );
    }
    await page.goto(`${server.url}/jobs/${job.id}`);
    await page.getByRole("button", { name: "Edit and retry" }).click();
    await page.getByTestId("diff").waitFor();
    assert.deepEqual(page.trouble, []);
    await page.context().close();
  });

  for (const colorScheme of ["dark", "light"]) {
    test(`has nothing that axe would mind (${colorScheme})`, async () => {
      const page = await openPage(browser, { colorScheme });
      for (const path of [...PAGES, `/jobs/${job.id}`]) {
        await page.goto(server.url + path);
        await page.locator("main h1").first().waitFor();
        await page.getByRole("status", { name: "Loading…" }).first().waitFor({ state: "detached" });
        assert.deepEqual(await violations(page), [], `${path} (${colorScheme})`);
      }
      await page.keyboard.press("?");
      await page.getByRole("heading", { name: "Keys" }).waitFor();
      assert.deepEqual(await violations(page), [], `keys (${colorScheme})`);
      await page.context().close();
    });
  }

  test("fits a phone without scrolling sideways", async () => {
    const page = await openPage(browser, { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true });
    for (const path of [...PAGES, `/jobs/${job.id}`]) {
      await page.goto(server.url + path);
      await page.locator("main h1").first().waitFor();
      await page.getByRole("status", { name: "Loading…" }).first().waitFor({ state: "detached" });
      const [width, seen] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      assert.ok(width <= seen, `${path} is ${width} wide, ${seen} are seen`);
    }
    await page.goto(`${server.url}/retries`);
    const kinds = page.locator("[data-phase] a > span:first-child");
    await kinds.nth(20).waitFor();
    const cut = await kinds.evaluateAll((all) => all.filter((one) => one.scrollWidth > one.clientWidth).length);
    assert.equal(cut, 0, "what sort of work it is can be read");
    await page.getByRole("button", { name: "More", exact: true }).click();
    await page.getByRole("dialog").getByRole("link", { name: "Queues" }).click();
    await page.locator("h1", { hasText: "Queues" }).waitFor();
    await page.context().close();
  });

  test("speaks the language of the browser, and the one that is chosen", async () => {
    const page = await openPage(browser, { locale: "zh-TW" });
    await page.goto(server.url);
    await page.getByRole("heading", { name: "待重試項目" }).waitFor();
    await page.getByRole("button", { name: "立即重試" }).first().waitFor();
    await page
      .getByText(/上次錯誤：/)
      .first()
      .waitFor();
    await page.getByRole("button", { name: "English" }).click();
    await page.getByRole("heading", { name: "Waiting to retry" }).waitFor();
    await page.reload();
    await page.getByRole("heading", { name: "Waiting to retry" }).waitFor();
    await page.context().close();
  });

  test("has the theme of the system, and the one that is chosen", async () => {
    const page = await openPage(browser, { colorScheme: "light" });
    const paper = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
    await page.goto(server.url);
    await page.getByTestId("health").waitFor();
    assert.equal(await paper(), "rgb(250, 250, 248)");
    await page.getByRole("button", { name: "Theme: system" }).click();
    assert.equal(await paper(), "rgb(12, 14, 17)");
    await page.reload();
    await page.getByRole("button", { name: "Theme: dark" }).waitFor();
    assert.equal(await paper(), "rgb(12, 14, 17)");
    await page.context().close();
  });

  test("can be used without a mouse", async () => {
    destination.set("/keys", 503);
    const { id } = await server.call("POST", "/jobs", destination.job("/keys", fixed("1h", 4), { key: "by-keys" }));
    await until("it waits", async () => (await server.call("GET", `/jobs/${id}`)).failures === 1);
    const page = await openPage(browser);
    await page.goto(server.url);
    await page.getByTestId("health").waitFor();
    await page.keyboard.press("Control+k");
    await page.keyboard.type("by-keys");
    await page.keyboard.press("Enter");
    await page.getByRole("link", { name: /by-keys/ }).waitFor();
    await page.keyboard.press("j");
    await page.keyboard.press("c");
    await toast(page, "Retry cancelled").waitFor();
    await until("it is cancelled", async () => (await server.call("GET", `/jobs/${id}`)).state === "cancelled");
    await page.keyboard.press("Enter");
    await page.locator("h1", { hasText: "http" }).waitFor();
    await page.keyboard.press("r");
    await toast(page, "Brought back").waitFor();
    await page.keyboard.press("g");
    await page.keyboard.press("q");
    await page.locator("h1", { hasText: "Queues" }).waitFor();
    await page.context().close();
  });

  test("edits a payload, shows what changes, and tries again", async () => {
    destination.set("/edit", 503);
    destination.set("/fixed", 200);
    const form = destination.job("/edit", fixed("1h", 4), { key: "edited" });
    form.payload.body = { id: 17, password: "hunter2" };
    const { id } = await server.call("POST", "/jobs", form);
    await until("it waits", async () => (await server.call("GET", `/jobs/${id}`)).failures === 1);
    const page = await openPage(browser);
    await page.goto(`${server.url}/jobs/${id}`);
    await page.getByRole("button", { name: "Edit and retry" }).click();
    const editor = page.getByRole("textbox", { name: "Payload" });
    const text = await editor.inputValue();
    assert.ok(!text.includes("hunter2"));
    // The number by its name: the port in the address may have the same digits.
    await editor.fill(text.replace("/edit", "/fixed").replace(/"id":\s*17/, '"id": 9007199254740993'));
    await page
      .getByTestId("diff")
      .getByText(/\+ .*9007199254740993/)
      .waitFor();
    await page.getByRole("button", { name: "Save and retry" }).click();
    await until("it has succeeded", async () => (await server.call("GET", `/jobs/${id}`)).state === "succeeded");
    const raw = await (await fetch(`${server.url}/api/v1/jobs/${id}`)).text();
    assert.match(raw, /9007199254740993/);
    assert.match(raw, /hunter2/);
    await page.context().close();
  });
});

describe("destinations", () => {
  let server;
  let page;
  const name = () => new URL(destination.url).host;
  const shown = () => page.getByTestId(`destination-${name()}`);
  before(async () => {
    server = await startServer();
    page = await openPage(browser);
  });
  after(async () => {
    await page?.context().close();
    await server?.end();
  });

  test("one that goes down is seen to hold its jobs, and to come back when it is said to", async () => {
    destination.set("/down", 503, "upstream is being deployed");
    await page.goto(`${server.url}/destinations`);
    await page.getByText("Every destination is open").waitFor();
    const jobs = Array.from({ length: 12 }, () => destination.job("/down", fixed("1h", 4)));
    await server.call("POST", "/jobs/bulk", jobs);
    await shown()
      .getByText(/Different jobs failed in a row/)
      .waitFor();
    await toast(page, `'${name()}' is down: its jobs are held`).waitFor();
    await page.goto(server.url);
    await page.getByRole("link", { name: /1 destination down/ }).click();
    destination.set("/down", 200, "done");
    await shown().getByRole("button", { name: "Mark as up" }).click();
    await shown().getByText("coming back").waitFor();
    await until("all jobs are done", async () => (await server.call("GET", "/stats")).totalSucceeded === 12);
  });

  test("limits are set on the page and obeyed by the server", async () => {
    await page.goto(`${server.url}/destinations`);
    await page.getByRole("button", { name: "Add limits" }).click();
    await page.getByRole("textbox", { name: /pattern/ }).fill("*.example.org");
    await page.getByRole("textbox", { name: "Calls per time" }).fill("10/s");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("set here").waitFor();
    const [rule] = await server.call("GET", "/destinations/limits");
    assert.deepEqual([rule.pattern, rule.from, rule.limits.rate], ["*.example.org", "set", "10/s"]);
  });

  test("a paused one says on the page of its job why that waits", async () => {
    await server.call("POST", "/destinations/api.x/pause");
    const { id } = await server.call("POST", "/jobs", { kind: "mail", destination: "api.x" });
    await page.goto(`${server.url}/jobs/${id}`);
    await page
      .getByTestId("explain")
      .getByText(/api\.x is paused until somebody resumes it/)
      .waitFor();
    await page.getByTestId("explain").getByRole("link", { name: "Destinations" }).click();
    await page.getByTestId("destination-api.x").getByRole("button", { name: "Resume" }).click();
    await toast(page, "api.x goes on").waitFor();
    assert.deepEqual(page.trouble, []);
  });
});

describe("the page of policies", () => {
  test("shows what an outage would cost, to a reader too", async () => {
    const server = await startServer({ args: ["--token-file", "admin.token"] });
    const admin = { authorization: `Bearer ${readFileSync(join(server.folder, "admin.token"), "utf8").trim()}` };
    const { token } = await server.call("POST", "/tokens", { name: "reader", scopes: ["read"] }, admin);
    const page = await openPage(browser);
    page.context().setDefaultTimeout(120_000);
    try {
      await page.goto(`${server.url}/policies?policy=feed`);
      await page.getByLabel("Token").fill(token);
      await page.getByRole("button", { name: "Sign in" }).click();
      await page
        .getByTestId("outage")
        .getByRole("img", { name: /^Redrive, feed: / })
        .waitFor();
      assert.equal(await page.getByTestId("outage").getByRole("img").count(), 5);
      assert.equal(await page.getByTestId("outage").getByRole("row").count(), 6);
      assert.deepEqual(await violations(page), []);
      assert.deepEqual(page.trouble, []);
    } finally {
      await page.context().close();
      await server.end();
    }
  });
});

describe("a server that asks for a token", () => {
  let server;
  let admin;
  before(async () => {
    server = await startServer({ args: ["--token-file", "admin.token"] });
    admin = { authorization: `Bearer ${readFileSync(join(server.folder, "admin.token"), "utf8").trim()}` };
    destination.set("/signed", 503);
    await server.call("POST", "/jobs", destination.job("/signed", fixed("1h", 4), { key: "signed" }), admin);
  });
  after(() => server?.end());
  const token = async (...scopes) =>
    (await server.call("POST", "/tokens", { name: scopes.join(), scopes }, admin)).token;
  const signIn = async (page, text) => {
    await page.getByLabel("Token").fill(text);
    await page.getByRole("button", { name: "Sign in" }).click();
  };

  test("lets nobody in without a good one", async () => {
    const page = await openPage(browser);
    await page.goto(`${server.url}/jobs`);
    await signIn(page, "rdv_nothing");
    await page.getByRole("alert").filter({ hasText: "the token is not good" }).waitFor();
    assert.deepEqual(await violations(page), []);
    assert.equal(await page.locator("[data-row]").count(), 0);
    await page.context().close();
  });

  test("shows a reader everything but payloads, and nothing to click", async () => {
    const page = await openPage(browser);
    await page.goto(`${server.url}/jobs`);
    await signIn(page, await token("read"));
    await page.getByText("read-only").waitFor();
    const link = page.getByRole("link", { name: /signed/ });
    await link.waitFor();
    assert.equal(await page.getByRole("button", { name: "Retry now" }).count(), 0);
    assert.equal(await page.getByRole("button", { name: /all that match/ }).count(), 0);
    await link.click();
    await page.getByText("Your token does not allow you to read payloads.").waitFor();
    assert.equal(
      await page.evaluate(() => document.cookie + JSON.stringify(localStorage)).then((kept) => kept.includes("rdv_")),
      false,
    );
    await page.getByRole("button", { name: /^Sign out/ }).click();
    await page.getByLabel("Token").waitFor();
    await page.context().close();
  });

  test("lets an operator act, and listens to events with the session", async () => {
    const page = await openPage(browser);
    await page.goto(server.url);
    await signIn(page, await token("read", "operate"));
    await page.getByTestId("live").filter({ hasText: "Live" }).waitFor();
    await row(page, "signed").getByRole("button", { name: "Cancel" }).click();
    await toast(page, "Retry cancelled").waitFor();
    await page.context().close();
  });
});

/** So many jobs that wait for a day. */
async function later(server, count) {
  for (let from = 0; from < count; from += 1_000) {
    const job = (_, index) => ({ kind: "later", key: String(from + index), delay: "1d", payload: {} });
    await server.call("POST", "/jobs/bulk", Array.from({ length: 1_000 }, job));
  }
}

describe("many jobs", () => {
  test("everything that matches a filter is counted, confirmed and done on the server", async () => {
    const server = await startServer();
    const page = await openPage(browser);
    try {
      await later(server, 5_000);
      await server.call("POST", "/jobs", { kind: "other", delay: "1d", payload: {} });
      await page.goto(`${server.url}/jobs?kind=later`);
      await page.getByRole("button", { name: "Cancel all that match…" }).click();
      await page.getByTestId("matching").filter({ hasText: "5,000 jobs match" }).waitFor();
      await page.getByRole("button", { name: "Cancel 5,000 jobs" }).click();
      await toast(page, "5,000 jobs cancelled").waitFor();
      assert.equal((await server.call("GET", "/stats")).waiting, 1);
      const [operation] = await server.call("GET", "/operations");
      assert.deepEqual([operation.state, operation.done, operation.seen], ["done", 5_000, 5_000]);
    } finally {
      await page.context().close();
      await server.end();
    }
  });

  test("it can be stopped, and the page says what was done until then", async () => {
    const server = await startServer();
    const page = await openPage(browser);
    try {
      await later(server, 5_000);
      await page.goto(`${server.url}/jobs?kind=later`);
      await page.getByRole("button", { name: "Cancel all that match…" }).click();
      await page.getByTestId("matching").filter({ hasText: "5,000 jobs match" }).waitFor();
      const begun = page.waitForResponse((response) => response.request().postData()?.includes("background") ?? false);
      await page.getByRole("button", { name: "Cancel 5,000 jobs" }).click();
      await begun;
      // Five thousand take a fifth of a second: a hand may come too late, and then it is done.
      const stop = page.getByRole("button", { name: "Stop" });
      await stop.click({ timeout: 1_000 }).catch(() => undefined);
      const stopped = page.getByText(/^Stopped\. [\d,]+ (was|were) done before\.$/);
      await stopped.or(toast(page, "5,000 jobs cancelled")).first().waitFor();
      const [operation] = await server.call("GET", "/operations");
      if (await stopped.isVisible()) {
        assert.equal(operation.state, "stopped");
        assert.equal(Number((await stopped.textContent()).replace(/\D/g, "")), operation.done);
      } else {
        assert.deepEqual([operation.state, operation.done], ["done", 5_000]);
      }
      assert.equal((await server.call("GET", "/stats")).waiting, 5_000 - operation.done);
    } finally {
      await page.context().close();
      await server.end();
    }
  });
});

describe("the first load", () => {
  test("is at most 180 KB of compressed script and style", async () => {
    const server = await startServer();
    try {
      const html = await (await fetch(server.url)).text();
      const files = [...html.matchAll(/(?:src|href)="([^"]+\.(?:js|css))"/g)].map(
        ([, path]) => new URL(path, server.url),
      );
      let bytes = 0;
      for (const file of files) {
        const { headers } = await fetch(file, { method: "HEAD", headers: { "accept-encoding": "gzip" } });
        assert.equal(headers.get("content-encoding"), "gzip");
        bytes += Number(headers.get("content-length"));
      }
      console.log(`first load: ${(bytes / 1024).toFixed(1)} KB of compressed script and style`);
      assert.ok(files.length >= 2 && bytes > 10_000);
      assert.ok(bytes <= 180 * 1024, `${bytes} bytes`);
    } finally {
      await server.end();
    }
  });
});
