"""A Redrive worker: leases `greet` jobs, runs them, and reports what came of each."""

import json
import os
import time
import urllib.error
import urllib.request

SERVER = os.environ.get("REDRIVE_URL", "http://127.0.0.1:7373")
HEADERS = {"Content-Type": "application/json"}
if "REDRIVE_TOKEN" in os.environ:
    HEADERS["Authorization"] = f"Bearer {os.environ['REDRIVE_TOKEN']}"


def post(path, body):
    """Posts JSON, and gives the status and the data; status 0 if nobody answers."""
    request = urllib.request.Request(f"{SERVER}/api/v1{path}", json.dumps(body).encode(), HEADERS)
    try:
        with urllib.request.urlopen(request, timeout=40) as response:
            return response.status, json.load(response)["data"]
    except urllib.error.HTTPError as refusal:
        return refusal.code, {}
    except OSError:
        return 0, {}


def handle(job):
    """What the job is for. What it returns is kept as the job's output."""
    if "name" not in job["payload"]:
        raise ValueError("there is no name")
    return {"greeting": f"Hello, {job['payload']['name']}"}


me = {}
while True:
    status, leased = post("/workers/lease", {**me, "kinds": ["greet"], "wait": "20s", "leaseFor": "1m"})
    if status != 200:
        # Nobody answered, or we were away for too long: begin again as a new worker.
        me = {}
        time.sleep(1)
        continue
    me = {"workerId": leased["workerId"]}
    for job in leased["jobs"]:
        try:
            report, body = "complete", {"output": handle(job)}
        except ValueError as error:
            report, body = "fail", {"class": "permanent", "message": str(error)}
        except Exception as error:
            report, body = "fail", {"message": str(error)}
        # 409 means that the job is no longer ours. Without an answer the same report is sent again: it counts once.
        while post(f"/leases/{job['lease']}/{report}", body)[0] not in (200, 409):
            time.sleep(1)
