#!/usr/bin/env python3
"""Measures procrastinate by the protocol of README.md.

--store URL --measure NAME --jobs N [--set NAME=VALUE]...
"""

import argparse
import asyncio
import datetime
import json
import logging
import os
import sys
import time

import procrastinate

FAILURES = 2  # how many times a job of retry_path fails before it succeeds
FILL = 5_000  # jobs in one call when the queue is filled beforehand
BULK = 1_000  # jobs in one call of bulk_1000
CALLERS = 64
REPORT_EVERY = 0.005
LATENESS_LEAD = 2.0  # from the start signal to the first instant of lateness
LATENESS_SPREAD = 10.0
WORKER_MEASURES = ("drain_1", "drain_2", "retry_path", "latency", "lateness")
PRODUCER_MEASURES = ("enqueue_64", "bulk_1000", "latency_producer")


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", required=True)
    parser.add_argument("--measure", required=True)
    parser.add_argument("--jobs", type=int, required=True)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    call = parser.parse_args()
    call.settings = dict(pair.split("=", 1) for pair in call.set)
    call.setting = lambda name, default: type(default)(call.settings.get(name, default))
    return call


def say(line):
    try:
        print(line if isinstance(line, str) else json.dumps(line), flush=True)
    except BrokenPipeError:  # the runner has what it wanted, or is gone
        os._exit(0)


async def ready():
    """Says ready, waits for the first line; gives a queue of the further ones."""
    lines = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def read():
        for _ in sys.stdin:
            loop.call_soon_threadsafe(lines.put_nowait, None)
        os._exit(0)  # the end of the input ends the process

    loop.run_in_executor(None, read)
    say("ready")
    await lines.get()
    return lines


class Tally:
    """What the handlers of a process have seen."""

    def __init__(self, measure):
        self.failures = FAILURES if measure == "retry_path" else 0
        self.timed = measure in ("latency", "lateness")
        self.attempts = 0
        self.handled = 0
        self.late_ms = []

    def run(self, at, attempt):
        """The whole handler; attempt counts from 1 and is what is on record."""
        if self.timed:
            self.late_ms.append((time.time() - at) * 1000)
        self.attempts += 1
        if attempt <= self.failures:
            raise RuntimeError("not yet")
        self.handled += 1

    async def report(self):
        said = 0
        while True:
            await asyncio.sleep(REPORT_EVERY)
            if self.attempts != said:
                said = self.attempts
                late_ms, self.late_ms = self.late_ms, []
                say({"handled": self.handled, "attempts": said, "late_ms": late_ms})


async def add_in_batches(noop, jobs, batch):
    for first in range(0, jobs, batch):
        numbers = range(first, min(first + batch, jobs))
        await noop.batch_defer_async(*({"n": n, "at": 0} for n in numbers))


async def enqueue(noop, jobs, callers):
    numbers = iter(range(jobs))

    async def caller():
        for n in numbers:
            await noop.defer_async(n=n, at=0)

    await asyncio.gather(*(caller() for _ in range(callers)))


async def add_due(noop, jobs):
    first = time.time() + LATENESS_LEAD
    for n in range(jobs):
        at = first + n * LATENESS_SPREAD / jobs
        when = datetime.datetime.fromtimestamp(at, datetime.timezone.utc)
        await noop.configure(schedule_at=when).defer_async(n=n, at=at)


async def produce(app, noop, call):
    lines = await ready()
    if call.measure == "latency_producer":
        for n in range(call.jobs):
            await noop.defer_async(n=n, at=time.time())
            await lines.get()
        return
    start = time.perf_counter()
    if call.measure == "bulk_1000":
        await add_in_batches(noop, call.jobs, BULK)
    else:
        await enqueue(noop, call.jobs, call.setting("callers", CALLERS))
    say({"seconds": time.perf_counter() - start})


async def work(app, noop, tally, call):
    await ready()
    reporting = asyncio.create_task(tally.report())
    worker = asyncio.create_task(
        app.run_worker_async(
            concurrency=call.setting("concurrency", 20),
            fetch_job_polling_interval=call.setting("poll", 0.1),
            install_signal_handlers=False,
            listen_notify=True,
        )
    )
    if call.measure == "lateness":
        await add_due(noop, call.jobs)
    await asyncio.gather(worker, reporting)


async def main():
    call = parse()
    logging.disable(logging.CRITICAL)  # a failed job is logged with its trace
    connections = call.setting("pool", 50 if call.measure == "enqueue_64" else 20)
    connector = procrastinate.PsycopgConnector(
        conninfo=call.store, min_size=connections, max_size=connections
    )
    app = procrastinate.App(connector=connector)
    tally = Tally(call.measure)

    @app.task(name="noop", pass_context=True, retry=procrastinate.RetryStrategy(max_attempts=5))
    async def noop(context, n, at):
        tally.run(at, context.job.attempts + 1)

    async with app.open_async():
        if call.measure == "setup":
            await app.schema_manager.apply_schema_async()
            say(
                {
                    "peer": "procrastinate",
                    "unfinished": "procrastinate_jobs WHERE status <> 'succeeded'",
                    "attempts": "SELECT sum(attempts) FROM procrastinate_jobs",
                }
            )
        elif call.measure == "fill":
            await add_in_batches(noop, call.jobs, FILL)
        elif call.measure in PRODUCER_MEASURES:
            await produce(app, noop, call)
        elif call.measure in WORKER_MEASURES:
            await work(app, noop, tally, call)
        else:
            sys.exit(f"unknown measure {call.measure}")
    os._exit(0)  # the thread that reads stdin waits for more


asyncio.run(main())
