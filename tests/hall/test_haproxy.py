"""HAProxy's configuration: what each line is for, and HAProxy itself accepts it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from hall.__main__ import main
from hall.haproxy import HallError, Proxy, Server, render

ROOT = Path(__file__).parents[2]
SERVERS = [Server("app1", "127.0.0.1:8601"), Server("app2", "127.0.0.1:8602")]
needs_haproxy = pytest.mark.skipif(
    not shutil.which("haproxy"), reason="no HAProxy here: install it (Debian: apt-get install haproxy)"
)


def backend(**options) -> list[str]:
    return [line.strip() for line in render(Proxy(SERVERS, **options)).partition("backend apps\n")[2].splitlines()]


def test_a_reader_stays_with_the_process_that_has_the_session():
    lines = backend()
    assert "balance leastconn" in lines  # not by address: a lecture hall has one
    cookie = next(line for line in lines if line.startswith("cookie "))
    assert cookie == 'cookie kernel_theatre_app insert indirect nocache httponly attr "SameSite=Lax"'
    assert "server app1 127.0.0.1:8601 cookie app1" in lines and "server app2 127.0.0.1:8602 cookie app2" in lines


def test_a_browser_without_cookies_finds_its_process_by_the_token():
    assert "use-server app2 if { path_beg /talk/stage/watch/app2- }" in backend(base="/talk/")


def test_over_https_the_cookie_reaches_frames_of_other_sites():
    text = render(Proxy(SERVERS, 443, Path("/certificates/hall.pem")))
    assert "bind :443 ssl crt /certificates/hall.pem" in text
    assert 'httponly secure attr "SameSite=None" attr "Partitioned"' in text
    assert "X-Forwarded-Proto https" in text and "X-Forwarded-Proto http\n" in render(Proxy(SERVERS))


def test_the_health_of_each_process_is_checked_under_the_base_path():
    assert "option httpchk GET /_stcore/health" in backend()
    assert "option httpchk GET /talk/_stcore/health" in backend(base="talk")
    assert any(line.startswith("default-server check ") for line in backend())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"servers": []}, "at least one"),
        ({"servers": [*SERVERS, SERVERS[0]]}, "each once"),
        ({"servers": [Server("a b", "x:1")]}, "letters and digits"),
        ({"servers": SERVERS, "port": 0}, "from 1 to 65535"),
    ],
)
def test_wrong_settings_are_refused_in_words(options, reason):
    with pytest.raises(HallError, match=reason):
        Proxy(**options)


@needs_haproxy
@pytest.mark.parametrize("https", [False, True])
@pytest.mark.parametrize("by_name", [False, True])
def test_haproxy_accepts_the_configuration(tmp_path, https, by_name):
    config, certificate = tmp_path / "haproxy.cfg", None
    if https:
        certificate = a_certificate(tmp_path)
    proxy = Proxy(SERVERS, 8501, certificate, tmp_path / "admin.sock", "talk", by_name=by_name)
    config.write_text(render(proxy), "utf-8")
    process = subprocess.run(["haproxy", "-c", "-f", config], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert "warning" not in process.stderr.lower(), process.stderr


def a_certificate(folder: Path) -> Path:
    """Returns a PEM file with a certificate for localhost that nobody trusts."""
    if not shutil.which("openssl"):
        pytest.skip("no openssl here, which makes the certificate")
    key, certificate, both = folder / "key.pem", folder / "certificate.pem", folder / "both.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*make, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    both.write_text(certificate.read_text() + key.read_text())
    return both


def test_the_file_for_containers_is_what_the_program_prints(capsys):
    assert main(["4", "--print"]) == 0
    assert capsys.readouterr().out == (ROOT / "deploy" / "haproxy.cfg").read_text("utf-8")
