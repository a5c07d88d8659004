// A Redrive worker: leases `greet` jobs, runs them, and reports what came of each.
type Leased = { workerId: string; jobs: { lease: string; payload: { name?: string } }[] };

const { REDRIVE_URL: server = "http://127.0.0.1:7373", REDRIVE_TOKEN: token = "" } = process.env;
const headers = { "Content-Type": "application/json", Authorization: `Bearer ${token}` };
const second = () => new Promise((resolve) => setTimeout(resolve, 1000));

/** The status and the data; status 0 if nobody answers. */
async function post(path: string, body: object): Promise<{ status: number; data?: Leased }> {
  const sent = { method: "POST", headers, body: JSON.stringify(body), signal: AbortSignal.timeout(40_000) };
  const answer = await fetch(`${server}/api/v1${path}`, sent).catch(() => undefined);
  return { status: answer?.status ?? 0, ...(await answer?.json().catch(() => ({}))) };
}

/** What the job is for. What it returns is kept as the job's output. */
async function handle({ name }: { name?: string }): Promise<object> {
  if (name === undefined) throw new TypeError("there is no name");
  return { greeting: `Hello, ${name}` };
}

for (let me = {}; ; ) {
  const { data: leased } = await post("/workers/lease", { ...me, kinds: ["greet"], wait: "20s", leaseFor: "1m" });
  me = leased ? { workerId: leased.workerId } : (await second(), {}); // no answer: begin as a new worker
  for (const { lease, payload } of leased?.jobs ?? []) {
    const known = (error: Error) => (error instanceof TypeError ? { class: "permanent" } : {}); // it stays wrong
    const failed = (error: Error) => ["fail", { message: error.message, ...known(error) }] as const;
    const [report, body] = await handle(payload).then((output) => ["complete", { output }] as const, failed);
    while (![200, 409].includes((await post(`/leases/${lease}/${report}`, body)).status)) await second();
  }
}
