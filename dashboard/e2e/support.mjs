// What the browser tests stand on: a real server with its own file, a destination that does as it is told, and Debian's
// Chromium. Everything that is started here is ended by the test that started it.
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import axe from "axe-core";
import { chromium } from "playwright-core";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const target = process.env.CARGO_TARGET_DIR ?? here("../../target");
export const binary = process.env.REDRIVE_BIN ?? join(target, "debug", "redrive");

let databases = 0;

/** A store that nobody else has: a file, or a database of the PostgreSQL that REDRIVE_TEST_POSTGRES names. */
function freshStore(folder) {
  const postgres = process.env.REDRIVE_TEST_POSTGRES ?? "none";
  if (postgres === "none") return `sqlite:${join(folder, "jobs.db")}`;
  databases += 1;
  const url = new URL(postgres);
  url.pathname = `e2e_${process.pid}_${databases}`;
  execFileSync("psql", ["-q", postgres, "-c", `CREATE DATABASE ${url.pathname.slice(1)}`]);
  return url.href;
}

export const isPostgres = (process.env.REDRIVE_TEST_POSTGRES ?? "none") !== "none";

/** How much of a server's log is kept. */
const LOG_MAX = 20_000;

/** A server on a port of its own. `restart` keeps port and store. */
export async function startServer({ args = [], env = {}, store } = {}) {
  if (!existsSync(binary)) throw new Error(`there is no ${binary}; build it with: cargo build -p redrive-server`);
  const folder = mkdtempSync(join(tmpdir(), "redrive-e2e-"));
  const url = store ?? freshStore(folder);
  let listen = "127.0.0.1:0";
  let child;
  const server = { url: "", log: "", folder, store: url };
  server.start = async () => {
    const all = [
      "serve",
      "--store",
      url,
      "--listen",
      listen,
      "--allow-egress",
      "127.0.0.0/8",
      "--log-format",
      "json",
      // Of every job it would say that it is there; only its address is wanted.
      "--log",
      "warn,redrive::serving=info",
      ...args,
    ];
    // With nothing of this environment: a server refuses variables of the form REDRIVE_… that it does not know.
    child = spawn(binary, all, { cwd: folder, env, stdio: ["ignore", "ignore", "pipe"] });
    let isKnown = false;
    server.log = "";
    const logged = new Promise((resolve, reject) => {
      child.stderr.on("data", (text) => {
        // Its end is what anybody would want to read.
        server.log = (server.log + text).slice(-LOG_MAX);
        if (isKnown) return;
        const found = /"url":"(http:[^"]+)"/.exec(server.log);
        isKnown = found !== null;
        if (found) resolve(found[1]);
      });
      child.once("exit", (code) => reject(new Error(`the server ended with ${code}: ${server.log.slice(-2_000)}`)));
    });
    server.url = await logged;
    listen = new URL(server.url).host;
    child.removeAllListeners("exit");
  };
  server.stop = async (signal = "SIGTERM") => {
    if (child.exitCode === null && child.signalCode === null) {
      child.kill(signal);
      await once(child, "exit");
    }
  };
  server.end = async () => {
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  };
  server.call = async (method, path, body, headers = {}) => {
    const response = await fetch(`${server.url}/api/v1${path}`, {
      method,
      headers: { ...headers, ...(body === undefined ? {} : { "content-type": "application/json" }) },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const { data, error } = await response.json();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${error.message}`);
    return data;
  };
  await server.start();
  return server;
}

/** The media library of examples/, which does nothing by itself; its sources are as they are told. */
export async function startMediaLibrary() {
  const program = join(dirname(binary), "redrive-examples");
  if (!existsSync(program)) throw new Error(`there is no ${program}; build it with: cargo build -p redrive-examples`);
  const args = ["media_library", "--idle", "--listen", "127.0.0.1:0"];
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "inherit"] });
  let said = "";
  const [dashboard, files, sources] = await new Promise((resolve, reject) => {
    child.stdout.on("data", (text) => {
      said += text;
      const urls = said.match(/http:\/\/\S+(?=\n)/g) ?? [];
      if (urls.length >= 3) resolve(urls);
    });
    child.once("exit", (code) => reject(new Error(`the media library ended with ${code}: ${said}`)));
  });
  const ask = async (method, url) => (await fetch(url, { method })).json();
  return {
    dashboard,
    files: () => ask("GET", files),
    add: (file) => ask("POST", `${files}/${encodeURIComponent(file)}`),
    set: async (mood) => {
      for (const source of ["tmdb", "douban", "wikipedia"]) {
        await fetch(`${sources}/${source}/is/${mood}`, { method: "PUT" });
      }
    },
    end: async () => {
      child.kill("SIGINT");
      await once(child, "exit");
    },
  };
}

/** Answers each path as it was told last: a status, and what the body says. */
export async function startDestination() {
  const answers = new Map();
  const http = createServer((request, response) => {
    const answer = answers.get(request.url) ?? { status: 200, text: "done" };
    request.resume().on("end", () => response.writeHead(answer.status, answer.headers ?? {}).end(answer.text));
  });
  http.listen(0, "127.0.0.1");
  await once(http, "listening");
  const url = `http://127.0.0.1:${http.address().port}`;
  return {
    url,
    set: (path, status, text = "", headers = {}) => answers.set(path, { status, text, headers }),
    job: (path, policy, fields = {}) => ({
      kind: "http",
      payload: { method: "POST", url: url + path },
      policy,
      ...fields,
    }),
    end: async () => {
      http.closeAllConnections();
      http.close();
      await once(http, "close");
    },
  };
}

export const fixed = (delay, maxRetries) => ({
  backoff: { kind: "fixed", delay },
  jitter: { kind: "none" },
  maxRetries,
});

export function launch() {
  const path = process.env.CHROMIUM ?? "/usr/bin/chromium";
  const args = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"];
  return chromium.launch({ executablePath: path, args });
}

/** A page that remembers everything it should not have done. */
export async function openPage(browser, options = {}) {
  const { script, ...given } = options;
  const context = await browser.newContext({
    viewport: { width: 1440, height: 900 },
    locale: "en-US",
    colorScheme: "dark",
    reducedMotion: "reduce",
    ...given,
  });
  context.setDefaultTimeout(30_000);
  if (script) await context.addInitScript(script);
  await context.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (event) =>
      console.error(`VIOLATION ${event.violatedDirective} ${event.blockedURI}`),
    );
  });
  const page = await context.newPage();
  page.trouble = [];
  page.on("dialog", (dialog) => {
    page.trouble.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on("pageerror", (error) => page.trouble.push(`error: ${error.message}`));
  page.on("console", (message) => {
    const isOurs = message.type() === "error" && /VIOLATION|Content Security Policy|Trusted/.test(message.text());
    if (isOurs) page.trouble.push(message.text());
  });
  return page;
}

/** What axe finds wrong, in a line each. */
export async function violations(page) {
  await page.evaluate(axe.source);
  const { violations: found } = await page.evaluate(() =>
    globalThis.axe.run(document, { resultTypes: ["violations"] }),
  );
  return found.flatMap((one) =>
    one.nodes.map((node) => `${one.id}: ${node.target.join(" ")} ${node.failureSummary ?? ""}`),
  );
}

/** Waits until it is so, by asking; for what has no event to wait for. */
export async function until(what, isSo, ms = 30_000) {
  const end = Date.now() + ms;
  for (;;) {
    const value = await isSo();
    if (value) return value;
    if (Date.now() > end) throw new Error(`it never came true: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}
