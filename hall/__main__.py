"""python -m hall [N] [--port 8501] [--certificate FILE.pem] [--host NAME ...] [--base PATH] [--drain SECONDS] [--print]"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hall.apps import Settings, names, run
from hall.haproxy import HallError, Proxy, Server, render


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m hall", description="The app several times behind HAProxy.")
    parser.add_argument("processes", nargs="?", type=int, default=2, help="processes of the app (2)")
    parser.add_argument("--port", type=int, default=8501, help="of the hall (8501)")
    parser.add_argument(
        "--certificate", type=Path, help="a PEM file with certificate and key: HTTPS, for other sites' frames"
    )
    parser.add_argument("--host", action="append", default=[], help="a name by which readers reach this machine")
    parser.add_argument("--base", default="", help="a path under which the app is, such as talk")
    parser.add_argument(
        "--drain", type=float, default=60.0, help="seconds that a restart (SIGHUP) waits for readers (60)"
    )
    parser.add_argument("--print", action="store_true", help="print haproxy.cfg for apps named app1, app2 ... and end")
    args = parser.parse_args(arguments)
    try:
        if args.print:
            servers = [Server(f"app{n}", f"app{n}:8501") for n in range(1, args.processes + 1)]
            print(render(Proxy(servers, args.port, args.certificate, base=args.base, by_name=True)), end="")
            return 0
        run(Settings(args.processes, args.port, args.certificate, names(args.host), args.base, args.drain))
    except HallError as error:
        print(f"hall: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
