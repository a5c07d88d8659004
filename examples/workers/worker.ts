// A Redrive worker: leases `greet` jobs, runs them, and reports what came of each.
interface Job { lease: string; run: number; payload: { name?: string } }
interface Leased { workerId: string; jobs: Job[] }

const server = process.env.REDRIVE_URL ?? "http://127.0.0.1:7373";
const token = process.env.REDRIVE_TOKEN;
const headers = { "Content-Type": "application/json", ...(token && { Authorization: `Bearer ${token}` }) };

/** Posts JSON, and gives the status and the data; status 0 if nobody answers. */
async function post<T>(path: string, body: object): Promise<{ status: number; data?: T }> {
  try {
    const signal = AbortSignal.timeout(40_000);
    const sent = { method: "POST", headers, body: JSON.stringify(body), signal };
    const response = await fetch(`${server}/api/v1${path}`, sent);
    return { status: response.status, data: ((await response.json()) as { data?: T }).data };
  } catch {
    return { status: 0 };
  }
}

/** What the job is for. What it returns is kept as the job's output. */
async function handle(job: Job): Promise<object> {
  if (job.payload.name === undefined) throw new TypeError("there is no name");
  return { greeting: `Hello, ${job.payload.name}` };
}

const second = () => new Promise((resolve) => setTimeout(resolve, 1000));

for (let me = {}; ; ) {
  const { data: leased } = await post<Leased>("/workers/lease", { ...me, kinds: ["greet"], wait: "20s", leaseFor: "1m" });
  // Nobody answered, or we were away for too long: begin again as a new worker.
  me = leased ? { workerId: leased.workerId } : {};
  if (!leased) await second();
  for (const job of leased?.jobs ?? []) {
    const failed = (error: Error) =>
      ["fail", { message: error.message, ...(error instanceof TypeError && { class: "permanent" }) }] as const;
    const [report, body] = await handle(job).then((output) => ["complete", { output }] as const, failed);
    // 409 means that the job is no longer ours. Without an answer the same report is sent again: it counts once.
    while (![200, 409].includes((await post(`/leases/${job.lease}/${report}`, body)).status)) await second();
  }
}
