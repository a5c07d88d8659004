"""A Redrive worker: leases `greet` jobs, runs them, and reports what came of each."""
import json, os, time, urllib.request as web

SERVER = os.environ.get("REDRIVE_URL", "http://127.0.0.1:7373")
HEADERS = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ.get("REDRIVE_TOKEN", "")}

def post(path, body):  # gives the status and the data; status 0 if nobody answers
    try:
        call = web.Request(f"{SERVER}/api/v1{path}", json.dumps(body).encode(), HEADERS)
        return 200, json.load(web.urlopen(call, timeout=40))["data"]
    except Exception as error:
        return getattr(error, "code", 0), {}

def handle(payload):  # what the job is for; what it returns is kept as the job's output
    if "name" not in payload: raise ValueError("there is no name")
    return {"greeting": f"Hello, {payload['name']}"}

me = {}
while True:
    _, leased = post("/workers/lease", {**me, "kinds": ["greet"], "wait": "20s", "leaseFor": "1m"})
    me = {"workerId": leased["workerId"]} if leased else time.sleep(1) or {}  # no answer: begin as a new worker
    for job in leased.get("jobs", []):
        try:
            report, body = "complete", {"output": handle(job["payload"])}
        except ValueError as error:  # a payload that is wrong stays wrong
            report, body = "fail", {"message": str(error), "class": "permanent"}
        except Exception as error:
            report, body = "fail", {"message": str(error)}
        while post(f"/leases/{job['lease']}/{report}", body)[0] not in (200, 409):  # sent again, it counts once
            time.sleep(1)
