"""How each measure is taken, the same way for every party; see README.md."""

import random
import statistics
import time
from dataclasses import dataclass

from party import Running, Trouble

ATTEMPTS = 3  # of a job of retry_path: two that fail, one that succeeds
STEP_LIMIT = 120  # seconds for setting up and for filling, which are not timed
IDLE = 0.5  # seconds after which a worker without jobs waits for one


@dataclass
class Measure:
    unit: str
    jobs: int
    rounds: int  # at most
    limit: int  # seconds
    take: callable


@dataclass
class Database:
    party: object
    url: str
    session: object
    facts: dict  # what the party said of itself when it was set up

    def prepare(self, jobs):
        """Fills the queue, and lets every party start from settled tables."""
        self.party.step(self.url, "fill", jobs, STEP_LIMIT)
        self.expect_unfinished(jobs)
        self.session.ask("VACUUM ANALYZE")
        self.session.ask("CHECKPOINT")

    def command(self, measure, jobs):
        return self.party.command(self.url, measure, jobs)

    def any_unfinished(self):
        return self.session.ask(f"SELECT EXISTS (SELECT 1 FROM {self.facts['unfinished']})") == "t"

    def expect_unfinished(self, jobs):
        found = int(self.session.ask(f"SELECT count(*) FROM {self.facts['unfinished']}"))
        if found != jobs:
            raise Trouble(f"{found:,} jobs in the database instead of {jobs:,}")


def drain(database, measure, jobs, limit, processes=1, attempts=1):
    """From the start signal until the database has every job on record as finished."""
    database.prepare(jobs)
    with Running(limit) as running:
        command = database.command(measure, jobs)
        workers = [running.start(command) for _ in range(processes)]
        start = time.monotonic()
        for worker in workers:
            worker.send()
        said = {}
        while sum(report["handled"] for report in said.values()) < jobs:
            worker, report = running.report()
            said[worker] = report
        # The handlers count for free; the database is asked only from here on.
        while database.any_unfinished():
            running.check_time()
            time.sleep(0.001)
        seconds = time.monotonic() - start
    started = sum(report["attempts"] for report in said.values())
    notes = []
    if started != jobs * attempts:
        notes.append(f"{started:,} attempts instead of {jobs * attempts:,}")
    recorded = database.facts.get("attempts")
    if recorded and int(database.session.ask(recorded)) != jobs * attempts:
        notes.append(f"{database.session.ask(recorded)} attempts on record")
    return {"value": jobs * attempts / seconds, "notes": notes}


def drain_two(database, measure, jobs, limit):
    return drain(database, measure, jobs, limit, processes=2)


def retry_path(database, measure, jobs, limit):
    return drain(database, measure, jobs, limit, attempts=ATTEMPTS)


def produce(database, measure, jobs, limit):
    """The process times itself; the database says whether the jobs are there."""
    database.session.ask("CHECKPOINT")
    with Running(limit) as running:
        running.start(database.command(measure, jobs)).send()
        _, report = running.report()
    database.expect_unfinished(jobs)
    return {"value": jobs / report["seconds"]}


def latency(database, measure, jobs, limit):
    """One job at a time: the next one is sent when the last has been seen to start."""
    with Running(limit) as running:
        worker = running.start(database.command(measure, jobs))
        producer = running.start(database.command("latency_producer", jobs))
        worker.send()
        time.sleep(IDLE)
        found = []
        while len(found) < jobs:
            producer.send()
            while True:
                _, report = running.report()
                if report["late_ms"]:
                    break
            found += report["late_ms"]
            # Not in step with anybody's poll.
            time.sleep(random.uniform(0.005, 0.025))
    return {"value": statistics.median(found), "p99": percentile(found, 0.99)}


def lateness(database, measure, jobs, limit):
    """The process makes jobs that are due at known instants, and runs them."""
    with Running(limit) as running:
        running.start(database.command(measure, jobs)).send()
        found = []
        while len(found) < jobs:
            _, report = running.report()
            found += report["late_ms"]
    early = sum(late < 0 for late in found)
    notes = [f"{early:,} of {jobs:,} jobs early"] if early else []
    p50 = statistics.median(found)
    return {"value": percentile(found, 0.99), "p50": p50, "early": early, "notes": notes}


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


MEASURES = {
    "drain_1": Measure("jobs/s", 100_000, 5, 60, drain),
    "drain_2": Measure("jobs/s", 100_000, 5, 60, drain_two),
    "enqueue_64": Measure("jobs/s", 4_000, 5, 60, produce),
    "bulk_1000": Measure("jobs/s", 100_000, 5, 60, produce),
    "retry_path": Measure("attempts/s", 10_000, 5, 60, retry_path),
    "latency": Measure("p50 ms", 60, 5, 60, latency),
    "lateness": Measure("p99 ms", 1_000, 1, 60, lateness),
}
# Fewer jobs where a party would take too long; a rate is a rate.
JOBS = {
    ("drain_1", "apalis-postgres"): 40_000,
    ("drain_2", "apalis-postgres"): 40_000,
    ("drain_1", "underway"): 2_000,
    ("drain_2", "underway"): 2_000,
    ("drain_1", "procrastinate"): 2_000,
    ("drain_2", "procrastinate"): 2_000,
    ("bulk_1000", "procrastinate"): 20_000,
    ("retry_path", "underway"): 500,
    ("retry_path", "procrastinate"): 500,
}


def jobs_for(measure, party):
    return JOBS.get((measure, party), MEASURES[measure].jobs)
