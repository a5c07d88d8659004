"""One party of the comparison, and the processes of it that run: the protocol of README.md."""

import json
import os
import queue
import signal
import subprocess
import threading
import time


class Trouble(Exception):
    """A run that gives no figure, and why."""


class Process:
    """One process of a party, that says ready, waits for a line, and ends with its input."""

    def __init__(self, command, lines):
        self.command = command
        self.lines = lines
        self.popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.popen.stdout:
            self.lines.put((self, line.strip()))
        self.lines.put((self, None))

    def send(self):
        try:
            self.popen.stdin.write("\n")
            self.popen.stdin.flush()
        except BrokenPipeError:
            raise Trouble(f"ended early: {' '.join(self.command)}") from None

    def end(self):
        try:
            self.popen.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self.popen.wait(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(self.popen.pid, signal.SIGKILL)  # its own session, started above
            self.popen.wait()


class Running:
    """The processes of one run; on leaving, none of them is left."""

    def __init__(self, limit):
        self.deadline = time.monotonic() + limit
        self.lines = queue.Queue()
        self.processes = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.end()

    def start(self, command):
        """Starts a process; gives it back when it has said that it is ready."""
        process = Process(command, self.lines)
        self.processes.append(process)
        sender, line = self.next()
        if sender is not process or line != "ready":
            raise Trouble(f"not ready but {line!r}: {' '.join(command)}")
        return process

    def next(self):
        """The next line of any process."""
        left = self.deadline - time.monotonic()
        try:
            process, line = self.lines.get(timeout=max(left, 0.001))
        except queue.Empty:
            raise Trouble("over its time limit") from None
        if line is None:
            raise Trouble(f"ended early: {' '.join(process.command)}")
        return process, line

    def report(self):
        """The next line, as JSON."""
        process, line = self.next()
        try:
            return process, json.loads(line)
        except ValueError:
            raise Trouble(f"not JSON: {line!r}") from None

    def check_time(self):
        if time.monotonic() >= self.deadline:
            raise Trouble("over its time limit")


class Party:
    def __init__(self, name, command):
        self.name = name
        self.words = [str(word) for word in command]

    def command(self, url, measure, jobs):
        return self.words + ["--store", url, "--measure", measure, "--jobs", str(jobs)]

    def step(self, url, measure, jobs, limit):
        """A step that is not timed; gives what it printed last, as JSON."""
        command = self.command(url, measure, jobs)
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=limit
            )
        except subprocess.TimeoutExpired:
            raise Trouble(f"over {limit} s: {' '.join(command)}") from None
        if done.returncode != 0:
            raise Trouble(f"exit status {done.returncode}: {' '.join(command)}")
        lines = done.stdout.strip().splitlines()
        return json.loads(lines[-1]) if lines else {}
