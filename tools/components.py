"""The programs that the tests use beside Python: installed from Debian's packages where that is allowed.

    python tools/components.py

Installs what is missing when run as root on a machine with apt-get, says so in one line, and is silent when nothing is
missing. Where it may not or cannot, it goes on: the tests name at their end what they could not test. Nothing is
started: the tests run servers of their own, in folders of their own.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["COMPONENTS", "Component", "install", "main"]


@dataclass(frozen=True)
class Component:
    """A program, the Debian package that has it, and the names and places under which the tests look for it."""

    name: str
    package: str
    programs: tuple[str, ...]

    def found(self) -> bool:
        return any(shutil.which(p) or glob.glob(p) for p in self.programs)


COMPONENTS = (
    Component("PostgreSQL", "postgresql", ("initdb", "/usr/lib/postgresql/*/bin/initdb")),
    Component("Java", "default-jre-headless", ("java",)),
    Component("Chromium", "chromium", ("chromium", "chromium-browser")),
    Component("Node", "nodejs", ("node",)),
    Component("systemd-analyze", "systemd", ("systemd-analyze",)),
)


def install(missing: list[Component], call: Callable[[list[str]], int]) -> list[Component]:
    """Install the packages, one by one where together fails; those that are missing still."""
    quiet = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=120"]
    call([*quiet, "update"])
    every = [*quiet, "install", "--yes", "--no-install-recommends"]
    if call([*every, *(c.package for c in missing)]) != 0:
        for component in missing:
            call([*every, component.package])
    return [c for c in missing if not c.found()]


def _call(command: list[str]) -> int:
    # Without a run level no package starts a service.
    settings = {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    return subprocess.run(command, capture_output=True, env=os.environ | settings, check=False).returncode


def main() -> None:
    missing = [c for c in COMPONENTS if not c.found()]
    if not missing:
        return
    names = ", ".join(c.name for c in missing)
    if not (hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get")):
        packages = " ".join(c.package for c in missing)
        print(f"Not installed: {names}. On Debian: sudo apt-get install {packages}", file=sys.stderr)
        return
    print(f"Installing {names} for the tests, once.", file=sys.stderr)
    left = install(missing, _call)
    if left:
        print(f"Could not be installed: {', '.join(c.name for c in left)}.", file=sys.stderr)


if __name__ == "__main__":
    main()
