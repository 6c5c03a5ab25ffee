"""The configuration of HAProxy for several processes of the app.

A reader's WebSocket holds a session of one process. So every later request of the reader must reach that process: a cookie
names it. A hall's readers often share one address, so an address cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

COOKIE = "kernel_theatre_app"
WATCH = "/stage/watch/"  # its last part begins with the name of the process, for a browser without cookies


class HallError(ValueError):
    """What is wrong with the settings of a hall, as a sentence."""


@dataclass(frozen=True)
class Server:
    name: str  # letters and digits
    address: str  # host:port


@dataclass(frozen=True)
class Proxy:
    """The settings of HAProxy. `certificate`: a PEM file with certificate and key, for HTTPS; other sites can then embed the
    app. `admin`: the socket by which servers are drained; `base`: server.baseUrlPath."""

    servers: Sequence[Server]
    port: int = 8501
    certificate: Path | None = None
    admin: Path | None = None
    base: str = ""
    by_name: bool = False  # servers are names that come and go, as of containers
    most: int = 4096  # connections: a reader has one WebSocket, and for moments up to six requests

    def __post_init__(self) -> None:
        if not self.servers:
            raise HallError("a hall needs at least one process of the app")
        names = [server.name for server in self.servers]
        if len(set(names)) < len(names) or not all(name.isalnum() for name in names):
            raise HallError(f"names of processes are letters and digits, each once; got {', '.join(names)}")
        if not 0 < self.port < 65536:
            raise HallError(f"a port is a number from 1 to 65535, got {self.port}")


def render(proxy: Proxy) -> str:
    """Returns the text of haproxy.cfg."""
    resolvers = RESOLVERS if proxy.by_name else []
    return "\n".join((*_global(proxy), *resolvers, *_frontend(proxy), *_backend(proxy), ""))


def _global(proxy: Proxy) -> list[str]:
    lines = [
        "# Made by python -m hall. docs/hall.md says why each line is here.",
        "global",
        f"    maxconn {proxy.most}",
    ]
    if proxy.admin:
        lines.append(f"    stats socket {proxy.admin} mode 600 level admin")
    if proxy.certificate:
        lines.append("    ssl-default-bind-options ssl-min-ver TLSv1.2")
    return [
        *lines,
        "",
        "defaults",
        "    mode http",
        "    timeout connect 5s",
        "    timeout http-request 10s",
        "    timeout client 60s",
        "    timeout server 60s  # the route of news answers after 25 s at the latest",
        "    timeout check 5s  # a process that is busy for a moment still has its readers",
        "    timeout tunnel 12h  # a WebSocket lasts as long as its page is open",
        "    retries 2",
        "    option redispatch  # to another process if the reader's own has ended",
        "    retry-on conn-failure empty-response",
        "",
    ]


RESOLVERS = ["resolvers names", "    parse-resolv-conf", "    hold valid 5s", ""]


def _frontend(proxy: Proxy) -> list[str]:
    tls = f" ssl crt {proxy.certificate} alpn http/1.1" if proxy.certificate else ""
    scheme = "https" if proxy.certificate else "http"
    return [
        "frontend hall",
        f"    bind :{proxy.port}{tls}",
        f"    http-request set-header X-Forwarded-Proto {scheme}",
        "    option forwardfor",
        "    default_backend apps",
        "",
    ]


def _backend(proxy: Proxy) -> list[str]:
    base = f"/{proxy.base.strip('/')}".rstrip("/")
    # A frame of another site sends only cookies of this kind, and only over HTTPS.
    foreign = ' secure attr "SameSite=None" attr "Partitioned"' if proxy.certificate else ' attr "SameSite=Lax"'
    resolved = " init-addr libc,none resolvers names" if proxy.by_name else ""
    return [
        "backend apps",
        "    balance leastconn",
        f"    cookie {COOKIE} insert indirect nocache httponly{foreign}",
        f"    option httpchk GET {base}/_stcore/health",
        "    http-check expect status 200",
        "    http-request disable-l7-retry unless METH_GET",
        f"    default-server check inter 1s fall 2 rise 1 slowstart 2s{resolved}",
        *(f"    use-server {s.name} if {{ path_beg {base}{WATCH}{s.name}- }}" for s in proxy.servers),
        *(f"    server {s.name} {s.address} cookie {s.name}" for s in proxy.servers),
    ]
