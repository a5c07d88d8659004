#!/usr/bin/env python3
"""Measures huey's SqliteHuey; see README.md.

    huey_bench.py MEASURE --jobs N --dir DIR [--limit SECONDS] [--set NAME=VALUE]

Tried on two cores, draining 10,000 jobs (jobs a second; the best is the
default here):
  worker   1 process 8,300; 2: 7,200; 4: 6,200; 1 thread 8,100; 4: 3,100
  fsync    false (synchronous OFF) 8,300; unset (SQLite's default) 1,500
  results  off: nothing is written when a job ends. A job is deleted when a
           worker takes it, so this is less than what the others do.
"""

import argparse
import json
import logging
import multiprocessing
import os
import sys
import threading
import time

from huey import SqliteHuey

CALLERS = 64
FAILURES = 2
SYNCHRONOUS = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "measure", choices=["drain", "enqueue_one", "enqueue_64", "retry_path"]
    )
    parser.add_argument("--jobs", type=int, required=True)
    parser.add_argument("--dir", required=True)
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    args = parser.parse_args()
    args.settings = dict(pair.split("=", 1) for pair in args.set)
    return args


def enqueue(task, jobs, callers, limit):
    """Every caller adds one job at a time, until there are enough."""
    numbers, lock = iter(range(jobs)), threading.Lock()
    added = [0] * callers
    start = time.perf_counter()

    def caller(me):
        while time.perf_counter() - start < limit:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            task(number)
            added[me] += 1

    threads = [threading.Thread(target=caller, args=(me,)) for me in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(added), time.perf_counter() - start


def drain(huey, task, finished, args):
    """huey has no bulk insert, so the jobs are added one by one, untimed."""
    for number in range(args.jobs):
        task(number)
    consumer = huey.create_consumer(
        workers=int(args.settings.get("workers", 1)),
        worker_type=args.settings.get("type", "process"),
        periodic=False,
        initial_delay=0.001,
        max_delay=0.01,
        check_worker_health=False,
    )
    start = time.perf_counter()
    consumer.start()
    while finished.value < args.jobs and time.perf_counter() - start < args.limit:
        time.sleep(0.001)
    elapsed = time.perf_counter() - start
    completed = finished.value
    consumer.stop()
    return completed, elapsed


def main():
    args = parse()
    logging.disable(logging.CRITICAL)  # a failed job is logged with its trace
    path = os.path.join(args.dir, "huey.db")
    if os.path.exists(path):
        sys.exit(f"{path} already exists")
    fsync = {"true": True, "false": False, "default": None}
    huey = SqliteHuey(
        "bench",
        filename=path,
        results=False,
        cache_mb=64,
        fsync=fsync[args.settings.get("fsync", "false")],
        timeout=args.limit,
    )
    # Workers may be other processes, so what they finished is counted in
    # memory they share; huey itself keeps no trace of a finished job.
    finished = multiprocessing.Value("Q", 0)
    failing = FAILURES if args.measure == "retry_path" else 0

    @huey.task(retries=failing, retry_delay=0, context=True)
    def noop(number, task=None):
        if task.retries > 0:
            raise RuntimeError("not yet")
        with finished.get_lock():
            finished.value += 1

    connection = huey.storage.conn
    journal = connection.execute("pragma journal_mode").fetchone()[0]
    synchronous = SYNCHRONOUS[connection.execute("pragma synchronous").fetchone()[0]]

    if args.measure == "enqueue_one":
        completed, elapsed = enqueue(noop, args.jobs, 1, args.limit)
    elif args.measure == "enqueue_64":
        completed, elapsed = enqueue(noop, args.jobs, CALLERS, args.limit)
    else:
        completed, elapsed = drain(huey, noop, finished, args)
    if args.measure.startswith("enqueue"):
        completed = min(completed, huey.storage.queue_size())

    print(
        json.dumps(
            {
                "peer": "huey",
                "name": args.measure,
                "jobs": args.jobs,
                "completed": completed,
                "seconds": round(elapsed, 6),
                "rate": round(completed / elapsed, 1),
                "journal_mode": journal,
                "synchronous": synchronous,
            },
            separators=(",", ":"),
        ),
        flush=True,
    )


if __name__ == "__main__":
    main()
