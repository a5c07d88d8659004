"""What the two runners share: where things are built, and where nothing is synced."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent


def say(*words):
    print(*words, file=sys.stderr, flush=True)


def target():
    return Path(os.environ.get("CARGO_TARGET_DIR") or HERE / "target").absolute()


def cargo(package):
    """Builds a package of peers; gives the folder with its programs."""
    environment = dict(os.environ, CARGO_TARGET_DIR=str(target()))
    command = ["cargo", "build", "--release", "--locked", "--quiet"]
    subprocess.run(command, cwd=package, env=environment, check=True)
    return target() / "release"


def venv(name, requirements):
    """Makes a virtual environment with the requirements; gives its Python."""
    folder = target() / name
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet"]
    pip += ["--disable-pip-version-check", "-r", str(requirements)]
    subprocess.run(pip, check=True)
    return python


def on_disk(directory):
    kind = subprocess.run(
        ["stat", "-f", "-c", "%T", str(directory)], capture_output=True, text=True
    ).stdout.strip()
    if kind in ("tmpfs", "ramfs"):
        sys.exit(f"{directory} is {kind}: nothing would be synced; choose --dir or TMPDIR")
    return kind
