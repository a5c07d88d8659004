"""One throw-away PostgreSQL cluster on loopback, with the durability it has by default."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "max_connections": "200",
}
# What the figures rest on; said beside them.
DURABILITY = ("fsync", "synchronous_commit", "full_page_writes")


def programs():
    """The folder with initdb and pg_ctl, or None."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    installed = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = max(installed, key=lambda path: int(path.parts[-3]), default=None)
    return newest.parent if newest else None


class Cluster:
    """Started on entering, stopped and removed on leaving, whatever happens."""

    def __init__(self, directory):
        self.programs = programs()
        self.root = Path(tempfile.mkdtemp(prefix="redrive-peers-pg-", dir=directory))
        # PostgreSQL refuses to run as root: the cluster then belongs to postgres.
        self.as_owner = []
        if os.geteuid() == 0:
            owner = pwd.getpwnam("postgres")
            os.chown(self.root, owner.pw_uid, owner.pw_gid)
            self.as_owner = ["runuser", "-u", "postgres", "--"]
        self.data = self.root / "data"
        self.number = 0

    def __enter__(self):
        try:
            self.control("initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.port = probe.getsockname()[1]
            settings = dict(SETTINGS, port=self.port, unix_socket_directories=f"'{self.root}'")
            options = " ".join(f"-c {name}={value}" for name, value in settings.items())
            log = self.root / "log"
            self.control("pg_ctl", "-D", self.data, "-l", log, "-w", "-o", options, "start")
            self.session = self.connect("postgres")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if (self.data / "postmaster.pid").exists():
            self.control("pg_ctl", "-D", self.data, "-m", "immediate", "-w", "stop", check=False)
        shutil.rmtree(self.root, ignore_errors=True)

    def control(self, program, *words, check=True):
        command = self.as_owner + [str(self.programs / program)] + [str(word) for word in words]
        subprocess.run(command, check=check, stdout=subprocess.DEVNULL, cwd=self.root)

    def url(self, database):
        return f"postgres://postgres@127.0.0.1:{self.port}/{database}"

    def connect(self, database):
        return Session(self.programs / "psql", self.url(database))

    def create(self):
        """A fresh database; gives its name."""
        self.number += 1
        name = f"measure_{self.number}"
        self.session.ask(f"CREATE DATABASE {name}")
        return name

    def drop(self, name):
        self.session.ask(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def durability(self):
        return {name: self.session.ask(f"SHOW {name}") for name in DURABILITY}

    def version(self):
        return self.session.ask("SHOW server_version")


class Session:
    """One psql that stays connected, so that a question costs no start of a program."""

    END = "-- end of answer --"

    def __init__(self, psql, url):
        command = [str(psql), "-XqAt", "-v", "ON_ERROR_STOP=1", url]
        self.psql = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def ask(self, statement):
        """The answer as text, empty when there is none."""
        self.psql.stdin.write(f"{statement};\n\\echo {self.END}\n")
        self.psql.stdin.flush()
        lines = []
        for line in self.psql.stdout:
            if line.rstrip("\n") == self.END:
                return "\n".join(lines)
            lines.append(line.rstrip("\n"))
        raise RuntimeError(f"psql ended at: {statement}")

    def close(self):
        self.psql.stdin.close()
        self.psql.wait()
