"""python -m hall [SITE] [--port 8501] [--address 0.0.0.0] [--certificate FILE.pem]"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
from pathlib import Path

from visuals.site.python import Pyodide, PyodideError
from visuals.site.write import Settings, outdated, write

ROOT = Path(__file__).resolve().parents[1]
BUILD_COMMAND = "python -m visuals.site {site}"
STOP_S = 5  # that a stopped hall waits for open requests


class HallError(ValueError):
    """Why the hall cannot start, as a sentence."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m hall", description="The site, Run and History for many readers.")
    parser.add_argument(
        "site", nargs="?", type=Path, help="a folder that python -m visuals.site wrote; else one is built"
    )
    parser.add_argument("--port", type=int, default=8501, help="8501")
    parser.add_argument("--address", default="0.0.0.0", help="of the network; 127.0.0.1 for this machine alone")
    parser.add_argument("--certificate", type=Path, help="a PEM file with certificate and key, for HTTPS")
    args = parser.parse_args(arguments)
    try:
        refuse_taken(args.address, args.port)
        if args.certificate and not args.certificate.is_file():
            raise HallError(f"there is no certificate {args.certificate}: a PEM file with certificate and private key")
        site = checked(args.site) if args.site else built(ROOT / "site")
    except HallError as error:
        print(f"hall: {error}", file=sys.stderr)
        return 1
    serve(site, args)
    return 0


def serve(site: Path, args: argparse.Namespace) -> None:
    # Here and not above: the process that draws pages imports this module too, and needs no server.
    import uvicorn

    from hall.server import application

    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(0)
    )  # uvicorn sends it again when it has ended: exit as usual then
    scheme = "https" if args.certificate else "http"
    print(f"hall: {site} at {scheme}://localhost:{args.port}", flush=True)
    uvicorn.run(
        application(site),
        host=args.address,
        port=args.port,
        ssl_certfile=args.certificate,
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=STOP_S,
    )


def checked(site: Path) -> Path:
    """Returns the folder of a site. HallError if it is none; says which pages are older than the code."""
    command = BUILD_COMMAND.format(site=site)
    if not (site / "index.html").is_file():
        raise HallError(f"{site} holds no site. {command} builds one; so does python -m hall without a folder")
    if old := outdated(site):
        names = ", ".join(path or "home" for path in old)
        print(f"hall: these pages are older than the code: {names}. {command} builds them again", flush=True)
    return site


def built(site: Path) -> Path:
    """Returns the folder of a site that is as new as the code: only what has changed is built."""
    pyodide: Path | None = ROOT / "node_modules"
    try:
        Pyodide(pyodide)
    except PyodideError:
        pyodide = None  # the server draws what the site does not hold
    write(Settings(site, pyodide=pyodide, jobs=min(4, os.cpu_count() or 1)), lambda text: print(text, flush=True))
    return site


def refuse_taken(address: str, port: int) -> None:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise HallError(f"port {port} cannot be used: {reason}; PORT= or --port chooses another") from None


if __name__ == "__main__":
    sys.exit(main())
