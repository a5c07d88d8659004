// Takes the pictures of docs/images: every page, dark and light and on a phone, of a server with the demo at work.
import { mkdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { fixed, launch, openPage, startDestination, startServer, until } from "./support.mjs";

const folder = fileURLToPath(new URL("../../docs/images/", import.meta.url));
/** How long the demo is at work before the first picture, so that there is something to see. */
const WARM_MS = Number(process.env.REDRIVE_WARM_SECS ?? 150) * 1_000;

const pages = [
  ["overview", "/"],
  ["retries", "/retries"],
  ["jobs", "/jobs"],
  ["errors", "/errors"],
  ["dead", "/dead"],
  ["executions", "/executions"],
  ["queues", "/queues"],
  ["destinations", "/destinations"],
  ["policies", "/policies"],
  ["activity", "/activity"],
];
const views = [
  ["dark", { colorScheme: "dark", viewport: { width: 1440, height: 900 } }],
  ["light", { colorScheme: "light", viewport: { width: 1440, height: 900 } }],
  [
    "phone",
    {
      colorScheme: "dark",
      viewport: { width: 390, height: 844 },
      isMobile: true,
      hasTouch: true,
      deviceScaleFactor: 2,
    },
  ],
];

/** Work of a shop whose partners have a bad day: what waits for minutes stands beside what waits for seconds. */
async function shop(server, destination) {
  destination.set("/down", 503, "upstream is being deployed");
  destination.set("/slow", 504, "no answer within 10 s");
  const partners = [
    ["api.payments.example", "invoice", "/down"],
    ["hooks.crm.example", "contact", "/slow"],
    ["search.example", "index", "/down"],
  ];
  const jobs = Array.from({ length: 60 }, (_, index) => {
    const [name, what, path] = partners[index % partners.length];
    // Spread over the next quarter of an hour and further.
    const policy = { ...fixed(`${Math.round(40 + WARM_MS / 1_000 + ((index * 37) % 900))}s`, 8), name: "patient" };
    return destination.job(path, policy, { key: `${what}-${2041 + index}`, destination: name });
  });
  await server.call("POST", "/jobs/bulk", jobs);
}

/** An order whose parcel cannot be sent: the steps before it are done, those after it wait. */
async function order(server, destination) {
  destination.set("/parcels", 404, "no such address");
  const step = (nodeId, path, after = []) => ({
    nodeId,
    type: "action",
    subType: "api-call",
    after,
    config: { method: "POST", url: destination.url + path },
  });
  const nodes = [
    step("charge", "/fine"),
    step("reserve", "/fine"),
    step("ship", "/parcels", ["charge", "reserve"]),
    step("thank", "/fine", ["ship"]),
    step("archive", "/fine", ["ship"]),
  ];
  return await server.call("POST", "/executions", { workflow: { nodes }, input: { order: 2041 } });
}

const hideToasts = (page) =>
  page.evaluate(() => {
    for (const region of document.querySelectorAll('[aria-label="Notifications"]')) region.style.display = "none";
  });

mkdirSync(folder, { recursive: true });
const server = await startServer({ args: ["--demo"] });
const destination = await startDestination();
const browser = await launch();
try {
  await shop(server, destination);
  const execution = await order(server, destination);
  await new Promise((resolve) => setTimeout(resolve, WARM_MS));
  const [group] = await until("something has died", async () => {
    const groups = await server.call("GET", "/dead/groups");
    return groups.length > 0 && groups;
  });
  // A job that has been through something and is not at its end.
  const job = await until("a job has failed twice", async () => {
    const { items } = await server.call("GET", "/jobs?state=waiting&limit=100");
    return items.find((one) => one.failures >= 3 && one.policy.name === "media");
  });
  for (const [view, options] of views) {
    const page = await openPage(browser, options);
    const shot = async (name, path) => {
      await page.goto(server.url + path);
      await page.locator("main h1").first().waitFor();
      await page.getByTestId("live").filter({ hasText: "Live" }).waitFor();
      await page.getByRole("status", { name: "Loading…" }).first().waitFor({ state: "detached" });
      if (name === "policies") await page.getByTestId("outage").waitFor({ timeout: 120_000 });
      await page.evaluate(() => document.fonts.ready);
      await page.waitForTimeout(1_200);
      // What has just happened is told on the first page; on the others it would stand before what they are about.
      if (name !== "overview" || view === "phone") await hideToasts(page);
      await page.screenshot({ path: `${folder}${name}-${view}.png` });
    };
    await shot("job", `/jobs/${job.id}`);
    await shot("execution", `/executions/${execution.id}`);
    for (const [name, path] of pages) await shot(name, name === "errors" ? `${path}?group=${group.group}` : path);
    await page.context().close();
  }
  const chinese = await openPage(browser, { locale: "zh-TW", viewport: { width: 1440, height: 900 } });
  await chinese.goto(server.url);
  await chinese.getByTestId("health").waitFor();
  await chinese.waitForTimeout(1_200);
  await chinese.screenshot({ path: `${folder}overview-zh-TW.png` });
} finally {
  await browser.close();
  await server.end();
  await destination.end();
}
